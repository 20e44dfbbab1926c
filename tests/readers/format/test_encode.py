import math
import re
from collections.abc import Mapping
from typing import Any

import hypothesis
import hypothesis.extra.numpy as hnp
import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from readers.format.decode.records import Decoder, parse_example
from readers.format.dtypes import (
    FLOATS_IN_A_LIST,
    INTEGERS_IN_A_LIST,
    TENSORFLOW_DTYPES,
    numpy_dtype,
)
from readers.format.encode.records import Encoder, map_order
from readers.format.protobuf.wire import varint
from readers.format.schema import Feature, Schema
from tests.readers.format.mutations import field, mutated
from tests.support.arrays import assert_same, random_array
from tests.support.plain import example, tensor

# Computed once with TensorFlow and upb. The format on disk never changes.
GOLDEN_SCHEMA = Schema(
    {
        "signal": Feature("int16", (None, 2)),
        "label": Feature("int64"),
        "key": Feature("string"),
        "score": Feature("float32"),
    }
)
GOLDEN_RECORD = {
    "signal": np.array([[1, 2], [3, 4], [5, 6]], np.int16),
    "label": -1,
    "key": "é#0",
    "score": 0.5,
}
GOLDEN = bytes.fromhex(
    "0a7f0a0f0a036b657912080a060a04c3a923300a170a056c6162656c120e1a0c0a0affffffffffffffffff01"
    "0a110a0573636f7265120812060a040000003f0a160a0c7369676e616c2f736861706512061a040a020302"
    "0a280a067369676e616c121e0a1c0a1a080512081202080312020802220c010002000300040005000600"
)

PNG = tf.io.encode_png(np.zeros((2, 3, 3), np.uint8)).numpy()


def expected_example(schema: Mapping[str, Feature], record: Mapping[str, Any]) -> bytes:
    """The Example that the format prescribes for a record, built with TensorFlow alone."""
    values: dict[str, Any] = {}
    for name, feature in schema.items():
        value = record[name]
        if feature.has_companion and feature.encoding != "sequence":
            values[f"{name}/shape"] = list(value.shape)
        match feature.encoding:
            case "tensor":
                values[name] = tensor(value)
            case "raw":
                values[name] = value.astype(value.dtype.newbyteorder("<")).tobytes()
            case "sequence":
                values[name] = np.array(list(map(tensor, value)), object)
                rows = [n for array in value for n in (array.nbytes, *array.shape)]
                values[f"{name}/shape"] = rows
            case "list" if feature.dtype != "string":
                kind = np.float32 if feature.dtype in FLOATS_IN_A_LIST else np.int64
                values[name] = value.astype(kind)
            case _:
                values[name] = value
    return example(**values)


def assert_value(found: Any, expected: Any) -> None:
    """Asserts that a decoded value is the one that was encoded: an array, or a list of arrays."""
    if isinstance(expected, list):
        for one, other in zip(found, expected, strict=True):
            assert_same(one, other)
        return
    expected = np.asarray(expected)
    if expected.dtype == object:
        texts = [v.encode() if isinstance(v, str) else v for v in expected.ravel().tolist()]
        assert (found.dtype, found.shape) == (object, expected.shape)
        assert found.ravel().tolist() == texts
    else:
        assert_same(found, expected)


def one(feature: Feature, value) -> bytes:
    return Encoder(Schema({"x": feature})).encode({"x": value})


def expected_one(feature: Feature, value) -> bytes:
    return expected_example({"x": feature}, {"x": value})


def read(feature: Feature, data: bytes):
    return Decoder(Schema({"x": feature})).decode(data)["x"]


def test_golden_bytes_are_written_and_read():
    assert Encoder(GOLDEN_SCHEMA).encode(GOLDEN_RECORD) == GOLDEN
    record = Decoder(GOLDEN_SCHEMA).decode(GOLDEN)
    assert_value(record["signal"], GOLDEN_RECORD["signal"])
    assert_value(record["label"], np.array(-1))
    assert_value(record["score"], np.array(0.5, np.float32))
    assert_value(record["key"], np.array("é#0", object))


# Every encoding with each dtype it supports, with fixed and varying shapes, empty and not.
CASES = [
    (Feature(dtype, shape, encoding), size)
    for encoding, dtypes in (
        ("tensor", sorted(TENSORFLOW_DTYPES)),
        ("list", [*INTEGERS_IN_A_LIST, *FLOATS_IN_A_LIST, "string"]),
        ("raw", sorted(set(TENSORFLOW_DTYPES) - {"string"})),
    )
    for dtype in dtypes
    for shape, size in (
        ((), ()),
        ((3, 2), (3, 2)),
        ((None, 2), (20, 2)),
        ((None, 2), (0, 2)),
        ((2, None, None), (2, 1, 3)),
        ((0,), (0,)),
    )
]


def values_of(dtype: str, shape: tuple[int, ...]) -> np.ndarray:
    return random_array(np.random.default_rng(len(shape)), dtype, shape)


@pytest.mark.parametrize(("feature", "shape"), CASES, ids=str)
def test_every_encoding_matches_tensorflow_and_round_trips(feature, shape):
    array = values_of(feature.dtype, shape)
    data = one(feature, array)
    assert data == expected_one(feature, array)
    assert_value(read(feature, data), array)


@pytest.mark.parametrize("encoding", ["tensor", "list", "raw"])
@pytest.mark.parametrize("dtype", ["int32", "float32"])
def test_the_bytes_do_not_depend_on_memory_layout_or_byte_order(encoding, dtype):
    array = values_of(dtype, (4, 6))
    feature = Feature(dtype, (None, None), encoding)
    for plain in (array, array.T, array[::-1, ::2], np.broadcast_to(array[:1], (3, 6))):
        expected = expected_one(feature, np.array(plain, order="C"))
        swapped = plain.astype(plain.dtype.newbyteorder(">"))
        for laid_out in (plain, np.asfortranarray(plain), swapped, np.asfortranarray(swapped)):
            assert one(feature, laid_out) == expected


@pytest.mark.parametrize("encoding", ["jpeg", "png", "source"])
def test_an_image_is_stored_as_its_own_bytes(encoding):
    feature = Feature("uint8", (None, None, 3), encoding)
    for value in (PNG, bytearray(PNG), memoryview(PNG)):
        assert one(feature, value) == example(x=PNG)
    assert read(feature, one(feature, PNG)) == PNG


@pytest.mark.parametrize(
    ("shape", "sizes"),
    [
        ((None, None, 2), [(3, 2), (0, 2), (200, 2)]),
        ((3, None, 2), [(3, 2), (1, 2), (5, 2)]),
        ((None,), [(), ()]),
        ((None, 3), []),
        ((0, 3), []),
        ((2, 3), [(3,), (3,)]),
    ],
)
@pytest.mark.parametrize("dtype", ["int64", "bfloat16"])
def test_a_sequence_is_stored_as_tensors_with_sizes_and_shapes(dtype, shape, sizes):
    feature = Feature(dtype, shape, "sequence")
    arrays = [values_of(dtype, size) for size in sizes]
    data = one(feature, arrays)
    assert data == expected_one(feature, arrays)
    assert_value(read(feature, data), arrays)
    assert one(feature, tuple(arrays)) == data
    assert one(feature, iter(arrays)) == data


def test_a_stacked_array_is_encoded_as_a_sequence_of_its_rows():
    feature = Feature("int64", (None, None), "sequence")
    stacked = np.arange(6).reshape(2, 3)
    assert one(feature, stacked) == one(feature, list(stacked))


@pytest.mark.parametrize("encoding", ["tensor", "list", "raw"])
@pytest.mark.parametrize("dtype", ["float16", "float32", "bfloat16"])
def test_nan_infinity_and_negative_zero_round_trip(dtype, encoding):
    special = [np.nan, np.inf, -np.inf, -0.0, 0.0]
    feature = Feature(dtype, (None,), encoding)
    expected = np.array(special, numpy_dtype(dtype))
    for value in (special, expected):
        assert_value(read(feature, one(feature, value)), expected)


NAMES = ["a", "ab", "abc", "a!", "a.", "a0", "a ", "é", "éa", "e", "𝄞", "￿", "A", "a_shape", "ÿ"]


@pytest.mark.parametrize("encoding", ["tensor", "list", "raw", "sequence"])
def test_prefixes_and_unicode_names_are_written_in_the_order_of_protobuf(encoding):
    feature = Feature("int64", (None, None), encoding)
    value = np.ones((2, 1), np.int64)
    schema = Schema(dict.fromkeys(NAMES, feature))
    record = dict.fromkeys(NAMES, list(value) if encoding == "sequence" else value)
    data = Encoder(schema).encode(record)
    assert data == expected_example(schema, record)
    assert Encoder(schema).encode(dict(reversed(record.items()))) == data
    assert list(Decoder(schema).decode(data)) == list(schema)


@given(st.lists(st.text("a/b\0é𝄞", min_size=1, max_size=4), unique=True, min_size=1, max_size=12))
@hypothesis.example(["a", "a/", "aa", "a\0"])
def test_map_order_matches_protobuf(names):
    data = example(**{name: [] for name in names})
    assert list(parse_example(data)) == sorted(names, key=map_order)


DTYPES = {
    "tensor": sorted(set(TENSORFLOW_DTYPES) - {"bfloat16", "string"}),
    "list": [d for d in (*INTEGERS_IN_A_LIST, *FLOATS_IN_A_LIST) if d != "bfloat16"],
}


def features_with_values(draw) -> tuple[Feature, st.SearchStrategy]:
    """A feature of any encoding, and values that fit it, with shapes that differ and repeat."""
    encoding = draw(
        st.sampled_from(["tensor", "list", "raw", "text", "sequence", "strings", "png"])
    )
    if encoding == "text":
        return Feature("string"), st.text(max_size=20)
    if encoding == "png":
        return Feature("uint8", (None, None, 3), "png"), st.binary(min_size=1, max_size=5)
    if encoding == "strings":
        texts = st.lists(st.text(max_size=2), max_size=3).map(lambda items: np.array(items, object))
        return Feature("string", (None,), draw(st.sampled_from(["list", "tensor"]))), texts
    dtype = draw(st.sampled_from(DTYPES.get(encoding, DTYPES["tensor"])))
    spec = draw(st.lists(st.sampled_from([None, None, 0, 2]), max_size=3))
    shapes = st.tuples(*(st.integers(0, 3) if size is None else st.just(size) for size in spec))
    # A float list turns the signalling NaNs of float16 into quiet ones.
    no_nan = {"allow_nan": False} if numpy_dtype(dtype).kind in "fc" else {}
    elements = hnp.from_dtype(numpy_dtype(dtype), **no_nan)
    arrays = hnp.arrays(numpy_dtype(dtype), shapes, elements=elements)
    if encoding == "sequence":
        return Feature(dtype, (None, *spec), "sequence"), st.lists(arrays, max_size=3)
    return Feature(dtype, spec, encoding), arrays


@settings(max_examples=30)
@given(st.data())
def test_any_records_match_tensorflow_and_round_trip_with_one_encoder(data):
    """The encoder keeps the beginning of an entry for each layout; no record may change others."""
    names = data.draw(st.sets(st.text("abé𝄞#._ ", min_size=1, max_size=4), min_size=1, max_size=4))
    drawn = {name: features_with_values(data.draw) for name in sorted(names)}
    schema = Schema({name: feature for name, (feature, _) in drawn.items()})
    values = st.fixed_dictionaries({name: values for name, (_, values) in drawn.items()})
    records = data.draw(st.lists(values, min_size=2, max_size=8))
    encoder = Encoder(schema)
    for record in [*records, *records]:
        encoded = encoder.encode(record)
        assert encoded == expected_example(schema, record)
        decoded = Decoder(schema).decode(encoded)
        for name, feature in schema.items():
            if feature.encoding == "png":
                assert decoded[name] == record[name]
            else:
                is_text = feature.encoding == "text"
                assert_value(
                    decoded[name], np.array(record[name], object) if is_text else record[name]
                )


def entry(value: bytes, name: bytes = b"x") -> bytes:
    """An Example with one feature, whose `tf.train.Feature` is given as bytes."""
    return field(1, field(1, field(1, name) + field(2, value)))


@given(st.lists(st.integers(-(2**63), 2**63 - 1), max_size=20))
def test_unpacked_integers_are_read(values):
    unpacked = b"".join(b"\x08" + varint(v & 0xFFFFFFFFFFFFFFFF) for v in values)
    data = entry(field(3, unpacked))
    assert list(tf.train.Example.FromString(data).features.feature["x"].int64_list.value) == values
    assert read(Feature("int64", (None,), "list"), data).tolist() == values


def test_unpacked_floats_and_lists_in_several_runs_are_read():
    real = np.array([0.5, -1.5, np.inf], np.float32)
    unpacked = b"".join(b"\x0d" + v.tobytes() for v in real)
    assert_value(read(Feature("float32", (3,), "list"), entry(field(2, unpacked))), real)
    runs = field(1, real[:1].tobytes()) + b"\x0d" + real[1].tobytes() + field(1, real[2:].tobytes())
    assert_value(read(Feature("float32", (3,), "list"), entry(field(2, runs))), real)
    mixed = entry(field(3, b"\x08\x05" + field(1, b"\x81\x01\x02") + b"\x08\x07"))
    assert read(Feature("int64", (4,), "list"), mixed).tolist() == [5, 129, 2, 7]


@pytest.mark.parametrize(
    "value",
    [
        field(3, field(1, b"\x01")) + field(3, field(1, b"\x02")),
        field(2, field(1, b"\0\0\0\0")) + field(3, field(1, b"\x01\x02")),
    ],
    ids=["the same list twice", "one list after another"],
)
def test_a_list_in_several_fields_is_read_as_by_protobuf(value):
    data = entry(value)
    expected = tf.train.Example.FromString(data).features.feature["x"].int64_list.value
    assert read(Feature("int64", (None,), "list"), data).tolist() == list(expected) == [1, 2]


@pytest.mark.parametrize(
    "values",
    [[field(3, field(1, b"\x01")), field(3, field(1, b"\x02"))],
     [field(2, field(1, b"\0\0\0\0")), field(3, field(1, b"\x01\x02"))],
     [field(3, field(1, b"\x01\x02")), b""]],
    ids=["the same list", "one list after another", "an empty one"],
)  # fmt: skip
def test_the_values_of_an_entry_are_merged_as_by_protobuf(values):
    data = field(1, field(1, field(1, b"x") + b"".join(field(2, value) for value in values)))
    expected = tf.train.Example.FromString(data).features.feature["x"].int64_list.value
    assert read(Feature("int64", (None,), "list"), data).tolist() == list(expected) == [1, 2]


def test_the_steps_of_an_entry_with_two_values_are_merged_as_by_protobuf():
    steps = [field(2, field(1, field(3, field(1, bytes([n]))))) for n in (1, 2)]
    data = field(2, field(1, field(1, b"x") + b"".join(steps)))
    found = tf.train.SequenceExample.FromString(data).feature_lists.feature_list["x"].feature
    expected = [list(step.int64_list.value) for step in found]
    assert read(Feature("int64", (None, 1), "list steps"), data).tolist() == expected == [[1], [2]]


def test_the_last_of_two_features_of_one_name_wins_as_in_protobuf():
    entries = [field(1, field(1, b"x") + field(2, field(3, field(1, bytes([n]))))) for n in (1, 2)]
    data = field(1, b"".join(entries))
    assert tf.train.Example.FromString(data).features.feature["x"].int64_list.value == [2]
    assert read(Feature("int64"), data) == 2


def test_features_that_are_not_in_the_schema_are_ignored():
    data = example(x=[1], other=b"\xff", more=1.0)
    assert Decoder(Schema({"x": Feature("int64")})).decode(data) == {"x": 1}


def test_one_unknown_dimension_is_inferred_without_a_companion():
    data = example(x=[*range(6)])
    assert read(Feature("int64", (None, 2), "list"), data).shape == (3, 2)
    assert read(Feature("int64", (2, None), "list"), data).shape == (2, 3)
    raw = example(x=np.arange(6, dtype=np.int16).tobytes())
    assert read(Feature("int16", (None,), "raw"), raw).tolist() == list(range(6))
    with pytest.raises(ValueError, match="several unknown dimensions need the companion"):
        read(Feature("int64", (None, None), "list"), data)
    with pytest.raises(ValueError, match=r"6 values do not fill shape \[None, 4\]"):
        read(Feature("int64", (None, 4), "list"), data)
    with pytest.raises(ValueError, match=r"6 values do not fill shape \[None, 0\]"):
        read(Feature("int64", (None, 0), "list"), data)


@pytest.mark.parametrize("data", [example(y=[1]), entry(b"")], ids=["missing", "unset"])
@pytest.mark.parametrize("dtype", ["int64", "float32", "string", "uint8"])
def test_a_missing_list_of_variable_length_is_empty_as_in_tensorflow(dtype, data):
    wire = {"string": tf.string, "float32": tf.float32}.get(dtype, tf.int64)
    parsed = tf.io.parse_single_example(data, {"x": tf.io.VarLenFeature(wire)})
    assert parsed["x"].shape == [0]
    found = read(Feature(dtype, (None, 4), "list"), data)
    assert_value(found, np.empty((0, 4), numpy_dtype(dtype)))


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ({"a": 1, "b": 2, "c": 3}, "has c, not in the schema; the schema has a, b"),
        ({"a": 1, "c": 3, 4: 5}, "lacks b and has 4, c, not in the schema"),
    ],
)
def test_missing_and_extra_features_are_named_in_the_error(record, message):
    schema = Schema({"a": Feature("int64"), "b": Feature("int64")})
    with pytest.raises(ValueError, match=message):
        Encoder(schema).encode(record)


class Tensor:
    """Raises an error of its library, as PyTorch does for a tensor that requires a gradient."""

    def __array__(self, *_, **__):
        raise RuntimeError("copy it first")

    def __str__(self):
        return "Tensor of a device"


@pytest.mark.parametrize(
    ("feature", "value", "expected", "found"),
    [
        # Arrays of another dtype or shape.
        (Feature("uint8", (2,)), np.zeros(2, np.int64), "uint8 [2]", "int64 [2]"),
        (Feature("uint8", (2,)), np.zeros(3, np.uint8), "uint8 [2]", "uint8 [3]"),
        (Feature("uint8", (None, 3)), np.zeros((5, 4), np.uint8), "[None, 3]", "uint8 [5, 4]"),
        (Feature("int64"), np.float64(1), "int64 []", "float64 []"),
        (Feature("int64", (1,)), np.array(["1"]), "int64 [1]", "string [1]"),
        (Feature("int64"), np.array("2020-01-01", "M8[s]"), "int64 []", "datetime64[s] []"),
        # Python values that the dtype cannot hold.
        (Feature("uint8"), 300, "uint8 []", "300"),
        (Feature("uint8", (3,)), [1, 256, 3], "uint8 [3]", "[1, 256, 3]"),
        (Feature("int64"), 1.5, "int64 []", "1.5"),
        (Feature("int64"), 2**63, "int64 []", "9223372036854775808"),
        (Feature("int64"), float("nan"), "int64 []", "nan"),
        (Feature("uint64", (2,)), [2**63, -1], "uint64 [2]", "-1]"),
        (Feature("bool"), 2, "bool []", "2"),
        (Feature("float32"), 1e300, "float32 []", "1e+300"),
        (Feature("float16", (2,)), [1, 70000], "float16 [2]", "[1, 70000]"),
        (Feature("float32"), 1 + 2j, "float32 []", "(1+2j)"),
        (Feature("int64"), "12", "int64 []", "12"),
        (Feature("int64", (2,)), ["1", "2"], "int64 [2]", "['1', '2']"),
        (Feature("float32"), None, "float32 []", "None"),
        (Feature("int64", (None,)), [[1], [2, 3]], "int64 [None]", "[[1], [2, 3]]"),
        # Masked values.
        (
            Feature("float32", (2,)),
            np.ma.array([1, 9], np.float32, mask=[0, 1]),
            "some values",
            "masked",
        ),
        (Feature("int64", (None, 2)), [np.ma.array([1, 9], mask=[0, 1])], "some values", "masked"),
        (Feature("int64", (2,)), [1, np.ma.masked], "int64 [2]", "masked"),
        (Feature("int64"), Tensor(), "int64 []", "Tensor of a device': copy it first"),
        # Values that are not text.
        (Feature("string"), 5, "string []", "got int"),
        (Feature("string"), ["a"], "string []", "string [1]"),
        (Feature("string", (2,)), ["a", 5], "string [2]", "got int"),
        (Feature("string"), "\ud800", "string []", "surrogates not allowed"),
        (Feature("string"), b"\xff", "expected UTF-8", "invalid start byte"),
        # Images.
        (Feature("uint8", (None, None, 3), "jpeg"), b"", "bytes of an image (jpeg)", "got bytes"),
        (Feature("uint8", (2, 2, 3), "png"), np.zeros((2, 2, 3), np.uint8), "png", "got ndarray"),
        # Sequences.
        (Feature("int64", (None, None), "sequence"), 5, "a list of arrays", "got int"),
        (Feature("int64", (3, None), "sequence"), [[1], [2]], "expected 3 arrays", "got 2"),
        (Feature("int64", (None, 2), "sequence"), [[1], [3, 4]], "[0]': expected int64 [2]", "[1]"),
    ],
    ids=lambda value: repr(value)[:30],
)
# NumPy 1 warns that it wraps -1.
@pytest.mark.filterwarnings("error", "ignore:NumPy will stop allowing")
def test_an_error_about_a_value_names_feature_expectation_and_value(
    feature, value, expected, found
):
    with pytest.raises(ValueError) as caught:
        one(feature, value)
    text = str(caught.value)
    assert text.startswith("feature 'x"), text
    assert expected in text
    assert found in text.split(expected, 1)[1]


ONE = np.ones(1, ml_dtypes.bfloat16)


@pytest.mark.parametrize(
    ("feature", "value", "expected"),
    [
        (Feature("uint8"), 255, np.uint8(255)),
        (Feature("int64"), True, np.int64(1)),
        (Feature("bool", (2,)), [1, 0], np.array([True, False])),
        (Feature("float32"), 0.1, np.float32(0.1)),
        (Feature("complex64", (2,)), [1, 2j], np.array([1, 2j], np.complex64)),
        (Feature("bfloat16", (2,)), [1, 2.5], np.array([1, 2.5], ml_dtypes.bfloat16)),
        (Feature("bfloat16", (2, 1)), [ONE] * 2, np.array([ONE, ONE])),
        (Feature("uint64", (2,)), [2**63 + 1, 1], np.array([2**63 + 1, 1], np.uint64)),
        (Feature("int64", (2,)), [2**62 + 1, 1.0], np.array([2**62 + 1, 1])),
        (Feature("int16", (2, 1)), [np.array([1]), np.array([2])], np.array([[1], [2]], np.int16)),
        (Feature("int64"), tf.constant(7, tf.int64), np.int64(7)),
        (Feature("string", (2,)), ["a", b"b"], np.array([b"a", b"b"], object)),
        (Feature("string"), np.bytes_(b"a\0"), np.array(b"a\0", object)),
        (Feature("int64", (2,)), np.ma.array([1, 2], mask=[0, 0]), np.array([1, 2])),
    ],
    ids=lambda value: repr(value)[:30],
)
@pytest.mark.filterwarnings("error")
def test_python_values_that_the_dtype_can_hold_are_stored_exactly(feature, value, expected):
    assert_value(read(feature, one(feature, value)), expected)


TENSOR = tensor(np.zeros((2, 3), np.int16))
NO_TEXTS = np.empty(0, object)
PAIRS = Feature("int64", (None, 2), "list")
SEQUENCE = Feature("int16", (2, None, 2), "sequence")


def shaped(values, shape) -> bytes:
    return example(x=values, **{"x/shape": shape})


@pytest.mark.parametrize(
    ("feature", "data", "reason"),
    [
        (Feature("int64"), example(y=[1], z=[2]), "is missing: the Example has"),
        (Feature("int64"), entry(b""), "is missing: the Example has x"),
        (Feature("int64"), example(x=1.0), "holds a list of floats, not of integers"),
        (Feature("int64"), example(x=b"1"), "holds a list of bytes, not of integers"),
        (Feature("int64"), example(x=[1, 2]), r"2 values do not fill shape \[\]"),
        (Feature("uint8"), example(x=[300]), "holds 300, which is not a valid uint8"),
        (Feature("float16", (), "list"), example(x=7e4), "70000.0, which is not a valid float16"),
        (
            Feature("int16", (2, 3)),
            example(x=[1]),
            "bytes were expected; numbers have the encoding list",
        ),
        (Feature("string"), example(x=[b"a", b"b"]), "expected one bytes value, found 2"),
        (Feature("int16", (2, 2)), example(x=TENSOR), r"expected \[2, 2\], found \[2, 3\]"),
        (Feature("int32", (2, 3)), example(x=TENSOR), "a tensor of int32, found int16"),
        (Feature("int16", (2, 3)), example(x=TENSOR[:-1]), "runs past the end"),
        (Feature("int16", (2,), "raw"), example(x=b"abc"), "3 bytes are not a whole number"),
        (Feature("uint8", (2, 2, 3), "png"), example(x=NO_TEXTS), "expected one bytes value"),
        (SEQUENCE, example(x=[TENSOR]), "expected 2 arrays, found 1"),
        (SEQUENCE, example(x=[TENSOR, TENSOR]), r"expected \[None, 2\], found \[2, 3\]"),
        (PAIRS, shaped([1, 2], [2, 2]), r"2 values do not fill shape \[2, 2\]"),
        (PAIRS, shaped([1, 2], [-1, -2]), r"2 values do not fill shape \[-1, -2\]"),
        (PAIRS, shaped([1, 2], b"\x01"), "x/shape is not a list of integers"),
        (Feature("int64", (None, None), "list"), shaped([], [0, 2**63 - 1]), "too big|maximum"),
    ],
    ids=lambda value: repr(value)[:30],
)
def test_an_error_about_an_example_names_the_feature_and_the_reason(feature, data, reason):
    with pytest.raises(ValueError, match=f"^feature 'x'.*{reason}"):
        read(feature, data)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"\x1a\x00", "field 3 is not one of tf.train.Example"),
        (field(1, b"\x12\x00"), "field 2 is not one of tf.train.Features"),
        (field(1, field(1, b"\x1a\x00")), "neither key nor value"),
        (entry(field(4, b"")), "field 4 is not one of tf.train.Feature"),
        (entry(field(3, field(2, b"\x01"))), "field 2 is not one of a tf.train list"),
        (entry(field(1, b"\x08\x01")), "field 1 is not one of a tf.train list"),
        (entry(field(2, b"\x09" + bytes(8))), "field 1 is not one of a tf.train list"),
        (entry(field(3, b""), name=b"\xff"), "codec can't decode"),
        (b"\x0a\x05abc", "runs past the end"),
    ],
)
def test_bytes_that_are_not_an_example_are_refused_with_the_reason(data, reason):
    with pytest.raises(ValueError, match=reason):
        parse_example(data)


def test_features_can_have_other_names_in_the_example():
    schema = Schema({"image": Feature("uint8", (None, 2)), "label": Feature("int64")})
    renamed = Schema({"a": schema["label"], "image_raw": schema["image"]})
    image = np.arange(4, dtype=np.uint8).reshape(2, 2)
    encoder = Encoder(schema, {"image": "image_raw", "label": "a"})
    data = encoder.encode({"image": image, "label": 7})
    assert data == Encoder(renamed).encode({"image_raw": image, "a": 7})


FUZZED = Schema(
    {
        "tensor": Feature("float32", (None, 2)),
        "list": Feature("int32", (None, 2), "list"),
        "real": Feature("float16", (3,), "list"),
        "raw": Feature("int16", (None, None), "raw"),
        "text": Feature("string"),
        "words": Feature("string", (None,)),
        "picture": Feature("uint8", (None, None, 3), "png"),
        "parts": Feature("uint8", (None, None), "sequence"),
    }
)
FUZZED_EXAMPLE = Encoder(FUZZED).encode(
    {
        "tensor": np.ones((3, 2), np.float32),
        "list": np.array([[1, -2], [300, 4]], np.int32),
        "real": [1, 2, 3],
        "raw": np.ones((2, 2), np.int16),
        "text": "é",
        "words": ["a", "bc"],
        "picture": PNG,
        "parts": [np.ones(3, np.uint8), np.zeros(0, np.uint8)],
    }
)


@settings(max_examples=200)
@given(st.randoms(use_true_random=False))
def test_a_mutated_example_gives_a_valid_record_or_a_value_error(random):
    data = mutated(random, FUZZED_EXAMPLE)
    try:
        record = Decoder(FUZZED).decode(data)
    except ValueError:
        return
    assert record.keys() == FUZZED.keys()
    for name, feature in FUZZED.items():
        if isinstance(record[name], np.ndarray):
            assert record[name].dtype == numpy_dtype(feature.dtype)
            assert record[name].ndim == len(feature.shape)
            assert record[name].nbytes <= 8 * len(data)


@given(st.binary(max_size=80))
def test_random_bytes_raise_a_value_error(data):
    with pytest.raises(ValueError):
        Decoder(FUZZED).decode(data)


@pytest.mark.parametrize(("feature", "shape"), CASES[2::6], ids=str)
def test_an_encoder_that_forgets_layouts_matches_tensorflow(monkeypatch, feature, shape):
    monkeypatch.setattr("readers.format.encode.records._MAX_LAYOUTS", 2)
    encoder = Encoder(Schema({"x": feature}))
    sizes = [
        tuple(n if s is None else s for s in feature.shape) for n in (1, 0, 4, 1, 3, 4, 1, 200)
    ]
    if not all(feature.shape):
        sizes = [shape] * 3
    for size in sizes:
        array = values_of(feature.dtype, size)
        assert encoder.encode({"x": array}) == expected_one(feature, array)
        assert all(len(entry._beginnings) <= 2 for entry in encoder._entries)


def test_only_the_beginning_of_a_layout_is_kept():
    encoder = Encoder(Schema({"x": Feature("uint8", (None, None)), "key": Feature("string")}))
    for n in range(1, 40):
        encoder.encode({"x": np.ones((1000, n), np.uint8), "key": "k" * 5000})
    kept = [beginning for entry in encoder._entries for beginning in entry._beginnings.values()]
    assert len(kept) == 39 + 39 + 1
    assert max(map(len, kept)) < 60


@pytest.mark.parametrize("encoding", ["list", "tensor", "raw"])
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("shape", [(), (1,)])
def test_scalars_that_compare_equal_keep_their_own_bytes(dtype, encoding, shape):
    feature = Feature(dtype, shape, encoding)
    encoder = Encoder(Schema({"x": feature}))
    for value in (0.0, -0.0, 1.0, np.nan, np.nan, 0.0):
        array = np.full(shape, value, numpy_dtype(dtype))
        assert encoder.encode({"x": array}) == expected_one(feature, array)


FEATURES = [
    Feature("int64"),
    Feature("int64", (), "tensor"),
    Feature("int64", (None,), "list"),
    Feature("float32", (2,)),
    Feature("float32", (None,), "raw"),
    Feature("uint8", (None, None, 3)),
    Feature("uint8", (None, None, 3), "png"),
    Feature("float32", (None, 2), "sequence"),
    Feature("float32", (2,), "zlib"),
    Feature("string", (), "zlib"),
    Feature("string"),
    Feature("string", (), "list"),
]

VALUES = [
    *(3, -(2**63), 2**63, True, 1.5, np.int64(4), np.float32(2), np.array(5)),
    *("text", "é", "\udcff", b"bytes", b"\xff", b"", np.str_("text"), np.bytes_(b"a\0")),
    *(np.ones(2, np.float32), np.ones(3, np.float32), np.ones(2), np.ones((3, 2), np.float32)),
    *(np.ones(2, ">f4"), np.ones((4, 5, 3), np.uint8), np.zeros((0, 1 << 40), np.float32)),
    *(
        [1, 2],
        [1.5, 2],
        [[1, 2], [3, 4]],
        [np.ones(2, np.float32)],
        np.ma.array([1.0, 2.0], "f4", mask=[0, 1]),
    ),
    *(np.array("text", object), np.arange(3), np.array(["a", b"b"], object), None, PNG),
]


@pytest.mark.parametrize("feature", FEATURES, ids=str)
@given(values=st.lists(st.sampled_from(VALUES), min_size=1, max_size=4))
def test_values_are_checked_together_as_one_by_one(feature, values):
    encoder = Encoder(Schema({"x": feature}))
    records = [{"x": value} for value in values]
    try:
        checked = list(map(encoder.check, records))
        expected = list(map(encoder.pack, checked))
    except ValueError as error:
        with pytest.raises(ValueError, match=f"^{re.escape(str(error))}$"):
            encoder.pack_all(encoder.check_all(records))
        return
    columns = encoder.check_all(records)
    assert encoder.pack_all(columns) == expected
    assert list(map(type, columns["x"])) == [type(values["x"]) for values in checked]


def test_a_failed_record_does_not_affect_later_ones():
    schema = Schema({"words": Feature("string", (None,)), "text": Feature("string")})
    encoder = Encoder(schema)
    good = {"words": ["a", "b"], "text": "c"}
    expected = Encoder(schema).encode(good)
    for bad in ({"words": ["a", 5], "text": "c"}, {"words": ["a", "b"], "text": 5}):
        with pytest.raises(ValueError, match="expected text or bytes, got int"):
            encoder.encode(bad)
        assert encoder.encode(good) == expected


def test_a_companion_with_too_many_dimensions_is_refused_without_multiplying_them(monkeypatch):
    data, feature = shaped([7], [1] * 1_000), Feature("int64", (None, None), "list")
    monkeypatch.setattr(math, "prod", lambda _: pytest.fail("a product that takes very long"))
    with pytest.raises(ValueError, match="1000 dimensions, expected 2"):
        read(feature, data)
