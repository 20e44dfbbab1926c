"""What `schema=` and the statistics of a manifest add to its schema: bytes, sizes and dtypes."""

from __future__ import annotations

import json

import numpy as np
import pytest
import tensorflow as tf

import readers
from readers.format.schema import Feature, Schema
from readers.shards.features import chosen_schema
from tests.support.datasets import manifest_bytes, write_dataset
from tests.support.images import encoded

BYTES = Feature("string")


def picture(height, width, shade):
    return encoded(np.full((height, width, 3), shade, np.uint8), "JPEG")


PICTURES = [picture(10 + n, 20 - n, 9 * n) for n in range(12)]
PHOTOS = Schema({"image": ("uint8", (None, None, 3), "jpeg"), "label": ("int64", ())})


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    rows = [{"image": data, "label": n} for n, data in enumerate(PICTURES)]
    splits = {"train": [rows[:4], rows[4:10]], "val": [rows[10:]]}
    return write_dataset(tmp_path_factory.mktemp("photos"), PHOTOS, splits)


def test_a_schema_asks_for_the_bytes_of_pictures_of_a_slice_of_a_split(photos):
    schema = Schema({**readers.Manifest.read(photos).schema, "image": BYTES})
    found = {}
    for batch in readers.as_numpy(photos, split="train[2:9]", schema=schema, batch_size=3):
        found |= dict(zip(batch["label"].tolist(), batch["image"].tolist(), strict=True))
    assert found == dict(enumerate(PICTURES[2:9], 2))


def test_a_record_source_gives_the_bytes_of_a_picture(photos):
    source = readers.RecordSource(photos, "val", schema=Schema({"image": BYTES}))
    assert [bytes(np.asarray(record["image"]).item()) for record in source] == PICTURES[10:]


SIGNALS = Schema({"signal": ("float32", (None, 2)), "raw": ("int16", (None, 2), "raw")})
FIXED = Schema({"signal": ("float32", (3, 2)), "raw": ("int16", (3, 2), "raw")})


def signals(lengths):
    return [
        {"signal": np.full((n, 2), n, np.float32), "raw": np.full((n, 2), n, np.int16)}
        for n in lengths
    ]


def with_statistics(directory, **lengths):
    """States the sizes of a dataset's features in its manifest: split -> those of dimension 0."""
    path = directory / "manifest.json"
    manifest = json.loads(path.read_text())
    for split, sizes in lengths.items():
        figures = {"lengths": {"0": {"count": 1, "min": min(sizes), "max": max(sizes)}}}
        manifest["splits"][split]["statistics"] = dict.fromkeys(manifest["schema"], figures)
    path.write_bytes(manifest_bytes(manifest))
    return directory


def test_a_schema_fixes_sizes_that_the_manifest_leaves_open(tmp_path):
    write_dataset(tmp_path, SIGNALS, {"train": [signals([3, 3, 3])]})
    (batch,) = readers.as_numpy(tmp_path, schema=FIXED, batch_size=3)
    assert batch["signal"].shape == batch["raw"].shape == (3, 3, 2)


def test_a_record_of_another_size_is_an_error_that_names_file_and_record(tmp_path):
    write_dataset(tmp_path, SIGNALS, {"train": [signals([3, 3]), signals([3, 4])]})
    for name in SIGNALS:
        schema = Schema({name: FIXED[name]})
        with pytest.raises(ValueError, match=r"train-00001-of-00002\.tfrecord: record 1 at byte"):
            list(readers.as_numpy(tmp_path, schema=schema, batch_size=2))


def test_a_schema_gives_bytes_that_are_stored_as_a_string_their_dtype_and_shape(tmp_path):
    values = np.arange(24, dtype=np.float32).reshape(4, 2, 3)
    rows = [{"data": each.tobytes(), "image": PICTURES[0]} for each in values]
    stored = Schema({"data": ("string", (), "list"), "image": ("string", (), "list")})
    write_dataset(tmp_path, stored, {"train": [rows]})
    schema = Schema({"data": ("float32", (2, 3), "raw"), "image": PHOTOS["image"]})
    (batch,) = readers.as_numpy(tmp_path, schema=schema, batch_size=4, batching="ragged")
    np.testing.assert_array_equal(batch["data"], values)
    assert np.asarray(batch["image"][0].shape).tolist()[-1] == 3


ALLOWED = [
    (("uint8", (None, None, 3), "jpeg"), ("uint8", (8, None, 3), "jpeg")),
    (("uint8", (None, None, 3), "png"), ("string", (), "list")),
    (("uint8", (None, None, None, 3), "jpeg steps"), ("string", (None,), "text steps")),
    (("int16", (None, 2), "raw"), BYTES),
    (("string", (), "list"), ("float32", (None, 4), "raw")),
    (("string", ()), ("uint8", (None, None, 1), "png")),
    (("string", (None,), "list"), ("string", (3,), "list")),
    (("int16", (None, None)), ("int16", (4, 5))),
]
REFUSED = [
    (("int64", ()), ("int32", ())),
    (("int64", ()), ("string", ())),
    (("uint8", (8, 8, 3), "jpeg"), ("uint8", (9, 8, 3), "jpeg")),
    (("uint8", (8, 8, 3), "jpeg"), ("uint8", (None, 8, 3), "jpeg")),
    (("uint8", (None, None, 3), "jpeg"), ("uint8", (None, None, 1), "jpeg")),
    (("int16", (None, None), "raw"), ("int16", (4, 5), "raw")),
    (("int16", (None, None), "list"), ("int16", (4, None), "list")),
    (("float32", (None, 2)), ("float32", (None, 2), "raw")),
    (("float32", (None, 2)), ("float32", (None,))),
    (("string", (None,), "list"), BYTES),
    (("uint8", (5, None, None, 3), "jpeg steps"), ("string", (4,), "text steps")),
]


@pytest.mark.parametrize(("stored", "given"), ALLOWED)
def test_a_schema_may_say_more_than_the_manifest(stored, given):
    schema = Schema({"x": given})
    assert chosen_schema(Schema({"x": stored, "y": ("int64",)}), schema) == schema


@pytest.mark.parametrize(("stored", "given"), REFUSED)
def test_a_schema_may_not_contradict_the_manifest(stored, given):
    with pytest.raises(ValueError, match=r"'x': schema= has .* the manifest .* in place of None"):
        chosen_schema(Schema({"x": stored}), Schema({"x": given}))


# Sizes that are equal in all records.


def test_dense_takes_features_that_are_equal_in_size_in_all_splits(tmp_path):
    write_dataset(tmp_path, SIGNALS, {"train": [signals([3, 3])], "val": [signals([3])], "no": []})
    with_statistics(tmp_path, train=[3], val=[3])
    (batch,) = readers.as_numpy(tmp_path, split="train", batch_size=2, shuffle=True)
    assert batch["signal"].tolist() == batch["raw"].tolist() == np.full((2, 3, 2), 3).tolist()
    (batch,) = readers.as_numpy(
        tmp_path, split="train", batch_size=2, batching=readers.Padded(mask=True)
    )
    assert batch["raw_mask"].shape == (2, 3)


def test_sizes_equal_in_all_records_are_static(tmp_path):
    write_dataset(tmp_path, SIGNALS, {"train": [signals([3, 3])]})
    with_statistics(tmp_path, train=[3])
    ds = readers.load(tmp_path, batch_size=2, remainder="drop")
    assert ds.element_spec["signal"] == tf.TensorSpec([2, 3, 2], tf.float32)


def test_dense_names_the_smallest_and_the_largest_size_of_all_splits(tmp_path):
    write_dataset(tmp_path, SIGNALS, {"train": [signals([3, 3])], "val": [signals([2, 5])]})
    message = r"'raw' has shapes from \[2, 2\] to \[5, 2\], so records cannot be stacked: use batch"
    with_statistics(tmp_path, train=[3], val=[2, 5])
    with pytest.raises(ValueError, match=message):
        readers.as_numpy(tmp_path, split="train", batch_size=2)


def test_dense_needs_statistics_of_every_split_with_records(tmp_path):
    write_dataset(tmp_path, SIGNALS, {"train": [signals([3, 3])], "val": [signals([3])]})
    with_statistics(tmp_path, train=[3])
    with pytest.raises(ValueError, match=r"'raw' has the shape \[None, 2\], where None is a size"):
        readers.as_numpy(tmp_path, split="train", batch_size=2)


@pytest.mark.parametrize("size", ["3", 3.0, None, True])
def test_sizes_in_statistics_that_are_not_integers_count_as_unknown(tmp_path, size):
    write_dataset(tmp_path, SIGNALS, {"train": [signals([3, 3])]})
    with_statistics(tmp_path, train=[size])
    with pytest.raises(ValueError, match="None is a size"):
        readers.as_numpy(tmp_path, batch_size=2)


def test_a_record_that_differs_from_the_statistics_is_an_error(tmp_path):
    write_dataset(tmp_path, SIGNALS, {"train": [signals([3, 4])]})
    with_statistics(tmp_path, train=[3])
    with pytest.raises(ValueError, match="record 1 at byte"):
        list(readers.as_numpy(tmp_path, batch_size=2))


@pytest.mark.parametrize("count", [3, 4])
def test_sizes_of_some_pictures_are_not_those_of_all(tmp_path, count):
    """An earlier version, which counts no sizes of pictures, may have appended the others."""
    rows = [{"image": picture(10, 20, n), "label": n} for n in range(4)]
    write_dataset(tmp_path, PHOTOS, {"train": [rows]})
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    lengths = {
        str(n): {"count": count, "min": size, "max": size} for n, size in enumerate((10, 20))
    }
    manifest["splits"]["train"]["statistics"] = {"image": {"lengths": lengths}}
    (tmp_path / "manifest.json").write_bytes(manifest_bytes(manifest))
    if count == 4:
        assert next(readers.as_numpy(tmp_path, 4))["image"].shape == (4, 10, 20, 3)
        return
    with pytest.raises(ValueError, match=r"'image' has the shape \[None, None, 3\], where None is"):
        readers.as_numpy(tmp_path, 4)


def test_a_picture_that_differs_from_the_statistics_is_an_error(tmp_path):
    rows = [{"image": picture(10, 20 - n // 3, n), "label": n} for n in range(4)]
    write_dataset(tmp_path, PHOTOS, {"train": [rows]})
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    lengths = {str(n): {"min": size, "max": size} for n, size in enumerate((10, 20))}
    manifest["splits"]["train"]["statistics"] = {"image": {"lengths": lengths}}
    (tmp_path / "manifest.json").write_bytes(manifest_bytes(manifest))
    message = (
        r"record 3 at byte \d+: feature 'image' .* expected \[10, 20, 3\], found \[10, 19, 3\]"
    )
    with pytest.raises(ValueError, match=message):
        list(readers.as_numpy(tmp_path, 4))


def test_a_mixture_is_dense_if_all_its_datasets_have_the_same_sizes(tmp_path):
    paths = [tmp_path / name for name in "abc"]
    for path, size in zip(paths, (3, 3, 4), strict=True):
        write_dataset(path, SIGNALS, {"train": [signals([size] * 4)]})
        with_statistics(path, train=[size])
    batch = next(readers.as_numpy(readers.Mix(dict.fromkeys(paths[:2], 1)), 8))
    assert batch["signal"].shape == (8, 3, 2)
    with pytest.raises(ValueError, match=r"shapes from \[3, 2\] to \[4, 2\]"):
        readers.as_numpy(readers.Mix(dict.fromkeys(paths, 1)), 8)
