"""The format on disk, shared by the jobs that write it and the readers."""

from readers.format.manifest import DatasetError, Manifest
from readers.format.protobuf.tensor import parse_tensor, serialize_tensor
from readers.format.schema import Feature, Schema
from readers.format.splits import Shard, Split

__all__ = [
    "DatasetError",
    "Feature",
    "Manifest",
    "Schema",
    "Shard",
    "Split",
    "parse_tensor",
    "serialize_tensor",
]
