"""The last step of every record: the writer of its shard.

A writer gets all records of a shard, sorts them by hash, and leaves one committed file, and one
with its rejects if there are any.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import BinaryIO

import apache_beam as beam
import numpy as np
from apache_beam.io.filesystem import BeamIOError
from apache_beam.metrics import Metrics

from beam_jobs.assign import Plan, shard_sizes
from beam_jobs.blocks import Block
from beam_jobs.encode import unpack_record
from beam_jobs.errors import DataError, UsageError
from beam_jobs.group import SHARD_BITS
from beam_jobs.output import Output
from beam_jobs.rejects import Reject, format_rejects, rejects_file
from beam_jobs.shards import ShardFile, write_file
from readers.format.manifest import Shard, shard_name


@dataclass(frozen=True)
class ShardResult:
    """What a shard's writer did.

    Attributes:
        split, index: Which shard.
        shard: The committed file; None where a split has nothing but rejects.
        known: Rejects that were known before.
        rejected: All rejects of this shard.
        first_reject: In the order of keys.
    """

    split: int
    index: int
    shard: Shard | None
    known: int
    rejected: int
    first_reject: Reject | None


def check_records(hashes: np.ndarray, keys: list[bytes], name: str, expected: int) -> None:
    """Checks the records that reached a shard's writer, sorted by hash and key.

    Args:
        hashes: uint64 [n].
        keys: Their n keys.
        name: Of the shard.
        expected: How many the plan put there.

    Raises:
        UsageError: Two records have the same key.
        DataError: Records were lost or duplicated on the way.
    """
    for row in np.flatnonzero(hashes[1:] == hashes[:-1]).tolist():
        if keys[row] == keys[row + 1]:
            raise UsageError(
                f"duplicate key {keys[row].decode('utf-8', 'replace')!r}: every record needs a "
                "key of its own; do two --input patterns match the same file?"
            )
    if len(keys) != expected:
        raise DataError(
            f"{name}: the runner handed over {len(keys)} of {expected} records; no dataset was "
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

    def write(self, outcomes: Iterable[bytes | Reject], known: int) -> ShardResult:
        """Writes and commits the shard.

        Args:
            outcomes: Serialized Examples and rejects, in the order of the hashes.
            known: How many of the rejects the plan knew of.

        Raises:
            DataError: An input was rejected, and `on_reject` is "fail".
            UsageError: The output cannot be written.
        """
        rejects: list[Reject] = []
        directory = self._output.directory
        try:
            shard = None
            if self._plan.shards:
                with ShardFile(directory, self.name) as file:
                    for outcome in outcomes:
                        if isinstance(outcome, Reject):
                            rejects.append(self._rejected(outcome))
                        else:
                            file.write(outcome)
                    shard = file.commit()
            else:
                rejects += [self._rejected(o) for o in outcomes if isinstance(o, Reject)]
            if rejects:
                write_file(directory, rejects_file(self.name), format_rejects(rejects))
        except (OSError, BeamIOError) as error:
            raise DataError(
                f"--output {directory}: {self.name} cannot be written ({error}); make room or "
                "choose another place, and run the job again"
            ) from error
        Metrics.counter("shards", "records_written").inc(shard.records if shard else 0)
        Metrics.counter("shards", "bytes_written").inc(shard.bytes if shard else 0)
        Metrics.counter("shards", "rejected").inc(len(rejects))
        first = min(rejects, default=None)
        return ShardResult(self.split, self.index, shard, known, len(rejects), first)

    def _rejected(self, reject: Reject) -> Reject:
        if self._output.on_reject == "fail":
            raise DataError(f"{reject} (--on_reject fail)")
        return reject


class WriteEncoded(beam.DoFn):
    """Writes shards of records that arrive encoded, as `pack_record` made them.

    They arrive in any order, as a stream that may be larger than memory: they are spooled to a
    local file, and the shard is copied from there in the order of the hashes.
    """

    def __init__(self, output: Output) -> None:
        self._output = output

    def process(self, element: tuple[int, Iterable[bytes]], plan: bytes) -> Iterator[ShardResult]:
        key, blocks = element
        writer = ShardWriter(self._output, Plan.unpack(plan), key)
        with tempfile.TemporaryFile() as spool:
            spooled = _Spool(spool, blocks)
            check_records(spooled.hashes, spooled.keys, writer.name, writer.expected)
            yield writer.write(spooled.outcomes(), len(spooled.rejects))


class _Spool:
    """The records of a shard in a local file, and where each of them lies."""

    def __init__(self, file: BinaryIO, blocks: Iterable[bytes]) -> None:
        self._file = file
        self.rejects: list[Reject] = []
        hashes: list[int] = []
        keys: list[bytes] = []
        sizes: list[int] = []
        for packed in blocks:
            block = Block.unpack(packed)
            for hash_, payload in zip(block.hashes.tolist(), block.payloads, strict=True):
                key, body = unpack_record(payload)
                if isinstance(body, Reject):
                    self.rejects.append(body)
                    continue
                file.write(body)
                hashes.append(hash_)
                keys.append(key)
                sizes.append(len(body))
        order = sorted(range(len(hashes)), key=lambda row: (hashes[row], keys[row]))
        self.hashes = np.array(hashes, np.uint64)[order]
        self.keys = [keys[row] for row in order]
        self._sizes = [sizes[row] for row in order]
        starts = np.cumsum([0, *sizes])
        self._starts = [int(starts[row]) for row in order]

    def outcomes(self) -> Iterator[bytes | Reject]:
        for start, size in zip(self._starts, self._sizes, strict=True):
            self._file.seek(start)
            yield self._file.read(size)
        yield from self.rejects
