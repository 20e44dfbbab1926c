from __future__ import annotations

import gc
import tracemalloc

import numpy as np
import pytest
import tensorflow as tf

from readers.shards.memory import RecyclingAllocator

BYTES = np.dtype(np.uint8)


MANY, SIZE = 100, 100_000  # Arrays, and bytes of each.


def address(array):
    return array.__array_interface__["data"][0]


def test_memory_is_reused_once_nothing_refers_to_it():
    memory = RecyclingAllocator()
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


def test_rows_have_memory_of_their_own_which_is_reused_once_nothing_refers_to_it():
    memory = RecyclingAllocator()
    shapes = [(300, 7), (200, 9), (300, 7)]
    first = memory.rows(shapes, np.dtype(np.int16))
    assert [row.shape for row in first] == shapes
    assert all(row.base.nbytes == row.nbytes for row in first)
    held, where = first[1], {address(row) for row in first}
    held[...] = 7
    del first
    for _ in range(20):
        rows = memory.rows(shapes, np.dtype(np.int16))
        for row in rows:
            row[...] = 9
        assert address(held) not in map(address, rows)
        assert len(where & {*map(address, rows)}) == 2
        del row, rows
    assert (held == 7).all()


@pytest.mark.parametrize("dtype", ["float32", "complex128", "bool", "int16"])
def test_arrays_are_aligned_contiguous_and_of_the_right_shape(dtype):
    memory = RecyclingAllocator()
    for shape in [(3, 5, 7000), (70_001, 1), (1 << 17,)]:
        array = memory.empty(shape, np.dtype(dtype))
        assert array.shape == shape
        assert array.dtype == dtype
        assert array.flags.c_contiguous
        assert array.flags.writeable
        assert array.nbytes < 64 << 10 or address(array) % 64 == 0


def test_small_arrays_and_object_arrays_are_ordinary_ones():
    memory = RecyclingAllocator()
    assert memory.empty((10,), BYTES).base is None
    assert memory.empty((1 << 20,), np.dtype(object)).base is None


def test_memory_of_a_living_tensor_is_not_reused():
    memory = RecyclingAllocator()

    def make():
        array = memory.empty((1 << 20,), BYTES)
        array[:] = 3
        return array

    tensor = tf.numpy_function(make, [], tf.uint8)
    gc.collect()
    for _ in range(20):
        memory.empty((1 << 20,), BYTES)[:] = 4
    assert (tensor.numpy() == 3).all()


@pytest.fixture
def allocated():
    """A function that returns how many bytes have been allocated since the test began."""
    tracemalloc.start()
    yield lambda: tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()


def test_unused_memory_is_bounded(allocated):
    memory = RecyclingAllocator()
    held = [memory.empty((SIZE,), BYTES) for _ in range(MANY)]
    assert len({address(array) for array in held}) == MANY
    assert MANY * SIZE <= allocated() < 1.2 * MANY * SIZE
    held.clear()
    assert allocated() < 0.8 * MANY * SIZE
    # None of the unused memory fits, so most of it is freed.
    large = memory.empty((10 * SIZE,), BYTES)
    assert large.nbytes <= allocated() < 0.4 * MANY * SIZE


def test_memory_that_is_not_reused_is_freed_in_time(allocated):
    memory = RecyclingAllocator()
    held = [memory.empty((SIZE,), BYTES) for _ in range(MANY // 2)]
    held.clear()
    assert allocated() > 0.4 * MANY * SIZE
    # As in a loop over batches, the next array is allocated while the last one is in use.
    for _ in range(50 * MANY):
        last = memory.empty((SIZE,), BYTES)  # noqa: F841
    assert allocated() < 4 * SIZE
