"""`dataset_info.json` and `features.json`, with which TensorFlow Datasets opens the shards as they are.

`tfds.builder_from_directory(DIR)` reads the same Examples as the readers do. It knows no TensorProto, so a
feature that is stored as one is declared as what it is on disk: a string of bytes.
"""

from __future__ import annotations

import json
import re
from typing import Any

from beam_jobs.dataset.card.licence import licence_of
from readers.format.manifest import TFDS_FEATURES, TFDS_INFO, Manifest, seal
from readers.format.schema import IMAGE_ENCODINGS, Feature

_CONNECTORS = "tensorflow_datasets.core.features"

# What `tf.io.decode_raw` cannot return.
_NEVER_RAW = ("uint32",)

# The names of splits that its slices can hold, such as train[:10%].
_SPLIT = re.compile(r"\w*[A-Za-z0-9]\w*", re.ASCII)


def tfds_files(manifest: Manifest) -> dict[str, bytes]:
    """The content of each file, by name; none if TensorFlow Datasets cannot read the shards."""
    if tfds_problem(manifest):
        return {}
    return {TFDS_INFO: _json(_info(manifest)), TFDS_FEATURES: _json(_features(manifest))}


def tfds_problem(manifest: Manifest) -> str:
    """Why TensorFlow Datasets cannot read the shards, as a part of a sentence; empty if it can."""
    for feature in manifest.schema.values():
        if feature.step:
            return "it reads no SequenceExamples"
        if 0 in feature.shape and _is_split_up(feature):
            return "it cannot tell how many values are in an array of which a size is 0"
    for name, split in manifest.splits.items():
        if split.shards and not _SPLIT.fullmatch(name):
            return "a name of a split has other characters than letters, digits and _"
    return ""


def is_serialized(feature: Feature) -> bool:
    """Whether TensorFlow Datasets gives the bytes of a feature that is no text."""
    return _is_bytes(feature) or feature.encoding == "sequence"


def _is_bytes(feature: Feature) -> bool:
    if feature.encoding == "raw":
        return feature.dtype in _NEVER_RAW or feature.shape.count(None) > 1
    return feature.encoding == "tensor"


def _is_split_up(feature: Feature) -> bool:
    """Whether values are stored flat, and the size of one dimension follows from their number."""
    return feature.encoding in ("list", "raw") and feature.shape.count(None) == 1


def _info(manifest: Manifest) -> dict[str, Any]:
    """The message `DatasetInfo`, without the time and the place at which it was made."""
    licence = licence_of(manifest)
    return {
        "name": "beam_shards",
        "version": "1.0.0",
        "description": f"Written by beam-shards. {seal(manifest.to_bytes())}.",
        "fileFormat": "tfrecord",
        **({"redistributionInfo": {"license": licence}} if licence else {}),
        "splits": [
            {
                "name": name,
                "filepathTemplate": "{SPLIT}-{SHARD_X_OF_Y}.{FILEFORMAT}",
                "numBytes": str(split.bytes),
                "shardLengths": [str(shard.records) for shard in split.shards],
            }
            for name, split in manifest.splits.items()
            if split.shards
        ],
    }


def _features(manifest: Manifest) -> dict[str, Any]:
    """The message `Feature` of a record."""
    return {
        "pythonClassName": f"{_CONNECTORS}.features_dict.FeaturesDict",
        "description": seal(manifest.to_bytes()),
        "featuresDict": {
            "features": {
                name: _feature(feature, _classes(manifest, name))
                for name, feature in manifest.schema.items()
            }
        },
    }


def _classes(manifest: Manifest, name: str) -> int:
    """The number of named classes of a feature; 0 if they have no names."""
    names = manifest.class_names.get(name, ())
    return len(names or (manifest.label_names if name == "label" else ()))


def _feature(feature: Feature, classes: int) -> dict[str, Any]:
    """The message `Feature` of one feature."""
    if classes and feature == Feature("int64"):
        return _connector(
            "class_label_feature.ClassLabel", "classLabel", {"numClasses": str(classes)}
        )
    if feature.encoding in IMAGE_ENCODINGS:
        known = {} if feature.encoding == "source" else {"encodingFormat": feature.encoding}
        content = {"shape": _shape(feature.shape), "dtype": feature.dtype, **known}
        return _connector("image_feature.Image", "image", content)
    if feature.encoding == "text":
        return _connector("text_feature.Text", "text", {})
    if _is_bytes(feature):
        return _tensor((), "string")
    if feature.encoding == "sequence":
        return _tensor((None,), "string")
    if feature.encoding == "raw":
        return _tensor(feature.shape, feature.dtype, "bytes")
    # Of a list with two unknown sizes, the values in a row.
    flat = feature.shape.count(None) > 1
    return _tensor((None,) if flat else feature.shape, feature.dtype)


def _tensor(shape: tuple[int | None, ...], dtype: str, encoding: str = "none") -> dict[str, Any]:
    content = {"shape": _shape(shape), "dtype": dtype, "encoding": encoding}
    return _connector("tensor_feature.Tensor", "tensor", content)


def _connector(name: str, kind: str, content: dict[str, Any]) -> dict[str, Any]:
    return {"pythonClassName": f"{_CONNECTORS}.{name}", kind: content}


def _shape(shape: tuple[int | None, ...]) -> dict[str, Any]:
    return {"dimensions": [str(-1 if size is None else size) for size in shape]} if shape else {}


def _json(message: dict[str, Any]) -> bytes:
    return (json.dumps(message, indent=1, ensure_ascii=False) + "\n").encode()
