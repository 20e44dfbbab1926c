"""Batches by TensorFlow, after `map`, and by NumPy: equal to each other and to batches made by hand."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from readers.batches.batch_format import BatchFormat, Padded, Ragged
from readers.batches.collate import collate, flat_arrays, truncate
from readers.format.decode.column import column_of
from readers.format.decode.records import Decoder
from readers.format.dtypes import numpy_dtype
from readers.format.encode import Encoder
from readers.format.schema import Feature, Schema
from readers.tfdata.batching import TensorColumn, batch_of
from readers.tfdata.bridge import tensor_column


def batches(feature, values, batch_format):
    """The same records as a batch of tensors and as one of arrays."""
    schema = Schema({"x": feature})
    examples = [Encoder(schema).encode({"x": value}) for value in values]
    column = column_of(feature, [Decoder(schema).decode(example)["x"] for example in examples])
    tensors = TensorColumn(column.flat())
    if not feature.is_fixed:
        tensors = tensor_column(feature, *map(tf.constant, flat_arrays(feature, column)))
    graph = batch_of({"x": tensors}, schema, batch_format)
    columns = truncate({"x": column}, schema, batch_format)
    return graph, collate(columns, schema, batch_format)


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
    graph, array = batches(feature, values, Padded(mask=True))
    covered = mask.reshape(*mask.shape[: feature.varying_rank + 1], -1).all(axis=-1)
    for batch in (graph, array):
        np.testing.assert_array_equal(batch["x"], expected)
        assert batch["x"].dtype == "float32"
        np.testing.assert_array_equal(batch["x_mask"], covered)
    assert graph["x"].shape.as_list() == list(expected.shape)


@pytest.mark.parametrize(("shape", "found"), VARYING)
def test_ragged_rows_equal_the_records(shape, found):
    values = arrays(found)
    graph, array = batches(Feature("float32", shape), values, Ragged())
    assert isinstance(graph["x"], tf.RaggedTensor)
    assert graph["x"].shape.as_list() == [len(found), *shape]
    assert graph["x"].to_list() == [value.tolist() for value in values]
    assert array["x"].dtype == object
    for row, value in zip(array["x"], values, strict=True):
        np.testing.assert_array_equal(row, value)


@pytest.mark.parametrize(
    ("dtype", "encoding"),
    [("bool", "raw"), ("uint32", "tensor"), ("bfloat16", "raw"), ("complex64", "tensor")],
)
def test_every_dtype_is_padded_with_zero(dtype, encoding):
    values = [v.astype(numpy_dtype(dtype)) for v in arrays([(1, 2), (3, 2), (0, 2)], "float32")]
    expected, _ = padded_by_hand(values, (None, 2))
    graph, array = batches(Feature(dtype, (None, 2), encoding), values, Padded())
    np.testing.assert_array_equal(graph["x"].numpy(), expected)
    np.testing.assert_array_equal(array["x"], expected)
    assert array["x"].dtype == expected.dtype == graph["x"].dtype.as_numpy_dtype


@pytest.mark.parametrize("limit", [10**9, 2**60])
@pytest.mark.parametrize("encoding", ["tensor", "raw"])
def test_a_limit_of_billions_of_rows_truncates_nothing(encoding, limit):
    values = arrays([(1, 2), (3, 2), (0, 2)])
    expected, _ = padded_by_hand(values, (None, 2))
    feature = Feature("float32", (None, 2), encoding)
    for batch in batches(feature, values, Padded(limit)):
        np.testing.assert_array_equal(batch["x"], expected)


@pytest.mark.parametrize("encoding", ["list", "tensor"])
def test_strings_are_padded_with_empty_strings(encoding):
    values = [np.array([b"a"], object), np.array([b"b", b"c"], object)]
    graph, array = batches(Feature("string", (None,), encoding), values, Padded())
    expected = [[b"a", b""], [b"b", b"c"]]
    assert graph["x"].numpy().tolist() == array["x"].tolist() == expected


def test_sequences_are_padded_in_both_directions_and_masked():
    values = [arrays([(1, 2), (3, 2)]), [], arrays([(2, 2)])]
    feature = Feature("float32", (None, None, 2), "sequence")
    graph, array = batches(feature, values, Padded(mask=True))
    expected = np.zeros((3, 2, 3, 2), "f4")
    mask = np.zeros((3, 2, 3), bool)
    for i, record in enumerate(values):
        for j, value in enumerate(record):
            expected[i, j, : len(value)] = value
            mask[i, j, : len(value)] = True
    for batch in (graph, array):
        np.testing.assert_array_equal(batch["x"], expected)
        np.testing.assert_array_equal(batch["x_mask"], mask)


def test_sequences_of_fixed_arrays_are_masked_per_array():
    values = [arrays([(2,), (2,)]), arrays([(2,)]), []]
    for batch in batches(Feature("float32", (None, 2), "sequence"), values, Padded(mask=True)):
        assert np.asarray(batch["x_mask"]).tolist() == [[True, True], [True, False], [False] * 2]
        assert np.asarray(batch["x"])[1].tolist() == [[2, 3], [0, 0]]


@pytest.mark.parametrize("shape", [(None,), (None, 3), (None, None), (None, None, 2)])
def test_a_batch_of_only_empty_records_is_empty(shape):
    empty = tuple(0 if d is None else d for d in shape)
    graph, array = batches(Feature("float32", shape), arrays([empty, empty]), Padded(mask=True))
    assert graph["x"].shape == array["x"].shape == (2, *empty)
    assert graph["x_mask"].shape == array["x_mask"].shape


def test_fixed_features_are_dense_in_every_batching():
    for batching in (BatchFormat(), Padded(), Ragged()):
        graph, array = batches(Feature("float32", (2,)), arrays([(2,), (2,)]), batching)
        assert np.asarray(graph["x"]).tolist() == array["x"].tolist() == [[2, 3], [4, 5]]


@given(st.data())
@settings(max_examples=12, deadline=None)
def test_both_readers_pad_any_shapes_in_the_same_way(data):
    spec = data.draw(
        st.lists(st.sampled_from([None, 2]), min_size=1, max_size=3).filter(lambda s: None in s)
    )
    count = data.draw(st.integers(1, 4))
    sizes = st.integers(0, 3)
    found = [tuple(data.draw(sizes) if d is None else d for d in spec) for _ in range(count)]
    graph, array = batches(Feature("int32", spec), arrays(found, "int32"), Padded(mask=True))
    for name in ("x", "x_mask"):
        np.testing.assert_array_equal(graph[name], array[name])
        assert graph[name].shape == array[name].shape
