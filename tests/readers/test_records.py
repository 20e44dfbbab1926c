"""`decoders=`, `map=` and `readers.Map`: the same records in every way of reading."""

import pickle

import numpy as np
import pytest
import tensorflow as tf

import readers
from readers import decoders
from readers.format.schema import Schema
from tests.support.arrays import as_lists
from tests.support.datasets import damage, write_dataset, write_signals
from tests.support.images import encoded

COUNT = 37
ALONE = decoders.RandomResizedCrop(16, flip=True)
CROP = decoders.RandomResizedCrop(16, flip=True, with_boxes="boxes", with_masks="mask")
SCHEMA = Schema(
    {
        "image": ("uint8", (None, None, 3), "source"),
        "mask": ("uint8", (None, None, 1), "png"),
        "boxes": ("float32", (None, 4)),
        "tokens": ("int64", (None,)),
        "name": ("string", ()),
    }
)


def photo(number):
    rng = np.random.default_rng(number)
    height, width = rng.integers(20, 60, 2)
    pixels = rng.integers(0, 256, (height, width, 3), np.uint8)
    return {
        "image": encoded(pixels, ("JPEG", "PNG")[number % 2]),
        "mask": encoded(pixels[..., 0] // 86, "PNG"),
        "boxes": rng.random((number % 4, 4), np.float32),
        "tokens": np.arange(number % 9),
        "name": f"{number}",
    }


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    records = [photo(number) for number in range(COUNT)]
    shards = [records[:13], records[13:20], records[20:]]
    return write_dataset(tmp_path_factory.mktemp("photos"), SCHEMA, {"train": shards})


def rows(batches):
    """Every record of the batches: name -> feature -> value, nested lists."""
    found = {}
    for batch in as_lists(batches):
        for row, name in enumerate(batch["name"]):
            if name:
                found[name] = {feature: values[row] for feature, values in batch.items()}
    return found


def halved(record, key):
    return {"name": record["name"], "drawn": key % 1000, "pixels": record["image"][:2] // 2}


def repeated(record, key):
    tokens = np.repeat(record["tokens"], 2) + key % 3
    return {"name": record["name"], "tokens": tokens, "more": np.ones(key % 4, np.float32)}


REPEATED = {"name": ("string",), "tokens": ("int64", [None]), "more": ("float32", [None])}
READING = {
    "one size": {"columns": ["image", "name"], "decoders": {"image": ALONE}},
    "boxes and masks": {"batching": readers.Padded(mask=True), "decoders": {"image": CROP}},
    "ragged": {"batching": "ragged", "decoders": {"mask": decoders.Resize((4, 5))}},
    "padded rows": {"batching": "padded", "remainder": "pad", "decoders": {"image": CROP}},
    "buckets": {
        "batching": readers.Padded(max_length={"tokens": 7}, buckets={"tokens": [3, 6]}),
        "decoders": {"image": CROP},
    },
    "bytes": {
        "batching": "padded",
        "decoders": {"image": decoders.Skip()},
    },
    "a map": {
        "columns": ["image", "name"],
        "decoders": {"image": decoders.Resize(8)},
        "map": halved,
    },
    "a map to arrays of several lengths": {
        "columns": ["tokens", "name"],
        "batching": readers.Padded(max_length=9, mask=True, lengths=True),
        "map": readers.Map(repeated, REPEATED),
    },
    "a map to ragged arrays": {
        "batching": "ragged",
        "remainder": "pad",
        "map": readers.Map(repeated, REPEATED),
    },
    "a map of buckets": {
        "columns": ["tokens", "name"],
        "batching": readers.Padded(max_length=6, buckets=[3, 6]),
        "map": readers.Map(repeated, REPEATED),
    },
}


def arguments(reading):
    return {"batch_size": 5, "shuffle": True, "seed": 3, **reading}


BASE = ("boxes and masks", "padded rows", "a map to arrays of several lengths", "a map of buckets")


@pytest.mark.slow(base=[f"{name}-global" for name in BASE])
@pytest.mark.parametrize("order", ["global", "interleave"])
@pytest.mark.parametrize("name", READING)
def test_load_and_as_numpy_give_the_same_batches(photos, name, order):
    reading = READING[name]
    shuffle = {"shuffle": readers.Order(by=order)}
    arrays = readers.as_numpy(photos, **arguments(reading) | shuffle)
    tensors = readers.load(photos, **arguments(reading) | shuffle)
    assert as_lists(arrays) == as_lists(tensors)
    # And so in the next epoch, which draws anew.
    second = as_lists(arrays)
    assert second and second == as_lists(tensors)


@pytest.mark.parametrize("name", ["one size", "a map of buckets"])
def test_a_resumed_run_and_several_hosts_decode_the_same_records(photos, name):
    reading = {**arguments(READING[name]), "repeat": 2, "remainder": "pad"}
    expected = as_lists(readers.as_numpy(photos, **reading))
    batches = readers.as_numpy(photos, **reading)
    for _ in range(4):
        next(batches)
    again = readers.as_numpy(photos, **reading, state=batches.state())
    assert as_lists(again) == expected[4:]
    once = {**reading, "repeat": 1}
    alone = rows(readers.as_numpy(photos, **{**once, "batch_size": 6}))
    shared = {}
    for host in range(3):
        shared |= rows(readers.as_numpy(photos, **{**once, "batch_size": 2}, shard=(host, 3)))
    # A batch is padded to its longest record.
    fixed = [n for n in next(iter(alone.values())) if n in ("image", "drawn", "pixels", "name")]
    assert alone.keys() == shared.keys() and len(alone) == COUNT
    for record in alone:
        assert all(alone[record][n] == shared[record][n] for n in fixed)


def test_threads_and_pickled_readers_change_nothing(photos):
    reading = arguments(READING["one size"])
    batches = readers.as_numpy(photos, **reading)
    assert as_lists(pickle.loads(pickle.dumps(batches))) == (expected := as_lists(batches))
    assert as_lists(readers.as_numpy(photos, **reading, prefetch=3)) == expected


def test_record_sources_decode_by_number_and_epoch(photos):
    source = readers.RecordSource(photos, decoders={"image": CROP}, seed=4)
    assert source.schema["image"].shape == (16, 16, 3)
    first = source[5]
    assert first["image"].shape == (16, 16, 3) and first["mask"].shape == (16, 16, 1)
    for other in (source.__getitems__([9, 5])[1], pickle.loads(pickle.dumps(source))[5]):
        assert all(np.array_equal(other[name], first[name]) for name in first)
    source.set_epoch(1)
    assert not np.array_equal(source[5]["image"], first["image"])
    source.set_epoch(0)
    assert np.array_equal(source[5]["image"], first["image"])


def test_a_record_in_place_of_a_damaged_one_is_decoded_with_the_key_of_its_row(photos, tmp_path):
    for path in photos.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    damage(tmp_path / "train-00000-of-00003.tfrecord", 2, 7)
    reading = {**arguments(READING["one size"]), "shuffle": readers.Order(by="global")}
    good = as_lists(readers.as_numpy(photos, **reading))
    batches = readers.as_numpy(tmp_path, **reading, on_corrupt="skip")
    found = as_lists(batches)
    assert batches.skipped == 2
    pairs = [
        (g, f)
        for good_batch, batch in zip(good, found, strict=True)
        for g, f in zip(_records(good_batch), _records(batch), strict=True)
    ]
    assert sum(g != f for g, f in pairs) == 2
    with pytest.raises(readers.CorruptRecordError):
        list(readers.as_numpy(tmp_path, **reading))


def _records(batch):
    return zip(*batch.values(), strict=True)


# Errors.


@pytest.mark.parametrize(
    ("reading", "message"),
    [
        (
            {"decoders": {"pixels": CROP}},
            "decoders: 'pixels' is not among the features that are read",
        ),
        (
            {"decoders": {"image": 224}},
            "decoders={'image': 224}: expected decoders by feature name",
        ),
        ({"map": 3}, r"map=3: expected a function of \(record, key\)"),
        ({"decoders": {"tokens": CROP}}, "decoders: 'tokens' is int64"),
        (
            {"decoders": {"image": decoders.Resize(8, with_boxes="corners")}},
            "decoders: 'corners', to move with an image, is not among the features",
        ),
        (
            {"decoders": {"image": decoders.Resize(8, with_boxes="tokens")}},
            r"with_boxes='tokens' is int64 \[None\], tensor; expected float32",
        ),
        (
            {"decoders": {"image": CROP, "mask": decoders.Resize(8)}},
            "two decoders make the feature 'mask'",
        ),
        (
            {"columns": ["tokens"], "batching": readers.Packed(9), "map": dict},
            "map= may change the lengths that readers.Packed plans rows by",
        ),
        (
            {
                "columns": ["tokens"],
                "batching": readers.Padded(max_length=9, to="max_length", buckets=[3]),
                "map": dict,
            },
            "map= may change the lengths of records after their bucket is chosen",
        ),
        ({"map": lambda record, key: 3}, "map returned"),
    ],
)
def test_wrong_arguments_are_refused_before_reading(photos, reading, message):
    if reading.get("map") is dict:
        reading = {**reading, "map": lambda record, key: record}
    with pytest.raises(ValueError, match=message):
        readers.as_numpy(photos, **{"batch_size": 4, **reading})


@pytest.mark.parametrize("raised", [ZeroDivisionError(), SystemExit(8)])
def test_errors_of_a_map_name_the_record(photos, raised):
    def fails(record, key):
        if len(record["tokens"]) == 8:
            raise raised
        return {"a": 1}

    batches = readers.as_numpy(
        photos, batch_size=4, columns=["tokens"], batching="ragged", map=fails
    )
    message = f"record 8 at byte .* map raised {type(raised).__name__}"
    with pytest.raises(ValueError, match=message) as error:
        list(batches)
    assert error.value.__cause__ is raised


def test_a_map_is_given_no_record_of_a_later_batch(photos):
    given = []

    def function(record, key):
        given.append(key)
        return record

    batches = readers.as_numpy(photos, batch_size=2, columns=["name"], map=function)
    given.clear()  # The first record says which features there are.
    for number in range(1, 10):
        next(batches)
        assert len(given) == 2 * number


@pytest.mark.parametrize(
    ("function", "schema", "message"),
    [
        (
            lambda r, k: {"t": r["tokens"]},
            None,
            r"expected int64 \[0\], got int64 \[1\]; .* readers.Map",
        ),
        (lambda r, k: {"b": 1}, {"a": ("int64",)}, "map returned b; expected a dict of a"),
        (
            lambda r, k: {"a": 1.5},
            {"a": ("int64",)},
            r"does not fit: expected int64 \[\], got '1.5'",
        ),
        (lambda r, k: {"a": 300}, {"a": ("int8",)}, r"does not fit: expected int8 \[\], got '300'"),
        (
            lambda r, k: {"a": [[1], [1, 2]]},
            {"a": ("int64", [None])},
            r"feature 'a': map returned .* expected int64 \[None\]",
        ),
        (lambda r, k: {"a": 5}, {"a": ("int64", [None], "sequence")}, "expected a list of arrays"),
        (
            lambda r, k: {"a": 1},
            {"a": ("string",)},
            "does not fit: expected text or bytes, got int",
        ),
        (lambda r, k: [1], None, "map returned list; expected a dict"),
    ],
)
def test_a_map_returns_what_is_stated(tmp_path, function, schema, message):
    directory = write_dataset(
        tmp_path,
        Schema({"tokens": ("int64", (None,))}),
        {"train": [[{"tokens": np.arange(n)} for n in range(9)]]},
    )
    with pytest.raises(ValueError, match=message):
        list(
            readers.as_numpy(
                directory, batch_size=4, batching="ragged", map=readers.Map(function, schema)
            )
        )


@pytest.mark.parametrize("schema", [None, {"tokens": ("int64", [None])}, {"tokens": ("string",)}])
def test_a_map_of_tensors_is_refused_with_its_cure(photos, schema):
    mapped = readers.Map(lambda record, key: {"tokens": tf.constant(record["tokens"])}, schema)

    def read():
        how = {"batching": "padded", "columns": ["tokens"], "map": mapped}
        return next(iter(readers.load(photos, 4, **how)))

    line = "feature 'tokens': map returned a TensorFlow tensor, expected a NumPy array; pass a function"
    for run in (read, tf.function(read, autograph=False)):
        with pytest.raises(ValueError if schema is None else tf.errors.OpError) as error:
            run()
        assert line in str(error.value) and "as transform=" in str(error.value)
        assert schema is None or "record 0 at byte 0: " in str(error.value)


def test_functions_of_tensors_are_mapped_over_batches_or_records(photos):
    """As docs/read/augmentation.md says."""

    def doubled(record):
        return {**record, "tokens": tf.repeat(record["tokens"], 2)}

    how = {"columns": ["name", "tokens"], "batching": "ragged"}
    ds = readers.load(photos, 5, **how)
    ds = ds.unbatch().map(doubled, num_parallel_calls=tf.data.AUTOTUNE).ragged_batch(5)
    expected = readers.as_numpy(
        photos,
        5,
        **how,
        map=lambda record, key: {**record, "tokens": np.repeat(record["tokens"], 2)},
    )
    assert as_lists(ds) == as_lists(expected)


def test_a_map_may_return_numbers_of_python_that_fit(tmp_path):
    directory = write_signals(tmp_path)
    schema = {"a": ("uint8",), "b": ("uint64",), "c": ("float32",), "d": ("int64", [None])}

    def function(record, key):
        return {"a": 255, "b": 2**63, "c": 1.5, "d": [record["label"]] * (record["label"] % 2)}

    mapped = readers.Map(function, schema)
    (batch,) = readers.as_numpy(directory, batch_size=5, batching="ragged", map=mapped)
    assert [value.tolist() for value in batch["d"]] == [[], [1], [], [3], []]
    assert batch["a"].tolist() == [255] * 5 and batch["b"].tolist() == [2**63] * 5


def test_tuples_read_the_images_that_move_their_boxes(photos):
    reading = {"batch_size": 5, "batching": "padded", "as_supervised": ("boxes", "name")}
    boxes, names = next(readers.as_numpy(photos, **reading, decoders={"image": CROP}))
    whole = next(
        readers.as_numpy(photos, batch_size=5, batching="padded", decoders={"image": CROP})
    )
    np.testing.assert_array_equal(boxes, whole["boxes"])
    assert names.tolist() == whole["name"].tolist()


def test_a_map_of_an_empty_dataset_is_not_called(tmp_path):
    write_dataset(tmp_path, Schema({"a": ("int64",)}), {"train": [[]]})
    assert list(readers.as_numpy(tmp_path, batch_size=2, map=lambda record, key: 1 / 0)) == []
