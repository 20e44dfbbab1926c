"""What is read from a store before it is needed: in which order, how much, and after which errors."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import fsspec
import numpy as np
import pytest

import readers
from readers.batches.prefetch import mapped_ahead
from readers.shards.cache import Cache
from readers.shards.framed import FramedReader
from tests.support.arrays import ids
from tests.support.datasets import write_dataset

SHARDS = (50, 40, 70, 40)

WAYS = {
    "in order": {},
    "global": {"shuffle": readers.Order(by="global")},
    "in windows": {"shuffle": readers.Order(by="interleave", buffer=30)},
    "one of two hosts": {"shard": (1, 2), "shuffle": readers.Order(by="global")},
    "in buckets": {"batching": readers.Padded(buckets=[2]), "shuffle": readers.Order(by="global")},
}


def within_seconds(is_so: Callable[[], bool]) -> bool:
    end = time.monotonic() + 10
    while not is_so() and time.monotonic() < end:
        time.sleep(0.01)
    return is_so()


@pytest.fixture(scope="module")
def numbered(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rows = [{"id": i, "data": np.arange(i % 5, dtype=np.uint8)} for i in range(sum(SHARDS))]
    ends = np.cumsum(SHARDS).tolist()
    shards = [rows[end - count : end] for end, count in zip(ends, SHARDS, strict=True)]
    schema = readers.Schema({"id": ("int64", ()), "data": ("uint8", (None,))})
    return write_dataset(tmp_path_factory.mktemp("numbers") / "data", schema, {"train": shards})


@pytest.fixture
def url(numbered: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The dataset in a store, of which 30 records are fetched together."""
    size = sum(path.stat().st_size for path in numbered.glob("train*.tfrecord"))
    monkeypatch.setattr("readers.batches.read_sizes._AHEAD_BYTES", 30 * size // sum(SHARDS))
    filesystem = fsspec.filesystem("memory")
    filesystem.put(str(numbered), "/ahead", recursive=True)
    yield "memory://ahead"
    filesystem.rm("/ahead", recursive=True)


class Fetches:
    """The numbers of the records that are read from the store, call by call."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.numbers: list[np.ndarray] = []
        self.fails_at: int | None = None
        read = FramedReader._read

        def counted(reader: FramedReader, numbers: np.ndarray) -> object:
            self.numbers.append(numbers)
            if len(self.numbers) == self.fails_at:
                raise OSError("the store is gone")
            return read(reader, numbers)

        monkeypatch.setattr(FramedReader, "_read", counted)


@pytest.mark.parametrize("way", WAYS)
def test_records_are_fetched_once_and_are_those_of_a_disk(
    url: str, numbered: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    how = {"batching": "padded", "batch_size": 7, "repeat": 2, **WAYS[way]}
    expected = ids(readers.as_numpy(numbered, **how))
    fetches = Fetches(monkeypatch)
    assert ids(readers.as_numpy(url, **how)) == expected
    fetched = np.concatenate(fetches.numbers)
    assert len(fetched) <= 2 * sum(SHARDS)
    assert np.bincount(fetched).max() <= 2


def test_the_next_two_windows_are_fetched_while_one_is_decoded(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetches = Fetches(monkeypatch)
    batches = readers.as_numpy(url, batching="padded", batch_size=10)
    next(batches)
    assert within_seconds(lambda: len(fetches.numbers) == 3)
    next(batches), next(batches)
    assert len(fetches.numbers) == 3
    next(batches), next(batches)
    assert within_seconds(lambda: len(fetches.numbers) == 4)


@pytest.mark.parametrize("way", WAYS)
def test_an_error_is_raised_where_its_records_are_needed(
    url: str, numbered: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    how = {"batching": "padded", "batch_size": 10, **WAYS[way]}
    expected = ids(readers.as_numpy(numbered, **how))
    fetches = Fetches(monkeypatch)
    fetches.fails_at = 3
    batches, found = readers.as_numpy(url, **how), []
    with pytest.raises(OSError, match="the store is gone"):
        for batch in batches:
            found += ids([batch])
    assert 0 < len(found) <= 90 and expected[: len(found)] == found
    assert found + ids(batches) == expected


def test_an_iterator_that_is_dropped_leaves_no_thread(url: str) -> None:
    before = set(threading.enumerate())
    batches = readers.as_numpy(url, batching="padded", batch_size=10)
    next(batches)
    del batches
    gc.collect()
    assert within_seconds(lambda: set(threading.enumerate()) <= before)


def test_several_shards_are_cached_at_a_time(
    url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    both, opened = threading.Barrier(2), Cache.open

    def meets_another(cache: Cache, part: object) -> object:
        both.wait(10)
        return opened(cache, part)

    monkeypatch.setattr(Cache, "open", meets_another)
    how = {
        "batching": "padded",
        "batch_size": 50,
        "shuffle": True,
        "cache": readers.Cache(tmp_path / "cache"),
    }
    assert sorted(ids(readers.as_numpy(url, **how))) == list(range(sum(SHARDS)))


def test_items_are_made_ahead_in_order_and_no_further_than_asked() -> None:
    made = list[int]()

    def make(item: int) -> int:
        made.append(item)
        if item == 6:
            raise ValueError("six")
        return 2 * item

    items = mapped_ahead(make, range(20), 3)
    assert next(items) == 0
    assert within_seconds(lambda: sorted(made) == [0, 1, 2, 3])
    assert [next(items) for _ in range(5)] == [2, 4, 6, 8, 10]
    with pytest.raises(ValueError, match="six"):
        next(items)
    assert within_seconds(lambda: sorted(made) == [*range(9)])
    assert list(mapped_ahead(make, [], 3)) == []
    assert list(mapped_ahead(make, range(3), 1)) == [0, 2, 4]


def printed(program: str) -> str:
    """What a program prints that can start `endless()` items, prefetched."""
    start = """
import atexit, itertools, sys, threading, time
from readers.batches.prefetch import prefetched
def endless():
    items = prefetched((time.sleep(0.05) or n for n in itertools.count()), 2)
    assert next(items) == 0
    return items
"""
    command = [sys.executable, "-c", start + program]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


@pytest.mark.parametrize("earlier", ["", "others = endless()\n"])
def test_threads_end_before_jax_whenever_it_was_imported(earlier):
    """JAX ends in a function of `atexit`, and aborts a process whose threads are in its code afterwards."""
    count = "sys.modules['jax'] = None; atexit.register(lambda: print(threading.active_count()))\n"
    assert printed(f"{earlier}{count}items = endless()") == "1\n"


def test_items_that_end_with_the_program_raise_an_error():
    """A loop in a function of `atexit`, or in a daemon thread, must not take it for the end of an epoch."""
    program = """
def read():
    try:
        print(len([*items]))
    except RuntimeError as error:
        print(error)
atexit.register(read)
items = endless()
"""
    assert printed(program) == "the program ends, so no more is read\n"
