"""Buckets and packed rows: the records of each batch, on every host, from any step on."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

import readers
from readers.batches.by_length import lengths
from readers.batches.by_length.grouping import Buckets, Packing
from readers.format.decode.image_columns import image_column
from readers.format.schema import Schema
from readers.shards import decoding
from readers.shards.framed import FramedReader
from tests.support.arrays import as_lists
from tests.support.datasets import damage, write_dataset
from tests.support.images import encoded

SCHEMA = Schema(
    {
        "tokens": ("int64", (None,), "list"),
        "tags": ("int32", (None, 2)),
        "label": ("int64", ()),
        "key": ("string", ()),
    }
)
RECORDS = 400


def records():
    rng = np.random.default_rng(1)
    return [
        {
            "tokens": np.full(n, label + 1),
            "tags": np.full((n, 2), label + 1, np.int32),
            "label": label,
            "key": f"k{label}",
        }
        for label, n in enumerate(rng.integers(0, 30, RECORDS).tolist())
    ]


LENGTHS = [len(record["tokens"]) for record in records()]


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    found = records()
    shards = [found[:90], found[90:220], [], found[220:]]
    return str(write_dataset(tmp_path_factory.mktemp("d"), SCHEMA, {"train": shards}))


BUCKETS = {
    "batching": readers.Padded(buckets={"tokens": [5, 12]}),
    "batch_size": [16, 8, 4],
    "columns": ["label", "tokens"],
}


RAGGED = {
    "batching": readers.Ragged(buckets=[10, 20]),
    "batch_size": 8,
    "columns": ["label", "tokens"],
}
PACKED = {"batching": readers.Packed(40), "batch_size": 4, "columns": ["tokens", "tags"]}
ways = pytest.mark.parametrize(
    "way", [BUCKETS, RAGGED, PACKED], ids=["buckets", "ragged", "packed"]
)


def labels(batch):
    """The labels of all records of a batch, found from their tokens."""
    tokens = batch["tokens"]
    if "label" in batch:
        return batch["label"].tolist()
    segments = batch["tokens_segment_ids"]
    return [
        int(tokens[row][segments[row] == segment][0]) - 1
        for row in range(len(tokens))
        for segment in range(1, int(segments[row].max()) + 1)
        if (segments[row] == segment).any()
    ]


@pytest.mark.slow(base=["packed"])
@ways
def test_each_new_pass_reads_the_next_epochs(dataset, way):
    epochs = as_lists(readers.as_numpy(dataset, **way, shuffle=True, repeat=3))
    ds = readers.load(dataset, **way, shuffle=True)
    assert as_lists(ds) + as_lists(ds) + as_lists(ds) == epochs
    endless = readers.load(dataset, **way, shuffle=True, repeat=None)
    assert endless.cardinality() == tf.data.INFINITE_CARDINALITY
    assert as_lists(endless.take(len(epochs))) == epochs
    same = readers.load(dataset, **way, shuffle=readers.Order(each_pass=False))
    next(iter(same))
    first = as_lists(same)
    assert first == as_lists(same) == epochs[: len(first)]


def test_features_that_are_packed_together_lie_side_by_side(dataset):
    """`tests/readers/test_model.py` says where the tokens lie."""
    how = {**PACKED, "batching": readers.Packed(40, values=-1)}
    for batch in readers.as_numpy(dataset, **how, shuffle=True):
        tokens, segments = batch["tokens"], batch["tokens_segment_ids"]
        assert segments.dtype == batch["tokens_positions"].dtype == np.int32
        np.testing.assert_array_equal(tokens == -1, segments == 0)
        np.testing.assert_array_equal(batch["tags"], np.stack([tokens] * 2, axis=2))
        for name in ("segment_ids", "positions"):
            np.testing.assert_array_equal(batch[f"tags_{name}"], batch[f"tokens_{name}"])


def test_packed_rows_have_static_shapes(dataset):
    spec = readers.load(dataset, **PACKED, remainder="drop").element_spec
    assert spec["tags"] == tf.TensorSpec([4, 40, 2], tf.int32)
    assert spec["tokens_segment_ids"] == tf.TensorSpec([4, 40], tf.int32)
    batches = list(readers.load(dataset, **PACKED, remainder="drop"))
    assert len(batches) > 1
    assert {tuple(batch["tokens"].shape) for batch in batches} == {(4, 40)}


@ways
def test_a_damaged_record_is_replaced_by_one_that_fits_or_reported(dataset, way, tmp_path):
    found = records()
    path = write_dataset(tmp_path, SCHEMA, {"train": [found[:300], found[300:]]})
    (offset,) = damage(path / "train-00000-of-00002.tfrecord", 17)
    seen = []
    for batch in readers.as_numpy(path, **way, on_corrupt="skip"):
        seen += labels(batch)
    if way is PACKED:
        fits = [n for n in range(18, RECORDS) if LENGTHS[n] <= LENGTHS[17]]
    else:
        edges = [10, 20] if way is RAGGED else [5, 12]
        bucket = np.digitize(LENGTHS, edges)
        fits = [n for n in range(18, RECORDS) if bucket[n] == bucket[17]]
    expected = [fits[0] if n == 17 else n for n in range(RECORDS)]
    assert sorted(seen) == sorted(n for n in expected if LENGTHS[n] or way is not PACKED)
    for read in (readers.load, readers.as_numpy):
        with pytest.raises((ValueError, tf.errors.InvalidArgumentError), match=f"byte {offset}"):
            list(read(path, **way))


@given(
    st.lists(st.integers(0, 30), max_size=200),
    st.lists(st.integers(0, 200), max_size=5),
    st.booleans(),
)
def test_batches_do_not_depend_on_how_many_records_are_added_at_a_time(lengths, cuts, packed):
    grouping = Packing({"x": 30}, 3) if packed else Buckets("x", [5, 20], [2, 4, 1])

    def grouped(parts):
        chunks = ((part, np.array(lengths, np.int64)[part, None]) for part in parts)
        return grouping.groups(chunks, len(lengths), False)

    places = np.arange(len(lengths))
    alone, together = (
        [
            (group.places.tolist(), group.bucket, group.rows is not None and group.rows.tolist())
            + (end, held.tolist())
            for group, end, held in grouped(parts)
        ]
        for parts in (np.split(places, places[1:]), np.split(places, sorted(cuts)))
    )
    assert alone == together


@ways
def test_the_number_of_batches_is_known_before_any_is_read(dataset, way, monkeypatch):
    for how in ({"shuffle": True}, {"shard": (1, 3), "remainder": "drop"}, {"repeat": 2}):
        batches = readers.as_numpy(dataset, **{**way, "batch_size": 3}, **how)
        for _ in range(2):
            expected = len(batches)
            assert sum(1 for _ in batches) == expected
            iter(batches)
    with pytest.raises(TypeError, match="the batches never end"):
        len(readers.as_numpy(dataset, **way, repeat=None))
    monkeypatch.setattr(FramedReader, "read", None)
    monkeypatch.setattr(FramedReader, "mapped", None)
    assert len(readers.as_numpy(dataset, **way, state=5)) > 5


@ways
def test_lengths_of_files_without_them_are_found_once(dataset, way, tmp_path, monkeypatch):
    files = []
    for path in sorted(Path(dataset).glob("*.tfrecord")):
        files.append(tmp_path / path.name)
        files[-1].write_bytes(path.read_bytes())
    expected = as_lists(readers.as_numpy(dataset, **way, shuffle=True))
    decodings, decode = [], lengths._index_of

    def counted(*arguments):
        decodings.append(arguments)
        return decode(*arguments)

    monkeypatch.setattr(lengths, "_index_of", counted)
    for _ in range(2):
        found = readers.as_numpy(files, schema=SCHEMA, **way, shuffle=True)
        assert as_lists(found) == expected
    assert len(decodings) == 3  # One file has no records.


PHOTOS = Schema({"tokens": ("int64", (None,), "list"), "photo": ("uint8", (1, 1, 3), "png")})


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """The tokens and the photo of a record count up with its number."""
    found = [
        {"tokens": np.arange(n), "photo": encoded(np.full((1, 1, 3), i % 256, np.uint8), "PNG")}
        for i, n in enumerate(LENGTHS)
    ]
    shards = [found[:150], found[150:]]
    return str(write_dataset(tmp_path_factory.mktemp("photos"), PHOTOS, {"train": shards}))


@pytest.fixture
def decoded(monkeypatch):
    """The photos that were decoded."""
    found = []

    def counted(name, feature, encoded, *more):
        found.extend(encoded)
        return image_column(name, feature, encoded, *more)

    monkeypatch.setattr(decoding, "image_column", counted)
    return found


def read_photos(path, **how):
    options = {"batching": readers.Padded(buckets=[5, 12]), "batch_size": [4, 2, 1]}
    return readers.as_numpy(path, **options, shuffle=True, **how)


@pytest.mark.parametrize("remainder", ["short", "drop", "pad"])
def test_a_host_decodes_its_own_records_alone(photos, decoded, remainder):
    for host in range(4):
        decoded.clear()
        batches = list(read_photos(photos, shard=(host, 4), remainder=remainder))
        rows = sum(int(np.sum(batch.get("batch_mask", len(batch["photo"])))) for batch in batches)
        assert len(decoded) == rows


def test_records_before_a_step_are_not_decoded(photos, decoded):
    for hosts in (1, 4):
        steps = len(list(read_photos(photos, shard=(0, hosts))))
        begun = read_photos(photos, shard=(0, hosts))
        for _ in range(steps - 2):
            next(begun)
        expected = begun.state(), as_lists(begun)
        decoded.clear()
        resumed = read_photos(photos, shard=(0, hosts), state=steps - 2)
        assert not decoded
        assert (resumed.state(), as_lists(resumed)) == expected
        assert len(decoded) <= 7


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({**BUCKETS, "batch_size": [1, 2]}, "or one for each of the 3 buckets"),
        ({**BUCKETS, "batch_size": [1, 2, 0]}, "expected a number of at least 1, or one for"),
        (
            {**BUCKETS, "batching": readers.Padded(buckets={"label": [5, 12]})},
            r"'label': .*expected one feature with a length, as .*; the features with a length are tokens$",
        ),
        (
            {**BUCKETS, "batching": readers.Ragged(buckets=[5, 12]), "columns": ["tokens", "tags"]},
            "expected one feature with a length, as .*; the features with a length are tags, tokens$",
        ),
        ({**PACKED, "batching": readers.Packed()}, "'tags', int32 .* has no max_length"),
        ({**PACKED, "columns": None}, "'key', .* does not have an unknown first dimension; leave"),
        ({**PACKED, "batch_size": [4, 5]}, r"batch_size=\[4, 5\]: expected a number"),
    ],
)
def test_invalid_arguments_are_rejected(dataset, how, message):
    with pytest.raises(ValueError, match=message):
        readers.as_numpy(dataset, **how)


def test_a_state_of_other_batches_is_rejected(dataset):
    begun = readers.as_numpy(dataset, **BUCKETS)
    next(begun)
    state = begun.state()
    assert json.loads(state.to_json())["held"] == list(state.held)
    with pytest.raises(ValueError, match="state is of records in order, in buckets of 'tokens'"):
        readers.load(dataset, **{**BUCKETS, "batch_size": 4}, state=state)
    with pytest.raises(ValueError, match="too few for one batch"):
        how = {**BUCKETS, "batch_size": 1000, "remainder": "drop"}
        list(readers.as_numpy(dataset, **how, repeat=None))
