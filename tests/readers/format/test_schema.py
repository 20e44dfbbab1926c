import sys

import numpy as np
import pytest
import tensorflow as tf

from readers.format.dtypes import TENSORFLOW_DTYPES, dtype_name, numpy_dtype
from readers.format.encodings.spec import fits, format_found
from readers.format.schema import ENCODINGS, Feature, Schema


@pytest.mark.parametrize("name", sorted(TENSORFLOW_DTYPES))
def test_dtypes_have_the_numbers_and_numpy_types_of_tensorflow(name):
    dtype = tf.as_dtype(name)
    assert dtype.as_datatype_enum == TENSORFLOW_DTYPES[name]
    assert numpy_dtype(name) == dtype.as_numpy_dtype
    assert numpy_dtype(name).byteorder in "<=|"
    assert dtype_name(numpy_dtype(name)) == name


@pytest.mark.parametrize("kind", ["S3", "U3", "O"])
def test_text_bytes_and_object_arrays_have_the_dtype_string(kind):
    assert dtype_name(np.dtype(kind)) == "string"


def test_the_error_for_an_unknown_dtype_lists_the_dtypes():
    with pytest.raises(
        ValueError, match="unknown dtype 'float128': expected one of bfloat16, bool,"
    ):
        numpy_dtype("float128")


def test_a_dtype_whose_package_is_missing_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    with pytest.raises(ImportError, match="dtype bfloat16 needs ml_dtypes: pip install ml_dtypes"):
        numpy_dtype.__wrapped__("bfloat16")


@pytest.mark.parametrize(
    ("expected", "found", "does"),
    [
        ((), (), True),
        ((2, 3), (2, 3), True),
        ((2, 3), (2, 4), False),
        ((None, 3), (7, 3), True),
        ((None, None), (7,), False),
        ((None,), (), False),
        ((None, 0), (1 << 20, 0), True),
        ((None, 0), ((1 << 20) + 1, 0), False),
        (((1 << 20) + 1, 0), ((1 << 20) + 1, 0), False),
        ((None,), ((1 << 20) + 1,), True),
    ],
)
def test_a_shape_fits_if_its_rank_and_its_known_sizes_do(expected, found, does):
    assert fits(expected, found) is does


def test_a_shape_that_does_not_fit_is_printed_with_the_reason_if_it_is_too_long():
    assert format_found((7, 3)) == "[7, 3]"
    assert format_found((1 << 20, 0)) == "[1048576, 0]"
    reason = "with a size of 0, others may be at most 1048576"
    assert format_found(((1 << 20) + 1, 0)) == f"[1048577, 0]: {reason}"


@pytest.mark.parametrize(
    ("dtype", "shape", "encoding"),
    [
        ("int64", (), "list"),
        ("bool", (), "list"),
        ("float32", (), "list"),
        ("float64", (), "tensor"),
        ("string", (), "text"),
        ("uint8", (2, 2, 3), "tensor"),
        ("int64", (None,), "tensor"),
    ],
)
def test_the_default_encoding_follows_from_dtype_and_shape(dtype, shape, encoding):
    assert Feature(dtype, shape).encoding == encoding


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("float128",), "unknown dtype 'float128'"),
        ((np.float32,), "expected a name such as 'float32'"),
        (("int64", (-1,)), r"shape \[-1\]: a size is negative; use None"),
        (("bool", (None, 2**16, 2**15)), r"shape \[None, 65536, 32768\]: too many values for one"),
        (("bool", (0, 2**31)), r"shape \[0, 2147483648\]: too many values for one record"),
        (("int64", (1,) * 33), "a shape of 33 dimensions: expected at most 32"),
        (("int64", 3), "shape 3: expected a list of sizes"),
        (("int64", "28"), "shape '28': expected a list of sizes"),
        (("int64", (1.5,)), r"shape \(1.5,\): expected a list of sizes"),
        (("int64", (2,), "zip"), "unknown encoding 'zip': expected one of tensor, list,"),
        (("string", (2,), "text"), "text is a single UTF-8 string"),
        (("uint8", (2, 2), "png"), "an encoded image must be uint8"),
        (("uint8", (2, 2, None), "jpeg"), "an encoded image must be uint8"),
        (("string", (2,), "sequence"), "a sequence must be numeric"),
    ],
)
def test_an_invalid_feature_is_refused_with_the_reason(arguments, message):
    with pytest.raises(ValueError, match=message):
        Feature(*arguments)


_IMAGE = "an encoded image must be "


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ("int64", (), "text"),
            "int64 [], text: text is a single UTF-8 string: expected dtype string and shape []",
        ),
        (("string", (2,), "raw"), "string [2], raw: raw bytes need a numeric dtype"),
        (
            ("float64", (2,), "list"),
            "float64 [2], list: an Example's lists hold int64, float32 and bytes: use the encoding tensor",
        ),
        (
            ("int64", (), "sequence"),
            "int64 [], sequence: a sequence must be numeric, with a first dimension that counts its arrays",
        ),
        (
            ("uint8", (2, 2, 4), "jpeg"),
            f"uint8 [2, 2, 4], jpeg: {_IMAGE}uint8 [height, width, 1 or 3]",
        ),
        (
            ("uint16", (2, 2, 3), "jpeg"),
            f"uint16 [2, 2, 3], jpeg: {_IMAGE}uint8 [height, width, 1 or 3]",
        ),
        (
            ("uint8", (2, 2, 5), "png"),
            f"uint8 [2, 2, 5], png: {_IMAGE}uint8 or uint16 [height, width, 1, 3 or 4]",
        ),
        (
            ("uint16", (2, 2, 3), "source"),
            f"uint16 [2, 2, 3], source: {_IMAGE}uint8 [height, width, 1, 3 or 4]",
        ),
        (
            ("int64", (), "list steps"),
            "int64 [], list steps: the first dimension of a feature list counts its steps: expected "
            "[None] for scalars",
        ),
        (
            ("float64", (None, 2), "list steps"),
            "float64 [None, 2], list steps: each step is float64 [2], list: an Example's lists hold "
            "int64, float32 and bytes: use the encoding tensor",
        ),
        (
            ("int64", (None, None, None), "list steps"),
            "int64 [None, None, None], list steps: only one unknown size per step can be inferred "
            "from its values",
        ),
    ],
)
def test_the_error_for_an_encoding_that_does_not_fit_says_what_would(arguments, message):
    with pytest.raises(ValueError) as caught:
        Feature(*arguments)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    "arguments",
    [
        ("int64", (0,)),
        ("string", (2,), "list"),
        ("int8", (None,), "sequence"),
        ("uint8", (2, 2, 1), "jpeg"),
        ("uint8", (2, 2, 4), "png"),
        ("uint16", (2, 2, 4), "png"),
        ("uint8", (2, 2, 4), "source"),
        ("int64", (None, None), "list steps"),
        ("int64", (None, None, None), "tensor steps"),
    ],
)
def test_an_encoding_that_fits_is_taken(arguments):
    assert (Feature(*arguments).dtype, Feature(*arguments).shape) == arguments[:2]


def test_a_feature_of_steps_knows_the_feature_of_each():
    image = Feature("uint8", (None, None, None, 3), "jpeg steps")
    assert image.step == Feature("uint8", (None, None, 3), "jpeg")
    assert (image.is_image, image.is_sequence) == (True, True)
    numbers = Feature("int64", (None, 2), "list steps")
    assert numbers.step == Feature("int64", (2,), "list")
    assert (numbers.is_image, numbers.is_sequence) == (False, False)


@pytest.mark.parametrize(
    ("feature", "is_image", "is_sequence", "has_length", "needs_companion", "known"),
    [
        (Feature("int64"), False, False, False, False, ()),
        (Feature("uint8", (None, 4), "tensor"), False, False, True, False, (4,)),
        (Feature("uint8", (None, 4), "raw"), False, False, True, True, (4,)),
        (Feature("uint8", (5, None, 4), "list"), False, False, True, True, (5, 4)),
        (Feature("uint8", (5, 4), "raw"), False, False, False, False, (5, 4)),
        (Feature("uint8", (5, 4, 3), "png"), True, False, False, False, (5, 4, 3)),
        (Feature("uint8", (None, None, 3), "source"), True, False, True, False, (3,)),
        (Feature("int8", (None, 4), "sequence"), False, True, True, False, (4,)),
        (Feature("int8", (None, None), "sequence"), False, True, False, False, ()),
        (Feature("int8", (2, 4), "sequence"), False, True, False, False, (2, 4)),
    ],
)
def test_a_feature_knows_what_its_values_are(
    feature, is_image, is_sequence, has_length, needs_companion, known
):
    assert (feature.is_image, feature.is_sequence) == (is_image, is_sequence)
    assert (feature.has_length, feature.needs_companion) == (has_length, needs_companion)
    assert feature.known_sizes == known
    if not feature.is_fixed:
        assert feature.first_unknown == feature.shape.index(None)
    assert feature.step is None


def test_numpy_integers_are_sizes_and_equal_features_are_equal():
    assert Feature("int64", [np.int64(3), None]) == Feature("int64", (3, None), "tensor")
    assert type(Feature("int64", [np.int64(3)]).shape[0]) is int


def test_a_schema_is_a_mapping_sorted_by_name():
    schema = Schema({"b": ("int64", (2,)), "a": Feature("string"), "é": ("uint8", (3,), "raw")})
    assert list(schema) == ["a", "b", "é"]
    assert len(schema) == 3
    assert schema["é"] == Feature("uint8", (3,), "raw")
    again = Schema({name: schema[name] for name in reversed(list(schema))})
    assert schema == again
    assert hash(schema) == hash(again)
    assert schema != Schema({"a": Feature("string")})


def test_a_schema_equals_no_other_mapping_and_is_printed_with_its_features():
    schema = Schema({"a": ("int64", (2,))})
    assert schema != {"a": Feature("int64", (2,))}
    assert dict(schema.items()) == {"a": Feature("int64", (2,))}
    assert repr(schema) == "Schema({'a': Feature(dtype='int64', shape=(2,), encoding='tensor')})"
    assert schema.to_json() == {"a": {"dtype": "int64", "shape": [2], "encoding": "tensor"}}


def test_names_are_sorted_by_their_utf_8_bytes():
    names = ["￿", "𝄞", "b", "a", "ab", "Z", "é"]
    assert list(Schema(dict.fromkeys(names, ("int64",)))) == sorted(names, key=str.encode)


@pytest.mark.parametrize(
    "name", ["", "a\\b", "a\0", "a\nb", "\ud800", "x" * 256, 3, None, b"a", ("a",)]
)
def test_names_that_cannot_be_files_or_utf_8_are_refused(name):
    with pytest.raises(ValueError, match=r"feature name .*: expected text"):
        Schema({"fine": ("int64",), name: ("int64",)})


@pytest.mark.parametrize(
    ("features", "message"),
    [
        ({}, "at least one feature"),
        ({"x": ("float128",)}, "feature 'x': unknown dtype"),
        ({"x": ()}, "feature 'x': "),
        ({"x": 5}, "feature 'x': "),
        ({"x": ("int64", (), "list", "more")}, "feature 'x': "),
    ],
)
def test_the_error_for_an_invalid_schema_names_the_feature(features, message):
    with pytest.raises(ValueError, match=message):
        Schema(features)


def test_the_error_for_an_unknown_feature_lists_the_features():
    schema = Schema({"a": ("int64",), "b": ("int64",)})
    with pytest.raises(KeyError, match="no feature 'c': the schema has a, b"):
        schema["c"]
    with pytest.raises(ValueError, match="unknown feature 'c': the dataset has a, b"):
        schema.select(["a", "c"])
    assert list(schema.select(["b"])) == ["b"]
    assert "c" not in schema
    assert 3 not in schema


def test_every_encoding_round_trips_through_json():
    schema = Schema(
        {
            "tensor": ("complex64", (None, 3), "tensor"),
            "list": ("bool", (None, 2), "list"),
            "raw": ("float16", (4,), "raw"),
            "text": ("string", (), "text"),
            "jpeg": ("uint8", (None, None, 3), "jpeg"),
            "png": ("uint8", (2, 2, 1), "png"),
            "source": ("uint8", (None, 5, 3), "source"),
            "sequence": ("int8", (None, None, 6), "sequence"),
            "zlib": ("string", (), "zlib"),
            "zlib_shuffled": ("bfloat16", (None, 2), "zlib_shuffled"),
            "tensor steps": ("complex64", (None, None, 3), "tensor steps"),
            "list steps": ("bool", (4,), "list steps"),
            "raw steps": ("float16", (None, 4), "raw steps"),
            "text steps": ("string", (None,), "text steps"),
            "jpeg steps": ("uint8", (None, None, None, 3), "jpeg steps"),
            "png steps": ("uint8", (5, 2, 2, 1), "png steps"),
            "source steps": ("uint8", (None, 4, 5, 3), "source steps"),
        }
    )
    assert set(schema) == set(ENCODINGS)
    assert Schema.from_json(schema.to_json()) == schema
    assert schema.to_json()["tensor"] == {
        "dtype": "complex64",
        "shape": [None, 3],
        "encoding": "tensor",
    }


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([], "a schema maps names to features, got list"),
        ({}, "at least one feature"),
        ({"x": 5}, r"feature 'x': a feature is \{dtype, shape, encoding\}, got 5"),
        ({"x": {"dtype": "int64", "shape": []}}, "feature 'x': a feature is"),
        ({"x": {"dtype": "int65", "shape": [], "encoding": "list"}}, "feature 'x': unknown dtype"),
        ({"x": {"dtype": "int64", "shape": "12", "encoding": "list"}}, "feature 'x': shape '12'"),
        ({"x": {"dtype": "int64", "shape": [], "encoding": {}}}, "feature 'x': .*encoding"),
        ({"a\nb": {"dtype": "int64", "shape": [], "encoding": "list"}}, "feature name 'a.*b'"),
    ],
)
def test_json_that_is_not_a_schema_is_refused_with_the_reason(value, message):
    with pytest.raises(ValueError, match=message):
        Schema.from_json(value)


def test_the_name_of_another_feature_s_companion_is_refused():
    with pytest.raises(ValueError, match="'x/shape': this name is taken by the shapes of 'x'"):
        Schema({"x": ("float32", (None,)), "x/shape": ("int64",)})
    Schema({"x": ("float32", (3,)), "x/shape": ("int64",)})
