"""The last step of an epoch: equally large on all hosts, and what of it no host reads."""

from __future__ import annotations

import numpy as np
import pytest

import readers
from tests.readers import encodings
from tests.support.arrays import as_lists, nested
from tests.support.datasets import SIGNALS, signals, write_dataset, write_numbers

# Hosts that read parts of their own have 10, 11 and 11 records.
RECORDS, HOSTS = 32, 3


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    return str(write_numbers(tmp_path_factory.mktemp("numbers"), (5, 4, 7, 4, 12)))


def leaves(value):
    """The numbers and texts in nested lists."""
    return [leaf for item in value for leaf in leaves(item)] if isinstance(value, list) else [value]


@pytest.mark.slow(base=["how0"])
@pytest.mark.parametrize("how", [{"batching": "padded", "mask": True}, {"batching": "ragged"}])
def test_rows_of_every_encoding_are_padded(tmp_path, how):
    path, _ = encodings.write(tmp_path)
    count = len(readers.RecordSource(path))
    how = {"batch_size": count + 2, **how}
    (batch,) = readers.as_numpy(path, **how, remainder="pad")
    assert batch["batch_mask"].tolist() == [True] * count + [False] * 2
    (short,) = readers.as_numpy(path, **how)
    for name, value in short.items():
        assert nested(batch[name][:count]) == nested(value), name
        assert not any(leaves(nested(batch[name][count:]))), name
    ds = readers.load(path, **how, remainder="pad", order="interleave")
    assert as_lists(ds) == as_lists([batch])
    for name, spec in ds.element_spec.items():
        assert spec.shape[0] == count + 2, name


@pytest.mark.slow
def test_a_row_of_padding_has_the_key_0_in_both_orders(dataset):
    how = {"batch_size": 5, "remainder": "pad", "split": "train"}
    keys = [
        leaves(as_lists(readers.load(dataset, **how, order=order, transform=lambda _, k: {"k": k})))
        for order in ("global", "interleave")
    ]
    assert keys[0] == keys[1]
    assert [key for batch in keys[0] for key in batch["k"]][RECORDS:] == [0, 0, 0]


def test_a_host_without_any_record_has_batches_of_padding(dataset):
    how = {"split": "train[:1]", "batch_size": 2, "remainder": "pad"}
    for read, order in ((readers.as_numpy, "global"), (readers.load, "interleave")):
        batches = [next(iter(read(dataset, **how, order=order, shard=(n, 3)))) for n in range(3)]
        # The last of three parts of one record holds it.
        holds = [n == (0 if order == "global" else 2) for n in range(3)]
        assert [np.asarray(b["batch_mask"]).tolist() for b in batches] == [
            [h, False] for h in holds
        ]
        names = [[b"record 0" if h else b"", b""] for h in holds]
        assert [np.asarray(b["name"]).tolist() for b in batches] == names


LENGTHS = [3, 0, 5, 1, 2, 9, 4, 8, 7, 9, 6]


@pytest.fixture(scope="module")
def lengths(tmp_path_factory):
    directory = tmp_path_factory.mktemp("lengths")
    return str(write_dataset(directory, SIGNALS, {"train": [signals(LENGTHS)]}))


def test_a_mask_can_be_the_weights_of_the_records(dataset):
    how = {"split": "train[:29]", "batch_size": 8, "remainder": "pad"}
    names = ("vector", "id", "batch_mask")
    for order in ("global", "interleave"):
        ds = readers.load(dataset, **how, order=order, as_supervised=names)
        assert [spec.shape[0] for spec in ds.element_spec] == [8, 8, 8]
        assert [int(mask.numpy().sum()) for _, _, mask in ds] == [8, 8, 8, 5]


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"remainder": "keep"}, "remainder='keep': expected one of short, drop, pad, or None"),
        ({"remainder": "pad", "drop_remainder": True}, "means remainder='drop', not 'pad'"),
        ({"as_supervised": ("id", "batch_mask")}, "unknown feature 'batch_mask'"),
    ],
)
def test_arguments_that_contradict_each_other_are_refused(dataset, how, message):
    with pytest.raises(ValueError, match=message):
        readers.as_numpy(dataset, batch_size=2, **how)


def test_a_mask_of_rows_never_replaces_a_feature(tmp_path):
    schema = readers.Schema({"batch_mask": ("int64", ())})
    path = write_dataset(tmp_path, schema, {"train": [[{"batch_mask": 1}]]})
    with pytest.raises(ValueError, match="would replace the feature 'batch_mask'"):
        readers.as_numpy(path, batch_size=2, remainder="pad")


def test_the_mask_of_rows_does_not_stand_for_the_mask_of_a_feature(lengths):
    how = {"batching": "padded", "mask": True, "batch_size": 2, "remainder": "pad"}
    with pytest.raises(ValueError, match="mask=True adds signal_mask, which as_supervised leaves"):
        readers.as_numpy(lengths, **how, as_supervised=("signal", "batch_mask"))


def test_padded_rows_have_the_fixed_length_of_all_rows(lengths):
    how = {"batching": "padded", "max_length": 9, "pad_to": "max_length", "batch_size": 4}
    batches = list(readers.as_numpy(lengths, **how, remainder="pad"))
    assert {batch["signal"].shape for batch in batches} == {(4, 9, 2)}
    ds = readers.load(lengths, **how, remainder="pad", order="interleave")
    assert ds.element_spec["signal"].shape == (4, 9, 2)
    assert as_lists(ds) == as_lists(batches)
