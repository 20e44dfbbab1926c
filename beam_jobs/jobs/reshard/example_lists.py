"""The lists of all features of serialized Examples and SequenceExamples, whatever their form.

This parses one record after another and defines the result. `example_walk` gives the same for many
records at once, if they have the usual form.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from readers.format.decode.column import Spans
from readers.format.decode.records import RawList, parse_example, parse_feature_lists
from readers.format.decode.scanner import MARGIN
from readers.format.protobuf.wire import BYTES_LIST, INT64_LIST

# Bytes of the longest int64.
LONGEST_VARINT = 10


@dataclass(frozen=True)
class Lists:
    """One feature of those records of a batch that have it as a list of one kind.

    Attributes:
        kind: BYTES_LIST, FLOAT_LIST or INT64_LIST.
        rows: int64 [m], rising; the records. In a feature list, the record of each step.
        counts: int64 [m], the number of values in each.
        pieces: Every value of a bytes list, record after record; otherwise the packed numbers of
            each record.
    """

    kind: int
    rows: np.ndarray
    counts: np.ndarray
    pieces: Spans

    def of(self, kept: np.ndarray) -> Lists:
        """The lists of some records only, bool [B]."""
        rows = kept[self.rows]
        each = np.repeat(rows, self.counts) if self.kind == BYTES_LIST else rows
        pieces = Spans(self.pieces.data, self.pieces.starts[each], self.pieces.stops[each])
        return Lists(self.kind, self.rows[rows], self.counts[rows], pieces)


# The lists of each feature by name, one for each kind found.
Features = dict[str, list[Lists]]


@dataclass(frozen=True)
class FeatureList:
    """A feature list of some SequenceExamples.

    Attributes:
        lengths: int64 [m], the number of steps in each record that has it.
        lists: The steps, one for each kind found.
    """

    lengths: np.ndarray
    lists: list[Lists]


@dataclass
class _PartialLists:
    """The lists of one feature and kind in the records parsed so far."""

    rows: list[int] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)
    values: list[bytes | memoryview] = field(default_factory=list)

    def lists(self, kind: int) -> Lists:
        data = np.frombuffer(b"".join([*self.values, bytes(MARGIN)]), np.uint8)
        lengths = np.array([len(value) for value in self.values], np.int64)
        stops = np.cumsum(lengths)
        pieces = Spans(data, stops - lengths, stops)
        return Lists(kind, np.array(self.rows, np.int64), np.array(self.counts, np.int64), pieces)


# The kind of a list, its number of values, and the values; numbers are packed in one piece.
_PackedList = tuple[int, int, Sequence[bytes | memoryview]]

# By name and kind.
_Collection = dict[str, dict[int, _PartialLists]]


class _AllNames:
    """Contains every name."""

    def __contains__(self, name: object) -> bool:
        return True


def parsed_lists(
    data: np.ndarray, starts: np.ndarray, stops: np.ndarray, rows: np.ndarray
) -> tuple[Features, dict[str, FeatureList], list[tuple[int, str]]]:
    """The lists of Examples and SequenceExamples of any form.

    Args:
        data: uint8 [n], the records.
        starts, stops: int64 [B], where each begins and ends.
        rows: int64 [m], rising; the records to parse.

    Returns:
        Their lists; their feature lists; and the rows of records that are neither, with the reason.
    """
    features: _Collection = {}
    steps: _Collection = {}
    lengths: dict[str, list[int]] = {}
    broken = []
    for row in rows.tolist():
        record = data.data[starts[row] : stops[row]]
        try:
            lists = {name: [_pack(raw)] for name, raw in parse_example(record).items()}
            found = parse_feature_lists(record, _AllNames())
            of_steps = {name: list(map(_pack, raw)) for name, raw in found.items()}
        except ValueError as error:
            broken.append((row, str(error)))
            continue
        _collect(features, row, lists)
        _collect(steps, row, of_steps)
        for name, each in of_steps.items():
            lengths.setdefault(name, []).append(len(each))
    step_lists = _finish(steps)
    feature_lists = {
        name: FeatureList(np.array(counts, np.int64), step_lists.get(name, []))
        for name, counts in lengths.items()
    }
    return _finish(features), feature_lists, broken


def _pack(raw: RawList) -> _PackedList:
    """A list with its numbers joined into one piece.

    Raises:
        ValueError: A number is cut off.
    """
    kind, chunks = raw
    if kind == BYTES_LIST:
        return kind, len(chunks), chunks
    if kind == INT64_LIST:
        return kind, sum(map(_count_varints, chunks)), [b"".join(chunks)]
    if any(len(chunk) % 4 for chunk in chunks):
        raise ValueError("the floats are cut off")
    return kind, sum(map(len, chunks)) // 4, [b"".join(chunks)]


def _count_varints(packed: memoryview) -> int:
    """The number of packed varints; takes a tenth of the time needed to unpack them.

    Raises:
        ValueError: The last one is cut off, or one is longer than ten bytes.
    """
    if bytes(packed).isascii():  # Each is one byte.
        return len(packed)
    ends = np.flatnonzero(np.frombuffer(packed, np.uint8) < 128)
    if not len(ends) or ends[-1] + 1 != len(packed):
        raise ValueError("a varint is cut off")
    if np.diff(ends, prepend=-1).max() > LONGEST_VARINT:
        raise ValueError("a varint is longer than ten bytes")
    return len(ends)


def _collect(collection: _Collection, row: int, lists: dict[str, list[_PackedList]]) -> None:
    for name, items in lists.items():
        for kind, count, values in items:
            if kind:
                into = collection.setdefault(name, {}).setdefault(kind, _PartialLists())
                into.rows.append(row)
                into.counts.append(count)
                into.values += values


def _finish(collection: _Collection) -> Features:
    return {
        name: [into.lists(kind) for kind, into in sorted(kinds.items())]
        for name, kinds in collection.items()
    }
