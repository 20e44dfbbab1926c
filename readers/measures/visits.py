"""Visits of the first records of a split, in bounded memory and a bounded time, whatever the records are.

All bounds follow from the bytes of the records, so that the same dataset always has the same sample: no clock
decides.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, TypeVar

import numpy as np

from readers.format.decode.images import EncodedImage, pixels_of
from readers.format.decode.records import Decoder
from readers.format.schema import Feature
from readers.format.tfrecord import FOOTER_BYTES, HEADER_BYTES
from readers.shards.index import read_index
from readers.shards.plan import Plan
from readers.shards.records import Records
from readers.shards.resolve import resolve

# Bytes read at a time, unless a record is larger.
_AT_ONCE = 4 << 20

# Records that are larger are visited one at a time, by one thread.
_LARGE = 32 << 20

# Larger records, and records whose pictures or numbers are larger once they are decoded, are left out.
LARGEST = 256 << 20

# What visiting a value costs, in bytes of arrays: a number; any other value, or a channel of one, whatever its size;
# and a byte of text.
_COST_OF_NUMBER, _COST, _COST_OF_TEXT = 16 << 10, 32 << 10, 30

# What a run of records may cost before it is known what they hold.
_COST_AT_ONCE = 256 << 20

# Whole numbers of a list may take a byte each, and eight once they are decoded; a character of a text four, and
# what is computed of it as many.
_WIDENED = 8
_WHOLE = ("int", "uint", "bool")

_Kept = TypeVar("_Kept")
Record = Mapping[str, Any]


class Undecodable:
    """Stands for the pixels of a picture that cannot be decoded."""


@dataclass(frozen=True)
class Visited:
    """Records that were visited.

    Attributes:
        numbers: Their numbers in the split, ascending.
        kept: What the visitor kept of each run of records.
        too_large: How many records before the last one were left out because they are too large.
    """

    numbers: list[int]
    kept: list[Any]
    too_large: int


def visit(
    directory: str,
    part: str,
    columns: list[str],
    cost: float,
    visitor: Callable[[list[int], Iterator[Record]], _Kept],
) -> Visited:
    """Visits the records of a part of a split, by a thread a core.

    Args:
        directory: The dataset's directory.
        part: The part, such as `train[:100]`.
        columns: The features to decode.
        cost: What the visits may cost, in bytes of decoded arrays. At least one record is visited.
        visitor: Is given the numbers of a run of records, and the records one after another. Arrays are
            views of memory that is used again, so it copies what it keeps.

    Raises:
        CorruptRecordError: (a ValueError) The checksum of a record is wrong.
        ValueError: A record does not fit the schema.
    """
    plan = resolve(directory, part, None, columns, scan=True, any_order=True)
    source = _Source(plan)
    numbers, kept, left, too_large = list[int](), list[Any](), cost, 0

    def work(start: int, stop: int) -> tuple[_Run, _Kept]:
        run = _Run(start, stop, cost)
        return run, visitor(run.numbers, source.records(run))

    for run, result in _in_order(work, source.runs()):
        numbers += run.numbers
        too_large += run.too_large
        kept.append(result)
        left -= run.cost
        if left <= 0:
            break
    return Visited(numbers, kept, too_large)


@dataclass
class _Run:
    """Records that are read together: from `start` to before `stop`, or until they cost the most."""

    start: int
    stop: int
    most: float
    numbers: list[int] = field(default_factory=list)
    cost: float = 0.0
    too_large: int = 0


class _Source:
    """The records of a plan, decoded one by one."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._records, self._decoder = Records(plan), Decoder(plan.stored)
        self._images = [name for name, feature in plan.schema.items() if feature.is_image]
        self._lengths = _lengths(plan)
        widens = any(
            feature.encoding == "list" and feature.shape and feature.dtype.startswith(_WHOLE)
            for feature in plan.schema.values()
        )
        self._largest = LARGEST // (_WIDENED if widens else 1)
        self._most_at_once = _COST_AT_ONCE // (_COST_OF_NUMBER * len(plan.schema))
        self._lock = Lock()

    def runs(self) -> Iterator[tuple[int, int]]:
        """The first and the next number of each run of records that are read together."""
        ends = np.cumsum(self._lengths)
        start = 0
        while start < len(ends):
            before = ends[start - 1] if start else 0
            stop = int(np.searchsorted(ends, before + _AT_ONCE, side="right"))
            stop = max(start + 1, min(stop, start + self._most_at_once))
            yield start, stop
            start = stop

    def records(self, run: _Run) -> Iterator[Record]:
        """Yields the records of a run, and notes in it the number and the cost of each before that."""
        size = int(self._lengths[run.start : run.stop].sum())
        if size > self._largest:
            run.too_large += 1
        elif size <= _LARGE:
            yield from self._read(self._records, run.start, run)
        else:
            with self._lock:
                # Its own memory, which is freed at once.
                yield from self._read(Records(self._plan.slice(run.start, run.stop)), 0, run)

    def _read(self, records: Records, first: int, run: _Run) -> Iterator[Record]:
        framed, _ = records.framed(np.arange(first, first + run.stop - run.start))
        schema = self._plan.stored
        for row, number in enumerate(range(run.start, run.stop)):
            try:
                record = self._decoder.decode(framed.record(row)[HEADER_BYTES:-FOOTER_BYTES])
            except ValueError:
                records.decoder().record(framed, row)  # Raises an error that names the record.
                raise
            pictures = {name: _pixels(name, schema[name], record[name]) for name in self._images}
            if any(pixels is None for pixels in pictures.values()):
                run.too_large += 1
                continue
            record |= pictures
            found = {name: _plain(value) for name, value in record.items()}
            if any(isinstance(v, bytes) and len(v) > LARGEST // _WIDENED for v in found.values()):
                run.too_large += 1
                continue
            run.numbers.append(number)
            run.cost += sum(map(_cost, found.values()))
            yield found
            if run.cost >= run.most:
                return


def _lengths(plan: Plan) -> np.ndarray:
    """The size of each record of a plan in its file, int64 [records]."""
    found = [
        read_index(part.path, part.bytes)[part.skip :][: part.take][:, 1] for part in plan.parts
    ]
    return np.concatenate([*found, np.empty(0, np.int64)])


def _pixels(name: str, feature: Feature, encoded: Any) -> Any:
    """The pixels of a picture, or of a list of pictures; None if they are larger than `LARGEST`."""
    step = feature.step
    several = encoded if step else [encoded]
    try:
        if sum(_bytes_of(EncodedImage(name, step or feature, data)) for data in several) > LARGEST:
            return None
        return pixels_of(name, feature, encoded)
    except ValueError:
        return Undecodable()


def _bytes_of(image: EncodedImage) -> int:
    return int(np.prod(image.shape, dtype=np.int64)) * image.dtype.itemsize


def _plain(value: Any) -> Any:
    """A value as `RecordSource` returns it, but without a copy."""
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, np.ndarray):
        if value.dtype.hasobject:
            return value.tolist()
        return value if value.ndim else value[()]
    return value


def _cost(value: Any) -> float:
    if isinstance(value, Undecodable):
        return _COST
    if isinstance(value, bytes):
        return _COST + len(value) * _COST_OF_TEXT
    if isinstance(value, list):
        return _COST + sum(_size(item) for item in value)
    if isinstance(value, np.generic):
        return _COST_OF_NUMBER
    # Each channel of a signal is looked at by itself.
    return (value.shape[1] if value.ndim == 2 else 1) * _COST + float(value.nbytes)


def _size(value: Any) -> float:
    if isinstance(value, list):
        return float(sum(map(_size, value)))
    return float(len(value) if isinstance(value, bytes) else value.nbytes)


def _in_order(
    work: Callable[[int, int], _Kept], runs: Iterator[tuple[int, int]]
) -> Iterator[_Kept]:
    """Yields the results of the work on runs, in their order; few are begun before they are asked for."""
    cores = os.cpu_count() or 1
    waiting = deque[Future[_Kept]]()
    with ThreadPoolExecutor(cores) as threads:
        try:
            for run in runs:
                waiting.append(threads.submit(work, *run))
                if len(waiting) > cores:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()
