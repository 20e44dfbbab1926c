from __future__ import annotations

import gc

import numpy as np
import pytest
import tensorflow as tf

from readers.shards.memory import Recycled

BYTES = np.dtype(np.uint8)


def address(array):
    return array.__array_interface__["data"][0]


def test_memory_is_used_again_once_nothing_refers_to_it():
    memory = Recycled()
    first = memory.empty((1 << 20,), BYTES)
    first[:] = 7
    where = address(first)
    view = first[4:].reshape(-1, 3)
    del first
    other = memory.empty((1 << 20,), BYTES)
    other[:] = 9
    assert address(other) != where
    assert (view == 7).all()
    del view
    assert address(memory.empty((1 << 20,), BYTES)) == where


@pytest.mark.parametrize("dtype", ["float32", "complex128", "bool", "int16"])
def test_arrays_are_aligned_contiguous_and_of_their_shape(dtype):
    memory = Recycled()
    for shape in [(3, 5, 7000), (70_001, 1), (1 << 17,)]:
        array = memory.empty(shape, np.dtype(dtype))
        assert array.shape == shape
        assert array.dtype == dtype
        assert array.flags.c_contiguous
        assert array.flags.writeable
        assert array.nbytes < 64 << 10 or address(array) % 64 == 0


def test_small_arrays_and_objects_are_ordinary_ones():
    memory = Recycled()
    assert memory.empty((10,), BYTES).base is None
    assert memory.empty((1 << 20,), np.dtype(object)).base is None


def test_a_tensor_keeps_its_memory():
    memory = Recycled()

    def make():
        array = memory.empty((1 << 20,), BYTES)
        array[:] = 3
        return array

    tensor = tf.numpy_function(make, [], tf.uint8)
    gc.collect()
    for _ in range(20):
        memory.empty((1 << 20,), BYTES)[:] = 4
    assert (tensor.numpy() == 3).all()


def test_what_is_held_is_bounded():
    memory = Recycled()
    held = [memory.empty((100_000,), BYTES) for _ in range(100)]
    assert len({address(array) for array in held}) == 100
    assert len(memory._slabs) == 64
    held.clear()
    memory.empty((1_000_000,), BYTES)
    assert len(memory._slabs) == 17, "the 16 that were used last, and the new one"


def test_what_was_held_once_is_given_back_in_time():
    memory = Recycled()
    held = [memory.empty((100_000,), BYTES) for _ in range(60)]
    assert len(memory._slabs) == 60
    held.clear()
    for _ in range(60):
        before = memory.empty((100_000,), BYTES)
        for _ in range(64):
            before = memory.empty((100_000,), BYTES)  # noqa: F841
    assert len(memory._slabs) == 2, "the one that is used, and the next"
