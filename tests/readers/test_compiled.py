"""Batches, errors and skipped records are the same by the compiled kernel and by the decoder of single records."""

from __future__ import annotations

import numpy as np
import pytest

import readers
from readers.format.compiled.columns import CompiledDecoder
from readers.format.compiled.library import RefusedRecords
from tests.support.datasets import index_of, write_dataset
from tests.support.images import encoded

SCHEMA = readers.Schema(
    {
        "label": ("int64", (), "list"),
        "vector": ("float32", (5,)),
        "signal": ("float32", (None, 2)),
        "tokens": ("int32", (None,), "list"),
        "icon": ("uint8", (2, None, 1), "png"),
        "key": ("string", ()),
        "masks": ("uint8", (None, None, None)),
    }
)


def record(number):
    rng = np.random.default_rng(number)
    return {
        "label": number - 20,
        "vector": rng.standard_normal(5).astype(np.float32),
        "signal": rng.standard_normal((1 + number % 7, 2)).astype(np.float32),
        "tokens": rng.integers(-9, 300, number % 5).astype(np.int32),
        "icon": encoded(rng.integers(0, 256, (2, 1 + number % 3)).astype(np.uint8), "PNG"),
        "key": f"key {number**3}",
        "masks": rng.integers(0, 2, (number % 4, 2, 1 + number % 3)).astype(np.uint8),
    }


def reversed_tokens(record, key):
    return {**record, "tokens": record["tokens"][::-1]}


@pytest.fixture
def dataset(tmp_path):
    counts = [13, 9, 11, 7]
    ends = np.cumsum([0, *counts]).tolist()
    shards = [[record(n) for n in range(ends[i], ends[i + 1])] for i in range(4)]
    return write_dataset(tmp_path, SCHEMA, {"train": shards})


@pytest.fixture
def asked(monkeypatch):
    """For each batch that the kernel was asked for, whether it could decode it."""
    answers, batches = [], CompiledDecoder.batches

    def ask(self, *arguments):
        answers.append(False)
        found = batches(self, *arguments)
        answers[-1] = True
        return found

    monkeypatch.setattr(CompiledDecoder, "batches", ask)
    return answers


def outcome(path, **options):
    """The bytes of all arrays of an epoch, and what it skipped; or the error."""
    batches = readers.as_numpy(path, **options)
    found = []
    try:
        for batch in batches:
            for name, array in sorted(batch.items()):
                if name == "key":
                    found.append(array.tolist())
                    continue
                rows = list(array) if array.dtype == object else [array]
                found += [(name, row.dtype, row.shape, row.tobytes()) for row in rows]
    except ValueError as error:
        where = (getattr(error, name, None) for name in ("file", "record", "offset"))
        return type(error), str(error), *where
    return found, batches.skipped


def by_definition(path, **options):
    """The outcome with a kernel that refuses all records."""

    def refuse(self, records, *arguments):
        raise RefusedRecords(np.zeros(len(records), bool))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CompiledDecoder, "batches", refuse)
        return outcome(path, **options)


@pytest.mark.parametrize(
    "options",
    [
        {"batching": readers.Padded(mask=True, lengths=True)},
        {"batching": readers.Padded(max_length={"signal": 3}, values={"tokens": -1})},
        {"batching": "ragged", "shuffle": readers.Order(False, by="interleave")},
        {"batching": readers.Ragged(max_length={"signal": 3, "tokens": 2})},
        {"columns": ["vector", "label"], "remainder": "pad"},
        {"batching": readers.Padded(max_length=2), "map": reversed_tokens},
        {
            "batching": "padded",
            "decoders": {"icon": readers.decoders.Resize(2, with_masks="masks")},
        },
    ],
    ids="-".join,
)
@pytest.mark.parametrize("shuffle", [False, True])
def test_batches_are_those_of_the_definition(dataset, asked, options, shuffle):
    how = {"batch_size": 3, "shuffle": shuffle, "repeat": 2, **options}
    found = outcome(dataset, **how)
    assert asked and all(asked)
    assert found == by_definition(dataset, **how)
    assert isinstance(found[0], list) and len(found[0]) > 50


@pytest.mark.parametrize("on_corrupt", ["raise", "skip"])
def test_damage_anywhere_has_the_same_error_or_is_skipped_alike(dataset, asked, on_corrupt):
    shard = dataset / "train-00001-of-00004.tfrecord"
    whole, index = shard.read_bytes(), index_of(shard)
    how = {"batch_size": 4, "batching": "padded", "shuffle": True, "on_corrupt": on_corrupt}
    begin, size = index[3].tolist()
    intact = outcome(dataset, **how)
    for place in range(begin, begin + size, 5):
        shard.write_bytes(whole[:place] + bytes([whole[place] ^ 16]) + whole[place + 1 :])
        found = outcome(dataset, **how)
        assert found == by_definition(dataset, **how)
        assert found != intact
        if on_corrupt == "raise":
            assert found[2:] == (str(shard), 3, begin)
        else:
            assert found[1] == 1
    assert not all(asked)


@pytest.mark.parametrize("how", [{}, {"buckets": {"tokens": [3]}}])
def test_a_fault_of_the_kernel_is_not_taken_for_a_bad_record(dataset, monkeypatch, how):
    batches = CompiledDecoder.batches

    def fail(self, records, sizes, bounds, rows, data=None):
        if len(bounds) > 2:
            raise ValueError("a fault of the kernel")
        return batches(self, records, sizes, bounds, rows, data)

    monkeypatch.setattr(CompiledDecoder, "batches", fail)
    with pytest.raises(ValueError, match="a fault of the kernel"):
        list(readers.as_numpy(dataset, 3, batching=readers.Padded(**how)))
