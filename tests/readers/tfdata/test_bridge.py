"""Ragged tensors hold the values of the records, and know the sizes that the schema knows."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from readers.format.schema import Feature
from readers.tfdata.bridge import ragged_arrays, ragged_tensor
from tests.readers.batches.test_collate import VARYING, arrays, columns_of

EMPTY = [((None, 0), [(2, 0), (0, 0)]), ((None, None), [(0, 0), (0, 0)]), ((0, None), [(0, 3)])]


def tensor_of(feature, values):
    flat, *lengths = map(tf.constant, ragged_arrays(feature, columns_of(feature, values)["x"]))
    tensor = ragged_tensor(feature, flat, lengths)
    assert tensor.dtype == feature.dtype
    assert tensor.shape.as_list() == [len(values), *feature.shape]
    return tensor.to_list()


@pytest.mark.parametrize(("shape", "found"), [*VARYING, *EMPTY])
def test_a_ragged_tensor_has_the_values_of_the_records(shape, found):
    values = arrays(found)
    assert tensor_of(Feature("float32", shape), values) == [value.tolist() for value in values]


@pytest.mark.parametrize(
    ("shape", "counts"),
    [((None, 2), (2, 0, 1)), ((None, None, 2), (3, 0, 2)), ((2, None), (2, 2))],
)
def test_a_ragged_tensor_has_the_arrays_of_sequences(shape, counts):
    sizes = iter(range(1, 99))
    values = [
        [
            np.full([next(sizes) if d is None else d for d in shape[1:]], n, "i4")
            for n in range(count)
        ]
        for count in counts
    ]
    found = tensor_of(Feature("int32", shape, "sequence"), values)
    assert found == [[array.tolist() for array in record] for record in values]


def test_texts_are_ragged():
    values = [np.array([b"a"], object), np.array([], object), np.array([b"b", b"c"], object)]
    assert tensor_of(Feature("string", (None,), "list"), values) == [[b"a"], [], [b"b", b"c"]]
