"""Equal texts are found by their digests."""

import functools
import hashlib

import apache_beam as beam
import numpy as np
import pytest
from apache_beam.testing.util import assert_that
from hypothesis import given, settings
from hypothesis import strategies as st

from beam_jobs.errors import DataError, UsageError
from beam_jobs.jobs.text.duplicates import find_duplicates, pack_digests, with_dropped
from beam_jobs.pipeline.text_steps import DropDuplicates
from beam_jobs.sources.chunks import Chunk, Task
from beam_jobs.sources.source import Source


def digests_of(texts: list[bytes]) -> np.ndarray:
    joined = b"".join(hashlib.blake2b(text, digest_size=16).digest() for text in texts)
    return np.frombuffer(joined, np.uint8).reshape(-1, 16)


def packed(texts: list[bytes], orders: list[int], numbers: list[int] | None = None):
    rows = np.arange(len(texts)) if numbers is None else np.array(numbers, np.int64)
    return list(pack_digests(rows, digests_of(texts), np.array(orders, np.uint64)))


def dropped_of(tasks: dict[str, tuple[list[bytes], list[int]]]) -> dict[str, list[int]]:
    """The numbers of the texts that each task drops, found in all partitions."""
    partitions: dict[int, list[tuple[str, bytes]]] = {}
    for name, (texts, orders) in tasks.items():
        for part, rows in packed(texts, orders):
            partitions.setdefault(part, []).append((name, rows))
    found: dict[str, list[int]] = {}
    for members in partitions.values():
        for name, rows in find_duplicates(members):
            found.setdefault(name, []).extend(np.frombuffer(rows, "<i8").tolist())
    return {name: sorted(rows) for name, rows in found.items()}


def dropped_by_a_dict(tasks: dict[str, tuple[list[bytes], list[int]]]) -> dict[str, list[int]]:
    first: dict[bytes, int] = {}
    for texts, orders in tasks.values():
        for text, order in zip(texts, orders, strict=True):
            first[text] = min(order, first.get(text, order))
    found = {
        name: [row for row, text in enumerate(texts) if orders[row] != first[text]]
        for name, (texts, orders) in tasks.items()
    }
    return {name: rows for name, rows in found.items() if rows}


@given(
    st.lists(st.lists(st.sampled_from([b"", b"a", b"b", b"ab", b"\0", b"a "]), max_size=9)),
    st.data(),
)
@settings(max_examples=40, deadline=None)
def test_all_but_the_first_of_equal_texts_are_dropped(texts, data):
    count = sum(map(len, texts))
    places = st.lists(st.integers(0, 2**64 - 1), min_size=count, max_size=count, unique=True)
    orders = iter(data.draw(places))
    tasks = {f"file {n}#0": (some, [next(orders) for _ in some]) for n, some in enumerate(texts)}
    assert dropped_of(tasks) == dropped_by_a_dict(tasks)
    assert dropped_of(dict(reversed(tasks.items()))) == dropped_by_a_dict(tasks)


def test_equal_texts_with_one_key_are_a_usage_error():
    tasks = {"a b.txt#0": ([b"x", b"y"], [1, 2]), "c.txt#4096": ([b"z", b"y"], [3, 2])}
    with pytest.raises(UsageError, match=r"^.*duplicate key of a text in c\.txt or soon after it"):
        dropped_of(tasks)


def task_of(name: str) -> Task:
    return Task.of((Chunk(Source(name), 0, 0, 1, 10),))


def rows(*numbers: int) -> bytes:
    return np.array(numbers, "<i8").tobytes()


def test_a_task_gets_the_numbers_from_all_partitions():
    assert list(with_dropped(("a#0", ([task_of("a")], [])))) == [task_of("a")]
    found = with_dropped(("a#0", ([task_of("a")], [rows(1, 4), rows(2)])))
    (task,) = found
    assert task.dropped_rows.tolist() == [1, 2, 4]


def digest_of(texts: dict[str, tuple[list[bytes], list[int]]], task: Task):
    some, orders = texts.get(task.id, ([], []))
    found = np.arange(len(some)), digests_of(some), np.array(orders, np.uint64)
    return task.id, found


def test_all_tasks_are_kept_whether_they_drop_texts_or_not():
    texts = {"a#0": ([b"x", b"y"], [5, 1]), "b#0": ([b"y", b"x"], [2, 4]), "c#0": ([b"z"], [3])}
    tasks = [task_of("a"), task_of("b"), task_of("c"), task_of("nothing but rejects")]

    def check(found: list[Task]) -> None:
        assert sorted((w.id, w.dropped_rows.tolist()) for w in found) == [
            ("a#0", [0]),
            ("b#0", [0]),
            ("c#0", []),
            ("nothing but rejects#0", []),
        ]

    with beam.Pipeline() as pipeline:
        drop = DropDuplicates(functools.partial(digest_of, texts), 1)
        assert_that((pipeline | beam.Create(tasks) | drop).tasks, check)


def test_numbers_that_the_runner_repeats_are_a_data_error():
    numbers = np.array([3, 5], "<i8").tobytes()
    with pytest.raises(DataError, match="the same duplicates twice"):
        list(
            with_dropped(
                ("a.txt#0", ([Task.of([Chunk(Source("a.txt"), 0, 0, 1, 10)])], [numbers, numbers]))
            )
        )
