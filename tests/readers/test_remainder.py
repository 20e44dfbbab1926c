"""The last step of an epoch: equally large on all hosts, and what of it no host reads."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

import readers
from tests.readers import encodings
from tests.support.arrays import as_lists, nested
from tests.support.datasets import SIGNALS, signals, write_dataset, write_numbers

# Hosts that read parts of their own have 10, 11 and 11 records.
RECORDS, HOSTS = 32, 3
SIZES = {"short": 4, "drop": 4, "pad": 5}
ORDERS = [
    {"order": order, "shuffle": shuffle, "seed": 2, **({"shuffle_buffer": 7} if shuffle else {})}
    for order in ("interleave", "global")
    for shuffle in (False, True)
]
ways = pytest.mark.parametrize("way", ORDERS, ids=lambda w: f"{w['order']}-{w['shuffle']}")


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    return str(write_numbers(tmp_path_factory.mktemp("numbers"), (5, 4, 7, 4, 12)))


def mask_of(batch):
    """Which rows of a batch hold records, bool [B]."""
    return batch.get("batch_mask", np.ones(len(batch["id"]), bool))


@pytest.mark.parametrize("remainder", ["short", "drop", "pad"])
@ways
def test_all_hosts_have_equally_large_batches(dataset, way, remainder):
    size = SIZES[remainder]
    how = {"split": "train", "batch_size": size, "repeat": 6, "remainder": remainder, **way}
    hosts = [list(readers.as_numpy(dataset, **how, shard=(n, HOSTS))) for n in range(HOSTS)]
    sizes = []
    for step in zip(*hosts, strict=True):
        (found,) = {len(batch["id"]) for batch in step}
        sizes.append(found)
    epoch = {"short": [4, 4, 2], "drop": [4, 4], "pad": [5, 5, 5]}[remainder]
    assert sizes == 6 * epoch
    left_out = []
    for first in range(0, len(sizes), len(epoch)):
        batches = [batch for host in hosts for batch in host[first : first + len(epoch)]]
        read = [n for batch in batches for n in batch["id"][mask_of(batch)].tolist()]
        assert len(set(read)) == len(read)
        left_out.append(frozenset(range(RECORDS)) - {*read})
    count = {"short": RECORDS % HOSTS, "drop": RECORDS % (HOSTS * size), "pad": 0}[remainder]
    assert {len(missing) for missing in left_out} == {count}
    assert (len(set(left_out)) > 1) is bool(way["shuffle"] and count)


@pytest.mark.slow
@pytest.mark.parametrize("remainder", ["short", "drop", "pad"])
@ways
def test_both_readers_agree_from_any_step(dataset, way, remainder):
    """Of the first host, which has one record fewer where hosts read parts of their own."""
    size = SIZES[remainder]
    how = {"split": "train", "batch_size": size, "repeat": 2, "remainder": remainder, **way}
    how["shard"] = 0, HOSTS
    begun = readers.as_numpy(dataset, **how)
    whole, states = [], [begun.state()]
    for batch in begun:
        whole += as_lists([batch])
        states.append(begun.state())
    ds = readers.load(dataset, **how)
    assert len(ds) == len(whole)
    assert as_lists(ds) == whole
    for done, state in enumerate(states):
        assert as_lists(readers.as_numpy(dataset, **how, state=state)) == whole[done:]
    last = len(whole) // 2 - 1  # The last step of an epoch.
    assert as_lists(readers.load(dataset, **how, state=states[last])) == whole[last:]


def leaves(value):
    """The numbers and texts in nested lists."""
    return [leaf for item in value for leaf in leaves(item)] if isinstance(value, list) else [value]


@pytest.mark.slow(base=["global-how0"])
@pytest.mark.parametrize("how", [{"batching": "padded", "mask": True}, {"batching": "ragged"}])
@pytest.mark.parametrize("order", ["global", "interleave"])
def test_rows_of_every_encoding_are_padded(tmp_path, how, order):
    path, _ = encodings.write(tmp_path)
    count = len(readers.RecordSource(path))
    how = {"batch_size": count + 2, **how}
    (batch,) = readers.as_numpy(path, **how, remainder="pad")
    assert batch["batch_mask"].tolist() == [True] * count + [False] * 2
    (short,) = readers.as_numpy(path, **how)
    for name, value in short.items():
        assert nested(batch[name][:count]) == nested(value), name
        assert not any(leaves(nested(batch[name][count:]))), name
    ds = readers.load(path, **how, remainder="pad", order=order)
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
BY_LENGTH = {
    "buckets": {"batching": "padded", "bucket_boundaries": [6], "batch_size": 2, "shuffle": True},
    "packed": {
        "batching": "packed",
        "columns": ["signal"],
        "max_length": 10,
        "batch_size": 2,
        "shuffle": True,
    },
}


@pytest.fixture(scope="module")
def lengths(tmp_path_factory):
    directory = tmp_path_factory.mktemp("lengths")
    return str(write_dataset(directory, SIGNALS, {"train": [signals(LENGTHS)]}))


@pytest.mark.parametrize("kind", BY_LENGTH)
@pytest.mark.parametrize("remainder", ["short", "pad"])
def test_the_rest_of_each_bucket_and_of_packed_rows_is_shared(lengths, kind, remainder):
    how = {**BY_LENGTH[kind], "repeat": 3, "remainder": remainder}
    hosts = [list(readers.as_numpy(lengths, **how, shard=(n, HOSTS))) for n in range(HOSTS)]
    rows = 0
    for step in zip(*hosts, strict=True):
        counts = {len(batch["signal"]) for batch in step}
        assert len(counts) == 1 and 0 not in counts
        for batch in step:
            rows += len(batch["signal"])
            if remainder == "pad":
                assert len(batch["signal"]) == 2 == len(batch["batch_mask"])
                assert not batch["signal"][~batch["batch_mask"]].any()
    values = sorted(v for h in hosts for b in h for v in b["signal"][b["signal"] > 0].tolist())
    expected = sorted(3 * [v for r in signals(LENGTHS) for v in r["signal"].reshape(-1).tolist()])
    if remainder == "pad":
        assert values == expected
    elif kind == "buckets":  # Each of the two loses at most two rows an epoch.
        assert 3 * (len(LENGTHS) - 4) <= rows < 3 * len(LENGTHS)
    (ds, host) = readers.load(lengths, **how, shard=(2, HOSTS)), hosts[2]
    assert as_lists(ds) == as_lists(host)
    if remainder == "pad":
        assert ds.element_spec["batch_mask"] == tf.TensorSpec([2], tf.bool)
        assert ds.element_spec["signal"].shape[0] == 2


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
    for read in (readers.load, readers.as_numpy):
        with pytest.raises(ValueError, match=message):
            read(dataset, batch_size=2, **how)


def test_a_mask_of_rows_never_replaces_a_feature(tmp_path):
    schema = readers.Schema({"batch_mask": ("int64", ())})
    path = write_dataset(tmp_path, schema, {"train": [[{"batch_mask": 1}]]})
    for read in (readers.load, readers.as_numpy):
        with pytest.raises(ValueError, match="would replace the feature 'batch_mask'"):
            read(path, batch_size=2, remainder="pad")


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
