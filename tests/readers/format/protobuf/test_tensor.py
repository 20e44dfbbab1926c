import math

import hypothesis.extra.numpy as hnp
import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from readers.format.dtypes import TENSORFLOW_DTYPES, numpy_dtype
from readers.format.protobuf.tensor import parse_tensor
from readers.format.protobuf.wire import varint
from tests.readers.format.mutations import mutated
from tests.support.arrays import assert_same, serialize_tensor
from tests.support.plain import tensor

NUMERIC = sorted(set(TENSORFLOW_DTYPES) - {"string"})
ORDERED = [name for name in NUMERIC if name not in ("bool", "bfloat16")]

# Computed once with tf.io.serialize_tensor. The format on disk never changes.
GOLDEN = [
    (np.array([[1, 2, 3], [4, 5, 6]], np.uint8), "0804120812020802120208032206010203040506"),
    (np.float32(1.5), "0801120022040000c03f"),
    (np.array([True, False]), "080a12041202080222020100"),
    (np.array([1, -2], np.int64), "080912041202080222100100000000000000feffffffffffffff"),
    (np.array([0.5 + 2j], np.complex64), "080812041202080122080000003f00000040"),
    (np.array([1.5], ml_dtypes.bfloat16), "080e1204120208012202c03f"),
    (np.array(["é", b"a\0b"], object), "08071204120208024202c3a94203610062"),
    (np.zeros((0, 300)), "080212071200120308ac02"),
]


def filled(name: str, shape: tuple[int, ...]) -> np.ndarray:
    """Values of random bits, so that every exponent, NaN payload and sign occurs."""
    dtype = numpy_dtype(name)
    size = math.prod(shape)
    bits = np.random.default_rng(size + len(shape)).bytes(size * dtype.itemsize)
    if name == "bool":
        return (np.frombuffer(bits, np.uint8) & 1).astype(bool).reshape(shape)
    return np.frombuffer(bits, dtype).reshape(shape).copy()


def proto(dims: list[int], content: bytes = b"", dtype: int = 1) -> bytes:
    sizes = [b"\x08" + varint(size) for size in dims]
    shape = b"".join(b"\x12" + varint(len(size)) + size for size in sizes)
    return b"".join(
        (b"\x08", varint(dtype), b"\x12", varint(len(shape)), shape)
        + ((b"\x22", varint(len(content)), content) if content else ())
    )


@pytest.mark.parametrize(("array", "golden"), GOLDEN)
def test_golden_bytes_are_written_and_read(array, golden):
    data = bytes.fromhex(golden)
    assert serialize_tensor(array) == data
    array = np.asarray(array)
    if array.dtype == object:
        assert parse_tensor(data, "string").tolist() == ["é".encode(), b"a\0b"]
    else:
        assert_same(parse_tensor(data, array.dtype.name), array)


@pytest.mark.parametrize("name", NUMERIC)
@pytest.mark.parametrize(
    "shape",
    [(), (7,), (2, 1, 3), (0, 200, 70000)],
)
def test_every_dtype_and_rank_matches_tensorflow(name, shape):
    array = filled(name, shape)
    data = serialize_tensor(array)
    assert data == tensor(array)
    parsed = parse_tensor(data, name)
    assert_same(parsed, array)
    assert_same(parsed, tf.io.parse_tensor(data, name).numpy())


@pytest.mark.parametrize("size", [127, 128, 129, 16383, 16384, 16385])
def test_sizes_at_the_boundaries_of_varints_match_tensorflow(size):
    for shape in ((size,), (1, size), (size, 0), (size, 2)):
        array = filled("uint8", shape)
        data = serialize_tensor(array)
        assert data == tensor(array)
        assert_same(parse_tensor(data, "uint8"), array)
    texts = np.array([b"x" * size, b""], object)
    assert serialize_tensor(texts) == tensor(texts)


def layouts(array: np.ndarray) -> dict[str, np.ndarray]:
    """Arrays of various memory layouts, made from one of shape [4, 6, 3]."""
    apart = np.frombuffer(b"\0" + array.tobytes(), np.uint8)[1:]
    return {
        "transposed": array.T,
        "moved axis": np.moveaxis(array, 0, 1),
        "strided": array[::2, 1::3],
        "negative strides": array[::-1, :, ::-1],
        "one column": array[:, 2],
        "broadcast": np.broadcast_to(array[:1, :, :1], (4, 6, 3)),
        "broadcast scalar": np.broadcast_to(array[0, 0, 0], (3, 2)),
        "Fortran": np.asfortranarray(array),
        "Fortran slice": np.asfortranarray(array)[1:3],
        "unaligned": apart.view(array.dtype).reshape(array.shape),
        "read-only": parse_tensor(serialize_tensor(array), array.dtype.name),
        "no elements": array[2:2, ::-1],
        "a NumPy scalar": array[0, 0, 0],
    }


@pytest.mark.parametrize("name", ["uint8", "complex128"])
@pytest.mark.parametrize("layout", sorted(layouts(filled("uint8", (4, 6, 3)))))
def test_the_bytes_do_not_depend_on_the_memory_layout(name, layout):
    array = layouts(filled(name, (4, 6, 3)))[layout]
    plain = np.array(array, order="C", copy=True)
    assert serialize_tensor(array) == serialize_tensor(plain) == tensor(plain)


@pytest.mark.parametrize("name", ORDERED)
def test_big_endian_input_is_written_little_endian(name):
    native = filled(name, (3, 4))
    swapped = native.astype(native.dtype.newbyteorder(">"))
    assert native.dtype.itemsize == 1 or swapped.tobytes() != native.tobytes()
    for array, expected in (
        (swapped, native),
        (swapped.T, native.T),
        (swapped[::-1, ::2], native[::-1, ::2]),
        (swapped[0, 0], native[0, 0]),
        (swapped[0, 0:1].reshape(()), native[0, 0]),
        (swapped[:0], native[:0]),
    ):
        assert serialize_tensor(array) == tensor(np.array(expected, order="C"))


@pytest.mark.parametrize(
    "value",
    [
        "text",
        "",
        np.bytes_(b"b"),
        np.array(["a", "bcd", "éü€𝄞"]),
        np.array(["a", b"b", "é", b"\xff\x00", ""], object),
        np.array([["a", "b", "c"], ["d", "e", "f"]]).T,
        np.asfortranarray(np.array([["a", "b"], ["c", "d"]], object)),
        np.zeros((0, 3), "U5"),
        np.array(["big", "endian"], ">U6"),
        np.array(["x" * 127, "x" * 128, "x" * 16384], object),
    ],
    ids=lambda value: f"{np.asarray(value).dtype}{np.shape(value)}"[:40],
)
def test_text_and_bytes_of_every_kind_match_tensorflow(value):
    tensorflow_value = value
    if isinstance(value, np.ndarray):
        tensorflow_value = np.array(value.tolist(), object).reshape(value.shape)
        if not value.size:
            tensorflow_value = tf.zeros(value.shape, tf.string)
    data = serialize_tensor(value)
    assert data == tensor(tensorflow_value)
    parsed = parse_tensor(data, "string")
    expected = tf.io.parse_tensor(data, tf.string).numpy()
    assert parsed.dtype == object
    assert parsed.shape == np.shape(expected)
    assert parsed.tolist() == (expected.tolist() if parsed.shape else expected)


@pytest.mark.skipif(not hasattr(np.dtypes, "StringDType"), reason="NumPy 1 lacks them")
def test_variable_width_strings_are_written_like_other_text():
    texts = ["a", "é", "x" * 300]
    array = np.array(texts, np.dtypes.StringDType())
    assert serialize_tensor(array) == tensor(np.array(texts, object))


@given(
    st.sampled_from(ORDERED + ["bool"]).flatmap(
        lambda name: hnp.arrays(name, hnp.array_shapes(min_dims=0, max_dims=5, min_side=0))
    )
)
def test_any_numeric_array_matches_tensorflow_and_round_trips(array):
    data = serialize_tensor(array)
    assert data == tensor(array)
    assert_same(parse_tensor(data, array.dtype.name), array)


@given(
    hnp.arrays(
        object,
        hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3),
        elements=st.text(max_size=5) | st.binary(max_size=5),
    )
)
def test_any_array_of_text_and_bytes_round_trips(array):
    parsed = parse_tensor(serialize_tensor(array), "string")
    assert parsed.shape == array.shape
    as_bytes = [v.encode() if isinstance(v, str) else v for v in array.ravel().tolist()]
    assert parsed.ravel().tolist() == as_bytes
    if array.size:
        assert serialize_tensor(array) == tensor(array)


def test_parsed_numbers_are_a_view_without_a_copy():
    data = serialize_tensor(filled("uint8", (1 << 20,)))
    parsed = parse_tensor(data, "uint8")
    assert np.shares_memory(parsed, np.frombuffer(data, np.uint8))
    assert not parsed.flags.writeable


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.array(["2020-01-01"], "M8[s]"), "unknown dtype 'datetime64"),
        (np.zeros(2, [("a", "i4")]), "unknown dtype 'void32'"),
        (np.array([1, 2], object), "expected text or bytes, got int"),
        (np.array([b"a", 1.5], object), "expected text or bytes, got float"),
        (np.array(["\ud800"], object), "surrogates not allowed"),
        ([[1], [1, 2]], "inhomogeneous"),
    ],
)
def test_dtypes_that_tensorflow_lacks_are_refused(array, message):
    with pytest.raises(ValueError, match=message):
        serialize_tensor(array)


@pytest.mark.skipif(np.dtype(np.longdouble).itemsize == 8, reason="long double is float64 here")
def test_a_long_double_is_refused():
    with pytest.raises(ValueError, match="unknown dtype"):
        serialize_tensor(np.zeros(2, np.longdouble))


@pytest.mark.parametrize("wrong", sorted(TENSORFLOW_DTYPES))
def test_the_error_for_another_dtype_names_both(wrong):
    for array in (filled("uint16", (2, 2)), np.array(["a"], object)):
        found = "string" if array.dtype == object else "uint16"
        if wrong != found:
            with pytest.raises(ValueError, match=f"expected a tensor of {wrong}, found {found}"):
                parse_tensor(serialize_tensor(array), wrong)


HUGE = 2**63 - 1


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "expected a tensor of float32, found 0"),
        (proto([2], b"\0" * 9), r"9 bytes of content do not fill float32 \[2\]"),
        (proto([0], b"\0" * 4), r"4 bytes of content do not fill float32 \[0\]"),
        (proto([2**32, 2**32], b"\0" * 4), "do not fill"),
        (proto([0, HUGE, HUGE]), "too big|reshape"),
        (proto([2**64 - 1], b"\0" * 4), "negative"),
        (proto([2**63], b""), "negative"),
        (proto([1] * 65, b"\0" * 4), "maximum supported dimension"),
        (proto([0] * 255), "rank of a TensorProto is greater than 254"),
        (proto([HUGE] * 300_000), "rank of a TensorProto is greater than 254"),
        (proto([1], b"\0" * 4, dtype=0), "found 0"),
        (proto([1], b"\0" * 4, dtype=101), "found 101"),
        (b"\x08\x01\x12\x02\x18\x01\x22\x04\0\0\0\0", "unknown rank"),
        (b"\x08\x01\x12\x00\x2d\0\0\0\0", "field 5"),
        (b"\x08\x01\x12\x00\x22\xff\xff\xff\xff\x0f", "runs past the end"),
    ],
    ids=lambda value: repr(value)[:40],
)
def test_a_message_that_is_not_a_tensor_of_the_dtype_is_refused(data, message):
    with pytest.raises(ValueError, match=message):
        parse_tensor(data, "float32")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (proto([0], dtype=7) + b"\x42\x01a", r"1 strings do not fill shape \[0\]"),
        (proto([HUGE, HUGE, 0], dtype=7), "too big|reshape"),
        (proto([1], dtype=7) + b"\x42\x05a", "runs past the end"),
    ],
)
def test_a_message_that_is_not_a_tensor_of_strings_is_refused(data, message):
    with pytest.raises(ValueError, match=message):
        parse_tensor(data, "string")


# The content of a field by its wire type.
CONTENTS = {0: b"\x05", 1: bytes(8), 2: b"\x01a", 5: bytes(4)}


@pytest.mark.parametrize(
    ("number", "kind"), [(1, 2), (1, 5), (2, 0), (4, 0), (4, 1), (8, 0), (8, 5), (15, 0), (15, 2)]
)
@pytest.mark.parametrize(
    "whole", [serialize_tensor(np.ones(2, np.float32)), serialize_tensor(["a"])]
)
def test_fields_of_other_numbers_or_wire_types_are_refused(number, kind, whole):
    field = varint(number << 3 | kind) + CONTENTS[kind]
    dtype = "string" if whole[1] == 7 else "float32"
    for data in (field + whole, whole + field):
        with pytest.raises(ValueError, match=f"^field {number} of a TensorProto is not one that"):
            parse_tensor(data, dtype)


def test_the_version_of_a_tensor_does_not_matter():
    whole = serialize_tensor(np.ones(2, np.float32))
    for version in (b"\x18\0", b"\x18\x07"):
        assert_same(parse_tensor(version + whole, "float32"), np.ones(2, np.float32))
        assert_same(parse_tensor(whole + version, "float32"), np.ones(2, np.float32))


def test_the_largest_rank_is_that_of_tensorflow():
    # NumPy has no array of this rank, so the parser gets as far as to ask for one.
    with pytest.raises(ValueError, match="maximum supported dimension"):
        parse_tensor(proto([1] * 200) + proto([1] * 54, bytes(4)), "float32")
    with pytest.raises(ValueError, match="rank of a TensorProto is greater than 254"):
        parse_tensor(proto([1] * 200) + proto([1] * 55, bytes(4)), "float32")


def test_shapes_that_are_given_one_after_another_are_merged_as_by_protobuf():
    content = np.arange(6, dtype=np.float32)
    data = proto([2]) + proto([3], content.tobytes())
    np.testing.assert_array_equal(tf.io.parse_tensor(data, tf.float32), content.reshape(2, 3))
    np.testing.assert_array_equal(parse_tensor(data, "float32"), content.reshape(2, 3))
    with pytest.raises(ValueError, match="rank of a TensorProto is greater than 254"):
        parse_tensor(proto([1] * 200) * 2, "float32")


@pytest.mark.parametrize("array", [filled("int16", (3, 4)), np.array(["ab", "c"], object)])
def test_every_truncation_is_refused(array):
    name = "string" if array.dtype == object else array.dtype.name
    data = serialize_tensor(array)
    for length in range(len(data)):
        with pytest.raises(ValueError):
            parse_tensor(data[:length], name)


SEEDS = [
    serialize_tensor(filled("float32", (2, 3))),
    serialize_tensor(filled("uint8", (1, 130))),
    serialize_tensor(np.zeros((0, 3), np.int64)),
    serialize_tensor(filled("bool", ())),
    serialize_tensor(np.array(["a", "bcd", ""], object)),
]


@settings(max_examples=150)
@given(
    st.sampled_from(SEEDS),
    st.randoms(use_true_random=False),
    st.sampled_from(sorted(TENSORFLOW_DTYPES)) | st.none(),
)
def test_a_mutated_tensor_gives_an_array_of_the_dtype_or_a_value_error(data, random, dtype):
    own = next(name for name, number in TENSORFLOW_DTYPES.items() if number == data[1])
    dtype = dtype or own
    data = mutated(random, data)
    try:
        parsed = parse_tensor(data, dtype)
    except ValueError:
        return
    assert parsed.dtype == numpy_dtype(dtype)
    assert parsed.nbytes <= 8 * len(data)


@given(st.binary(max_size=60), st.sampled_from(sorted(TENSORFLOW_DTYPES)))
def test_random_bytes_give_an_array_or_a_value_error(data, dtype):
    try:
        parsed = parse_tensor(data, dtype)
    except ValueError:
        return
    assert parsed.dtype == numpy_dtype(dtype)


def test_the_names_of_dimensions_are_passed_over():
    # A dimension has a size, field 1, and a name, field 2.
    for dim, size in (
        (b"\x08\x02\x12\x01a", 2),
        (b"\x08\x02\x10\x05", 2),
        (b"\x0a\x01a\x08\x02", 2),
    ):
        shape = b"\x12" + varint(len(dim)) + dim
        data = b"\x08\x04\x12" + varint(len(shape)) + shape + b"\x22\x02ab"
        assert parse_tensor(data, "uint8").shape == (size,)
    for shape in (b"\x18\x01", b"\x10\x01", b"\x0a\x00"):
        data = b"\x08\x04\x12" + varint(len(shape)) + shape
        with pytest.raises(ValueError, match="unknown rank or field"):
            parse_tensor(data, "uint8")
