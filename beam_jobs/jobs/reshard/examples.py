"""The Examples in the files of a task, the same ones in every pass: batches, keys, splits and rejects."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator
from typing import Any, NamedTuple, cast

import numpy as np

from beam_jobs.errors import RejectError
from beam_jobs.jobs.reshard.framed import FrameBatch, decompressed, frame_batches
from beam_jobs.jobs.reshard.spec import ReshardSpec
from beam_jobs.jobs.split_rules import SplitRules
from beam_jobs.records.rejects import Reject
from beam_jobs.sources.chunks import Chunk, Task
from beam_jobs.sources.source import Source
from beam_jobs.storage.files import reading_ahead
from readers.format.decode.records import parse_example
from readers.format.protobuf.wire import BYTES_LIST, INT64_LIST, unpacked_varints


def batches_of(spec: ReshardSpec, task: Task) -> Iterator[tuple[Chunk, FrameBatch | Reject]]:
    """Yields (chunk, some of its records) for all chunks of a task, and a reject if one cannot be read."""
    chunks = [chunk for chunk in task.chunks if not chunk.is_empty]
    with reading_ahead(read for chunk in chunks for read in spec.reads(chunk)):
        for chunk in chunks:
            for batch in _frame_batches(spec, chunk):
                yield chunk, batch


def _frame_batches(spec: ReshardSpec, chunk: Chunk) -> Iterator[FrameBatch | Reject]:
    """Yields the records of a file or a range of it, and a reject if it cannot be read."""
    source, limit = chunk.source, spec.inputs.max_bytes
    try:
        if source.error:
            raise RejectError(source.error)
        with spec.inputs.stream(source) as file:
            if not chunk.end:
                yield from frame_batches(decompressed(cast(io.BufferedReader, file)), limit)
                return
            file.seek(chunk.start)
            stream = cast(io.BufferedReader, file)
            yield from frame_batches(stream, limit, chunk.start, chunk.end, chunk.first)
    except RejectError as error:
        yield Reject.of(source.key, "read", error)
    except OSError as error:
        yield Reject.of(source.key, "read", f"cannot be read: {error}")


class FoundExamples(NamedTuple):
    """The Examples of a batch that have a split.

    Attributes:
        keys: The keys in UTF-8.
        splits: uint8 [n].
        starts, stops: int64 [n], where the data of each begins and ends in the batch.
        rejects: The other records.
    """

    keys: list[bytes]
    splits: np.ndarray
    starts: np.ndarray
    stops: np.ndarray
    rejects: list[Reject]

    def without(self, dropped: np.ndarray, first: int) -> tuple[FoundExamples, np.ndarray]:
        """The Examples that are kept, and the splits of those that are dropped, uint8 [m].

        Args:
            dropped: The numbers of the records of a task that are dropped, int64, rising.
            first: The number of the first of these Examples.
        """
        low, high = np.searchsorted(dropped, [first, first + len(self.keys)])
        if low == high:
            return self, np.empty(0, np.uint8)
        gone = dropped[low:high] - first
        kept = np.delete(np.arange(len(self.keys)), gone)
        keys = [self.keys[at] for at in kept.tolist()]
        left = FoundExamples(
            keys, self.splits[kept], self.starts[kept], self.stops[kept], self.rejects
        )
        return left, self.splits[gone]


def records_of(rules: SplitRules, source: Source, batch: FrameBatch) -> FoundExamples:
    """The records of a batch, the same ones in both passes.

    Whether their bytes are Examples is not known yet, unless a feature decides their splits.

    Args:
        rules: Decides the splits of records.
        source: The file.
        batch: Some of its records.
    """
    starts, stops = batch.spans
    rows = np.flatnonzero(batch.good & (starts < stops))
    rejects = [_reject(source, number, error) for number, error in batch.broken]
    for row in np.flatnonzero(batch.good & (starts == stops)).tolist():
        error = f"{batch.place_of(starts[row])}: not an Example: it is empty"
        rejects.append(_reject(source, batch.first + row, error))
    columns: list[dict[str, Any]] = []
    if names := rules.placement.split_features:
        columns, broken = _columns(batch, rows, names)
        rejects += [_reject(source, batch.first + row, error) for row, error in broken.items()]
        rows = np.setdiff1d(rows, list(broken))
    prefix = f"{source.key}#".encode("utf-8", "surrogateescape")
    keys = [b"%s%d" % (prefix, number) for number in (rows + batch.first).tolist()]
    splits, without = rules.splits_of(keys, columns, [None] * len(keys))
    if without:
        rejects += [
            _reject(source, batch.first + int(rows[at]), error) for at, error in without.items()
        ]
        kept = np.delete(np.arange(len(rows)), list(without))
        keys, splits, rows = [keys[at] for at in kept.tolist()], splits[kept], rows[kept]
    return FoundExamples(keys, splits, starts[rows], stops[rows], rejects)


def _reject(source: Source, number: int, error: str) -> Reject:
    return Reject.of(f"{source.key}#{number}", "read", error)


def _columns(
    batch: FrameBatch, rows: np.ndarray, names: set[str]
) -> tuple[list[dict[str, Any]], dict[int, str]]:
    """The features that decide the splits of Examples, and why other rows are none."""
    starts, stops = batch.spans
    columns: list[dict[str, Any]] = []
    broken: dict[int, str] = {}
    for row in rows.tolist():
        try:
            columns.append(single_values(batch.data.data[starts[row] : stops[row]], names))
        except ValueError as error:
            broken[row] = f"{batch.place_of(starts[row])}: not an Example: {error}"
    return columns, broken


def single_values(data: memoryview, names: set[str]) -> dict[str, Any]:
    """The named features of an Example that hold a single text or integer."""
    values: dict[str, Any] = {}
    for name, (kind, chunks) in parse_example(data, names).items():
        if len(chunks) != 1:
            continue
        if kind == BYTES_LIST:
            with contextlib.suppress(UnicodeDecodeError):
                values[name] = str(chunks[0], "utf-8")
        elif kind == INT64_LIST and len(numbers := unpacked_varints(chunks[0])) == 1:
            values[name] = int(numbers[0])
    return values
