"""Encodes records into runs before it is known which shards there will be."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from beam_jobs.dataset.output import Output
from beam_jobs.errors import DataError, UsageError
from beam_jobs.plan.summary import Summary
from beam_jobs.records.blocks import (
    Block,
    BlockBuilder,
    frame_checksums,
    frame_lengths,
    pack_record,
    unpack_reject,
)
from beam_jobs.records.encode import RecordEncoder
from beam_jobs.records.rejects import Reject
from beam_jobs.records.runs import RunBuilder, RunIndex
from beam_jobs.records.spool import Spool
from beam_jobs.records.statistics import Statistics
from readers.format.encode.records import Encoder


class EncodedBlock(NamedTuple):
    """The facts about a block of encoded records that planning needs.

    Attributes:
        summary: Counts of its records and rejects.
        hashes: The records without their payloads.
        runs: The indexes of runs that were written since the last block.
    """

    summary: Summary
    hashes: Block
    runs: list[RunIndex]

    @classmethod
    def of(cls, block: Block, splits: int, runs: list[RunIndex]) -> EncodedBlock:
        """The facts about a block, given the number of splits."""
        summary = Summary.empty(splits)
        frames = frame_lengths(block.payloads)
        for row in np.flatnonzero(frames == 0).tolist():
            summary.add_reject(int(block.splits[row]), unpack_reject(block.payloads[row]))
        good = frames > 0
        checksums = frame_checksums(block.payloads, frames)
        summary.identify(block.hashes[good], checksums[good])
        hashes = Block(block.hashes[good], block.splits[good], block.payloads).without_payloads()
        summary.add_block(hashes)
        summary.add_sizes(block.splits, frames)
        return cls(summary, hashes, runs)


class RunEncoder:
    """Encodes records, and writes them as runs to a spool.

    Args:
        output: The dataset.
        spool: Holds the runs.
        cure: The end of the error about a record that does not fit the schema; None rejects such records.
        prepare: Called before each block, because it may be the first that is written.
    """

    def __init__(
        self,
        output: Output,
        spool: Spool,
        cure: str | None,
        prepare: Callable[[], None] | None = None,
    ) -> None:
        self._output, self._cure, self._prepare = output, cure, prepare
        self._encoder = RecordEncoder(Encoder(output.schema))
        self._blocks, self._runs = BlockBuilder(), RunBuilder(spool)

    def add(self, key: Any, features: Any, split: int | None = None) -> Iterator[EncodedBlock]:
        """Adds a record; yields a block if one is full.

        Args:
            key: Its key.
            features: Its features.
            split: The number of its split; None to choose it by the key.

        Raises:
            UsageError: The key is not a text, or the features are not a dict.
            DataError: The record does not fit the schema, or a run cannot be written.
        """
        try:
            if not isinstance(key, str) or not isinstance(features, Mapping):
                raise TypeError
            key.encode("utf-8", "surrogateescape")
        except (TypeError, ValueError):
            raise UsageError(
                f"expected (key, features) with a text key and a dict of arrays, got {str((key, features))[:80]!r}"
            ) from None
        if split is None:
            split = self._output.placement.split(key)
        record = dict(features)
        if "key" in self._output.schema:
            record.setdefault("key", key)
        try:
            body, row = self._encoder.encode(split, record)
        except ValueError as error:
            yield from self.reject(Reject.of(key, "encode", error), split)
        else:
            yield from self._add(key, split, pack_record(key, body, row))

    def reject(self, reject: Reject, split: int) -> Iterator[EncodedBlock]:
        """Adds a reject of a split; DataError if nothing may be rejected."""
        if self._cure is not None:
            raise DataError(f"{reject}; {self._cure}") from None
        yield from self._add(reject.key, split, pack_record(reject.key, reject))

    def _add(self, key: str, split: int, payload: bytes) -> Iterator[EncodedBlock]:
        if full := self._blocks.add(self._output.placement.order(key), split, payload):
            yield self._encoded(full)

    def finish(self) -> Iterator[EncodedBlock]:
        """Yields the last block, and completes the file of its runs; records may be added to a new one."""
        if last := self._blocks.flush():
            block = self._encoded(last)
            block.runs.extend(self._runs.finish())
            yield block

    def _encoded(self, block: Block) -> EncodedBlock:
        if self._prepare:
            self._prepare()
        return EncodedBlock.of(block, len(self._output.num_shards), list(self._runs.add(block)))

    def statistics(self) -> Iterator[tuple[int, Statistics]]:
        """Yields (split, statistics of its records since the last call)."""
        return self._encoder.statistics()

    def give_up(self) -> None:
        """Forgets all records of an unfinished run, and removes its file."""
        self._runs.give_up()
