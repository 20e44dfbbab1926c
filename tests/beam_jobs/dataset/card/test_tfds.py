"""The files that describe a dataset to TensorFlow Datasets, which reads the shards in tests/end_to_end."""

import dataclasses
import json

import pytest

from beam_jobs.dataset.card.files import card_files
from beam_jobs.dataset.card.tfds import tfds_files, tfds_problem
from readers.format.manifest import seals_in
from readers.format.schema import Schema
from readers.format.splits import Split
from tests.beam_jobs.dataset.card.test_readme import MANIFEST, shards

TENSOR = "tensor_feature.Tensor"


def of(name="features.json", **changes):
    return json.loads(tfds_files(dataclasses.replace(MANIFEST, **changes))[name])


def tensor(shape, dtype, encoding="none"):
    sizes = {"dimensions": list(map(str, shape))} if shape else {}
    return TENSOR, {"shape": sizes, "dtype": dtype, "encoding": encoding}


@pytest.mark.parametrize(
    ("feature", "declared"),
    [
        (("int64",), tensor((), "int64")),
        (("float32", (2, 3), "list"), tensor((2, 3), "float32")),
        (("uint8", (None, 3), "list"), tensor((-1, 3), "uint8")),
        (("string", (4,), "list"), tensor((4,), "string")),
        # Two sizes are in `<name>/shape` alone.
        (("int64", (None, None), "list"), tensor((-1,), "int64")),
        (("float64", (None, 3), "raw"), tensor((-1, 3), "float64", "bytes")),
        (("int16", (None, None), "raw"), tensor((), "string")),
        (("uint32", (3,), "raw"), tensor((), "string")),
        # TensorProtos.
        (("float32", (None, 6)), tensor((), "string")),
        (("float64",), tensor((), "string")),
        (("int16", (None, None), "sequence"), tensor((-1,), "string")),
        (("string",), ("text_feature.Text", {})),
    ],
)
def test_a_feature_is_declared_as_it_is_stored(feature, declared):
    (found,) = of(schema=Schema({"x": feature}))["featuresDict"]["features"].values()
    kind = found.pop("pythonClassName").removeprefix("tensorflow_datasets.core.features.")
    (content,) = found.values()
    assert (kind, content) == declared


@pytest.mark.parametrize(
    ("dtype", "encoding", "known"),
    [
        ("uint8", "jpeg", {"encodingFormat": "jpeg"}),
        ("uint16", "png", {"encodingFormat": "png"}),
        ("uint8", "source", {}),
    ],
)
def test_an_encoded_image_is_an_image(dtype, encoding, known):
    schema = Schema({"x": (dtype, (None, 8, 3), encoding)})
    found = of(schema=schema)["featuresDict"]["features"]["x"]["image"]
    assert found == {"shape": {"dimensions": ["-1", "8", "3"]}, "dtype": dtype, **known}


def test_named_labels_are_classes_and_others_are_numbers():
    schema = Schema({"label": ("int64",), "kind": ("int64",), "id": ("int64",)})
    found = of(schema=schema, class_names={"kind": ("a",)})["featuresDict"]["features"]
    assert found["label"]["classLabel"] == {"numClasses": "2"}
    assert found["kind"]["classLabel"] == {"numClasses": "1"}
    assert "tensor" in found["id"]
    assert "tensor" in of(label_names=())["featuresDict"]["features"]["label"]


def test_splits_are_those_with_shards():
    info = of("dataset_info.json")
    assert [split["name"] for split in info["splits"]] == ["train"]
    assert info["splits"][0]["shardLengths"] == ["600", "599"]
    assert info["redistributionInfo"] == {"license": "CC-BY-4.0"}
    assert "redistributionInfo" not in of("dataset_info.json", options={})


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"schema": Schema({"x": ("int64", (None,), "list steps")})}, "SequenceExamples"),
        ({"schema": Schema({"x": ("int64", (None, 0), "list")})}, "a size is 0"),
        ({"splits": {"a.b": Split(shards("a.b", 3))}}, "a name of a split"),
        ({"splits": {"_": Split(shards("_", 3))}}, "a name of a split"),
        ({"splits": {"a.b": Split(()), "train": Split(shards("train", 3))}}, ""),
        ({"schema": Schema({"x": ("int64", (None, 0))})}, ""),
    ],
)
def test_what_tensorflow_datasets_cannot_read_has_no_files(changes, reason):
    manifest = dataclasses.replace(MANIFEST, **changes)
    assert reason in tfds_problem(manifest)
    assert bool(reason) == bool(tfds_problem(manifest))
    assert len(tfds_files(manifest)) == (0 if reason else 2)


def test_each_file_of_a_card_says_to_which_manifest_it_belongs():
    files = card_files(MANIFEST)
    assert len(files) == 4
    (common,) = {tuple(seals_in(content.decode())) for content in files.values()}
    assert len(common) == 1
    other = card_files(
        dataclasses.replace(MANIFEST, options={**MANIFEST.options, "license": "MIT"})
    )
    assert not set(common) & set(seals_in(other["features.json"].decode()))
