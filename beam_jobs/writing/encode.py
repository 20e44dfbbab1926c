"""Encodes records into runs before it is known which shards there will be."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from beam_jobs.columns import Ragged
from beam_jobs.dataset.output import Output
from beam_jobs.errors import DataError, UsageError
from beam_jobs.plan.summary import Summary
from beam_jobs.records.blocks import (
    Block,
    frame_checksums,
    frame_lengths,
    pack_reject,
    unpack_reject,
)
from beam_jobs.records.encode import RecordEncoder
from beam_jobs.records.rejects import Reject
from beam_jobs.records.runs import RunBuilder, RunIndex
from beam_jobs.records.spool import Spool
from beam_jobs.records.statistics import Statistics
from readers.format.encode.records import Encoder

# The name of a feature, or a function of a record.
Rule = str | Callable[[Mapping[str, Any]], Any]

# A record that was added: its key in UTF-8, the number of its split, and its features, which nobody else changes.
_Record = tuple[bytes, int, dict[str, Any]]

# Records that are encoded together: one by one takes twice the time.
_AT_ONCE, _BYTES_AT_ONCE = 256, 1 << 20

# The end of the error about what may not be rejected.
CURE = "fix it, or pass max_rejects=0.01, say, to list such inputs in rejects/ and write the rest"


@dataclass
class Encoded:
    """Encoded records in runs, and everything that planning needs to know about them.

    Attributes:
        summary: Counts of records and rejects.
        hashes: The records in blocks without payloads.
        runs: The indexes of the runs.
        statistics: (split, the statistics of some of its records).
    """

    summary: Summary
    hashes: list[Block] = field(default_factory=list)
    runs: list[RunIndex] = field(default_factory=list)
    statistics: list[tuple[int, Statistics]] = field(default_factory=list)

    @classmethod
    def nothing(cls, output: Output) -> Encoded:
        """No records of a dataset."""
        return cls(Summary.empty(len(output.num_shards)))

    def add(self, block: Block) -> None:
        """Adds encoded records and rejects."""
        frames = frame_lengths(block.payloads)
        for row in np.flatnonzero(frames == 0).tolist():
            self.summary.add_reject(int(block.splits[row]), unpack_reject(block.payloads[row]))
        good = frames > 0
        checksums = frame_checksums(block.payloads, frames)
        self.summary.identify(block.hashes[good], checksums[good])
        hashes = Block(block.hashes[good], block.splits[good], block.payloads).without_payloads()
        self.summary.add_block(hashes)
        self.summary.add_sizes(block.splits, frames)
        self.hashes.append(hashes)

    def merge(self, other: Encoded) -> None:
        """Adds other records."""
        self.summary.merge(other.summary)
        self.hashes += other.hashes
        self.runs += other.runs
        self.statistics += other.statistics


class RunEncoder:
    """Encodes records of a dataset, and writes them as runs to its staging folder.

    Args:
        checks: An encoder for the schema, which may have encoded other records.

    Attributes:
        encoded: All records since the last call of `take` or `finish`, but some that are in no block yet.
    """

    def __init__(
        self,
        output: Output,
        key: Rule | None = None,
        group_by: Rule | None = None,
        checks: Encoder | None = None,
    ) -> None:
        self._output, self._key, self._group_by = output, key, group_by
        self._has_rules = key is not None or group_by is not None
        self._checks, self._has_keys = checks or Encoder(output.schema), "key" in output.schema
        self._encoder, self._runs = RecordEncoder(self._checks), RunBuilder(Spool(output.staging))
        self._records: list[_Record] = []
        self._rejects: list[tuple[Reject, int]] = []
        self._bytes = 0
        self.encoded = Encoded.nothing(output)

    def add_row(self, row: Any, number: str | None, split: int | None = None) -> None:
        """Adds features, or a pair of a key and features, given the key for want of another; else as `add`."""
        key, features = row if isinstance(row, tuple) and len(row) == 2 else (number, row)
        if self._has_rules and isinstance(features, Mapping):
            given = features
            if self._key is not None:
                key = _text(self._key, given)
            if self._group_by is not None:
                split = self._output.placement.split(_text(self._group_by, given))
            for rule in (self._key, self._group_by):
                if isinstance(rule, str) and rule not in self._output.schema:
                    features = {name: value for name, value in features.items() if name != rule}
        self.add(key, features, split)

    def add(self, key: Any, features: Any, split: int | None = None) -> None:
        """Adds a record, given its key, its features, and the number of its split unless its key chooses that.

        Raises:
            UsageError: The key is not a text, or the features are not a dict.
            DataError: The record does not fit the schema and may not be rejected, or a run cannot be written.
        """
        try:
            # To ask whether a dict is a Mapping takes as long as to copy it.
            if not isinstance(key, str) or not isinstance(features, (dict, Mapping)):
                raise TypeError
            key_bytes = key.encode("utf-8", "surrogateescape")
        except (TypeError, ValueError):
            raise UsageError(
                f"expected (key, features) with a text key and a dict of arrays, got {str((key, features))[:80]!r}"
            ) from None
        split = self._output.placement.split(key) if split is None else split
        record: dict[str, Any] = {"key": key} if self._has_keys else {}
        for name, value in features.items():
            kind = type(value)
            if kind is str or kind is bytes:
                self._bytes += len(value)
            elif kind is np.ndarray and value.dtype != object:
                value = value.copy()  # The caller may write into it again.
                self._bytes += value.nbytes
            elif kind is not int and kind is not float:
                try:
                    value = self._converted(name, value)
                except ValueError as error:
                    return self.reject(Reject.of(key, "encode", error), split)
            record[name] = value
        self._records.append((key_bytes, split, record))
        if len(self._records) >= _AT_ONCE or self._bytes >= _BYTES_AT_ONCE:
            self._write()

    def _converted(self, name: str, value: Any) -> Any:
        """A value of any other type, checked and copied; ValueError if it does not fit."""
        feature = self._checks.schema.get(name)
        if feature is None:
            return value
        values = feature.codec.checked_all(name, feature, [value])
        parts = values[0] if feature.is_sequence else values
        own = [part.copy() if isinstance(part, np.ndarray) else part for part in parts]
        self._bytes += sum(
            len(part) if isinstance(part, bytes) else getattr(part, "nbytes", 0) for part in own
        )
        return own if feature.is_sequence else own[0]

    def reject(self, reject: Reject, split: int = 0) -> None:
        """Adds a reject of a split; DataError if nothing may be rejected."""
        if self._output.max_rejects.limit == 0:
            raise DataError(f"{reject}; {CURE}") from None
        self._rejects.append((reject, split))

    def _write(self) -> None:
        """Encodes the records that were added, and writes them and the rejects as a block."""
        records, self._records, self._bytes = self._new(self._records), [], 0
        payloads = self._payloads(records)
        for reject, split in self._rejects:
            key = reject.key.encode("utf-8", "surrogateescape")
            payloads.append((key, split, pack_reject(reject)))
        self._rejects = []
        if payloads:
            keys, splits, packed = zip(*payloads, strict=True)
            orders = self._output.placement.orders(keys)
            block = Block(orders, np.array(splits, np.uint8), Ragged.of(packed))
            self.encoded.runs += self._runs.add(block)
            self.encoded.add(block)

    def _new(self, records: list[_Record]) -> list[_Record]:
        """The records without those that an append leaves out."""
        placement, summary = self._output.placement, self.encoded.summary
        if placement.stored is None or not records:
            return records
        keys = [key for key, *_ in records]
        summary.add_existing(keys, placement.refused(placement.orders(keys)))
        skipped = {*placement.skipped(keys).tolist()}
        summary.add_duplicates(np.array([records[n][1] for n in skipped], np.uint8))
        return [record for n, record in enumerate(records) if n not in skipped]

    def _payloads(self, records: list[_Record]) -> list[tuple[bytes, int, bytes]]:
        """(key, split, payload) of each record that can be encoded; the others become rejects."""
        if not records:
            return []
        keys, splits, features = zip(*records, strict=True)
        try:
            columns = self._checks.check_all(features)
            frames, rows = self._encoder.encode_all(np.array(splits, np.uint8), columns)
        except (
            Exception
        ) as error:  # A value may raise anything, and must not take other records with it.
            if half := len(records) // 2:
                return [*self._payloads(records[:half]), *self._payloads(records[half:])]
            key = keys[0].decode("utf-8", "surrogateescape")
            self.reject(Reject.of(key, "encode", error), splits[0])
            return []
        payloads = map(b"".join, zip(frames, rows, keys, strict=True))
        return list(zip(keys, splits, payloads, strict=True))

    def take(self) -> Encoded:
        """Returns `encoded`, and begins another one."""
        encoded, self.encoded = self.encoded, Encoded.nothing(self._output)
        return encoded

    def finish(self) -> Encoded:
        """Completes the runs; returns `encoded` with all records and their statistics, and begins another one."""
        self._write()
        self.encoded.runs += self._runs.finish()
        self.encoded.statistics += self._encoder.statistics()
        return self.take()

    def close(self) -> None:
        """Removes the file of an unfinished run, whose records are lost."""
        self._runs.give_up()


def _text(rule: Rule, features: Mapping[str, Any]) -> str:
    """The text that a rule gives; integers and NumPy scalars are converted, UsageError for others."""
    value = rule(features) if callable(rule) else features.get(rule)
    if isinstance(value, np.ndarray | np.generic) and not value.ndim:
        value = value.item()
    if isinstance(value, bytes):
        value = value.decode("utf-8", "surrogateescape")
    if not isinstance(value, str | int):
        raise UsageError(
            f"key or group {rule!r:.80}: expected a text or an integer of the record, got {value!r:.80}; it has "
            f"{', '.join(map(str, features))}"
        )
    return str(value)
