"""The messages of TensorFlow's Examples and tensors in google.protobuf, without TensorFlow.

Source: tensorflow/core/example/{example,feature}.proto, tensorflow/core/framework/{tensor,tensor_shape}.proto.
"""

from __future__ import annotations

import functools
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_TYPES = descriptor_pb2.FieldDescriptorProto
_BYTES, _FLOAT, _INT64, _INT32 = _TYPES.TYPE_BYTES, _TYPES.TYPE_FLOAT, _TYPES.TYPE_INT64, 5
_STRING, _MESSAGE = _TYPES.TYPE_STRING, _TYPES.TYPE_MESSAGE
_ONE, _MANY = _TYPES.LABEL_OPTIONAL, _TYPES.LABEL_REPEATED

# Message -> (name, number, type, label, message or "").
_MESSAGES: dict[str, tuple[tuple[str, int, int, int, str], ...]] = {
    "BytesList": (("value", 1, _BYTES, _MANY, ""),),
    "FloatList": (("value", 1, _FLOAT, _MANY, ""),),
    "Int64List": (("value", 1, _INT64, _MANY, ""),),
    "Feature": (
        ("bytes_list", 1, _MESSAGE, _ONE, "BytesList"),
        ("float_list", 2, _MESSAGE, _ONE, "FloatList"),
        ("int64_list", 3, _MESSAGE, _ONE, "Int64List"),
    ),
    "FeatureList": (("feature", 1, _MESSAGE, _MANY, "Feature"),),
    "Features": (("feature", 1, _MESSAGE, _MANY, "Features.FeatureEntry"),),
    "FeatureLists": (("feature_list", 1, _MESSAGE, _MANY, "FeatureLists.FeatureListEntry"),),
    "Example": (("features", 1, _MESSAGE, _ONE, "Features"),),
    "SequenceExample": (
        ("context", 1, _MESSAGE, _ONE, "Features"),
        ("feature_lists", 2, _MESSAGE, _ONE, "FeatureLists"),
    ),
    "Dim": (("size", 1, _INT64, _ONE, ""), ("name", 2, _BYTES, _ONE, "")),
    "Shape": (("dim", 2, _MESSAGE, _MANY, "Dim"), ("unknown_rank", 3, _TYPES.TYPE_BOOL, _ONE, "")),
    "Tensor": (
        ("dtype", 1, _INT32, _ONE, ""),
        ("tensor_shape", 2, _MESSAGE, _ONE, "Shape"),
        ("version_number", 3, _INT32, _ONE, ""),
        ("tensor_content", 4, _BYTES, _ONE, ""),
        ("string_val", 8, _BYTES, _MANY, ""),
    ),
}
_MAPS = {
    "Features": ("FeatureEntry", "Feature"),
    "FeatureLists": ("FeatureListEntry", "FeatureList"),
}


@functools.cache
def _pool() -> descriptor_pool.DescriptorPool:
    # The name of a dimension is bytes here: nobody reads it, so that nobody checks that it is UTF-8.
    file = descriptor_pb2.FileDescriptorProto(name="fuzz.proto", package="fuzz", syntax="proto3")
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        if name == "Feature":
            message.oneof_decl.add(name="kind")
        for field, number, kind, label, of in fields:
            added = message.field.add(name=field, number=number, type=kind, label=label)
            if of:
                added.type_name = f".fuzz.{of}"
            if name == "Feature":
                added.oneof_index = 0
        if name in _MAPS:
            entry, value = _MAPS[name]
            nested = message.nested_type.add(name=entry)
            nested.options.map_entry = True
            nested.field.add(name="key", number=1, type=_STRING, label=_ONE)
            nested.field.add(
                name="value", number=2, type=_MESSAGE, label=_ONE, type_name=f".fuzz.{value}"
            )
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return pool


@functools.cache
def message_class(name: str) -> Any:
    """The class of a message: "Example", "SequenceExample" or "Tensor"."""
    return message_factory.GetMessageClass(_pool().FindMessageTypeByName(f"fuzz.{name}"))


def parse(name: str, data: bytes) -> Any:
    """The message in some bytes; None if protobuf refuses them."""
    from google.protobuf.message import DecodeError

    try:
        return message_class(name).FromString(data)
    except DecodeError:
        return None
