"""The last step of an epoch: equally large on all hosts, and what of it no host reads."""

from __future__ import annotations

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
@pytest.mark.parametrize("how", [{"batching": readers.Padded(mask=True)}, {"batching": "ragged"}])
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
    ds = readers.load(path, **how, remainder="pad")
    assert as_lists(ds) == as_lists([batch])
    for name, spec in ds.element_spec.items():
        assert spec.shape[0] == count + 2, name


LENGTHS = [3, 0, 5, 1, 2, 9, 4, 8, 7, 9, 6]


@pytest.fixture(scope="module")
def lengths(tmp_path_factory):
    directory = tmp_path_factory.mktemp("lengths")
    return str(write_dataset(directory, SIGNALS, {"train": [signals(LENGTHS)]}))


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"remainder": "keep"}, "remainder='keep': expected one of short, drop, pad"),
        ({"as_supervised": ("id", "batch_mask")}, "unknown feature 'batch_mask'"),
    ],
)
def test_arguments_that_contradict_each_other_are_refused(dataset, how, message):
    with pytest.raises(ValueError, match=message):
        readers.as_numpy(dataset, batch_size=2, **how)


def test_a_mask_of_rows_never_replaces_a_feature(tmp_path):
    schema = readers.Schema({"batch_mask": ("int64", ())})
    path = write_dataset(tmp_path, schema, {"train": [[{"batch_mask": 1}]]})
    with pytest.raises(ValueError, match="adds an array named 'batch_mask'"):
        readers.as_numpy(path, batch_size=2, remainder="pad")


def test_the_mask_of_rows_does_not_stand_for_the_mask_of_a_feature(lengths):
    how = {"batching": readers.Padded(mask=True), "batch_size": 2, "remainder": "pad"}
    with pytest.raises(
        ValueError, match=r"Padded\(mask=True\) adds signal_mask, which as_supervised leaves"
    ):
        readers.as_numpy(lengths, **how, as_supervised=("signal", "batch_mask"))
