"""The spec of the reshard job, and the Examples in the files of a task, which every pass reads alike."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, cast

import numpy as np

from beam_jobs.errors import RejectError
from beam_jobs.jobs.reshard.manifests import InputSplits
from beam_jobs.jobs.reshard.record_frames import FrameBatch, decompressed, frame_batches, no_frames
from beam_jobs.jobs.split_rules import SplitRules
from beam_jobs.records.rejects import Reject
from beam_jobs.sources.chunks import Chunk, Task
from beam_jobs.sources.inputs import Inputs
from beam_jobs.sources.labels import Names
from beam_jobs.storage.files import reading_ahead
from readers.files.stores.ahead import Read
from readers.files.stores.reading import EAGER_BYTES
from readers.format.decode.records import parse_example
from readers.format.protobuf.wire import BYTES_LIST, INT64_LIST, unpacked_varints
from readers.format.schema import Schema


@dataclass(frozen=True)
class ReshardSpec:
    """A record is an Example or a SequenceExample of a TFRecord file, GZIP or not.

    Attributes:
        inputs: The files.
        given: The schema, if it need not be learned.
        keep: The features to keep; all if empty.
        drop: The features to drop.
        class_names: The class names in the manifest of the input, by feature.
        vocabulary: All words by id, from the manifest of the input; empty without words.
        tokenizer: The text of the input's `tokenizer.json`; empty without subwords.
        splits: The splits that the files belong to.
        stated: The sample rate of all recordings, and the names and units of channels, if known: see `Job.facts`.
    """

    inputs: Inputs
    given: Schema | None = None
    keep: tuple[str, ...] = ()
    drop: tuple[str, ...] = ()
    class_names: Names = field(default_factory=dict)
    vocabulary: tuple[bytes, ...] = ()
    tokenizer: str = ""
    splits: InputSplits = field(default_factory=InputSplits)
    stated: Mapping[str, Any] = field(default_factory=dict)

    def reads(self, chunk: Chunk) -> Iterator[Read]:
        """Yields the first reads of a chunk in a store."""
        if chunk.end:
            return self.inputs.range_reads(chunk)
        return self.inputs.reads(chunk.source, EAGER_BYTES)

    def keeps(self, name: str) -> bool:
        """Whether a feature is kept."""
        return (not self.keep or name in self.keep) and name not in self.drop

    @property
    def changes_records(self) -> bool:
        """Whether features are dropped."""
        return bool(self.keep or self.drop)


class Examples(NamedTuple):
    """The Examples of a batch of records that have a split.

    Attributes:
        chunk: The place of the records.
        batch: The records.
        before: The number of Examples of the task before these.
        keys: The keys in UTF-8.
        splits: uint8 [n].
        starts, stops: int64 [n], where each begins and ends in the batch.
        rejects: The other records, or the file if it cannot be read.
        duplicates: uint8 [m], the splits of Examples that are dropped.
    """

    chunk: Chunk
    batch: FrameBatch
    before: int
    keys: list[bytes]
    splits: np.ndarray
    starts: np.ndarray
    stops: np.ndarray
    rejects: list[Reject]
    duplicates: np.ndarray

    def record(self, row: int) -> memoryview:
        """The bytes of one of the Examples."""
        return self.batch.data.data[int(self.starts[row]) : int(self.stops[row])]


def batches_of(spec: ReshardSpec, task: Task) -> Iterator[tuple[Chunk, FrameBatch]]:
    """Yields (chunk, some of its records) for all chunks of a task."""
    chunks = [chunk for chunk in task.chunks if not chunk.is_empty]
    with reading_ahead(read for chunk in chunks for read in spec.reads(chunk)):
        for chunk in chunks:
            try:
                for batch in _frame_batches(spec, chunk):
                    yield chunk, batch
            except RejectError as error:
                yield chunk, no_frames(str(error))
            except OSError as error:
                yield chunk, no_frames(f"cannot be read: {error}")


def _frame_batches(spec: ReshardSpec, chunk: Chunk) -> Iterator[FrameBatch]:
    if chunk.source.error:
        raise RejectError(chunk.source.error)
    with spec.inputs.stream(chunk.source) as file:
        stream, limit = cast(io.BufferedReader, file), spec.inputs.max_bytes
        if not chunk.end:
            yield from frame_batches(decompressed(stream), limit)
            return
        file.seek(chunk.start)
        yield from frame_batches(stream, limit, chunk.start, chunk.end, chunk.first)


def examples_of(spec: ReshardSpec, rules: SplitRules, task: Task) -> Iterator[Examples]:
    """Yields the Examples of a task, in order, without those that are dropped.

    Their bytes are not checked yet, unless a feature names their splits.
    """
    dropped, before = task.dropped_rows, 0
    for chunk, batch in batches_of(spec, task):
        file, (starts, stops) = chunk.source.key, batch.spans
        empty = np.flatnonzero(batch.good & (starts == stops)).tolist()
        errors = {
            row: f"{batch.place_of(starts[row])}: not an Example: it is empty" for row in empty
        }
        rows = np.flatnonzero(batch.good & (starts < stops))
        columns: list[dict[str, Any]] = []
        if names := rules.placement.split_features:
            for row in rows.tolist():
                try:
                    columns.append(single_values(batch.data.data[starts[row] : stops[row]], names))
                except ValueError as error:
                    errors[row] = f"{batch.place_of(starts[row])}: not an Example: {error}"
            rows = np.setdiff1d(rows, list(errors))
        prefix = f"{file}#".encode("utf-8", "surrogateescape")
        keys = [b"%s%d" % (prefix, number) for number in (rows + batch.first).tolist()]
        splits, without = rules.splits_of(keys, columns, [None] * len(keys))
        errors |= {int(rows[at]): error for at, error in without.items()}
        rejects = [
            Reject.of(f"{file}#{number}" if number else file, "read", error)
            for number, error in [*batch.broken, *((batch.first + r, e) for r, e in errors.items())]
        ]
        placed = np.delete(np.arange(len(rows)), list(without))
        low, high = np.searchsorted(dropped, [before, before + len(placed)])
        existing = rules.placement.skipped([keys[at] for at in placed.tolist()])
        without = placed[np.union1d(dropped[low:high] - before, existing)]
        kept = np.setdiff1d(placed, without)
        yield Examples(
            chunk,
            batch,
            before,
            [keys[at] for at in kept.tolist()],
            splits[kept],
            starts[rows[kept]],
            stops[rows[kept]],
            rejects,
            splits[without],
        )
        before += len(placed)


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
