"""Examples, SequenceExamples and tensors: record by record, by the kernel, and in google.protobuf."""

from __future__ import annotations

import functools
import zlib
from typing import Any

import numpy as np

from readers.format.compiled import library
from readers.format.compiled.columns import CompiledDecoder
from readers.format.decode.batches import ColumnDecoder
from readers.format.decode.records import Decoder, parse_example, parse_feature_lists
from readers.format.dtypes import TENSORFLOW_DTYPES, numpy_dtype
from readers.format.encode.records import Encoder
from readers.format.protobuf.tensor import parse_tensor
from readers.format.protobuf.wire import BYTES_LIST, FLOAT_LIST, fields, unpacked_varints
from readers.format.schema import Schema
from readers.format.tfrecord import FRAME_BYTES, frame
from tests.campaigns.fuzz import protobuf
from tests.campaigns.fuzz.limits import Limits
from tests.campaigns.fuzz.mutations import messages
from tests.campaigns.fuzz.target import Target, after_choice, by_choice
from tests.campaigns.values import trace
from tests.support.arrays import serialize_tensor
from tests.support.plain import sequence_example

# The first byte of an input chooses one.
_SCHEMAS: tuple[dict[str, Any], ...] = (
    {"label": ("int64", (), "list"), "image": ("uint8", (2, 3, 1))},
    {"x": ("float32", (None, 2)), "n": ("int64", ())},
    {"g": ("int16", (None, None)), "t": ("int64", (None,), "list")},
    {"c": ("float32", (None, 2, None), "raw"), "p": ("int32", (None, None), "list")},
    {"f": ("float32", (None,), "list"), "w": ("float32", (3,), "list"), "b": ("bool", (), "list")},
    {"s": ("string", ()), "u": ("uint16", (None,), "list"), "r": ("float64", (2,), "raw")},
    {"y": ("string", (None,), "list"), "z": ("string", (2,)), "q": ("float32", (None, 3), "sequence")},
    {"h": ("float16", (3,), "list"), "k": ("complex64", (3,)), "o": ("float32", (0, 3))},
    {"j": ("uint8", (None, None, 3), "source"), "e": ("bfloat16", (), "list"), "m": ("bool", (None,))},
)  # fmt: skip

SCHEMAS = tuple(map(Schema, _SCHEMAS))

_STEP_SCHEMAS: tuple[dict[str, Any], ...] = (
    {"a": ("float32", (None, 2), "list steps"), "n": ("int64", ())},
    {"t": ("string", (None,), "text steps"), "i": ("int64", (None, None), "list steps")},
    {"x": ("int16", (None, 2), "tensor steps"), "r": ("float32", (2, 3), "raw steps")},
)

STEP_SCHEMAS = tuple(map(Schema, _STEP_SCHEMAS))


def value_of(rng: np.random.Generator, feature: Any) -> Any:
    """A random value of a feature."""
    shape = [int(rng.integers(1, 4)) if size is None else size for size in feature.shape]
    if feature.is_image:
        return rng.bytes(9)
    if feature.dtype == "string":
        flat = np.array([b"w%d" % n for n in range(int(np.prod(shape)))], object)
        return flat.reshape(shape) if shape else b"text"
    dtype = numpy_dtype(feature.dtype)
    array = (
        rng.integers(0, 2, shape) if dtype.kind == "b" else rng.integers(0, 300, shape)
    ).astype(dtype)
    return [*array] if feature.is_sequence else array


def record_of(schema: Schema, seed: int) -> bytes:
    """A serialized Example of random values."""
    rng = np.random.default_rng(seed)
    return Encoder(schema).encode({name: value_of(rng, f) for name, f in schema.items()})


def examples() -> list[bytes]:
    """Records that this package writes, after the byte that chooses their schema."""
    return [
        bytes([number]) + record_of(schema, seed)
        for number, schema in enumerate(SCHEMAS)
        for seed in range(2)
    ]


@functools.cache
def _good(schema: Schema) -> bytes:
    return record_of(schema, 7)


def one_by_one(schema: Schema, record: bytes) -> dict[str, Any] | None:
    """The values in a record, in comparable form; None if it does not fit the schema."""
    try:
        found = Decoder(schema).decode(record)
    except ValueError as error:
        assert str(error), "an error without words"
        return None
    assert list(found) == list(schema)
    return {name: trace(value) for name, value in found.items()}


def lists_in(message: Any) -> dict[str, tuple[int, list[Any]]]:
    """The lists of a message of google.protobuf, as `parse_example` has them."""
    found: dict[str, tuple[int, list[Any]]] = {}
    for name, feature in message.feature.items():
        found[name] = _list_in(feature)
    return found


def _list_in(feature: Any) -> tuple[int, list[Any]]:
    kind = feature.WhichOneof("kind")
    if kind == "bytes_list":
        return BYTES_LIST, list(feature.bytes_list.value)
    if kind == "float_list":
        return FLOAT_LIST, np.array(feature.float_list.value, np.float32).view(np.uint32).tolist()
    return (3, list(feature.int64_list.value)) if kind else (0, [])


def _unpacked(raw: tuple[int, list[memoryview]]) -> tuple[int, list[Any]]:
    kind, chunks = raw
    if kind == BYTES_LIST:
        return kind, [bytes(chunk) for chunk in chunks]
    packed = b"".join(chunks)
    if kind == FLOAT_LIST:
        if any(len(chunk) % 4 for chunk in chunks):
            raise ValueError("cut off")
        return kind, np.frombuffer(packed, np.uint32).tolist()
    return kind, unpacked_varints(packed).tolist()


def context_of(record: bytes) -> dict[str, tuple[int, list[Any]]] | None:
    """The lists that `parse_example` finds, with their values; None if the record is no Example."""
    try:
        return {name: _unpacked(raw) for name, raw in parse_example(record).items()}
    except ValueError:
        return None


def steps_of(record: bytes) -> dict[str, list[tuple[int, list[Any]]]] | None:
    """The feature lists that `parse_feature_lists` finds; None if the record is no SequenceExample."""
    try:
        found = parse_feature_lists(record)
        return {name: [_unpacked(raw) for raw in steps] for name, steps in found.items()}
    except ValueError:
        return None


def _same_lists(found: dict[str, Any], expected: dict[str, Any]) -> None:
    for name in {*found, *expected}:
        ours, its = found.get(name), expected.get(name)
        if ours != its and not _nan_bits(ours, its):
            raise AssertionError(f"{name!r}: {ours!r:.200}, in protobuf {its!r:.200}")


def _nan_bits(ours: Any, its: Any) -> bool:
    """Whether floats differ in the bits of NaNs alone: protobuf's Python values are doubles."""
    if not ours or not its or (ours[0], its[0]) != (FLOAT_LIST,) * 2 or len(ours[1]) != len(its[1]):
        return False
    a, b = (np.array(bits[1], np.uint32) for bits in (ours, its))
    return bool(((a == b) | (np.isnan(a.view(np.float32)) & np.isnan(b.view(np.float32)))).all())


def _examine_example(schema: Schema, record: bytes) -> None:
    message = protobuf.parse("Example", record)
    expected = one_by_one(schema, record)
    lists = context_of(record)
    if lists is not None:
        assert message is not None, "protobuf refuses what is taken for an Example"
        _same_lists(lists, lists_in(message.features))
        again = one_by_one(schema, message.SerializeToString(deterministic=True))
        # Its Python classes keep NaNs as they are, so every bit is the same.
        assert again == expected, f"{expected!r:.300}, as protobuf writes it {again!r:.300}"
    _check_columns(schema, record, expected)
    _check_compiled(schema, record)


def _check_columns(schema: Schema, record: bytes, expected: dict[str, Any] | None) -> None:
    """Compares what the kernel and the decoder of single records find together."""
    good = _good(schema)
    batches = ([record, record], [good, record, good], [record, record, good])
    batch = batches[zlib.crc32(record) % len(batches)]
    lengths = np.array([len(data) + FRAME_BYTES for data in batch], np.int64)
    data, stops = np.frombuffer(b"".join(map(frame, batch)), np.uint8), np.cumsum(lengths)
    columns, errors, _ = ColumnDecoder(schema).decode(data, stops - lengths, stops)
    rows = [row for row in range(len(batch)) if row not in errors]
    assert all(
        (row in errors) == (expected is None) for row, one in enumerate(batch) if one is record
    )
    assert columns.keys() == schema.keys() or not rows
    for name, column in columns.items():
        for row, value in zip(rows, column.arrays(), strict=True):
            if batch[row] is record:
                _check_value(schema, name, value, expected)


def _check_value(schema: Schema, name: str, value: Any, expected: dict[str, Any] | None) -> None:
    assert expected is not None, "a column holds what does not decode"
    is_bytes = schema[name].is_image or (schema[name].dtype == "string" and not schema[name].shape)
    found = trace(bytes(value) if is_bytes else value)
    assert found == expected[name], f"{name!r}: {found!r:.200} in a column, {expected[name]!r:.200}"


def _check_compiled(schema: Schema, record: bytes) -> None:
    """Compares what the kernel finds in records, each in memory of its own."""
    held = [np.frombuffer(frame(data), np.uint8) for data in (_good(schema), record)]
    records = np.array([library.address(octets) for octets in held], np.int64)
    sizes = np.array([len(octets) for octets in held], np.int64)
    try:
        (columns,) = CompiledDecoder(schema).batches(records, sizes, (0, 2), {})
    except library.RefusedRecords:
        return
    for name, column in columns.items():
        _check_value(schema, name, column.arrays()[1], one_by_one(schema.select([name]), record))


def _examine_sequence_example(schema: Schema, record: bytes) -> None:
    message = protobuf.parse("SequenceExample", record)
    expected = one_by_one(schema, record)
    context, found = context_of(record), steps_of(record)
    if context is None or found is None:
        return
    assert message is not None, "protobuf refuses what is taken for a SequenceExample"
    _same_lists(context, lists_in(message.context))
    lists = message.feature_lists.feature_list
    its = {name: [_list_in(step) for step in steps.feature] for name, steps in lists.items()}
    assert found.keys() == its.keys()
    for name, steps in its.items():
        _same_lists(dict(enumerate(found[name])), dict(enumerate(steps)))  # type: ignore[arg-type]
    again = one_by_one(schema, message.SerializeToString(deterministic=True))
    assert again == expected, f"{expected!r:.300}, as protobuf writes it {again!r:.300}"


def sequence_examples() -> list[bytes]:
    """SequenceExamples, after the byte that chooses their schema."""
    waves = serialize_tensor(np.arange(2, dtype=np.int16))
    groups: list[dict[str, list[Any]]] = [
        {"a": [[0.0, 1.0]] * 3},
        {"t": [b"word"] * 2, "i": [[0, 300], [1, 300]]},
        {"x": [waves] * 2, "r": [[0.0, 1.0, 0.0]] * 2},
    ]
    return [
        bytes([number]) + sequence_example({"n": 5}, **steps) for number, steps in enumerate(groups)
    ]


_DTYPES = sorted(TENSORFLOW_DTYPES)


def _examine_tensor(dtype: str, message: bytes) -> None:
    parsed = protobuf.parse("Tensor", message)
    try:
        found = parse_tensor(message, dtype)
    except ValueError:
        return
    if parsed is None:
        assert _has_broken_name(message), "protobuf refuses what is taken for a TensorProto"
        return
    assert parsed.dtype == TENSORFLOW_DTYPES[dtype], "another dtype"
    shape = tuple(dim.size for dim in parsed.tensor_shape.dim)
    assert found.shape == shape, f"shape {found.shape}, in protobuf {shape}"
    if dtype == "string":
        assert found.ravel().tolist() == list(parsed.string_val)
    else:
        assert found.tobytes() == parsed.tensor_content, "other values"
    assert trace(parse_tensor(serialize_tensor(found), dtype)) == trace(found)


def _has_broken_name(message: bytes) -> bool:
    """Whether a dimension has a name that is no UTF-8. Known, and not a finding: nobody reads it."""
    shapes = (shape for number, _, shape in fields(memoryview(message)) if number == 2)
    dims = (dim for shape in shapes for _, _, dim in fields(shape))
    names = [bytes(name) for dim in dims for *kind, name in fields(dim) if kind == [2, 2]]
    return any(name.decode("utf-8", "replace").encode() != name for name in names)


def tensors() -> list[bytes]:
    """TensorProtos, after the byte that chooses their dtype."""
    rng = np.random.default_rng(1)
    found = []
    for number, dtype in enumerate(_DTYPES):
        if dtype == "string":
            array = np.array([[b"ab", b""], [b"c", bytes(200)]], object)
        else:
            array = rng.integers(0, 2, (number % 3, 2)).astype(numpy_dtype(dtype))
        found.append(bytes([number]) + serialize_tensor(array))
    return found


target_of_messages = functools.partial(
    Target, mutate=after_choice(messages.mutate), max_bytes=1024, limits=Limits(memory=48 << 20)
)

TARGETS = (
    target_of_messages("example", examples, by_choice(SCHEMAS, _examine_example)),
    target_of_messages(
        "sequence_example", sequence_examples, by_choice(STEP_SCHEMAS, _examine_sequence_example)
    ),
    target_of_messages("tensor", tensors, by_choice(_DTYPES, _examine_tensor)),
)
