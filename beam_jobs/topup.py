"""Balance to the last record: records move from the tails of fuller shards to shorter ones.

Shards are planned to ±1 record, but an input that turns out bad while its shard is written leaves
the shard short, and nobody knows bytes before they are written. So at the end a plan, a pure
function of what was written, says which records move. Their bytes are copied out of the tails of
the donors first; only then shards change, each on its own: the work is that of the moved records.

Every step may be done twice, or by two workers at once: the copies are the same, bytes are
written at fixed places, and a shard that is about to change is forgotten as one that is done.
"""

from __future__ import annotations

import heapq
import io
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import apache_beam as beam
import google_crc32c
import numpy as np
from apache_beam.metrics import Metrics
from apache_beam.pvalue import AsList, AsSingleton

from beam_jobs.assign import shard_sizes
from beam_jobs.files import is_local, open_file
from beam_jobs.output import Output
from beam_jobs.output_files import STAGING, NewFile, write_file
from beam_jobs.resume import ShardResult, forget_done
from beam_jobs.shards import unwritable
from readers.format.crc import crc_without_suffix
from readers.format.manifest import INDEX_SUFFIX, Shard, join
from readers.format.tfrecord import FRAME_BYTES, format_index, parse_index, read_records

_COPY_BYTES = 4 << 20


class Move(NamedTuple):
    """Consecutive records of one shard that end up in another one.

    Attributes:
        donor, first, records: Which records: shard, number of the first, how many.
        receiver: The shard they go to, at its end.
    """

    donor: int
    first: int
    records: int
    receiver: int


def moves_by_records(records: Sequence[int]) -> list[Move]:
    """The fewest moves after which shards differ by at most one record.

    Args:
        records: Of each shard.
    """
    shards = len(records)
    fair = shard_sizes(sum(records), shards) if shards else []
    # The fullest keep the record that does not divide.
    fullest = sorted(range(shards), key=lambda shard: (-records[shard], shard))
    target = dict(zip(fullest, sorted(fair, reverse=True), strict=True))
    wanted = iter(shard for shard in range(shards) for _ in range(target[shard] - records[shard]))
    single = (
        Move(shard, row, 1, next(wanted))
        for shard in range(shards)
        for row in range(target[shard], records[shard])
    )
    return list(_joined(single))


def moves_by_bytes(
    sizes: Sequence[int], largest: int, lengths: Callable[[int], np.ndarray]
) -> list[Move]:
    """Moves after which shards differ by at most the bytes of the largest record.

    As long as they do not, the last record of the largest shard goes to the smallest: that never
    widens the difference, and brings the sizes nearer to each other in the sense of least squares.

    Args:
        sizes: Of each shard in bytes.
        largest: Of all records, in bytes.
        lengths: The bytes of each record of a shard, int64 [records].
    """
    rows: dict[int, list[tuple[int, int, int]]] = {}  # shard -> (bytes, donor, row) of its records

    def rows_of(shard: int) -> list[tuple[int, int, int]]:
        if shard not in rows:
            rows[shard] = [(n, shard, row) for row, n in enumerate(lengths(shard).tolist())]
        return rows[shard]

    current = list(sizes)
    low = [(size, shard) for shard, size in enumerate(current)]
    high = [(-size, shard) for shard, size in enumerate(current)]
    heapq.heapify(low)
    heapq.heapify(high)
    while current:
        while -high[0][0] != current[high[0][1]]:
            heapq.heappop(high)
        while low[0][0] != current[low[0][1]]:
            heapq.heappop(low)
        donor, receiver = high[0][1], low[0][1]
        if current[donor] - current[receiver] <= largest:
            break
        record = rows_of(donor).pop()
        rows_of(receiver).append(record)
        for shard, change in ((donor, -record[0]), (receiver, record[0])):
            current[shard] += change
            heapq.heappush(low, (current[shard], shard))
            heapq.heappush(high, (-current[shard], shard))
    # Sorted, so that what one shard gives another is read in one piece. A record that came back
    # to its own shard stands among those of others, unless all before it are in place again.
    single: list[Move] = []
    for shard in sorted(rows):
        held = [(donor, row) for _, donor, row in rows[shard]]
        kept = next((n for n, row in enumerate(held) if row != (shard, n)), len(held))
        single += [Move(donor, row, 1, shard) for donor, row in sorted(held[kept:])]
    return list(_joined(single))


def _joined(moves: Iterable[Move]) -> Iterator[Move]:
    """Yields runs of consecutive records as one move each."""
    last: Move | None = None
    for move in moves:
        if (
            last
            and (move.donor, move.receiver) == (last.donor, last.receiver)
            and move.first == last.first + last.records
        ):
            last = last._replace(records=last.records + move.records)
            continue
        if last:
            yield last
        last = move
    if last:
        yield last


@dataclass(frozen=True)
class Change:
    """What becomes of one shard.

    Attributes:
        before: The shard as its writer left it.
        keep: How many of its records stay, from the first on.
        intake: (file of the donor, first record, count) of what is appended, in this order.
    """

    before: ShardResult
    keep: int
    intake: tuple[tuple[str, int, int], ...]

    @property
    def name(self) -> str:
        """The shard's file."""
        return _shard(self.before).file

    @property
    def incoming(self) -> int:
        """How many records are appended."""
        return sum(count for _, _, count in self.intake)


def _shard(result: ShardResult) -> Shard:
    assert result.shard is not None
    return result.shard


def changes_of(results: Sequence[ShardResult], moves: Iterable[Move]) -> list[Change]:
    """The changes of the shards of one split, those that stay as they are left out.

    Args:
        results: Of all shards of the split, by number.
    """
    keep = {result.index: _shard(result).records for result in results}
    intake: dict[int, list[tuple[str, int, int]]] = {}
    for move in moves:
        keep[move.donor] = min(keep[move.donor], move.first)
        source = (_shard(results[move.donor]).file, move.first, move.records)
        intake.setdefault(move.receiver, []).append(source)
    return [
        Change(result, keep[result.index], tuple(intake.get(result.index, ())))
        for result in results
        if keep[result.index] < _shard(result).records or result.index in intake
    ]


def plan_changes(output: Output, results: Iterable[ShardResult]) -> Iterator[Change]:
    """Yields what must change, of all splits; nothing where everything is balanced."""
    written = {(r.split, r.index): r for r in results if r.shard}
    for split in sorted({split for split, _ in written}):
        mine = [written[key] for key in sorted(written) if key[0] == split]
        if [result.index for result in mine] != list(range(len(mine))):
            return  # A shard is missing: reconciliation will tell.
        if output.balance == "bytes":
            sizes = [_shard(result).bytes for result in mine]
            largest = max(result.largest for result in mine)
            moves = moves_by_bytes(sizes, largest, _Lengths(output.directory, mine))
        else:
            moves = moves_by_records([_shard(result).records for result in mine])
        yield from changes_of(mine, moves)


class _Lengths:
    """The bytes of each record of a shard, read from its index when asked for."""

    def __init__(self, directory: str, results: Sequence[ShardResult]) -> None:
        self._directory, self._results = directory, results

    def __call__(self, shard: int) -> np.ndarray:
        return read_index(self._directory, _shard(self._results[shard]).file)[:, 1]


def read_index(directory: str, name: str) -> np.ndarray:
    """The (offset, length) of every record of a shard, int64 [records, 2]."""
    path = join(directory, name + INDEX_SUFFIX)
    with open_file(path) as file:
        return parse_index(file.read(), path)


@dataclass(frozen=True)
class Prepared:
    """A change whose incoming records are copied out of their donors.

    Attributes:
        change: What becomes of the shard.
        kept_bytes, kept_crc32c: Of the part that stays.
    """

    change: Change
    kept_bytes: int
    kept_crc32c: int


def _intake_name(change: Change) -> str:
    return f"{STAGING}/{change.name}.intake"


def _read_records(directory: str, name: str, first: int, count: int) -> bytes:
    """Consecutive framed records of a shard."""
    index = read_index(directory, name)[first : first + count]
    start, stop = int(index[0, 0]), int(index[-1].sum())
    with open_file(join(directory, name)) as file:
        file.seek(start)
        return file.read(stop - start)


def prepare_change(directory: str, change: Change) -> Prepared:
    """Copies the records that a shard receives to a file of their own; changes no shard."""
    shard = _shard(change.before)
    if change.intake:
        parts = [_read_records(directory, *source) for source in change.intake]
        write_file(directory, _intake_name(change), b"".join(parts))
    leaving = shard.records - change.keep
    suffix = _read_records(directory, shard.file, change.keep, leaving) if leaving else b""
    crc = crc_without_suffix(shard.crc32c, suffix)
    return Prepared(change, shard.bytes - len(suffix), crc)


def apply_change(directory: str, prepared: Prepared) -> ShardResult:
    """Cuts a shard to the records it keeps, and appends those it receives.

    A local file is changed in place, at the cost of what changes; elsewhere it is written anew.
    """
    change = prepared.change
    name, path = change.name, join(directory, change.name)
    intake = b""
    if change.intake:
        with open_file(join(directory, _intake_name(change))) as file:
            intake = file.read()
    incoming = [FRAME_BYTES + len(data) for _, data in read_records(io.BytesIO(intake), path)]
    lengths = np.append(read_index(directory, name)[: change.keep, 1], np.array(incoming, np.int64))
    forget_done(directory, name)
    if is_local(path):
        with Path(path).open("r+b") as shard:
            shard.seek(prepared.kept_bytes)
            shard.write(intake)
            shard.truncate()
    else:
        _rewrite(directory, name, prepared.kept_bytes, intake)
    index = format_index(lengths)
    write_file(directory, name + INDEX_SUFFIX, index)
    crc = google_crc32c.extend(prepared.kept_crc32c, intake)
    after = Shard(name, len(lengths), prepared.kept_bytes + len(intake), crc)
    index_crc = google_crc32c.value(index)
    return replace(
        change.before, shard=after, index_bytes=len(index), index_crc32c=index_crc, kept=False
    )


def _rewrite(directory: str, name: str, kept_bytes: int, intake: bytes) -> None:
    """Replaces a shard by its first bytes followed by others."""
    with open_file(join(directory, name)) as source, NewFile(directory, name) as target:
        left = kept_bytes
        while left and (data := source.read(min(left, _COPY_BYTES))):
            target.write(data)
            left -= len(data)
        if left:
            raise OSError(f"{name}: it ends {left} bytes early")
        target.write(intake)
        target.publish()


class _PlanChanges(beam.DoFn):
    def __init__(self, output: Output) -> None:
        self._output = output

    def process(self, _: Any, results: list[ShardResult]) -> Iterator[Change]:
        for change in plan_changes(self._output, results):
            Metrics.counter("shards", "records_moved").inc(change.incoming)
            yield change


class _Prepare(beam.DoFn):
    def __init__(self, output: Output) -> None:
        self._directory = output.directory

    def process(self, change: Change) -> Iterator[Prepared]:
        with unwritable(self._directory, change.name):
            yield prepare_change(self._directory, change)


class _Apply(beam.DoFn):
    def __init__(self, output: Output) -> None:
        self._directory = output.directory

    def process(self, prepared: Prepared, _: int) -> Iterator[ShardResult]:
        with unwritable(self._directory, prepared.change.name):
            yield apply_change(self._directory, prepared)


class TopUp(beam.PTransform):
    """PCollection of all shard results -> PCollection of those of shards that had to change.

    Args:
        output: The dataset, and what its shards are balanced by.
    """

    def __init__(self, output: Output) -> None:
        super().__init__()
        self._output = output

    def expand(self, results: beam.PCollection) -> beam.PCollection:
        prepared = (
            results.pipeline
            | "AllWritten" >> beam.Create([None])
            | "PlanMoves" >> beam.ParDo(_PlanChanges(self._output), AsList(results))
            | "SpreadChanges" >> beam.Reshuffle()
            | "CopyMoved" >> beam.ParDo(_Prepare(self._output))
        )
        # No shard changes before the last record is copied out of its donor.
        all_copied = prepared | "AllCopied" >> beam.combiners.Count.Globally()
        return (
            prepared
            | "SpreadCopied" >> beam.Reshuffle()
            | "Move" >> beam.ParDo(_Apply(self._output), AsSingleton(all_copied))
        )
