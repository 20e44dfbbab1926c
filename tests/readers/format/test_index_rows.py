"""Rows of an index, compared with the numbers that NumPy finds in the records."""

import ml_dtypes
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from readers.format.encode.index_rows import IndexRows
from readers.format.encode.records import Encoder
from readers.format.schema import Feature, Schema
from tests.support.datasets import plain_sections

INTEGERS = [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)]
FLOATS = ["float16", "float32", "float64"]
OTHERS = ["bfloat16", "complex64", "complex128", "string"]

# Which numbers an index has of a feature: the value, the length, or none.
SCALARS = {f"{name}/x": Feature(name) for name in ["bool", *INTEGERS, *FLOATS, *OTHERS]}
SCALARS["raw"] = Feature("int64", (), "raw")
VARYING = {
    "list": Feature("int64", (None,)),
    "last": Feature("float32", (2, None)),
    "both": Feature("uint8", (None, 3, None)),
    "steps": Feature("float32", (None, 2), "raw"),
    "words": Feature("string", (None,), "list"),
    "texts": Feature("string", (2, None), "tensor"),
    "arrays": Feature("int16", (None, 2), "sequence"),
    "floats": Feature("bfloat16", (None,)),
}
NEITHER = {
    "fixed": Feature("float64", (2, 3)),
    "ragged": Feature("int16", (None, None), "sequence"),
    "inner": Feature("int16", (3, None), "sequence"),
    "picture": Feature("uint8", (None, None, 3), "jpeg"),
    "bytes": Feature("uint8", (None, None, 3), "source"),
}
FEATURES = SCALARS | VARYING | NEITHER


def value_of(feature: Feature, rng: np.random.Generator):
    """A random value; unknown sizes are 0 to 4, integers and floats may be the largest ones."""
    shape = [rng.integers(5) if size is None else size for size in feature.shape]
    if feature.encoding in ("jpeg", "source"):
        return b"picture"
    if feature.encoding == "sequence":
        part = Feature(feature.dtype, feature.shape[1:])
        return [value_of(part, rng) for _ in range(shape[0])]
    if feature.dtype == "string":
        texts = np.array([f"{n}é" for n in range(int(np.prod(shape)))], object)
        return texts.reshape(shape) if shape else "one"
    if feature.dtype in ("bool", *INTEGERS):
        whole = np.iinfo("uint8" if feature.dtype == "bool" else feature.dtype)
        drawn = rng.integers(whole.min, whole.max, shape, whole.dtype, endpoint=True)
        return drawn % 2 == 1 if feature.dtype == "bool" else drawn
    special = [0.1, -0.0, 65504.0, 6e-8, np.inf, -np.inf, np.nan]
    dtype = ml_dtypes.bfloat16 if feature.dtype == "bfloat16" else feature.dtype
    return rng.choice(special, shape).astype(dtype)


@given(
    st.sets(st.sampled_from(sorted(FEATURES)), min_size=1),
    st.integers(0, 9),
    st.integers(0, 1 << 32),
)
@settings(max_examples=60)
def test_rows_hold_the_numbers_of_their_records(names, count, seed):
    schema, rng = Schema({name: FEATURES[name] for name in names}), np.random.default_rng(seed)
    checked = [
        Encoder(schema).check({name: value_of(feature, rng) for name, feature in schema.items()})
        for _ in range(count)
    ]
    rows = IndexRows(schema)
    packed = [rows.pack(values) for values in checked]
    columns = {name: [values[name] for values in checked] for name in schema}
    assert rows.pack_all(columns, count) == packed
    assert {len(row) for row in packed} <= {rows.size}

    expected = plain_sections(schema, checked, [0] * count)
    del expected["hash"], expected["hash/low"]
    found = rows.unpack(b"".join(packed), {})
    assert found.keys() == expected.keys()
    for name, numbers in expected.items():
        np.testing.assert_array_equal(found[name], numbers, strict=True)

    other = {name: f"{name}/of the dataset" for name in schema}
    renamed = rows.unpack(b"".join(packed), other)
    assert {section.removesuffix("/of the dataset") for section in renamed} == found.keys()


def test_only_single_numbers_and_single_unknown_lengths_are_in_an_index():
    schema = Schema(FEATURES)
    values = {f"value/{name}/x" for name in ("bool", *INTEGERS, *FLOATS)} | {"value/raw"}
    assert IndexRows(schema).unpack(b"", {}).keys() == values | {f"length/{n}" for n in VARYING}
