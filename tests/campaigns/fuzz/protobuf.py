"""The messages of TensorFlow's Examples and tensors in google.protobuf, without TensorFlow.

Source: tensorflow/core/example/{example,feature}.proto, tensorflow/core/framework/{tensor,tensor_shape}.proto.
"""

from __future__ import annotations

import functools
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_TYPES = descriptor_pb2.FieldDescriptorProto

# Message -> its fields: name, number and type; a star stands for many.
_MESSAGES = {
    "BytesList": "value 1 bytes*",
    "FloatList": "value 1 float*",
    "Int64List": "value 1 int64*",
    "Feature": "bytes_list 1 BytesList, float_list 2 FloatList, int64_list 3 Int64List",
    "FeatureList": "feature 1 Feature*",
    "Features": "feature 1 Features.FeatureEntry*",
    "Features.FeatureEntry": "key 1 string, value 2 Feature",
    "FeatureLists": "feature_list 1 FeatureLists.FeatureListEntry*",
    "FeatureLists.FeatureListEntry": "key 1 string, value 2 FeatureList",
    "Example": "features 1 Features",
    "SequenceExample": "context 1 Features, feature_lists 2 FeatureLists",
    # The name of a dimension is bytes here: nobody reads it, so that nobody checks that it is UTF-8.
    "Dim": "size 1 int64, name 2 bytes",
    "Shape": "dim 2 Dim*, unknown_rank 3 bool",
    "Tensor": "dtype 1 int32, tensor_shape 2 Shape, version_number 3 int32, tensor_content 4 bytes, "
    "string_val 8 bytes*",
}


@functools.cache
def _pool() -> descriptor_pool.DescriptorPool:
    file = descriptor_pb2.FileDescriptorProto(name="fuzz.proto", package="fuzz", syntax="proto3")
    messages: dict[str, Any] = {}
    for name, fields in _MESSAGES.items():
        outer, _, inner = name.partition(".")
        if inner:
            message = messages[outer].nested_type.add(name=inner)
            message.options.map_entry = True
        else:
            message = messages[name] = file.message_type.add(name=name)
        for each in fields.split(", "):
            field, number, kind = each.split()
            label = _TYPES.LABEL_REPEATED if kind.endswith("*") else _TYPES.LABEL_OPTIONAL
            added = message.field.add(name=field, number=int(number), label=label)
            kind = kind.rstrip("*")
            added.type = getattr(_TYPES, f"TYPE_{kind.upper()}", _TYPES.TYPE_MESSAGE)
            if added.type == _TYPES.TYPE_MESSAGE:
                added.type_name = f".fuzz.{kind}"
            if name == "Feature":
                added.oneof_index = 0
    messages["Feature"].oneof_decl.add(name="kind")
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
