"""A feed hands over batches as they are, keeps them no longer than TensorFlow, and reads no further than it says."""

from __future__ import annotations

import gc
import itertools
import os
import subprocess
import threading
import time
import weakref
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from readers.format.dtypes import TENSORFLOW_DTYPES, numpy_dtype
from readers.tfdata.feed import Feed
from readers.tfdata.own_thread import map_in_own_thread

TEXTS = [bytes(n % 256 for n in range(250, 250 + size)) for size in (0, 1, 22, 23, 24, 1000)]
TEXT, INT8, INT64 = (tf.TensorSpec([None], dtype) for dtype in ("string", "int8", "int64"))


def feed_of(batches, *specs):
    """A feed of batches from a number on, and its passes, without TensorFlow's own reading ahead."""
    feed, options = Feed(lambda of_pass, number, _: batches(number), specs), tf.data.Options()
    options.autotune.enabled = False
    options.experimental_external_state_policy = tf.data.experimental.ExternalStatePolicy.IGNORE

    def one_pass(of_pass):
        numbers = tf.data.Dataset.range(10**9)
        return map_in_own_thread(numbers, lambda number: tuple(feed.batch(of_pass, number)))

    passes = tf.data.Dataset.from_tensors(0).map(lambda _: feed.begin())
    return feed, passes.flat_map(one_pass).with_options(options)


def numbers(number):
    return ([np.array([n])] for n in range(number, 30))


def comes_true(condition):
    return any(condition() or time.sleep(0.02) for _ in range(500))


def test_arrays_of_all_dtypes_and_shapes_are_handed_over_bit_for_bit():
    rng, arrays = np.random.default_rng(5), [np.arange(12, dtype=np.int16).reshape(3, 4).T[::2]]
    for name, shape in itertools.product(TENSORFLOW_DTYPES, [(), (0, 3), (2, 3)]):
        values = np.array(TEXTS, object)
        if name == "bool":
            values = rng.integers(0, 2, 6).astype(bool)
        elif name != "string":
            values = np.frombuffer(rng.bytes(6 * numpy_dtype(name).itemsize), numpy_dtype(name))
        arrays.append(values[: int(np.prod(shape))].reshape(shape))
    dtypes = [tf.string if array.dtype == object else array.dtype for array in arrays]
    specs = [tf.TensorSpec([None] * a.ndim, d) for a, d in zip(arrays, dtypes, strict=True)]
    _, dataset = feed_of(lambda number: iter([arrays] * 2), *specs)
    for tensor, array in itertools.chain(*(zip(batch, arrays, strict=True) for batch in dataset)):
        found = np.asarray(tensor.numpy(), array.dtype)
        assert tensor.shape == array.shape
        assert found.tolist() == array.tolist() or found.tobytes() == array.tobytes()


def test_texts_outlive_their_batch_and_are_released():
    array, large = np.array(TEXTS, object), np.array([b"x" * 10_000] * 1000, object)
    _, dataset = feed_of(lambda number: iter([[array]] * 2), TEXT)
    for (texts,) in dataset:
        joined, chosen, part = tf.strings.join([texts, texts]), tf.gather(texts, [4]), texts[2:5]
        del texts
    assert joined.numpy().tolist() == [text * 2 for text in TEXTS]
    assert [*chosen.numpy(), *part.numpy()] == [TEXTS[4], *TEXTS[2:5]]

    def resident():
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    _, dataset = feed_of(lambda number: iter([[large]] * 60), TEXT)
    before = resident()
    assert sum(1 for _ in dataset) == 60
    assert resident() - before < 300e6  # Of 600 MB.


@pytest.mark.parametrize("is_deleted", [False, True])
def test_an_aligned_array_is_not_copied_and_released_with_its_tensor(is_deleted):
    alive, places = list[weakref.ref](), list[int]()

    def batches(number):
        for _ in range(5):
            memory = np.zeros(144, np.int8)
            array = memory[-memory.ctypes.data % 64 :][:80]
            alive.append(weakref.ref(array))
            places.append(array.ctypes.data)
            yield [array]
            del array

    others = set(threading.enumerate())  # Of datasets of other tests.
    feed, dataset = feed_of(batches, INT8)
    tensors = [tensor for (tensor,) in dataset]
    assert [np.frombuffer(memoryview(tensor)).ctypes.data for tensor in tensors] == places
    if is_deleted:
        del feed, dataset
        gc.collect()
        assert comes_true(lambda: set(threading.enumerate()) <= others)
    assert all(array() is not None for array in alive)
    del tensors
    assert comes_true(lambda: all(array() is None for array in alive))


@pytest.mark.parametrize(
    ("array", "spec", "ahead"),
    [
        (np.zeros(10 << 20, np.int8), INT8, 2),
        (np.array([bytes(5 << 20)] * 2, object), TEXT, 2),
        (np.zeros(9, np.int8), INT8, 16),
    ],
    ids=["large", "texts", "small"],
)
def test_few_batches_are_read_ahead(array, spec, ahead):
    read = []
    _, dataset = feed_of(lambda number: (read.append(n) or [array] for n in range(50)), spec)
    next(batches := iter(dataset))
    assert comes_true(lambda: len(read) == 1 + ahead)
    time.sleep(0.1)
    assert len(read) == 1 + ahead
    del batches


def test_a_batch_that_cannot_be_handed_over_is_an_error_of_its_own():
    good, text = np.array([b"good"], object), np.array([b"a" * 99, "text"], object)
    batches = [[array] for array in (good, np.array([7]), good.reshape(1, 1), text, good)]
    _, dataset = feed_of(lambda number: iter(batches[number:]), TEXT)
    iterator = iter(dataset)
    assert next(iterator)[0].numpy().tolist() == [b"good"]
    expected = r"int64 \[1\]: exp", r"\[1, 1\]: expected object of 1 ", "expected bytes, str found"
    for message in expected:
        with pytest.raises(tf.errors.InvalidArgumentError, match=message):
            next(iterator)
    assert next(iterator)[0].numpy().tolist() == [b"good"]


def test_the_batches_after_any_error_are_read():
    class Unknown(Exception):
        def __str__(self):
            raise TypeError

    errors = [SystemExit(3), Unknown(), OSError("\udcff"), ValueError("of\ntwo lines")]

    def batches(number):
        if number < len(errors):
            raise errors[number]
        yield [np.array([number])]

    _, dataset = feed_of(batches, INT64)
    iterator = iter(dataset)
    for message in ("SystemExit: 3", "Unknown: <", r"\n\\udcff\n", "\nof two lines\n"):
        with pytest.raises(tf.errors.InvalidArgumentError, match=message):
            next(iterator)
    assert [int(batch[0][0]) for batch in iterator] == [4]


def test_iterators_at_one_place_of_a_pass_read_on_when_one_of_them_ends(tmp_path):
    _, dataset = feed_of(numbers, INT64)
    assert [[int(a[0]), int(b[0])] for (a,), (b,) in tf.data.Dataset.zip((dataset, dataset))] == [
        [n, n] for n in range(30)
    ]
    one, other = iter(dataset), iter(dataset)
    assert [int(next(one)[0][0]) for _ in range(7)] == list(range(7))
    saved = tf.train.Checkpoint(iterator=one).save(str(tmp_path / "saved"))
    tf.train.Checkpoint(iterator=other).restore(saved)
    assert [int(next(of)[0][0]) for of in (one, other, other, one)] == [7, 7, 8, 8]
    assert [int(batch[0][0]) for batch in one] == list(range(9, 30))
    assert [int(batch[0][0]) for batch in other] == list(range(9, 30))


def test_a_pass_ends_with_its_iterator_and_iterators_that_wait_take_no_time():
    closed, is_free = threading.Event(), threading.Event()

    def batches(number):
        try:
            is_free.wait(60)
            yield from itertools.repeat([np.zeros(1, np.int64)])
        finally:
            closed.set()

    _, dataset = feed_of(batches, INT64)
    iterators = [iter(dataset), iter(dataset)]
    waiting = [threading.Thread(target=next, args=[iterator]) for iterator in iterators]
    for thread in waiting:
        thread.start()
    begin = time.process_time()
    time.sleep(1)
    assert time.process_time() - begin < 0.5
    is_free.set()
    for thread in waiting:
        thread.join()
    assert not closed.is_set()
    del iterators, thread, waiting
    gc.collect()
    assert closed.wait(60)


def test_threads_get_exactly_the_batches_that_they_ask_for(tmp_path):
    source = Path(__file__).parents[2] / "campaigns/fuzz/native/feed_threads.c"
    how = ["-O1", "-o", tmp_path / "run", "-lpthread", "-ldl"]
    subprocess.run(["cc", source, *how], check=True)
    done = subprocess.run([tmp_path / "run", "1"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
