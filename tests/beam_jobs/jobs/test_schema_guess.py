"""Inferred schemas of records that TensorFlow, Pillow and this package's encoder have written."""

from __future__ import annotations

import functools
import io
import itertools
import math
import pickle
import sys
from dataclasses import replace

import numpy as np
import pytest
import tensorflow as tf
from google.protobuf.message import DecodeError
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from PIL import Image
from tensorflow.core.framework.tensor_pb2 import TensorProto

from beam_jobs.errors import DataError, UsageError
from beam_jobs.jobs.reshard import schema_guess as inference
from beam_jobs.jobs.reshard.schema_guess import SchemaGuess
from readers.format.decode.images import decode_image
from readers.format.decode.records import Decoder
from readers.format.dtypes import dtype_name, numpy_dtype
from readers.format.protobuf.wire import varint
from readers.format.schema import Feature, Schema
from tests.support.images import encoded
from tests.support.plain import example, sequence_example, tensor

EXAMPLES = 25

INT = Feature("int64")
TEXT = Feature("string")
ONE_BYTES = Feature("string", (), "list")


def list_of(dtype, *shape):
    return Feature(dtype, shape, "list")


def image_of(channels, encoding):
    return Feature("uint8", (None, None, channels), encoding)


NO_INTS, NO_FLOATS, NO_BYTES = (np.array([], dtype) for dtype in (np.int64, np.float32, object))
NO_KIND = tf.train.Feature()


def entry(name, value):
    """The serialized entry of a feature in an Example."""
    return tf.train.Example.FromString(example(**{name: value})).features.SerializeToString()


def field_of(number, content):
    return varint(number << 3 | 2) + varint(len(content)) + content


def example_of(*entries):
    """An Example made of (name, serialized Feature) in this order."""
    inner = [field_of(1, field_of(1, name) + field_of(2, value)) for name, value in entries]
    return field_of(1, b"".join(inner))


def list_example(kind, *parts):
    """An Example of one feature `x`, a list of a kind made of serialized parts."""
    return example_of((b"x", field_of(kind, b"".join(parts))))


def run_example(kind, *runs):
    """An Example of one feature `x`, a list of runs of packed numbers."""
    return list_example(kind, *[field_of(1, run) for run in runs])


def guess_of(records):
    guess = SchemaGuess()
    for number, record in enumerate(records, 1):
        guess.learn(f"a#{number}", memoryview(record))
    return guess


def outcome(guess):
    """The schema, or the message of the error."""
    try:
        return guess.schema()
    except UsageError as error:
        return error.message


def inferred(records):
    """The schema of records, all of which decode with it."""
    guess = guess_of(records)
    assert (guess.records, guess.broken) == (len(records), "")
    schema = guess.schema()
    for record in records:
        Decoder(schema).decode(record)
    return schema


def of_values(values):
    """The inferred feature `x`, which has these values in records that have a label as well."""
    schema = inferred([example(x=value, y=1) for value in values])
    assert schema["y"] == INT
    return schema["x"]


# Images.

_PIXELS = np.random.default_rng(7).integers(0, 65536, (9, 7, 3)).astype(np.uint16)
RGB = Image.fromarray(_PIXELS.astype(np.uint8))
GRAY, SIXTEEN = RGB.convert("L"), Image.fromarray(_PIXELS[..., 0])

COLOURED, COLOURED_PNG, GRAY_PNG = encoded(RGB, "JPEG"), encoded(RGB, "PNG"), encoded(GRAY, "PNG")
GRAY_JPEG = encoded(GRAY, "JPEG")
CUT_JPEG, CUT_PNG = GRAY_JPEG[:30], GRAY_PNG[:25]
LONG_HEADERS = {"progressive": True, "icc_profile": bytes(200_000), "comment": b"\xff\xc0\xff" * 9}
JPEGS = [encoded(RGB, "JPEG", **LONG_HEADERS), encoded(RGB.convert("CMYK"), "JPEG"), CUT_JPEG]
GRAY_JPEGS = [GRAY_JPEG, encoded(GRAY, "JPEG", **LONG_HEADERS)]
PNGS = [encoded(image, "PNG") for image in (RGB.quantize(16), RGB.convert("RGBA"))]
PNGS += [tf.io.encode_png(np.dstack([np.asarray(SIXTEEN)] * 3)).numpy(), CUT_PNG]
GRAY_PNGS = [encoded(image, "PNG") for image in (GRAY.convert("1"), GRAY.convert("LA"), SIXTEEN)]


@pytest.mark.parametrize(
    ("images", "expected"),
    [
        *[([*GRAY_JPEGS, image], image_of(3, "jpeg")) for image in JPEGS],
        (GRAY_JPEGS, image_of(1, "jpeg")),
        *[([GRAY_PNG, image], image_of(3, "png")) for image in PNGS],
        (GRAY_PNGS, image_of(1, "png")),
        ([GRAY_JPEG, GRAY_PNG], image_of(1, "source")),
        ([GRAY_JPEG, GRAY_PNG, COLOURED], image_of(3, "source")),
    ],
    ids=itertools.count(),
)
def test_images_have_one_channel_if_all_are_gray(images, expected):
    assert of_values(images) == of_values(images[::-1]) == expected
    for image in images:
        if image not in (CUT_JPEG, CUT_PNG):
            assert decode_image("x", expected, image).shape == (9, 7, expected.shape[2])


# Tensors.


def ones(shape, dtype=np.int16):
    return np.ones(shape, dtype)


def raw_tensor(dims, content, more=b""):
    """A TensorProto of uint8 whose sizes are given as bytes, with more bytes in its shape."""
    return b"\x08\x04\x12" + varint(len(dims + more)) + dims + more + content


REAL = tensor(ones((2, 3), np.float32))
SIZES = b"\x12\x02\x08\x02\x12\x02\x08\x03\x12\x02\x08\x01"
SMALL = raw_tensor(SIZES, b"\x22\x06abcdef")


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    ("whole", "other"),
    [
        (REAL, b""),
        (REAL, b"text"),
        (REAL, REAL[:-1]),
        (REAL, REAL + b"\0"),
        (REAL, b"\x08\x63" + REAL[2:]),
        (REAL, tensor(ones((2, 3), np.int32))),
        (REAL, tensor(ones(3, np.float32))),
        # Lengths that do not agree.
        (SMALL, raw_tensor(SIZES, b"abcdef", more=b"\x22\x06")),
        (SMALL, raw_tensor(b"\x12\x04" + SIZES[2:], b"\x22\x06abcdef")),
        (SMALL, raw_tensor(SIZES, b"\x22\x05abcde")),
        (SMALL, raw_tensor(SIZES, b"\x22\x07abcdefg")),
        # Sizes whose product is beyond every number.
        (
            raw_tensor(b"\x12\x02\x08\x01" * 32, b"\x22\x01a"),
            raw_tensor(b"\x12\x06\x08\xff\xff\xff\xff\x7f" * 32, b"\x22\x01a"),
        ),
    ],
    ids=itertools.count(),
)
def test_one_value_that_is_not_a_tensor_of_this_dtype_and_rank_makes_all_bytes(whole, other):
    assert of_values([whole]).encoding == "tensor"
    for values in ([whole, other], [other, whole]):
        found = of_values(values)
        assert (found.dtype, found.shape) == ("string", ())


def test_tensors_in_an_unusual_form_are_tensors():
    content = b"\x22\x18" + ones(6, np.float32).tobytes()
    shape = b"\x12\x09" + b"\x12\x02\x08\x02" + b"\x12\x03\x08\x83\x00"
    float32, version = b"\x08\x01", b"\x18\x00"
    for parts in ((content, shape), (shape, version, content), (shape, content, version)):
        value = float32 + b"".join(parts)
        assert tf.io.parse_tensor(value, tf.float32).shape == (2, 3)
        assert of_values([REAL, value]) == Feature("float32", (2, 3), "tensor")


# Whole records.


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        ([[1, 2], [3, 4]], Feature("int64", (2,), "list steps")),
        ([[1], [3, 4]], Feature("int64", (None,), "list steps")),
        ([[[1, 2]], []], Feature("int64", (None, 2), "list steps")),
        ([[[1, 2]], None], Feature("int64", (None, 2), "list steps")),
        ([[[1.0, 2.0]], [3.0]], Feature("float32", (1, None), "list steps")),
        ([[1.0, NO_KIND]], Feature("float32", (2, None), "list steps")),
        ([[b"a", b"b"], [b""]], Feature("string", (None,), "text steps")),
        ([[b"a", b"\xff"]], Feature("string", (2,), "list steps")),
        ([[b"a", [b"b", b"c"]]], Feature("string", (2, None), "list steps")),
        (
            [[REAL], [tensor(ones((2, 4), np.float32))] * 2],
            Feature("float32", (None, 2, None), "tensor steps"),
        ),
        ([[COLOURED]], Feature("uint8", (1, None, None, 3), "jpeg steps")),
        ([[GRAY_PNG]], Feature("uint8", (1, None, None, 1), "png steps")),
        ([[COLOURED, GRAY_PNG]], Feature("uint8", (2, None, None, 3), "source steps")),
    ],
    ids=lambda value: str(value) if isinstance(value, Feature) else "",
)
def test_a_feature_list_fits_all_of_its_steps(steps, expected):
    records = [
        sequence_example({"id": n}, **({} if items is None else {"x": items}))
        for n, items in enumerate(steps)
    ]
    schema = inferred(records)
    assert schema == Schema({"id": INT, "x": expected})
    for number, (items, record) in enumerate(zip(steps, records, strict=True)):
        found = Decoder(schema).decode(record)
        assert found["id"] == number
        assert len(found["x"]) == len(items or [])


def test_a_feature_list_without_steps_is_left_out():
    assert inferred([sequence_example({"id": 1}, x=[])]) == Schema({"id": INT})


# Serialized forms.


def test_of_two_features_of_one_name_the_last_counts_as_in_protobuf():
    first, last = field_of(2, field_of(1, bytes(4))), field_of(3, field_of(1, b"\x07"))
    twice = example_of((b"x", first), (b"y", last), (b"x", last))
    assert tf.train.Example.FromString(twice).features.feature["x"].int64_list.value == [7]
    assert inferred([example(x=5, y=1), twice]) == Schema({"x": INT, "y": INT})


# Records that have no schema.

TWO_KINDS = (
    "feature 'x': a list of {} records or steps; all records of a dataset must agree: leave out"
)


@pytest.mark.parametrize(
    ("records", "message"),
    [
        ([example(x=1), example(x=1.0)], TWO_KINDS.format("float in 1, int64 in 1")),
        ([sequence_example(x=[1, 1.0])], TWO_KINDS.format("float in 1, int64 in 1")),
        (
            [sequence_example({"x": 1}), sequence_example(x=[1])],
            "feature 'x': a feature in some records and a feature list in others; all records ",
        ),
        (
            [sequence_example({"x": [*range(n)]}, **{"x/shape": [1]}) for n in (1, 2)],
            "feature 'x': expected its shape in 'x/shape', which is another feature; rename one of ",
        ),
        *[
            (
                [example(**{name: 1})],
                f"a#1: feature name {name[:80]!r}: expected 1 to 255 characters, without \\ and control "
                "characters; state the features to read with --schema, or rename",
            )
            for name in ("", "a\\b", "a" * 5000)
        ],
        ([], "none of 0 records has a feature"),
        ([b"\x0a\x00"], "none of 1 records has a feature"),
    ],
    ids=itertools.count(),
)
def test_records_without_a_common_schema_are_refused(records, message):
    with pytest.raises(UsageError) as caught:
        guess_of(records).schema()
    assert caught.value.message.startswith(message)


def test_too_many_names_are_refused(monkeypatch):
    assert inference.MAX_FEATURES == 10_000
    monkeypatch.setattr(inference, "MAX_FEATURES", 20)
    guesses = [
        guess_of([sequence_example({f"a{n}": 1 for n in range(10)}, y=[1])]),
        guess_of([example(**{f"b{n}": 1 for n in range(10)})]),
    ]
    with pytest.raises(UsageError, match=r"more than 20 different features, one of them 'b.': "):
        guesses[0].merge(guesses[1])
    with pytest.raises(
        UsageError, match="more than 20 different features, one of them 'f20': expe"
    ):
        guess_of([example(**{f"f{n:02}": 1 for n in range(21)})])


PAST_THE_END = "field 1 runs past the end of its message"
BROKEN = {
    b"\x0a\x02": PAST_THE_END,
    b"garbage": "wire type 7 is not used by Example or TensorProto",
    b"\x1a\x00": "field 3 is not one of tf.train.Example",
    run_example(3, b"\x80"): "a varint is cut off",
    run_example(3, b"\x80" * 10 + b"\x01"): "a varint is longer than ten bytes",
    run_example(2, b"\0\0\0"): "the floats are cut off",
    # In two runs, of which the first is cut off.
    run_example(2, b"\0\0", b"\0\0"): "the floats are cut off",
    list_example(4): "field 4 is not one of tf.train.Feature",
    example_of((b"\xff", field_of(3, b""))): "'utf-8' codec can't decode byte 0xff",
    field_of(2, field_of(2, b"")): "field 2 is not one of tf.train.Features",
}


@pytest.mark.parametrize("record", BROKEN, ids=BROKEN.values())
def test_a_broken_record_is_not_counted_and_its_reason_is_told_if_all_are(record):
    good = guess_of([example(x=1)])
    guess = guess_of([example(x=1), record])
    assert guess.broken.startswith(f"a#2: not an Example: {BROKEN[record]}")
    assert replace(guess, broken="") == good
    assert guess.schema() == good.schema()
    with pytest.raises(
        DataError, match=r"^no record to learn the schema from: a#1: not an Example: "
    ):
        guess_of([record, record]).schema()
    if "is not one of" not in BROKEN[record]:  # Protobuf skips unknown fields.
        with pytest.raises(DecodeError):
            tf.train.SequenceExample.FromString(record)


# The rules, record by record, for what protobuf, TensorFlow and Pillow find in the records.


def lists_of(record):
    """The kind and the values of each feature that has a kind."""
    found = {}
    for name, one in tf.train.Example.FromString(record).features.feature.items():
        if kind := one.WhichOneof("kind"):
            found[name] = kind, list(getattr(one, kind).value)
    return found


@functools.cache
def tensor_of(value):
    """The array in a TensorProto; None if `serialize_tensor` does not write this."""
    try:
        dtype = tf.as_dtype(TensorProto.FromString(value).dtype)
        array = tf.io.parse_tensor(value, dtype).numpy()
        return array if tensor(array) == value else None
    except (DecodeError, TypeError, tf.errors.OpError):
        return None


@functools.cache
def image_in(value):
    """The format and the channels of an image; None if it is not one."""
    try:
        with Image.open(io.BytesIO(value)) as image:
            return image.format.lower(), 1 if image.mode in ("1", "L", "LA", "I;16") else 3
    except OSError:
        return None


def is_text(value):
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


def common(shapes):
    """The shape of arrays of one rank, None for sizes that differ; None if ranks differ."""
    if len(set(map(len, shapes))) != 1:
        return None
    return tuple(sizes[0] if len(set(sizes)) == 1 else None for sizes in zip(*shapes, strict=True))


def common_tensor(values):
    """The dtype and shape of tensors of one dtype and rank, and these; None if they are not."""
    arrays = [tensor_of(value) for value in values]
    if not arrays or any(a is None for a in arrays) or len({a.dtype for a in arrays}) > 1:
        return None
    shape = common([a.shape for a in arrays])
    return None if shape is None else (dtype_name(arrays[0].dtype), shape, arrays)


def one_value_each(values):
    tensors = common_tensor(values)
    if tensors:
        return Feature(*tensors[:2], "tensor")
    images = [image_in(value) for value in values]
    if all(images):
        kinds, channels = zip(*images, strict=True)
        return image_of(max(channels), kinds[0] if len(set(kinds)) == 1 else "source")
    return TEXT if all(map(is_text, values)) else ONE_BYTES


def expected_features(records):
    """The features by name; if one contradicts itself or its companion, its name."""
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
        if lengths != {1}:
            found = list_of(dtype, None if len(lengths) > 1 else max(lengths) or None)
        elif dtype == "string":
            found = one_value_each([values[0] for values in lists])
        else:
            found = Feature(dtype)
        beside = f"{name}/shape"
        if kinds.get(beside) == {"int64_list"}:
            shapes = [row[beside][1] if beside in row else [] for row in rows]
            if with_shape := with_shapes(found, dtype, lists, shapes):
                companions.add(beside)
                features[name] = with_shape
                continue
        if found.has_companion and beside in names:
            if found.encoding != "tensor":
                return name
            found = ONE_BYTES
        features[name] = found
    return features


def has_exceptions(records):
    """Whether nearly all byte strings of a feature are of a kind; the others are rejects then, as test_reshard shows."""
    values = dict[str, list[bytes]]()
    for record in records:
        for name, (kind, some) in lists_of(record).items():
            if kind == "bytes_list":
                values.setdefault(name, []).extend(some)
    kinds = ((tensor_of, 0.8), (image_in, 0.8), (lambda value: is_text(value) or None, 0.99))
    return any(
        share * len(some) <= sum(of(value) is not None for value in some) < len(some)
        for some in values.values()
        for of, share in kinds
    )


def with_shapes(found, dtype, lists, shapes):
    """The feature whose shape is in its companion in each record; None if it is not."""
    tensors = common_tensor([v for values in lists for v in values]) if dtype == "string" else None
    if found.encoding == "tensor" and [list(a.shape) for a in tensors[2]] == shapes:
        return found
    if tensors and tensors[0] != "string":
        arrays, rows = iter(tensors[2]), []
        for values in lists:
            mine = itertools.islice(arrays, len(values))
            rows.append([size for a in mine for size in (a.nbytes, *a.shape)])
        if rows == shapes:
            count = common([(len(values),) for values in lists])
            return Feature(tensors[0], (*count, *tensors[1]), "sequence")
    if found.encoding not in ("list", "text"):
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
    return list_of(dtype, *shape)


def count_up(shape):
    return np.arange(math.prod(shape))


def reals(n):
    return np.arange(n, dtype=np.float32)


def some_texts(n):
    return np.array([b"a"] * n, object)


def with_rows(*arrays, more=0):
    """Arrays as `sequence` stores them: tensors, and the bytes and sizes of each."""
    rows = [size for array in arrays for size in (array.nbytes, *array.shape)]
    return np.array([*map(tensor, arrays)], object), np.array(rows, np.int64) + more


# How record n holds `x`: a value, or one and its companion. None is missing.
WAYS = {
    "integer": lambda n: n - 2,
    "integer of any size": lambda n: [5, -1, 2**63 - 1, -(2**63), 300][n],
    "some integers": lambda n: [*range(n)],
    "float": lambda n: n / 2 if n else math.nan,
    "text": lambda n: "größer" * n,
    "half characters": lambda n: [b"b" * 39 + b"\xc3", b"\xa0" + b"c" * 39, b"a" * 40][n % 3],
    "bytes": lambda n: b"\xff" * n,
    "texts": lambda n: [b"a", b"b" * n],
    "some texts": some_texts,
    "jpeg": lambda n: COLOURED,
    "not quite images": lambda n: [b"", b"GIF89a", b"\xff\xd8", b"\x89PNG\r\n\x1a", b"\xff"][n],
    "gray jpeg": lambda n: GRAY_JPEG,
    "png": lambda n: COLOURED_PNG,
    "tensor": lambda n: REAL,
    "tensor of n": lambda n: tensor(ones((n, 3))),
    "tensor of another rank": lambda n: tensor(ones((n, 3, 1))),
    "tensor of texts": lambda n: tensor(some_texts(n)),
    "no kind": lambda n: NO_KIND,
    "nothing": lambda n: None,
    "shaped integers": lambda n: (count_up((n, 2)), [n, 2]),
    "shaped integers of two sizes": lambda n: (count_up((n, n + 1)), [n, n + 1]),
    "shaped integers of no rows": lambda n: (NO_INTS, [0, 4]),
    "shaped integers of no columns": lambda n: (NO_INTS, [n, 0]),
    "shaped integer": lambda n: (n, 1),
    "shaped floats": lambda n: (reals(2 * n), [n, 2]),
    "shaped text": lambda n: ("a" * n, 1),
    "shaped texts": lambda n: (some_texts(n), [n, 1]),
    "shaped tensor": lambda n: (tensor(ones((n, 3))), [n, 3]),
    "shaped empty list": lambda n: (NO_INTS, NO_INTS),
    "shape alone": lambda n: (None, [n] * (n % 3)),
    "shape that is not int64": lambda n: (NO_INTS, n / 2),
    "wrong shape": lambda n: ([*range(n)], 3),
    "wrong shape of a tensor": lambda n: (tensor(ones((n, 3))), [n, 4]),
    "negative sizes": lambda n: ([1, 2], [-2, -1]),
    "sizes beyond int64": lambda n: (NO_INTS, [2**32, 2**32]),
    "sizes beyond float64": lambda n: ([1, 2], [*[2**62] * 30, 0]),
    "raw bytes and their shape": lambda n: (np.full((n, 3), -1, np.int16).tobytes(), [n, 3]),
    "jpeg and its shape": lambda n: (COLOURED, [9, 7, 3]),
    "sequence": lambda n: with_rows(*[ones((n, 3))] * (n % 3)),
    "sequence of texts": lambda n: ([tensor(some_texts(1))] * 2, [8, 1, 8, 1]),
    **{
        f"sequence, wrong in {place}": lambda n, place=place: with_rows(
            ones((2, 3)), ones((1, 3)), more=np.eye(6, dtype=np.int64)[place]
        )
        for place in (3, 4, 5)
    },
}


def entries_of(name, value):
    """The serialized entry of a feature, and of its companion."""
    x, shape = value if isinstance(value, tuple) else (value, None)
    pairs = ((name, x), (f"{name}/shape", shape))
    return [entry(name, part) for name, part in pairs if part is not None]


def outcome_by_the_rules(records):
    """The schema or the error, after it is compared with the rules."""
    whole, expected = outcome(guess_of(records)), expected_features(records)
    assert (whole.split("'")[1] if isinstance(whole, str) else dict(whole)) == expected
    if isinstance(expected, dict):
        decoder = Decoder(Schema(expected))
        for record in records:
            decoder.decode(record)
    return whole


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("first", ["nothing", "shape alone", "some integers"])
def test_records_written_in_two_ways_follow_the_rules(first):
    for second in WAYS.values():
        outcome_by_the_rules(
            [
                field_of(1, b"".join([*entries_of("x", way(n)), *entries_of("y", 1)]))
                for way in (WAYS[first], second)
                for n in range(5)
            ]
        )


@st.composite
def written(draw):
    """Records of one to three features, each written in one or two ways."""
    columns = {
        name: draw(st.lists(st.sampled_from(sorted(WAYS)), min_size=1, max_size=2))
        for name in draw(st.sampled_from(["x", "xy", "xyz"]))
    }
    shuffle, records = draw(st.randoms(use_true_random=False)), []
    for _ in range(draw(st.sampled_from([1, 2, 5, 20, 40]))):
        parts = entries_of("id", 1)
        for name, ways in columns.items():
            # The second way is rare.
            way = ways[-1] if shuffle.random() < 0.1 else ways[0]
            parts += entries_of(name, WAYS[way](shuffle.randrange(5)))
        if shuffle.random() < 0.5:
            shuffle.shuffle(parts)
        records.append(field_of(1, b"".join(parts)))
    return records


@given(written(), st.randoms(use_true_random=False))
@settings(max_examples=EXAMPLES, deadline=None)
@pytest.mark.filterwarnings("error")
def test_records_follow_the_rules_in_whatever_parts_they_are_added_and_merged(records, shuffle):
    assume(not has_exceptions(records))
    whole = outcome_by_the_rules(records)
    bounds = sorted({0, len(records), *(shuffle.randrange(len(records) + 1) for _ in range(4))})
    guesses = [guess_of(records[a:b]) for a, b in itertools.pairwise(bounds)]
    while len(guesses) > 1:
        shuffle.shuffle(guesses)
        merged = pickle.loads(pickle.dumps(guesses.pop()))
        guesses[0].merge(merged)
    assert guesses[0].records == len(records)
    assert outcome(guesses[0]) == whole


def test_the_size_of_a_guess_does_not_grow_with_the_records():
    record = example(**{"x": REAL, "x/shape": [2, 3], "y": 1, "z": COLOURED})
    few, many = guess_of([record]), guess_of([record] * 1000)
    assert len(pickle.dumps(many)) < len(pickle.dumps(few)) + 30


def test_the_missing_package_of_a_dtype_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    numpy_dtype.cache_clear()
    try:
        with pytest.raises(UsageError, match="dtype bfloat16 needs ml_dtypes: pip install"):
            guess_of([example(x=b"\x08\x0e\x12\x04\x12\x02\x08\x01\x22\x02ab")])
    finally:
        numpy_dtype.cache_clear()


def test_facts_about_many_features_are_cut_in_pieces():
    names = [f"feature {number}" for number in range(300)]
    one = example(**dict.fromkeys(names, 1.0))
    steps = sequence_example(steps=[[1, 2], [3, 4]])
    whole = guess_of([one, steps])
    pieces = [pickle.dumps(piece) for _, piece in whole.pieces()]
    assert max(map(len, pieces)) < 2000 < len(pickle.dumps(whole))
    again = SchemaGuess()
    for piece in pieces[::-1]:
        again.merge(pickle.loads(piece))
    assert again == whole
    assert outcome(again) == outcome(whole)
