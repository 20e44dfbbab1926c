"""Inferred schemas against what TensorFlow, Pillow and this package's own encoder have written."""

from __future__ import annotations

import functools
import io
import itertools
import math
import pickle
import random
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf
from google.protobuf.message import DecodeError
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from tensorflow.core.framework.tensor_pb2 import TensorProto

from beam_jobs.errors import UsageError
from beam_jobs.jobs.reshard import schema_guess as inference
from beam_jobs.jobs.reshard.example_walk import walked_lists
from beam_jobs.jobs.reshard.schema_guess import SchemaGuess
from readers.format.decode.batches import MARGIN
from readers.format.decode.images import decode_picture
from readers.format.decode.records import Decoder
from readers.format.encode import Encoder
from readers.format.schema import TENSORFLOW_DTYPES, Feature, Schema, dtype_name, numpy_dtype
from readers.format.wire import varint
from tests.support.checkout import ROOT

RNG = np.random.default_rng(7)

# From so many records on they are walked together, not parsed one by one.
MANY = 20

EXAMPLES = 60

ONE_BYTES = Feature("string", (), "list")
SOME_BYTES = Feature("string", (None,), "list")


def laid_out(records):
    """Records in a buffer with something else between and behind them."""
    data, starts = b"", []
    for record in records:
        data += b"\xff" * 5
        starts.append(len(data))
        data += record
    first = np.array(starts, np.int64)
    lengths = np.array([len(record) for record in records], np.int64)
    return np.frombuffer(data + b"\xff" * MARGIN, np.uint8), first, first + lengths


def guess_of(records):
    guess = SchemaGuess()
    return guess, guess.add(*laid_out(records))


def outcome(guess):
    """The schema, or the message of the error."""
    try:
        return guess.schema()
    except UsageError as error:
        return error.message


def inferred(records):
    """The schema of records, the same whether they are walked together or parsed one by one."""
    guess, broken = guess_of(records)
    assert not broken
    assert guess.records == len(records)
    single = SchemaGuess()
    for record in records:
        single.merge(guess_of([record])[0])
    assert outcome(single) == outcome(guess)
    return guess.schema()


def ints(*values):
    return tf.train.Feature(int64_list=tf.train.Int64List(value=values))


def floats(*values):
    return tf.train.Feature(float_list=tf.train.FloatList(value=values))


def texts(*values):
    return tf.train.Feature(bytes_list=tf.train.BytesList(value=values))


def example(**features):
    """An Example; `x__shape` stands for the name `x/shape`, and None for a missing feature."""
    named = {n.replace("__", "/"): f for n, f in features.items() if f is not None}
    built = tf.train.Example(features=tf.train.Features(feature=named))
    return built.SerializeToString(deterministic=True)


def many(values):
    """Examples of one feature `x`, whose values come round again up to so many that are walked."""
    return [example(x=value) for value in itertools.islice(itertools.cycle(values), MANY)]


def tensor(array):
    return tf.io.serialize_tensor(array).numpy()


def encoded(image, kind, **options):
    out = io.BytesIO()
    image.save(out, kind, **options)
    return out.getvalue()


NOTHING = tf.train.Feature()
NO_INTS = tf.train.Feature(int64_list=tf.train.Int64List())
NO_FLOATS = tf.train.Feature(float_list=tf.train.FloatList())
NO_BYTES = tf.train.Feature(bytes_list=tf.train.BytesList())


# One feature.


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([ints(5), ints(-1), ints(2**63 - 1), ints(-(2**63))], Feature("int64")),
        ([ints(1, 2, 3), ints(-4, 500, 60000)], Feature("int64", (3,), "list")),
        ([ints(*range(200)), ints(*[-1] * 200)], Feature("int64", (200,), "list")),
        ([ints(1, 2), ints(1)], Feature("int64", (None,), "list")),
        ([ints(1, 2), ints(*range(300))], Feature("int64", (None,), "list")),
        ([ints(1), NO_INTS], Feature("int64", (None,), "list")),
        ([ints(1), NOTHING], Feature("int64", (None,), "list")),
        ([ints(1, 2), None], Feature("int64", (None,), "list")),
        ([NO_INTS], Feature("int64", (None,), "list")),
        ([floats(0.5), floats(math.nan)], Feature("float32")),
        ([floats(1, 2), floats(3, 4)], Feature("float32", (2,), "list")),
        ([floats(1, 2), floats(3)], Feature("float32", (None,), "list")),
        ([floats(1, 2), NO_FLOATS], Feature("float32", (None,), "list")),
        ([floats(1), None], Feature("float32", (None,), "list")),
        ([texts(b"a"), texts("größer".encode()), texts(b"")], Feature("string")),
        ([texts(b"a" * 99), texts("ß".encode() * 70)], Feature("string")),
        ([texts(b"a"), texts(b"\xff")], ONE_BYTES),
        ([texts(b"a" * 99), texts(b"b" * 98 + b"\xc3")], ONE_BYTES),
        ([texts(b"a" * 40), texts(b"b" * 39 + b"\xc3"), texts(b"\xa0" + b"c" * 39)], ONE_BYTES),
        ([texts(b"a"), NO_BYTES], SOME_BYTES),
        ([texts(b"a"), None], SOME_BYTES),
        ([texts(b"a"), texts(b"b", b"c")], SOME_BYTES),
        ([texts(b"a", b""), texts(b"b", b"c")], Feature("string", (2,), "list")),
        ([texts(b"\xff", b"b")], Feature("string", (2,), "list")),
        ([NO_BYTES], SOME_BYTES),
    ],
    ids=repr,
)
def test_a_list_is_what_all_records_have(values, expected):
    records = many([value for value in values if value is not NOTHING or len(values) > 1])
    assert inferred([*records, example(y=ints(1), x=values[0])])["x"] == expected
    assert inferred([example(x=value, y=ints(1)) for value in values])["x"] == expected


def test_a_feature_whose_kind_no_record_tells_is_left_out():
    assert inferred([example(x=NOTHING, y=ints(1))] * MANY) == Schema({"y": Feature("int64")})


RGB = Image.fromarray(RNG.integers(0, 256, (9, 7, 3)).astype(np.uint8))
GRAY, PALETTE = RGB.convert("L"), RGB.quantize(16)
SIXTEEN = Image.fromarray(RNG.integers(0, 65536, (9, 7)).astype(np.uint16))
PROFILE = bytes(200_000)

# A table of Huffman codes, which gray and coloured pictures share.
TABLES = b"\xff\xc4" + encoded(RGB, "JPEG").split(b"\xff\xc4")[2]

JPEGS = {
    "colours": encoded(RGB, "JPEG"),
    "progressive": encoded(RGB, "JPEG", progressive=True),
    "with a profile": encoded(RGB, "JPEG", icc_profile=PROFILE),
    "of four inks": encoded(RGB.convert("CMYK"), "JPEG"),
    "of TensorFlow": tf.io.encode_jpeg(np.asarray(RGB)).numpy(),
    "cut before its frame": encoded(GRAY, "JPEG")[:30],
}
GRAY_JPEGS = {
    "gray": encoded(GRAY, "JPEG"),
    "gray and progressive": encoded(GRAY, "JPEG", progressive=True),
    "gray with a profile": encoded(GRAY, "JPEG", icc_profile=PROFILE),
    "gray with a comment": encoded(GRAY, "JPEG", comment=b"\xff\xc0\xff" * 9),
    "gray of TensorFlow": tf.io.encode_jpeg(np.asarray(GRAY)[..., None]).numpy(),
    "gray with a filled marker": b"\xff\xd8\xff\xff" + encoded(GRAY, "JPEG")[3:],
    "gray with tables before its frame": encoded(GRAY, "JPEG")[:2]
    + TABLES
    + encoded(GRAY, "JPEG")[2:],
}
PNGS = {
    "colours": encoded(RGB, "PNG"),
    "palette": encoded(PALETTE, "PNG"),
    "transparent": encoded(RGB.convert("RGBA"), "PNG"),
    "16 bits": tf.io.encode_png(np.dstack([SIXTEEN] * 3)).numpy(),
    "cut in its header": encoded(GRAY, "PNG")[:25],
}
GRAY_PNGS = {
    "gray": encoded(GRAY, "PNG"),
    "one bit": encoded(GRAY.convert("1"), "PNG"),
    "gray and transparent": encoded(GRAY.convert("LA"), "PNG"),
    "gray of 16 bits": encoded(SIXTEEN, "PNG"),
}


def picture(channels, encoding):
    return Feature("uint8", (None, None, channels), encoding)


@pytest.mark.parametrize("name", JPEGS)
def test_jpegs_of_which_one_has_colours_have_three_channels(name):
    assert inferred(many([texts(JPEGS[name])]))["x"] == picture(3, "jpeg")
    gray = map(texts, GRAY_JPEGS.values())
    assert inferred(many([*gray, texts(JPEGS[name])]))["x"] == picture(3, "jpeg")


@pytest.mark.parametrize("name", GRAY_JPEGS)
def test_jpegs_that_are_all_gray_have_one_channel(name):
    assert inferred(many([texts(GRAY_JPEGS[name])]))["x"] == picture(1, "jpeg")


def test_pngs_have_the_channels_that_their_headers_say():
    for name, data in PNGS.items():
        assert inferred(many([texts(GRAY_PNGS["gray"]), texts(data)]))["x"] == picture(3, "png"), (
            name
        )
    for data in GRAY_PNGS.values():
        assert inferred(many([texts(data)]))["x"] == picture(1, "png")


@pytest.mark.parametrize("data", [*JPEGS.values(), *PNGS.values(), *GRAY_PNGS.values()])
def test_pictures_are_decoded_as_the_schema_says(data):
    if len(data) > 30:  # It is whole.
        feature = inferred([example(x=texts(data))])["x"]
        assert decode_picture("x", feature, data).shape == (9, 7, feature.shape[2])


def test_jpegs_and_pngs_together_are_sources():
    gray = [texts(GRAY_JPEGS["gray"]), texts(GRAY_PNGS["gray"])]
    assert inferred(many(gray))["x"] == picture(1, "source")
    assert inferred(many([*gray, texts(PNGS["colours"])]))["x"] == picture(3, "source")


@pytest.mark.parametrize("other", [b"", b"GIF89a", b"\xff\xd8", b"\x89PNG\r\n\x1a", b"\xff"])
def test_one_value_that_is_no_picture_leaves_bytes(other):
    for pictures in (JPEGS, PNGS):
        assert inferred(many([texts(pictures["colours"]), texts(other)]))["x"] == ONE_BYTES


def test_a_jpeg_of_endless_segments_is_given_up():
    segments = b"\xff\xd8" + b"\xff\xe0\x00\x02" * 5000 + GRAY_JPEGS["gray"][2:]
    assert inferred([example(x=texts(segments))])["x"] == picture(3, "jpeg")
    standing = b"\xff\xd8" + b"\xff\xe0\x00\x00" * 50
    assert inferred([example(x=texts(standing))])["x"] == picture(3, "jpeg")


def array_of(dtype, shape):
    if dtype == "string":
        return np.array([RNG.bytes(3) for _ in range(math.prod(shape))], object).reshape(shape)
    return np.asarray(RNG.integers(0, 2, shape)).astype(numpy_dtype(dtype))


@pytest.mark.parametrize("dtype", sorted(TENSORFLOW_DTYPES))
def test_tensors_of_every_dtype_keep_the_sizes_that_all_have(dtype):
    for shapes, expected in [
        ([(2, 3)], (2, 3)),
        ([(2, 3), (4, 3)], (None, 3)),
        ([(2, 300), (4, 3)], (None, None)),
        ([(2, 3), (0, 3)], (None, 3)),
        ([(0,), (0,)], (0,)),
        ([()], ()),
        ([(1, 2, 1, 3), (1, 3, 1, 3)], (1, None, 1, 3)),
    ]:
        records = [tensor(array_of(dtype, shape)) for shape in shapes]
        assert inferred(many(map(texts, records)))["x"] == Feature(dtype, expected, "tensor")


FLOATS = tensor(np.ones((2, 3), np.float32))


@pytest.mark.parametrize(
    "other",
    [
        b"",
        b"text",
        FLOATS[:-1],
        FLOATS + b"\0",
        FLOATS.replace(b"\x08\x03", b"\x08\x04"),
        b"\x08\x63" + FLOATS[2:],
        tensor(np.ones((2, 3), np.int32)),
        tensor(np.ones(3, np.float32)),
        tensor(np.ones((2, 3), np.float32))[:2],
        b"\x08\x01\x12\x04\x12\x02\x08\x06",
    ],
)
def test_one_value_that_is_no_tensor_of_the_same_form_leaves_bytes(other):
    for values in ([FLOATS, other], [other, FLOATS]):
        feature = inferred(many(map(texts, values)))["x"]
        assert (feature.dtype, feature.shape) == ("string", ())


def raw_tensor(dims, content, more=b""):
    """A TensorProto of uint8 whose dims are given as bytes, with more bytes in its shape."""
    shape = dims + more
    return b"\x08\x04\x12" + varint(len(shape)) + shape + content


SIZES = b"\x12\x02\x08\x02\x12\x02\x08\x03\x12\x02\x08\x01"


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    "value",
    [
        raw_tensor(SIZES, b"abcdef", more=b"\x22\x06"),
        raw_tensor(b"\x12\x04" + SIZES[2:], b"\x22\x06abcdef"),
        raw_tensor(SIZES, b"\x22\x05abcde"),
        raw_tensor(SIZES, b"\x22\x07abcdefg"),
        raw_tensor(b"\x12\x02\x08\x00" + 2 * b"\x12\x06\x08\x80\x80\x80\x80\x7f", b"\x22\x00"),
    ],
)
def test_a_tensor_whose_lengths_do_not_agree_is_none(value):
    whole = raw_tensor(SIZES, b"\x22\x06abcdef")
    assert tf.io.parse_tensor(whole, tf.uint8).shape == (2, 3, 1)
    feature = inferred(many([texts(whole), texts(value)]))["x"]
    assert (feature.dtype, feature.shape) == ("string", ())


@pytest.mark.filterwarnings("error")
def test_tensors_of_endless_sizes_are_none():
    whole = raw_tensor(b"\x12\x02\x08\x01" * 40, b"\x22\x01a")
    endless = raw_tensor(b"\x12\x06\x08\xff\xff\xff\xff\x7f" * 40, b"\x22\x01a")
    assert inferred(many([texts(whole), texts(endless)]))["x"] == ONE_BYTES


def test_what_stands_behind_tensors_of_one_length_is_looked_at():
    version, other = FLOATS + b"\x18\x00", FLOATS + b"\x18\x80"
    assert inferred(many([texts(version)]))["x"] == Feature("float32", (2, 3), "tensor")
    assert inferred(many([texts(version), texts(other)]))["x"] == ONE_BYTES


def test_tensors_in_another_form_than_the_usual_are_ones_too():
    content = np.ones(6, np.float32).tobytes()
    dims = [b"\x12\x02\x08\x02", b"\x12\x03\x08\x83\x00"]
    shape = b"\x12" + varint(len(b"".join(dims))) + b"".join(dims)
    late = b"\x08\x01" + b"\x22\x18" + content + shape
    versioned = b"\x08\x01" + shape + b"\x18\x00" + b"\x22\x18" + content
    usual = b"\x08\x01" + shape + b"\x22\x18" + content
    for value in (late, versioned, usual):
        assert tf.io.parse_tensor(value, tf.float32).shape == (2, 3)
        records = many([texts(FLOATS), texts(value)])
        assert inferred(records)["x"] == Feature("float32", (2, 3), "tensor")


# Shapes beside values.

TENSOR = tensor(np.ones(3, np.int16))


def test_a_list_whose_shape_stands_beside_it_has_that_shape():
    for shapes, expected in [
        ([(2, 3), (2, 3)], (2, 3)),
        ([(2, 3), (4, 3)], (None, 3)),
        ([(2, 3), (3, 2)], (None, None)),
        ([(5,), (7,)], (None,)),
        ([(1,), (1,)], (1,)),
        ([(0, 4), (1, 4)], (None, 4)),
        ([(0, 4), (0, 4)], (None, 4)),
    ]:
        for make in (ints, floats, lambda *values: texts(*[b"%d" % value for value in values])):
            records = [
                example(x=make(*range(math.prod(shape))), x__shape=ints(*shape))
                for shape in itertools.islice(itertools.cycle(shapes), MANY)
            ]
            schema = inferred(records)
            assert list(schema) == ["x"]
            assert (schema["x"].shape, schema["x"].encoding) == (expected, "list")
            for shape, record in zip(itertools.cycle(shapes), records, strict=False):
                assert Decoder(schema).decode(record)["x"].shape == shape


def test_where_list_and_shape_are_missing_together_the_list_is_empty():
    for shapes, expected in [([(2, 3)], (None, 3)), ([(2, 3), (2, 4)], (2, None))]:
        filled = [
            example(x=ints(*range(math.prod(shape))), x__shape=ints(*shape), y=ints(1))
            for shape in shapes
        ]
        schema = inferred([*filled, example(y=ints(1))] * MANY)
        assert schema == Schema({"x": Feature("int64", expected, "list"), "y": Feature("int64")})
        assert Decoder(schema).decode(example(y=ints(1)))["x"].size == 0


@pytest.mark.parametrize(
    ("x", "shapes"),
    [
        ([ints(1, 2, 3), ints(1)], [ints(3), ints(2)]),
        ([ints(1, 2, 3), ints(1)], [ints(3), None]),
        ([ints(1, 2, 3), ints(1)], [ints(3), floats(1)]),
        ([ints(1, 2), ints(1)], [ints(-2, -1), ints(1, 1)]),
        ([ints(1, 2), ints(1)], [ints(2, 1), ints(1)]),
        ([ints(1, 2), None], [ints(1, 2), ints(3)]),
        ([ints(1, 2), ints(1, 2, 3), None], [ints(1, 2), ints(3, 1), None]),
        ([ints(1, 2), ints(1)], [texts(b"2"), texts(b"1")]),
        ([texts(FLOATS), None], [ints(2, 3), None]),
        ([ints(1, 2), None], [ints(1, 2), ints(2**32, 2**32)]),
        ([ints(1, 2), None], [ints(1, 2), ints(*[2**62] * 30, 0)]),
        ([NO_INTS, NO_INTS], [floats(1), floats(2)]),
        ([NO_INTS, NO_INTS, NO_INTS], [ints(1, 0), ints(2, 0), None]),
        ([texts(TENSOR, TENSOR), texts(TENSOR)], [ints(6, 3), ints(6, 3, 6, 3)]),
    ],
)
@pytest.mark.filterwarnings("error")
def test_a_list_of_any_length_beside_what_is_not_its_shape_is_refused(x, shapes):
    records = [example(x=a, x__shape=b) for a, b in zip(x, shapes, strict=True)]
    for rows in (records, records * MANY):
        with pytest.raises(UsageError, match=r"feature 'x'|feature 'x/shape'") as caught:
            inferred(rows)
        if "a list of" not in caught.value.message:
            assert caught.value.message == (
                "feature 'x': 'x/shape', whose name its shapes would have, does not hold one in "
                "every record: write one of the two with another name"
            )


def test_a_feature_of_known_size_leaves_its_companion_a_feature():
    records = [example(x=ints(1, 2), x__shape=ints(n, 7)) for n in range(MANY)]
    expected = {"x": Feature("int64", (2,), "list"), "x/shape": Feature("int64", (2,), "list")}
    assert inferred(records) == Schema(expected)
    for record in records[:2]:
        assert Decoder(Schema(expected)).decode(record)["x"].tolist() == [1, 2]


def test_a_tensor_whose_shape_stands_beside_it_needs_no_feature_for_it():
    for shapes, expected in [([(2, 3)], (2, 3)), ([(2, 3), (0, 3), (200, 3)], (None, 3))]:
        records = [
            example(x=texts(tensor(np.ones(shape, np.int16))), x__shape=ints(*shape))
            for shape in itertools.islice(itertools.cycle(shapes), MANY)
        ]
        assert inferred(records) == Schema({"x": Feature("int16", expected, "tensor")})


def test_a_tensor_of_unknown_sizes_beside_another_shape_is_left_as_bytes():
    records = [
        example(x=texts(tensor(np.ones((n, 3), np.int16))), x__shape=ints(n, 4))
        for n in range(MANY)
    ]
    schema = inferred(records)
    assert schema == Schema({"x": ONE_BYTES, "x/shape": Feature("int64", (2,), "list")})
    found = Decoder(schema).decode(records[3])
    assert found["x/shape"].tolist() == [3, 4]
    assert tf.io.parse_tensor(found["x"].item(), tf.int16).shape == (3, 3)


def test_a_tensor_of_known_sizes_beside_another_shape_keeps_both():
    records = [
        example(x=texts(FLOATS), x__shape=shape) for shape in [ints(3, 2), ints(2, 3)] * MANY
    ]
    expected = {
        "x": Feature("float32", (2, 3), "tensor"),
        "x/shape": Feature("int64", (2,), "list"),
    }
    assert inferred(records) == Schema(expected)


def test_raw_bytes_and_their_shape_are_left_as_they_are():
    records = [
        example(x=texts(np.full((n, 3), -1, np.int16).tobytes()), x__shape=ints(n, 3))
        for n in range(1, MANY)
    ]
    assert inferred(records) == Schema({"x": ONE_BYTES, "x/shape": Feature("int64", (2,), "list")})


@pytest.mark.parametrize("shape", [(9, 7, 3), (1, 1, 1)])
def test_a_picture_and_its_shape_are_two_features(shape):
    records = [example(x=texts(JPEGS["colours"]), x__shape=ints(*shape))] * MANY
    expected = {"x": picture(3, "jpeg"), "x/shape": Feature("int64", (3,), "list")}
    assert inferred(records) == Schema(expected)


def test_arrays_with_a_row_for_each_beside_them_are_a_sequence():
    full = example(x=texts(TENSOR, TENSOR), x__shape=ints(6, 3, 6, 3), y=ints(1))
    assert inferred([full] * MANY)["x"] == Feature("int16", (2, 3), "sequence")
    for empty in (example(y=ints(1)), example(x=NO_BYTES, x__shape=NO_INTS, y=ints(1))):
        schema = inferred([full, empty] * MANY)
        assert schema["x"] == Feature("int16", (None, 3), "sequence")
        assert Decoder(schema).decode(empty)["x"] == []


def test_texts_with_rows_beside_them_are_no_sequence():
    record = example(x=texts(*[tensor(np.array([b"a"], object))] * 2), x__shape=ints(8, 1, 8, 1))
    assert inferred([record] * MANY)["x"] == Feature("string", (2,), "list")


@pytest.mark.parametrize("change", [(0, 1), (1, 1), (2, 1), (2, -1)])
def test_rows_that_are_not_those_of_a_sequence_are_no_shapes(change):
    arrays = [np.ones((2, 3), np.int16), np.ones((1, 3), np.int16)]
    rows = [[12, 2, 3], [6, 1, 3]]
    place, more = change
    rows[1][place] += more
    record = example(x=texts(*map(tensor, arrays)), x__shape=ints(*rows[0], *rows[1]))
    schema = inferred([record] * MANY)
    assert schema["x"] == Feature("string", (2,), "list")
    assert schema["x/shape"] == Feature("int64", (6,), "list")


# Whole records.


def values_of(feature, number):
    """A value of a feature, whose unknown sizes differ from record to record."""
    if feature.encoding in ("jpeg", "png", "source"):
        image = (RGB if feature.shape[2] == 3 else GRAY).resize((5 + number % 3, 4))
        kind = {"jpeg": "JPEG", "png": "PNG"}.get(feature.encoding, ("JPEG", "PNG")[number % 2])
        return encoded(image, kind)
    if feature.encoding == "sequence":
        part = Feature(feature.dtype, feature.shape[1:], "tensor")
        count = number % 4 if feature.shape[0] is None else feature.shape[0]
        return [values_of(part, number + n) for n in range(count)]
    return array_of(feature.dtype, [number % 5 if d is None else d for d in feature.shape])


OWN = {
    "tensor": Feature("float32", (2, 3), "tensor"),
    "tensor of a size": Feature("int16", (None, 2), "tensor"),
    "tensor of sizes": Feature("bfloat16", (None, 2, None), "tensor"),
    "tensor of texts": Feature("string", (None,), "tensor"),
    "scalar": Feature("float64"),
    "list": Feature("int64", (3,), "list"),
    "list of a length": Feature("float32", (None,), "list"),
    "list of sizes": Feature("int64", (None, 2, None), "list"),
    "texts": Feature("string", (None,), "list"),
    "label": Feature("int64"),
    "jpeg": picture(1, "jpeg"),
    "png": picture(3, "png"),
    "source": picture(3, "source"),
    "sequence": Feature("float32", (None, None, 3), "sequence"),
    "three": Feature("uint8", (3, None), "sequence"),
}


@pytest.mark.parametrize("count", [8, 60])
def test_what_the_encoder_wrote_is_read_back_by_the_inferred_schema(count):
    own = Schema(OWN | {"text": Feature("string")})
    encoder = Encoder(own)
    records = []
    for number in range(count):
        record = {name: values_of(feature, number) for name, feature in OWN.items()}
        records.append(record | {"text": "größer" * number})
    examples = [encoder.encode(record) for record in records]
    schema = inferred(examples)
    assert schema == own
    for data in examples:
        found, expected = Decoder(schema).decode(data), Decoder(own).decode(data)
        for name in own:
            np.testing.assert_equal(found[name], expected[name])


@pytest.mark.parametrize(
    ("feature", "expected"),
    [
        (Feature("float16", (2,), "list"), Feature("float32", (2,), "list")),
        (Feature("bool", (), "list"), Feature("int64")),
        (Feature("uint8", (None, 3), "list"), Feature("int64", (None, 3), "list")),
        (Feature("float64", (4,), "raw"), ONE_BYTES),
    ],
)
def test_what_an_example_does_not_tell_is_read_as_it_stands(feature, expected):
    encoder = Encoder(Schema({"x": feature}))
    arrays = [np.full_like(values_of(feature, n), 1) for n in range(MANY)]
    records = [encoder.encode({"x": array}) for array in arrays]
    assert inferred(records) == Schema({"x": expected})
    for array, record in zip(arrays, records, strict=True):
        found = Decoder(Schema({"x": expected})).decode(record)["x"]
        if feature.encoding == "raw":
            assert found.item() == array.tobytes()
        else:
            np.testing.assert_array_equal(found, np.asarray(array, expected.dtype))


def sequence_example(context, **lists):
    steps = {n: tf.train.FeatureList(feature=features) for n, features in lists.items()}
    return tf.train.SequenceExample(
        context=tf.train.Features(feature=context),
        feature_lists=tf.train.FeatureLists(feature_list=steps),
    ).SerializeToString(deterministic=True)


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        ([[ints(1), ints(2)], [ints(3), ints(4)]], Feature("int64", (2,), "list steps")),
        ([[ints(1)], [ints(3), ints(4)]], Feature("int64", (None,), "list steps")),
        ([[ints(1, 2)], []], Feature("int64", (None, 2), "list steps")),
        ([[ints(1, 2)], None], Feature("int64", (None, 2), "list steps")),
        ([[floats(1, 2)], [floats(3)]], Feature("float32", (1, None), "list steps")),
        ([[floats(1), NOTHING]], Feature("float32", (2, None), "list steps")),
        ([[texts(b"a"), texts(b"b")], [texts(b"")]], Feature("string", (None,), "text steps")),
        ([[texts(b"a"), texts(b"\xff")]], Feature("string", (2,), "list steps")),
        ([[texts(b"a"), texts(b"b", b"c")]], Feature("string", (2, None), "list steps")),
        (
            [[texts(FLOATS)], [texts(tensor(np.ones((2, 4), np.float32)))] * 2],
            Feature("float32", (None, 2, None), "tensor steps"),
        ),
        ([[texts(JPEGS["colours"])]], Feature("uint8", (1, None, None, 3), "jpeg steps")),
        ([[texts(GRAY_PNGS["gray"])]], Feature("uint8", (1, None, None, 1), "png steps")),
        (
            [[texts(JPEGS["colours"]), texts(PNGS["colours"])]],
            Feature("uint8", (2, None, None, 3), "source steps"),
        ),
    ],
    ids=lambda value: str(value) if isinstance(value, Feature) else "",
)
def test_feature_lists_are_what_all_of_their_steps_are(steps, expected):
    records = [
        sequence_example({"id": ints(n)}, **({} if items is None else {"x": items}))
        for n, items in enumerate(steps)
    ]
    schema = inferred(records)
    assert schema == Schema({"id": Feature("int64"), "x": expected})
    for number, (items, record) in enumerate(zip(steps, records, strict=True)):
        found = Decoder(schema).decode(record)
        assert found["id"] == number
        assert len(found["x"]) == len(items or [])


def test_a_feature_list_without_steps_is_left_out():
    assert inferred([sequence_example({"id": ints(1)}, x=[])]) == Schema({"id": Feature("int64")})


def test_examples_and_sequence_examples_are_taken_together():
    records = [sequence_example({"id": ints(1)}, x=[ints(2)]), *[example(id=ints(1))] * MANY]
    expected = {"id": Feature("int64"), "x": Feature("int64", (None,), "list steps")}
    assert inferred(records) == Schema(expected)


def field_of(number, content):
    return varint(number << 3 | 2) + varint(len(content)) + content


def example_of(*entries):
    """An Example whose entries are (name, serialized Feature)."""
    inner = [field_of(1, field_of(1, name) + field_of(2, value)) for name, value in entries]
    return field_of(1, b"".join(inner))


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (3, b"\x08\x05" + b"\x08\x85\x01"),
        (3, field_of(1, b"\x05") + field_of(1, b"\x85\x01")),
        (3, field_of(1, b"\x05") + b"\x08\x85\x01"),
        (2, b"\x0d\0\0\0\0" * 2),
        (2, b"\x0d\0\0\0\0" + field_of(1, bytes(4))),
    ],
)
def test_numbers_that_are_not_packed_are_counted(kind, values):
    odd = example_of((b"x", field_of(kind, values)))
    name, found = lists_of(odd)["x"]
    assert len(found) == 2
    usual = example(x=ints(1, 2) if kind == 3 else floats(1, 2))
    expected = Feature("int64" if name == "int64_list" else "float32", (2,), "list")
    assert inferred([odd, usual] * MANY) == Schema({"x": expected})


@pytest.mark.parametrize(("kind", "dtype"), [(2, "float32"), (3, "int64")])
def test_a_packed_run_without_numbers_has_no_value(kind, dtype):
    empty = example_of((b"x", field_of(kind, field_of(1, b""))))
    assert list(lists_of(empty).values()) == [(f"{dtype.removesuffix('32')}_list", [])]
    assert inferred([empty] * MANY) == Schema({"x": Feature(dtype, (None,), "list")})


def test_of_two_features_of_one_name_the_last_counts_as_in_protobuf():
    usual = example(x=ints(5), y=ints(1))
    first, last = field_of(2, field_of(1, bytes(4))), field_of(3, field_of(1, b"\x07"))
    twice = [example_of((b"x", first), (b"y", last), (b"x", last)) for _ in range(MANY)]
    assert tf.train.Example.FromString(twice[0]).features.feature["x"].int64_list.value == [7]
    assert inferred([usual, *twice]) == Schema({"x": Feature("int64"), "y": Feature("int64")})


def test_features_may_stand_in_any_order_in_each_record():
    features = {f"f{n}": ints(*range(n)) for n in range(1, 9)} | {"text": texts(b"a"), "": None}
    entries = [
        tf.train.Features(feature={n: f}).SerializeToString() for n, f in features.items() if f
    ]
    shuffle = random.Random(3)
    records = []
    for number in range(100):
        order = shuffle.sample(entries, len(entries) - number % 2)
        records.append(field_of(1, b"".join(order)))
    schema = inferred(records)
    assert list(schema) == sorted(n for n in features if n)
    assert all(feature.shape == (None,) for feature in schema.values())
    assert inferred(records[::2])["f5"] == Feature("int64", (5,), "list")


def test_more_names_at_one_place_than_are_told_apart_are_parsed_one_by_one():
    records = [example(**{f"f{n}": ints(1)}) for n in range(400)]
    schema = inferred(records)
    assert len(schema) == 400
    assert set(schema.values()) == {Feature("int64", (None,), "list")}


def test_long_names_and_names_that_begin_alike_are_told_apart():
    names = ["a" * n for n in (1, 7, 8, 9, 200, 255)] + ["ä" * 255, "a" * 8 + "b"]
    records = [example(**{name: ints(number) for name in names}) for number in range(MANY)]
    assert inferred(records) == Schema(dict.fromkeys(names, Feature("int64")))
    found = inferred([*records, example(b=ints(1))])  # The shortest name at the end of all bytes.
    assert set(found) == {*names, "b"}


# What cannot be.


@pytest.mark.parametrize(
    ("a", "b", "message"),
    [
        (ints(1), floats(1), "float in 3, int64 in 20"),
        (ints(1), NO_FLOATS, "float in 3, int64 in 20"),
        (floats(1), texts(b"a"), "bytes in 3, float in 20"),
    ],
)
def test_records_that_contradict_each_other_are_refused(a, b, message):
    with pytest.raises(UsageError) as caught:
        inferred([*[example(x=a)] * 20, *[example(x=b)] * 3])
    assert caught.value.message == (
        f"feature 'x': a list of {message} records or steps; records of one dataset must agree: "
        "narrow --input"
    )


def test_steps_that_contradict_each_other_are_refused():
    with pytest.raises(UsageError, match="feature 'x': a list of float in 1, int64 in 1 records"):
        inferred([sequence_example({}, x=[ints(1), floats(1)])])


def test_a_name_of_a_feature_and_of_a_feature_list_is_refused():
    records = [sequence_example({"x": ints(1)}), sequence_example({}, x=[ints(1)])]
    with pytest.raises(
        UsageError, match="feature 'x': a feature of some records and a feature list"
    ):
        inferred(records)


def test_a_list_beside_a_feature_list_called_as_its_shape_is_refused():
    records = [sequence_example({"x": ints(*range(n))}, **{"x/shape": [ints(1)]}) for n in (1, 2)]
    with pytest.raises(
        UsageError, match="feature 'x': 'x/shape', whose name its shapes would have"
    ):
        inferred(records)


@pytest.mark.parametrize("name", ["", "a\\b", "a\nb", "a" * 256, "a" * 5000])
def test_a_name_that_no_schema_has_is_refused(name):
    for count in (1, MANY):
        with pytest.raises(UsageError) as caught:
            guess_of([example(**{name: ints(1)})] * count)
        assert caught.value.message == (
            f"feature name {name[:80]!r}: expected from 1 to 255 characters without \\ and control "
            "characters; write the records with other names"
        )


def test_names_that_are_data_are_refused(monkeypatch):
    assert inference.MAX_FEATURES == 10_000
    monkeypatch.setattr(inference, "MAX_FEATURES", 20)
    guesses = [
        guess_of([sequence_example({f"a{n}": ints(1) for n in range(10)}, y=[ints(1)])])[0],
        guess_of([example(**{f"b{n}": ints(1) for n in range(10)})])[0],
    ]
    assert len({**guesses[0].features, **guesses[1].features}) == 20
    with pytest.raises(UsageError, match=r"more than 20 different features, 'b.' among them: "):
        guesses[0].merge(guesses[1])
    with pytest.raises(UsageError, match="more than 20 different features, 'f20' among them: "):
        guess_of([example(**{f"f{n:02}": ints(1) for n in range(21)})] * MANY)


def test_records_without_features_are_refused():
    for records in ([], [b""], [b"\x0a\x00"] * MANY):
        with pytest.raises(UsageError, match=f"none of {len(records)} records has a feature"):
            inferred(records)


BROKEN = {
    b"\xff" * 40: "a varint is cut off or longer than ten bytes",
    b"\x0a\x02": "field 1 runs past the end of its message",
    b"garbage": "wire type 7 is not used by Example or TensorProto",
    b"\x1a\x00": "field 3 is not one of tf.train.Example",
    example_of((b"x", field_of(3, field_of(1, b"\x80")))): "a varint is cut off",
    example_of((b"x", field_of(3, field_of(1, b"\x80" * 10 + b"\x01")))): (
        "a varint is longer than ten bytes"
    ),
    example_of((b"x", field_of(3, field_of(1, b"\x01" * 50 + b"\x80" * 10 + b"\x01" * 50)))): (
        "a varint is longer than ten bytes"
    ),
    example_of((b"x", field_of(3, field_of(1, b"\x01" * 50 + b"\x80")))): "a varint is cut off",
    example_of((b"x", field_of(2, field_of(1, b"\0\0\0")))): "the floats are cut off",
    # In two runs, of which the first is cut off.
    example_of((b"x", field_of(3, field_of(1, b"\x80") + field_of(1, b"\x01")))): (
        "a varint is cut off"
    ),
    example_of((b"x", field_of(2, field_of(1, b"\0\0") + field_of(1, b"\0\0")))): (
        "the floats are cut off"
    ),
    # Lengths that are too long, or do not agree.
    example_of((b"x", field_of(1, b"\x0a\x86" + b"\x80" * 9 + b"\x00"))): (
        "a varint is cut off or longer than ten bytes"
    ),
    example_of((b"x", b"\x1a\x02\x0a\x01\x05")): "field 1 runs past the end of its message",
    field_of(1, field_of(1, b"\x0a\x01x\x12\x02\x1a\x03\x0a\x01\x05")): (
        "field 3 runs past the end of its message"
    ),
    example_of((b"x", field_of(3, field_of(1, b"\x01"))))
    + field_of(1, field_of(1, b"y") + field_of(2, field_of(3, field_of(1, b"\x01")))): (
        "field 15 runs past the end of its message"
    ),
    example_of((b"x", field_of(4, b""))): "field 4 is not one of tf.train.Feature",
    example_of((b"\xff", field_of(3, b""))): "'utf-8' codec can't decode byte 0xff",
    example_of((b"x", field_of(1, b"\x0a\x05a"))): "field 1 runs past the end",
    field_of(2, field_of(2, b"")): "field 2 is not one of tf.train.Features",
}


@pytest.mark.parametrize("record", BROKEN, ids=BROKEN.values())
@pytest.mark.parametrize("at", [0, 7, MANY])
def test_a_broken_record_is_told_and_in_no_figure(record, at):
    records = many([ints(1)])
    records.insert(at, record)
    for rows in (records, records[max(at - 1, 0) :][:3]):
        guess, broken = guess_of(rows)
        ((row, reason),) = broken
        assert rows[row] is record
        assert reason.startswith(BROKEN[record])
        assert guess.records == len(rows) - 1
        assert guess == guess_of([r for r in rows if r is not record])[0]


def test_protobuf_refuses_broken_records_too_but_for_fields_unknown_to_it():
    for record, reason in BROKEN.items():
        if "is not one of" not in reason:
            with pytest.raises(DecodeError):
                tf.train.SequenceExample.FromString(record)


@pytest.mark.parametrize("record", BROKEN, ids=BROKEN.values())
def test_records_that_are_broken_alike_are_all_told(record):
    guess, broken = guess_of([record] * MANY)
    assert [row for row, _ in broken] == list(range(MANY))
    assert guess == SchemaGuess()


def test_all_broken_records_are_told_in_order():
    records = [b"\x0a\x02" if n % 3 else example(x=ints(n)) for n in range(100)]
    assert [row for row, _ in guess_of(records)[1]] == [n for n in range(100) if n % 3]


# Any records.


def lists_of(record):
    """The kind and the values of each feature that has a kind, by protobuf."""
    found = {}
    for name, feature in tf.train.Example.FromString(record).features.feature.items():
        if kind := feature.WhichOneof("kind"):
            found[name] = kind, list(getattr(feature, kind).value)
    return found


@functools.cache
def tensor_of(value):
    """The array that `serialize_tensor` wrote; None where it did not write this."""
    try:
        dtype = tf.as_dtype(TensorProto.FromString(value).dtype)
        array = tf.io.parse_tensor(value, dtype).numpy()
        return array if tensor(array) == value else None
    except (DecodeError, TypeError, tf.errors.OpError):
        return None


@functools.cache
def picture_of(value):
    """The format and the channels of a picture; None where it is none."""
    try:
        with Image.open(io.BytesIO(value)) as image:
            return image.format.lower(), 1 if image.mode == "L" else 3
    except OSError:
        return None


def is_text(value):
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


def common(shapes):
    """The shape of arrays of one rank, None for sizes that differ; None where ranks differ."""
    if len(set(map(len, shapes))) != 1:
        return None
    return tuple(sizes[0] if len(set(sizes)) == 1 else None for sizes in zip(*shapes, strict=True))


def common_tensor(values):
    """The dtype and shape of tensors of one dtype and rank, and these; None where they are none."""
    arrays = [tensor_of(value) for value in values]
    if not arrays or any(a is None for a in arrays) or len({a.dtype for a in arrays}) > 1:
        return None
    shape = common([a.shape for a in arrays])
    return None if shape is None else (dtype_name(arrays[0].dtype), shape, arrays)


def one_value_each(values):
    tensors = common_tensor(values)
    if tensors:
        return Feature(*tensors[:2], "tensor")
    pictures = [picture_of(value) for value in values]
    if all(pictures):
        kinds, channels = zip(*pictures, strict=True)
        return picture(max(channels), kinds[0] if len(set(kinds)) == 1 else "source")
    return Feature("string") if all(map(is_text, values)) else ONE_BYTES


def expected_features(records):
    """The features by the rules, record by record; the name of one that cannot be."""
    rows = [lists_of(record) for record in records]
    names = sorted({name for row in rows for name in row})
    kinds = {n: {row[n][0] for row in rows if n in row} for n in names}
    for name in names:
        if len(kinds[name]) > 1:
            return name
    features, companions = {}, set()
    for name in names:
        if name in companions:
            continue
        dtype = {"int64_list": "int64", "float_list": "float32"}.get(min(kinds[name]), "string")
        lists = [row[name][1] if name in row else [] for row in rows]
        lengths = {len(values) for values in lists}
        if lengths == {1}:
            feature = Feature(dtype)
            if dtype == "string":
                feature = one_value_each([values[0] for values in lists])
        else:
            feature = Feature(dtype, (None if len(lengths) > 1 else max(lengths) or None,), "list")
        beside = f"{name}/shape"
        if kinds.get(beside) == {"int64_list"}:
            shapes = [row[beside][1] if beside in row else [] for row in rows]
            shaped = with_shapes(feature, dtype, lists, shapes)
            if shaped:
                companions.add(beside)
                features[name] = shaped
                continue
        if feature.has_companion and beside in names:
            if feature.encoding != "tensor":
                return name
            feature = ONE_BYTES
        features[name] = feature
    return features


def with_shapes(feature, dtype, lists, shapes):
    """The feature whose shape stands beside it in each record; None where it does not."""
    tensors = common_tensor([v for values in lists for v in values]) if dtype == "string" else None
    if feature.encoding == "tensor" and [list(a.shape) for a in tensors[2]] == shapes:
        return feature
    if tensors and tensors[0] != "string":
        arrays, rows = iter(tensors[2]), []
        for values in lists:
            mine = list(itertools.islice(arrays, len(values)))
            rows.append([size for a in mine for size in (a.nbytes, *a.shape)])
        if rows == shapes:
            count = common([(len(values),) for values in lists])
            return Feature(tensors[0], (*count, *tensors[1]), "sequence")
    if feature.encoding not in ("list", "text"):
        return None
    for values, shape in zip(lists, shapes, strict=True):
        if shape and (min(shape) < 0 or math.prod(shape) != len(values)):
            return None
        if values and not shape:
            return None
    known = [shape for shape in shapes if shape]
    shape = common(known) if known else (None,)
    if shape is None:
        return None
    if not all(lists) and None not in shape:
        shape = (None, *shape[1:])
    if len(known) < len(lists) and (shape.count(None) > 1 or 0 in shape):
        return None
    return Feature(dtype, shape, "list")


def shaped(make, *shape):
    return {"": make(shape), "/shape": ints(*shape)}


def sequence(*arrays):
    rows = [size for a in arrays for size in (a.nbytes, *a.shape)]
    return {"": texts(*map(tensor, arrays)), "/shape": ints(*rows)}


def counted(shape):
    return ints(*range(math.prod(shape)))


def ones(shape, dtype=np.int16):
    return np.ones(shape, dtype)


# What stands in a record under one name, and under those that follow from it.
WRITTEN = {
    "integer": lambda n: {"": ints(n - 2)},
    "integers": lambda n: {"": ints(*[n] * 300)},
    "some integers": lambda n: {"": ints(*range(n))},
    "float": lambda n: {"": floats(n)},
    "some floats": lambda n: {"": floats(*range(n))},
    "text": lambda n: {"": texts("größer".encode() * n)},
    "bytes": lambda n: {"": texts(b"\xff" * n)},
    "texts": lambda n: {"": texts(b"a", b"b" * n)},
    "some texts": lambda n: {"": texts(*[b"a"] * n)},
    "jpeg": lambda n: {"": texts(JPEGS["colours"])},
    "gray jpeg": lambda n: {"": texts(GRAY_JPEGS["gray"])},
    "png": lambda n: {"": texts(PNGS["colours"])},
    "gray png": lambda n: {"": texts(GRAY_PNGS["gray"])},
    "tensor": lambda n: {"": texts(tensor(ones((2, 3))))},
    "tensor of n": lambda n: {"": texts(tensor(ones((n, 3))))},
    "tensor of another rank": lambda n: {"": texts(tensor(ones((n, 3, 1))))},
    "tensor of texts": lambda n: {"": texts(tensor(np.array([b"a"] * n, object)))},
    "shaped integers": lambda n: shaped(counted, n, 2),
    "shaped integers of one size": lambda n: shaped(counted, 3, 2),
    "shaped otherwise": lambda n: shaped(counted, n, 2, 1),
    "shaped texts": lambda n: shaped(lambda shape: texts(*[b"a"] * n), n, 1),
    "shaped tensor": lambda n: shaped(lambda shape: texts(tensor(ones(shape))), n, 3),
    "wrongly shaped": lambda n: {"": ints(*range(n)), "/shape": ints(3)},
    "shaped by n": lambda n: {"": texts(tensor(ones((n, 3)))), "/shape": ints(n)},
    "sequence": lambda n: sequence(*[ones((n, 3))] * (n % 3)),
    "sequence of one": lambda n: sequence(ones((n, 3))),
    "a shape alone": lambda n: {"/shape": ints(*[n] * (n % 3))},
    "empty integers": lambda n: {"": NO_INTS, "/shape": NO_INTS},
    "no kind": lambda n: {"": NOTHING},
    "nothing": lambda n: {},
}


@st.composite
def written(draw):
    """Records of one to three features, each written in one or two ways."""
    columns = {
        name: draw(st.lists(st.sampled_from(sorted(WRITTEN)), min_size=1, max_size=2))
        for name in draw(st.sampled_from(["x", "xy", "xyz"]))
    }
    shuffle, records = draw(st.randoms(use_true_random=False)), []
    for _ in range(draw(st.sampled_from([1, 2, 5, 20, 40]))):
        features = {"id": ints(1)}
        for name, ways in columns.items():
            # The second way is rare.
            way = ways[-1] if shuffle.random() < 0.1 else ways[0]
            parts = WRITTEN[way](shuffle.randrange(5))
            features |= {name + end: feature for end, feature in parts.items()}
        entries = [
            tf.train.Features(feature={name: feature}).SerializeToString()
            for name, feature in features.items()
        ]
        if shuffle.random() < 0.5:
            shuffle.shuffle(entries)
        records.append(field_of(1, b"".join(entries)))
    return records


def features_or_name(guess):
    try:
        return dict(guess.schema())
    except UsageError as error:
        return error.message.split("'")[1]


@given(written())
@settings(max_examples=EXAMPLES, deadline=None)
def test_any_records_have_the_schema_that_the_rules_say(records):
    guess, broken = guess_of(records)
    assert not broken
    assert features_or_name(guess) == expected_features(records)
    found = features_or_name(guess)
    if isinstance(found, dict):
        decoder = Decoder(Schema(found))
        for record in records:
            decoder.decode(record)


@given(written(), st.randoms(use_true_random=False))
@settings(max_examples=EXAMPLES // 2, deadline=None)
def test_parts_may_be_added_and_merged_in_any_order(records, shuffle):
    whole = outcome(guess_of(records)[0])
    bounds = sorted({0, len(records), *(shuffle.randrange(len(records) + 1) for _ in range(4))})
    guesses = [guess_of(records[a:b])[0] for a, b in itertools.pairwise(bounds)]
    while len(guesses) > 1:
        shuffle.shuffle(guesses)
        merged = pickle.loads(pickle.dumps(guesses.pop()))
        guesses[0].merge(merged)
    assert guesses[0].records == len(records)
    assert outcome(guesses[0]) == whole


@given(written(), st.data())
@settings(max_examples=EXAMPLES, deadline=None)
def test_damaged_records_are_told_alike_whether_walked_or_parsed(records, data):
    records = [*records, *[example(y=texts(b"a"), z=ints(1, 300), x=floats(1))] * MANY]
    for _ in range(data.draw(st.integers(1, 5))):
        row = data.draw(st.integers(0, len(records) - 1))
        record = bytearray(records[row])
        place = data.draw(st.integers(0, len(record) - 1))
        if data.draw(st.booleans()):
            record[place] = data.draw(st.integers(0, 255))
        else:
            del record[place : place + data.draw(st.integers(1, 9))]
        records[row] = bytes(record)
    single, expected, refused = SchemaGuess(), [], []
    for row, record in enumerate(records):
        try:
            guess, broken = guess_of([record])
            expected += [(row, reason) for _, reason in broken]
            single.merge(guess)
        except UsageError as error:
            refused.append(error.message)
        try:
            tf.train.SequenceExample.FromString(record)
        except DecodeError:
            assert refused or (expected and expected[-1][0] == row)
    try:
        guess, found = guess_of(records)
    except UsageError as error:
        assert error.message in refused
        return
    assert not refused
    assert found == expected
    assert outcome(guess) == outcome(single)


def test_usual_records_of_all_lengths_are_walked():
    sizes = [0, 1, 30, 100, 200, 20_000, 300_000]
    records = [example(x=texts(b"a" * size), y=ints(size), z=floats(*[0] * size)) for size in sizes]
    features, usual = walked_lists(*laid_out(records * 3))
    assert usual.all()
    for name, counts in [("x", [1] * len(sizes)), ("y", [1] * len(sizes)), ("z", sizes)]:
        (lists,) = features[name]
        assert lists.counts.tolist() == counts * 3
    assert features["x"][0].pieces.lengths.tolist() == sizes * 3


def test_a_guess_takes_no_more_room_for_more_records():
    record = example(
        x=texts(tensor(ones((2, 3)))), x__shape=ints(2, 3), y=ints(1), z=texts(JPEGS["colours"])
    )
    few, many_more = SchemaGuess(), SchemaGuess()
    few.add(*laid_out([record]))
    for _ in range(50):
        many_more.add(*laid_out([record] * 20))
    assert len(pickle.dumps(many_more)) < len(pickle.dumps(few)) + 30


def test_inference_starts_without_beam_and_without_tensorflow():
    script = (
        "import sys, beam_jobs.jobs.reshard.schema_guess; "
        "print([m for m in ('apache_beam', 'tensorflow', 'PIL') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, "[]", "")


def test_a_dtype_whose_package_is_missing_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    numpy_dtype.cache_clear()
    try:
        with pytest.raises(UsageError, match="dtype bfloat16 needs ml_dtypes: pip install"):
            guess_of([example(x=texts(b"\x08\x0e\x12\x04\x12\x02\x08\x01\x22\x02ab"))])
    finally:
        numpy_dtype.cache_clear()
