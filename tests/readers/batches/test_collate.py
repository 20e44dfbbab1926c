"""The arrays of padded and ragged batches are those made by hand."""

from __future__ import annotations

import numpy as np
import pytest

from readers.batches.batch_format import BatchFormat, Padded, Ragged
from readers.batches.collate import collate, truncate
from readers.format.decode.column import column_of
from readers.format.decode.records import Decoder
from readers.format.dtypes import numpy_dtype
from readers.format.encode.records import Encoder
from readers.format.schema import Feature, Schema


def columns_of(feature, values):
    """The column of a feature `x`, of records that were encoded and decoded."""
    schema = Schema({"x": feature})
    examples = [Encoder(schema).encode({"x": value}) for value in values]
    return {"x": column_of(feature, [Decoder(schema).decode(data)["x"] for data in examples])}


def batch_of(feature, values, batch_format):
    schema = Schema({"x": feature})
    return collate(
        truncate(columns_of(feature, values), schema, batch_format), schema, batch_format
    )


def arrays(shapes, dtype="float32"):
    counts = np.cumsum([0] + [int(np.prod(shape)) for shape in shapes])
    flat = np.arange(1, counts[-1] + 1)
    return [
        (flat[start : start + int(np.prod(shape))] % 100 + 1).astype(dtype).reshape(shape)
        for start, shape in zip(counts, shapes, strict=False)
    ]


def padded_by_hand(values, shape):
    longest = np.max([value.shape for value in values], axis=0)
    shape = [size if d is None else d for d, size in zip(shape, longest, strict=True)]
    out = np.zeros([len(values), *shape], values[0].dtype)
    mask = np.zeros([len(values), *shape], bool)
    for i, value in enumerate(values):
        out[(i, *map(slice, value.shape))] = value
        mask[(i, *map(slice, value.shape))] = True
    return out, mask


VARYING = [
    ((None,), [(3,), (0,), (5,)]),
    ((None, 6), [(3, 6), (0, 6), (5, 6)]),
    ((None, 2, 3), [(1, 2, 3), (2, 2, 3)]),
    ((4, None), [(4, 2), (4, 3)]),
    ((None, None), [(2, 3), (3, 1), (1, 4)]),
    ((None, None, 3), [(2, 1, 3), (1, 2, 3)]),
    ((None, 2, None), [(2, 2, 1), (1, 2, 3)]),
    ((None, 2, None, 3), [(2, 2, 1, 3), (1, 2, 3, 3)]),
]


@pytest.mark.parametrize(("shape", "found"), VARYING)
def test_padding_and_mask_equal_those_made_by_hand(shape, found):
    values = arrays(found)
    expected, mask = padded_by_hand(values, shape)
    feature = Feature("float32", shape)
    batch = batch_of(feature, values, Padded(mask=True))
    covered = mask.reshape(*mask.shape[: feature.varying_rank + 1], -1).all(axis=-1)
    np.testing.assert_array_equal(batch["x"], expected)
    assert batch["x"].dtype == "float32"
    np.testing.assert_array_equal(batch["x_mask"], covered)


@pytest.mark.parametrize(("shape", "found"), VARYING)
def test_ragged_rows_equal_the_records(shape, found):
    values = arrays(found)
    batch = batch_of(Feature("float32", shape), values, Ragged())
    assert batch["x"].dtype == object
    for row, value in zip(batch["x"], values, strict=True):
        np.testing.assert_array_equal(row, value)


@pytest.mark.parametrize(
    ("dtype", "encoding"),
    [("bool", "raw"), ("uint32", "tensor"), ("bfloat16", "raw"), ("complex64", "tensor")],
)
def test_every_dtype_is_padded_with_zero(dtype, encoding):
    values = [v.astype(numpy_dtype(dtype)) for v in arrays([(1, 2), (3, 2), (0, 2)], "float32")]
    expected, _ = padded_by_hand(values, (None, 2))
    batch = batch_of(Feature(dtype, (None, 2), encoding), values, Padded())
    np.testing.assert_array_equal(batch["x"], expected)
    assert batch["x"].dtype == expected.dtype


@pytest.mark.parametrize("limit", [10**9, 2**60])
@pytest.mark.parametrize("encoding", ["tensor", "raw"])
def test_a_limit_of_billions_of_rows_truncates_nothing(encoding, limit):
    values = arrays([(1, 2), (3, 2), (0, 2)])
    expected, _ = padded_by_hand(values, (None, 2))
    feature = Feature("float32", (None, 2), encoding)
    np.testing.assert_array_equal(batch_of(feature, values, Padded(limit))["x"], expected)


@pytest.mark.parametrize("encoding", ["list", "tensor"])
def test_strings_are_padded_with_empty_strings(encoding):
    values = [np.array([b"a"], object), np.array([b"b", b"c"], object)]
    batch = batch_of(Feature("string", (None,), encoding), values, Padded())
    assert batch["x"].tolist() == [[b"a", b""], [b"b", b"c"]]


def test_sequences_are_padded_in_both_directions_and_masked():
    values = [arrays([(1, 2), (3, 2)]), [], arrays([(2, 2)])]
    feature = Feature("float32", (None, None, 2), "sequence")
    batch = batch_of(feature, values, Padded(mask=True))
    expected = np.zeros((3, 2, 3, 2), "f4")
    mask = np.zeros((3, 2, 3), bool)
    for i, record in enumerate(values):
        for j, value in enumerate(record):
            expected[i, j, : len(value)] = value
            mask[i, j, : len(value)] = True
    np.testing.assert_array_equal(batch["x"], expected)
    np.testing.assert_array_equal(batch["x_mask"], mask)


def test_sequences_of_fixed_arrays_are_masked_per_array():
    values = [arrays([(2,), (2,)]), arrays([(2,)]), []]
    batch = batch_of(Feature("float32", (None, 2), "sequence"), values, Padded(mask=True))
    assert batch["x_mask"].tolist() == [[True, True], [True, False], [False] * 2]
    assert batch["x"][1].tolist() == [[2, 3], [0, 0]]


@pytest.mark.parametrize("shape", [(None,), (None, 3), (None, None), (None, None, 2)])
def test_a_batch_of_only_empty_records_is_empty(shape):
    empty = tuple(0 if d is None else d for d in shape)
    feature = Feature("float32", shape)
    batch = batch_of(feature, arrays([empty, empty]), Padded(mask=True))
    assert batch["x"].shape == (2, *empty)
    assert batch["x_mask"].shape == (2, *empty)[: feature.varying_rank + 1]


def test_fixed_features_are_dense_in_every_batching():
    for batching in (BatchFormat(), Padded(), Ragged()):
        batch = batch_of(Feature("float32", (2,)), arrays([(2,), (2,)]), batching)
        assert batch["x"].tolist() == [[2, 3], [4, 5]]
