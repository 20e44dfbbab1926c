"""A step of a pipeline that writes shards, several at once where one process does it all."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Generic, TypeVar

import apache_beam as beam

from beam_jobs.bundle import at_end_of_bundle
from beam_jobs.encode import check_crc32c
from beam_jobs.pool import Pool, Window

T = TypeVar("T")

# Shards under way at once: while one is committed and the next sorted, the pool has work.
_SHARDS_AT_ONCE = 2


class ShardStep(beam.DoFn, Generic[T]):
    """Shards -> what became of them.

    With a pool, threads write the shards, and what became of one comes out when another one comes
    in, or at the end of the bundle.

    Args:
        processes: Of the pool.
    """

    def __init__(self, processes: int) -> None:
        self._processes = processes

    def setup(self) -> None:
        check_crc32c()

    def start_bundle(self) -> None:
        self._threads = ThreadPoolExecutor(_SHARDS_AT_ONCE) if self._processes > 1 else None
        self._shards: Window[T] = Window(self._threads or Pool(1), self._ahead)

    @property
    def _ahead(self) -> int:
        return _SHARDS_AT_ONCE if self._processes > 1 else 0

    def submit(self, function: Callable[..., T], *arguments: Any) -> Iterator[Any]:
        """Has a shard written by `function(*arguments)`; yields outputs of those that are done."""
        for outcome in self._shards.submit(function, *arguments):
            yield from self.outputs(outcome)

    def finish_bundle(self) -> Iterator[Any]:
        for outcome in self._shards.drain():
            yield from map(at_end_of_bundle, self.outputs(outcome))
        if self._threads:
            self._threads.shutdown()

    def outputs(self, outcome: T) -> Iterator[Any]:
        """Yields what the step hands over of a shard."""
        raise NotImplementedError
