"""`dataset_info.json` and `features.json`, with which TensorFlow Datasets opens the shards as they are.

`tfds.builder_from_directory(FOLDER)`, given the folder of the shards, reads the same Examples as the readers do.
It cannot decode a TensorProto, so a feature that is stored as one is declared as a string of bytes.
"""

from __future__ import annotations

import json
import re
from typing import Any

from readers.format.manifest import Manifest, join
from readers.format.schema import IMAGE_ENCODINGS, Feature
from readers.format.splits import shard_name

_CONNECTORS = "tensorflow_datasets.core.features"

# The names of splits that its slices can hold, such as train[:10%].
_SPLIT = re.compile(r"\w*[A-Za-z0-9]\w*", re.ASCII)


def tfds_files(manifest: Manifest, licence: str) -> dict[str, bytes]:
    """Path in the dataset -> content of each file; empty if TensorFlow Datasets cannot read the shards."""
    if tfds_problem(manifest):
        return {}
    names = manifest.classes
    features = {n: _feature(f, len(names.get(n, ()))) for n, f in manifest.schema.items()}
    record = _connector("features_dict.FeaturesDict", "featuresDict", {"features": features})
    found = {"dataset_info.json": _info(manifest, licence), "features.json": record}
    texts = {n: json.dumps(message, indent=1, ensure_ascii=False) for n, message in found.items()}
    return {join(tfds_folder(manifest), n): f"{text}\n".encode() for n, text in texts.items()}


def tfds_folder(manifest: Manifest) -> str:
    """The folder of the first shard, in the dataset's directory."""
    return manifest.shards[0].path.rpartition("/")[0]


def tfds_problem(manifest: Manifest) -> str:
    """Why TensorFlow Datasets cannot read the shards, as a part of a sentence; empty if it can."""
    if not manifest.shards:
        return "it has no records"
    if manifest.requires:
        return "it cannot leave out records of its files, or read features in other ones; beam-shards compact does"
    for feature in manifest.schema.values():
        if feature.step:
            return "it does not read SequenceExamples"
        # The unknown size is computed from the number of values.
        flat = feature.encoding in ("list", "raw", "zlib") and feature.shape.count(None) == 1
        if 0 in feature.shape and flat:
            return "it cannot compute the unknown size of an array with another size of 0"
    for name, split in manifest.splits.items():
        if split.shards and not _SPLIT.fullmatch(name):
            return "the name of a split has other characters than letters, digits and _"
        for number, shard in enumerate(split.shards):
            file = shard_name(name, number, len(split.shards))
            if shard.path != join(tfds_folder(manifest), file):
                return (
                    f"it finds shards only by their numbers, and {shard.path} is named differently, because "
                    "inputs changed or were rejected late; beam-shards reshard writes numbered shards"
                )
    return ""


def _info(manifest: Manifest, licence: str) -> dict[str, Any]:
    """The message `DatasetInfo`, without the time and the machine."""
    return {
        "name": "beam_shards",
        "version": "1.0.0",
        "description": "Written by beam-shards.",
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


def _feature(feature: Feature, classes: int) -> dict[str, Any]:
    """The message `Feature` of one feature; `classes` is the number of its named classes."""
    encoding, sizes = feature.encoding, feature.shape.count(None)
    if classes and feature == Feature("int64"):
        content: dict[str, Any] = {"numClasses": str(classes)}
        return _connector("class_label_feature.ClassLabel", "classLabel", content)
    if encoding in IMAGE_ENCODINGS:
        known = {} if encoding == "source" else {"encodingFormat": encoding}
        content = {"shape": _shape(feature.shape), "dtype": feature.dtype, **known}
        return _connector("image_feature.Image", "image", content)
    if encoding == "text":
        return _connector("text_feature.Text", "text", {})
    if encoding == "sequence":
        return _tensor((None,), "string")
    # `tf.io.decode_raw` returns no uint32, and two unknown sizes do not follow from the number of values.
    given = {"list": "none", "raw": "bytes", "zlib": "zlib"}.get(encoding)
    is_raw = given and feature.dtype not in ("uint32", "string") and sizes < 2
    if not given or not (is_raw or encoding == "list"):
        return _tensor((), "string")
    # A list with two unknown sizes is read as its flat values.
    shape = (None,) if sizes > 1 else feature.shape
    return _tensor(shape, feature.dtype, given)


def _tensor(shape: tuple[int | None, ...], dtype: str, encoding: str = "none") -> dict[str, Any]:
    content = {"shape": _shape(shape), "dtype": dtype, "encoding": encoding}
    return _connector("tensor_feature.Tensor", "tensor", content)


def _connector(name: str, kind: str, content: dict[str, Any]) -> dict[str, Any]:
    return {"pythonClassName": f"{_CONNECTORS}.{name}", kind: content}


def _shape(shape: tuple[int | None, ...]) -> dict[str, Any]:
    return {"dimensions": [str(-1 if size is None else size) for size in shape]} if shape else {}
