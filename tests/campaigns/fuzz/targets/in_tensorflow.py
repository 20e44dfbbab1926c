"""Examples and SequenceExamples in TensorFlow, as `readers.load` decodes them, and record by record."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import numpy as np

from readers.format.decode.records import parse_example, parse_feature_lists
from readers.format.dtypes import TENSORFLOW_DTYPES
from readers.format.schema import Feature, Schema
from tests.campaigns.fuzz import protobuf
from tests.campaigns.fuzz.limits import Limits
from tests.campaigns.fuzz.target import by_choice
from tests.campaigns.fuzz.targets.examples import (
    SCHEMAS,
    STEP_SCHEMAS,
    examples,
    one_by_one,
    sequence_examples,
    target_of_messages,
)
from tests.campaigns.values import trace


def _columns(schema: Schema, serialized: Any) -> dict[str, Any]:
    """The values of a batch; images stay encoded."""
    from readers.tfdata.decode import decode_batch

    stored = Schema({name: Feature("string") if f.is_image else f for name, f in schema.items()})
    columns = decode_batch(serialized, stored, is_foreign=True)
    return {name: column.values for name, column in columns.items()}


@functools.cache
def _graph(schema: Schema) -> Any:
    import tensorflow as tf

    signature = [tf.TensorSpec([None], tf.string)]
    return tf.function(functools.partial(_columns, schema), input_signature=signature)


def _in_tensorflow(schema: Schema, record: bytes) -> dict[str, Any] | None:
    """The values, flat; None if TensorFlow refuses the record."""
    import tensorflow as tf

    try:
        found = _graph(schema)(tf.constant([record], tf.string))
    # Its messages quote the record, and Python's binding expects UTF-8 of them.
    except (tf.errors.InvalidArgumentError, tf.errors.DataLossError, UnicodeDecodeError):
        return None
    return {name: _flat(values.numpy()) for name, values in found.items()}


def _flat(values: Any) -> Any:
    dtype, _, octets = trace(np.asarray(values).reshape(-1))
    return dtype, octets


def _flattened(schema: Schema, record: bytes) -> dict[str, Any] | None:
    """The values record by record, in the form of `_in_tensorflow`."""
    from readers.format.decode.records import Decoder
    from readers.format.dtypes import numpy_dtype

    try:
        found = Decoder(schema).decode(record)
    except ValueError:
        return None
    flat = {}
    for name, feature in schema.items():
        value = found[name]
        if isinstance(value, list):
            empty = np.empty(0, numpy_dtype(feature.dtype))
            value = np.concatenate([empty, *(array.reshape(-1) for array in value)])
        flat[name] = _flat(np.array(value, object) if isinstance(value, bytes) else value)
    return flat


def _is_plain(message: Any, record: bytes) -> bool:
    """Whether protobuf needs as many bytes for a message that has no unknown fields.

    Known, and not a finding: TensorFlow's fast parser departs from protobuf for a list, or a packed run, that is
    given twice. It skips fields that tf.train does not have, and record by record they are refused.
    """
    message.DiscardUnknownFields()
    return bool(message.ByteSize() == len(record))


def _states_a_shape(schema: Schema, record: bytes) -> bool:
    """Whether a record states the shape of a feature with one unknown dimension.

    Known, and not a finding: TensorFlow takes it from the number of values, and looks at no shape.
    """
    known = parse_example(record, wanted=())
    single = (name for name, feature in schema.items() if feature.shape.count(None) == 1)
    return any(f"{name}/shape" in known for name in single)


def _tensors(schema: Schema, record: bytes) -> Iterator[tuple[bytes, Feature]]:
    """Yields the TensorProtos in a record, and the feature of each."""
    lists = {name: [each] for name, each in parse_example(record).items()}
    lists |= parse_feature_lists(record, schema)
    for name, feature in schema.items():
        if feature.encoding in ("tensor", "sequence", "tensor steps"):
            for _, chunks in lists.get(name, []):
                yield from ((bytes(chunk), feature) for chunk in chunks)


def _begins_otherwise(schema: Schema, record: bytes) -> bool:
    """Whether a tensor does not begin with the two bytes of its dtype.

    Known, and not a finding: record by record any valid form is taken, in TensorFlow only this one.
    """
    return any(
        tensor[:2] != bytes([8, TENSORFLOW_DTYPES[feature.dtype]])
        for tensor, feature in _tensors(schema, record)
    )


def _has_strange_tensor(schema: Schema, record: bytes) -> bool:
    """Whether a tensor has fields that TensorProto does not have.

    Known, and not a finding: TensorFlow skips them, and record by record they are refused.
    """
    messages = (
        (protobuf.parse("Tensor", tensor), tensor) for tensor, _ in _tensors(schema, record)
    )
    return any(
        message is not None and not _is_plain(message, tensor) for message, tensor in messages
    )


def _examine(kind: str, schema: Schema, record: bytes) -> None:
    found, message = _in_tensorflow(schema, record), protobuf.parse(kind, record)
    if message is None:
        assert found is None, "TensorFlow takes what protobuf refuses"
        return
    if _is_plain(message, record) and found is not None:
        expected = _flattened(schema, record)
        if expected is None:
            known = _states_a_shape(schema, record) or _has_strange_tensor(schema, record)
            assert known, "TensorFlow takes what is refused one by one"
            return
        assert found == expected, (
            f"{found!r:.300} in TensorFlow, {expected!r:.300} record by record"
        )
    canonical = message.SerializeToString(deterministic=True)
    if one_by_one(schema, canonical) is not None:
        again = _in_tensorflow(schema, canonical)
        if again is None:
            assert _begins_otherwise(schema, canonical), (
                "TensorFlow refuses what is taken one by one"
            )
            return
        assert again == _flattened(schema, canonical), f"{again!r:.300} in TensorFlow"


_LIMITS = Limits(memory=256 << 20, seconds=3)  # A schema's graph is made when it is first used.

TARGETS = tuple(
    target_of_messages(
        name, seeds, by_choice(schemas, functools.partial(_examine, kind)), limits=_LIMITS
    )
    for name, kind, seeds, schemas in (
        ("example_in_tensorflow", "Example", examples, SCHEMAS),
        ("sequence_example_in_tensorflow", "SequenceExample", sequence_examples, STEP_SCHEMAS),
    )
)
