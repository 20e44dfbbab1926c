"""The last step of every record: the writer of its shard.

A writer gets all records of a shard, sorts them by hash, and leaves one committed file, and one
with its rejects if there are any.
"""

from __future__ import annotations

import contextlib
import itertools
import mmap
import os
import resource
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any, BinaryIO

import apache_beam as beam
import google_crc32c
import numpy as np
from apache_beam.metrics import Metrics

from beam_jobs import progress
from beam_jobs.assign import ONE_KEY, SHARD_BITS, Plan, shard_sizes
from beam_jobs.blocks import Block
from beam_jobs.errors import DataError, UsageError
from beam_jobs.labels import Names
from beam_jobs.output import Output
from beam_jobs.output_files import write_file
from beam_jobs.payload import frame_lengths, is_planned, unpack_reject
from beam_jobs.rejects import Reject, format_rejects, rejects_file
from beam_jobs.resume import Digest, ShardResult, find_done, note_done, read_note
from beam_jobs.shards import ShardFile, unwritable
from beam_jobs.spool import Spool, SpoolReader
from beam_jobs.window_step import ShardStep
from readers.format.manifest import shard_name

# Framed records one after another, their lengths (int64 [n]), and what was rejected among them.
Run = tuple[bytes, np.ndarray, list[Reject]]

_RUN_BYTES = 1 << 20


def rows_in_order(hashes: np.ndarray, key_of: Callable[[int], bytes]) -> list[int]:
    """The order of a shard's records: by hash, and by key where hashes are the same.

    Args:
        hashes: uint64 [n].
        key_of: The key of a record by its row.
    """
    order: list[int] = np.argsort(hashes, kind="stable").tolist()
    if (np.diff(hashes[order]) == 0).any():
        order.sort(key=lambda row: (hashes[row], key_of(row)))
    return order


def check_records(
    hashes: np.ndarray, key_of: Callable[[int], bytes], name: str, expected: int
) -> None:
    """Checks the records that reached a shard's writer, sorted by hash and key.

    Args:
        hashes: uint64 [n].
        key_of: The key of a record by its row.
        name: Of the shard.
        expected: How many the plan put there.

    Raises:
        UsageError: Two records have the same key.
        DataError: Records were lost or duplicated on the way.
    """
    for row in np.flatnonzero(hashes[1:] == hashes[:-1]).tolist():
        if key_of(row) == key_of(row + 1):
            raise UsageError(f"duplicate key {key_of(row).decode('utf-8', 'replace')!r}: {ONE_KEY}")
    if len(hashes) != expected:
        raise DataError(
            f"{name}: the runner handed over {len(hashes)} of {expected} records; no dataset was "
            "written, run the job again"
        )


class ShardWriter:
    """Writes the records of one shard and what was rejected among them.

    Args:
        output: The dataset.
        plan: Of the whole dataset.
        key: Split and shard, as `assign_shards` numbers them.
    """

    def __init__(self, output: Output, plan: Plan, key: int) -> None:
        self.split, self.index = key >> SHARD_BITS, key & ((1 << SHARD_BITS) - 1)
        self._output = output
        self._plan = plan.splits[self.split]
        count = max(self._plan.shards, 1)
        self.name = shard_name(output.placement.splits.names[self.split], self.index, count)

    @property
    def expected(self) -> int:
        """How many records the plan put into this shard."""
        if not self._plan.shards:
            return 0
        return shard_sizes(self._plan.records, self._plan.shards)[self.index]

    def write(self, runs: Iterable[Run]) -> ShardResult:
        """Writes and commits the shard.

        Args:
            runs: In the order of the hashes.

        Raises:
            DataError: An input was rejected, and `on_reject` is "fail"; or the output cannot be
                written.
        """
        rejects: list[Reject] = []
        directory = self._output.directory
        progress.advance("writing", 0)
        with unwritable(directory, self.name):
            result = ShardResult(self.split, self.index, None, 0, 0, 0, None)
            if self._plan.shards:
                with ShardFile(directory, self.name) as file:
                    for frames, lengths, rejected in runs:
                        rejects += map(self._rejected, rejected)
                        file.write(frames, lengths)
                        progress.advance("writing", len(lengths) + len(rejected))
                    shard = file.commit()
                result = replace(
                    result,
                    shard=shard,
                    index_bytes=file.index_bytes,
                    index_crc32c=file.index_crc32c,
                    largest=file.largest,
                )
            else:
                rejects += [self._rejected(reject) for run in runs for reject in run[2]]
            if rejects:
                listed = format_rejects(rejects)
                write_file(directory, rejects_file(self.name), listed)
                result = replace(result, rejects_crc32c=google_crc32c.value(listed))
        return replace(result, rejected=len(rejects), first_reject=min(rejects, default=None))

    @property
    def record_bytes(self) -> int:
        """About how many bytes a record has, framing included."""
        return self._plan.record_bytes

    def digest(self, names: Names | None = None) -> Digest:
        """The digest of the shard, without its records."""
        return Digest(self._output, self.name, names or {})

    def read_note(self) -> bytes | None:
        """What an earlier run that may have written the shard has noted."""
        return read_note(self._output.directory, self.name)

    def find_done(self, digest: str, noted: bytes | None = None) -> tuple[ShardResult, Any] | None:
        """What an earlier run wrote for the same digest, as `resume.find_done`."""
        found = find_done(self._output.directory, self.name, digest, noted)
        if found:
            progress.advance("writing", self.expected)
        return found

    def note_done(self, digest: str, result: ShardResult, figures: Any = None) -> None:
        """Leaves the note that the shard is done, as `resume.note_done`."""
        with unwritable(self._output.directory, self.name):
            note_done(self._output.directory, self.name, digest, result, figures)

    def _rejected(self, reject: Reject) -> Reject:
        if self._output.on_reject == "fail":
            raise DataError(f"{reject} (--on_reject fail)")
        return reject


def count_shard(result: ShardResult) -> None:
    """Adds a shard to Beam's counters, in the thread that runs the step."""
    shard = result.shard
    Metrics.counter("shards", "kept" if result.kept else "written").inc(1 if shard else 0)
    Metrics.counter("shards", "records").inc(shard.records if shard else 0)
    Metrics.counter("shards", "bytes").inc(shard.bytes if shard else 0)
    Metrics.counter("shards", "rejected").inc(result.rejected)


class WriteEncoded(beam.DoFn):
    """Writes shards of records that arrive encoded, as `pack_record` made them.

    They arrive in any order, as a stream that may be larger than memory: they are kept in a local
    file, and the shard is copied from there in the order of the hashes.
    """

    def __init__(self, output: Output) -> None:
        self._output = output

    def process(self, element: tuple[int, Iterable[bytes]], plan: bytes) -> Iterator[ShardResult]:
        key, blocks = element
        writer = ShardWriter(self._output, Plan.unpack(plan), key)
        with tempfile.TemporaryFile() as file:
            try:
                records = Records([file], _kept(file, blocks))
            except OSError as error:
                raise DataError(
                    f"{writer.name}: its records cannot be kept in {tempfile.gettempdir()} "
                    f"({error}); make room, or set TMPDIR to another place"
                ) from error
            result = write_records(writer, records)
        count_shard(result)
        yield result


def _kept(file: BinaryIO, packed: Iterable[bytes]) -> Iterator[tuple[int, int, Block]]:
    """Writes the payloads of blocks to a file; yields where they are, as `Records` takes them."""
    at = 0
    for block in map(Block.unpack, packed):
        file.write(block.payloads.data)
        yield 0, at, block
        at += len(block.payloads.data)
    file.flush()


class WriteSpooled(ShardStep[ShardResult]):
    """(split and shard, references to its records) -> its result."""

    def __init__(self, output: Output, processes: int, spool: Spool) -> None:
        super().__init__(processes)
        self._output, self._spool = output, spool

    def setup(self) -> None:
        super().setup()
        # A shard has records of every task that encoded any, each in a file of its own.
        with contextlib.suppress(ValueError, OSError):
            _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))

    def process(self, element: tuple[int, Iterable[bytes]], plan: bytes) -> Iterator[ShardResult]:
        key, references = element
        writer = ShardWriter(self._output, Plan.unpack(plan), key)
        yield from self.submit(write_spooled, writer, self._spool, list(references))

    def outputs(self, result: ShardResult) -> Iterator[ShardResult]:
        count_shard(result)
        yield result


def write_spooled(writer: ShardWriter, spool: Spool, references: Iterable[bytes]) -> ShardResult:
    """Writes a shard of records that lie in a spool, or finds it written.

    Args:
        references: As `Spool.append` gave them, any number of them together.

    Raises:
        JobError: As `write_records` and `SpoolReader.blocks`.
    """
    with SpoolReader(spool) as reader:
        blocks = (block for some in references for block in reader.blocks(some))
        return write_records(writer, Records(reader.files, blocks))


def write_records(writer: ShardWriter, records: Records) -> ShardResult:
    """Writes a shard, or finds it written by an earlier run.

    Raises:
        JobError: As `check_records` and `ShardWriter.write`.
    """
    expected = writer.expected - records.planned_rejects
    check_records(records.hashes, records.key_of, writer.name, expected)
    return _find_written(writer, records) or _write(writer, records)


def _find_written(writer: ShardWriter, records: Records) -> ShardResult | None:
    noted = writer.read_note()
    if noted is None:
        return None
    digest = writer.digest()
    for run in records.runs():
        digest.update(_contents(run))
    found = writer.find_done(digest.text(), noted)
    return found[0] if found else None


def _write(writer: ShardWriter, records: Records) -> ShardResult:
    digest = writer.digest()

    def digested() -> Iterator[Run]:
        for run in records.runs():
            digest.update(_contents(run))
            yield run

    result = writer.write(digested())
    writer.note_done(digest.text(), result)
    return result


def _contents(run: Run) -> tuple[bytes, bytes]:
    """All there is in a run, the same in whatever order its rejects arrived."""
    return run[0], format_rejects(run[2])


class Records:
    """The encoded records of a shard in local files: where the frame of each lies, in order.

    Args:
        files: The files; `blocks` may add to them.
        blocks: (number of the file, where in it the payloads begin, the block).

    Attributes:
        rejects: In any order.
        planned_rejects: How many of them the plan took for records.
    """

    def __init__(self, files: list[BinaryIO], blocks: Iterable[tuple[int, int, Block]]) -> None:
        self._files = files
        self.rejects: list[Reject] = []
        self.planned_rejects = 0
        hashes, columns = [np.empty(0, np.uint64)], [np.empty((0, 4), np.int64)]
        for number, at, block in blocks:
            payloads = block.payloads
            sizes = frame_lengths(payloads)
            good = sizes > 0
            rejected = [payloads[row] for row in np.flatnonzero(~good).tolist()]
            self.rejects += map(unpack_reject, rejected)
            self.planned_rejects += sum(map(is_planned, rejected))
            stops = payloads.ends + at
            hashes.append(block.hashes[good])
            found = np.full(len(sizes), number), stops - payloads.lengths, stops, sizes
            columns.append(np.stack(found, 1)[good])
        self.hashes = np.concatenate(hashes)
        self._places = np.concatenate(columns)
        order = rows_in_order(self.hashes, self.key_of)
        self.hashes, self._places = self.hashes[order], self._places[order]

    def key_of(self, row: int) -> bytes:
        """The key of a record: what stands behind its frame."""
        number, start, stop, size = self._places[row].tolist()
        return os.pread(self._files[number].fileno(), stop - start - size, start + size)

    def runs(self) -> Iterator[Run]:
        """Yields the records in order, about a megabyte at a time, and at last the rejects."""
        if self.hashes.size:
            numbers, starts, _, sizes = self._places.T
            at = np.cumsum(sizes)
            cuts = np.searchsorted(at, np.arange(_RUN_BYTES, at[-1], _RUN_BYTES), side="right")
            edges = np.unique([0, *cuts, len(at)]).tolist()
            with contextlib.ExitStack() as stack:
                maps = [
                    stack.enter_context(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
                    for file in self._files
                ]
                for first, last in itertools.pairwise(edges):
                    rows = slice(first, last)
                    spans = zip(
                        numbers[rows].tolist(),
                        starts[rows].tolist(),
                        (starts[rows] + sizes[rows]).tolist(),
                        strict=True,
                    )
                    frames = b"".join([maps[number][start:end] for number, start, end in spans])
                    yield frames, sizes[rows], []
        yield b"", np.empty(0, np.int64), self.rejects
