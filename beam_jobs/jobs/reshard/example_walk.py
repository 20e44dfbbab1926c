"""Finds the lists of all features in many serialized Examples at once.

Nearly all Examples have one form, though features may be missing and their order may differ. So a
step reads the next feature of every record with a few NumPy calls. Other records are parsed one by
one, which defines the result but takes 7 to 100 times as long, and 2 to 13 times with protobuf's C
parser: 0.1 to 4 µs a record against 13 to 110 and 1 to 20 (docs/design.md).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from beam_jobs.jobs.reshard.example_lists import (
    LONGEST_VARINT,
    FeatureList,
    Features,
    Lists,
    parsed_lists,
)
from readers.format.decode.column import Spans
from readers.format.protobuf.wire import BYTES_LIST, FLOAT_LIST, INT64_LIST

# Tags of fields of type bytes.
_FIRST, _SECOND = 0x0A, 0x12

_KINDS = {kind << 3 | 2: kind for kind in (BYTES_LIST, FLOAT_LIST, INT64_LIST)}

# For fewer records a NumPy step takes longer than parsing the rest of them.
_FEW = 12

# Bytes of a number below 2**35; no record has a larger length or size.
_LONGEST_LENGTH = 5

# Bytes of the longest name, 255 characters.
_LONGEST_NAME = 4 * 255

# Different names looked for in one step, since each record may have an order of its own.
_MAX_NAMES = 256


class Walk:
    """A position in each of B records, advanced in all of them at once.

    Attributes:
        at: int64 [B], the positions.
        usual: bool [B], the records that had what every step so far expected. The positions in the
            others mean nothing, but never leave the record.
    """

    def __init__(self, data: np.ndarray, at: np.ndarray) -> None:
        self._data = data
        self.at = at
        self.usual = np.ones(len(at), bool)

    def number(self, tag: int | np.ndarray) -> np.ndarray:
        """Passes a tag and returns the number after it, int64 [B]."""
        self.usual &= self._data[self.at] == tag
        octet = self._data[self.at + 1]
        value = octet.astype(np.int64)
        self.at = self.at + 2
        more = octet > 127
        if more.any():
            value &= 127
            for place in range(1, _LONGEST_LENGTH):
                octet = self._data[self.at] * more
                value += (octet & 127).astype(np.int64) << 7 * place
                self.at += more
                more = octet > 127
                if not more.any():
                    break
            self.usual &= ~more
        return value

    def enter(self, tag: int | np.ndarray, ends: np.ndarray) -> np.ndarray:
        """Passes a tag and a length, and returns where the content ends: int64 [B], at most `ends`."""
        length = self.number(tag)
        self.usual &= length <= ends - self.at
        self.at = np.minimum(self.at, ends)
        return np.minimum(self.at + length, ends)

    def require(self, holds: np.ndarray) -> None:
        """Drops the records that do not have what is expected here from `usual`."""
        self.usual &= holds


@dataclass(frozen=True)
class _Entries:
    """One feature of each of n records. All arrays are [n].

    Attributes:
        rows: The records.
        tags: The tag of each feature's list.
        starts, stops: Where the content of the list begins and ends.
        names, name_stops: Where the feature's name begins and ends.
    """

    rows: np.ndarray
    tags: np.ndarray
    starts: np.ndarray
    stops: np.ndarray
    names: np.ndarray
    name_stops: np.ndarray

    def of(self, which: np.ndarray) -> _Entries:
        """Some of them, chosen by numbers or bool [n]."""
        return _Entries(*(column[which] for column in vars(self).values()))

    @classmethod
    def joined(cls, parts: list[_Entries]) -> _Entries:
        """The entries of all parts, in the order of the records."""
        if len(parts) == 1:
            return parts[0]
        columns = zip(*(vars(part).values() for part in parts), strict=True)
        whole = cls(*map(np.concatenate, columns))
        return whole.of(np.argsort(whole.rows, kind="stable"))


def all_lists(
    data: np.ndarray, starts: np.ndarray, stops: np.ndarray
) -> tuple[list[Features], dict[str, FeatureList], list[tuple[int, str]]]:
    """The lists of Examples and SequenceExamples.

    Args:
        data: uint8 [n], the records and at least `MARGIN` bytes after the last one.
        starts, stops: int64 [B], where each begins and ends.

    Returns:
        Their lists, in two parts of different records; their feature lists; and the rows, rising, of
        records that are neither, with the reason.
    """
    walked, usual = walked_lists(data, starts, stops)
    parsed, feature_lists, broken = parsed_lists(data, starts, stops, np.flatnonzero(~usual))
    return [walked, parsed], feature_lists, broken


def walked_lists(
    data: np.ndarray, starts: np.ndarray, stops: np.ndarray
) -> tuple[Features, np.ndarray]:
    """The lists of those Examples that have the usual form: every field once, in order, packed.

    Args:
        data, starts, stops: See `all_lists`.

    Returns:
        Their lists; and bool [B], the records that these are from. The others may be anything.
    """
    walk = Walk(data, starts)
    walk.require(walk.enter(_FIRST, stops) == stops)
    usual, found = walk.usual, _walked(data, walk, stops)
    features: Features = {}
    for key, parts in found.items():
        entries = _Entries.joined(parts)
        rows = entries.rows
        usual[rows[1:][rows[1:] == rows[:-1]]] = False  # A repeated name: the last one counts.
        tags = np.flatnonzero(np.bincount(entries.tags)).tolist()
        lists = [_lists(data, _KINDS[tag], entries.of(entries.tags == tag), usual) for tag in tags]
        try:
            features[key.decode()] = lists
        except UnicodeDecodeError:
            usual[rows] = False
    if not usual.all():
        features = {
            name: [part for part in (part.of(usual) for part in lists) if len(part.rows)]
            for name, lists in features.items()
        }
    return features, usual


def _walked(data: np.ndarray, walk: Walk, stops: np.ndarray) -> dict[bytes, list[_Entries]]:
    """The features by name of records that have the usual form; clears `walk.usual` of the others.

    Args:
        walk: Positions at which the features begin.
        stops: int64 [B], where the records end.
    """
    found: dict[bytes, list[_Entries]] = {}
    rows, at, usual = np.arange(len(stops)), walk.at, walk.usual
    while True:
        left = usual[rows] & (at < stops[rows])
        rows, at = rows[left], at[left]
        if len(rows) < _FEW:
            usual[rows] = False
            return found
        step = Walk(data, at)
        ends = step.enter(_FIRST, stops[rows])
        name_stops = step.enter(_FIRST, ends)
        names, step.at = step.at, name_stops
        step.require(step.enter(_SECOND, ends) == ends)
        tags = data[step.at]
        step.require((tags == 0x0A) | (tags == 0x12) | (tags == 0x1A))
        step.require(step.enter(tags, ends) == ends)
        usual[rows] = step.usual
        entries = _Entries(rows, tags, step.at, ends, names, name_stops)
        if not step.usual.all():
            entries = entries.of(step.usual)
        by_name, others = _by_name(data, entries)
        usual[entries.rows[others]] = False
        for name, which in by_name.items():
            found.setdefault(name, []).append(entries.of(which))
        rows, at = entries.rows, entries.stops


def _by_name(data: np.ndarray, entries: _Entries) -> tuple[dict[bytes, np.ndarray], np.ndarray]:
    """The entries that have each name, int64 [m]; and those left after `_MAX_NAMES` names."""
    words = np.ndarray((len(data) - 7,), "<u8", data, strides=(1,))
    found: dict[bytes, np.ndarray] = {}
    lengths = entries.name_stops - entries.names
    left = np.arange(len(lengths))
    while len(left) and len(found) < _MAX_NAMES:
        start, length = int(entries.names[left[0]]), int(lengths[left[0]])
        if length > _LONGEST_NAME:
            break
        name = data[start : start + length].tobytes()
        same = lengths[left] == length
        for place in range(0, length, 8):
            piece = name[place : place + 8]
            mask = np.uint64((1 << 8 * len(piece)) - 1)
            # A shorter name may be so near the end that no word is left at this place.
            at = np.where(same, entries.names[left] + place, 0)
            same &= words[at] & mask == np.uint64(int.from_bytes(piece, "little"))
        found[name], left = left[same], left[~same]
    return found, left


def _lists(data: np.ndarray, kind: int, entries: _Entries, usual: np.ndarray) -> Lists:
    """The lists of one kind; clears `usual` for records of another form."""
    starts, stops = entries.starts, entries.stops
    if kind == BYTES_LIST:
        pieces, counts, whole = _values(data, starts, stops)
    else:
        walk = Walk(data, starts)
        walk.require(walk.enter(_FIRST, stops) == stops)
        pieces = Spans(data, walk.at, stops)
        counts, whole = _counts(kind, pieces)
        whole &= walk.usual | (starts == stops)
    usual[entries.rows[~whole]] = False
    return Lists(kind, entries.rows, counts, pieces)


def _values(
    data: np.ndarray, starts: np.ndarray, stops: np.ndarray
) -> tuple[Spans, np.ndarray, np.ndarray]:
    """The values of bytes lists, their counts, int64 [n], and which lists are whole, bool [n]."""
    whole = np.ones(len(starts), bool)
    rows = np.flatnonzero(starts < stops)
    at, steps = starts[rows], [(rows[:0], rows[:0], rows[:0])]
    while len(rows):
        walk = Walk(data, at)
        ends = walk.enter(_FIRST, stops[rows])
        whole[rows[~walk.usual]] = False
        steps.append((rows, walk.at, ends))
        more = walk.usual & (ends < stops[rows])
        rows, at = rows[more], ends[more]
        if len(rows) < _FEW:
            whole[rows] = False
            break
    rows, begins, ends = map(np.concatenate, zip(*steps, strict=True))
    order = np.argsort(rows, kind="stable") if len(steps) > 2 else slice(None)
    counts = np.bincount(rows, minlength=len(starts))
    return Spans(data, begins[order], ends[order]), counts, whole


def _counts(kind: int, numbers: Spans) -> tuple[np.ndarray, np.ndarray]:
    """The count of packed numbers in each piece, int64 [n], and which are whole, bool [n]."""
    lengths = numbers.lengths
    if kind == FLOAT_LIST:
        return lengths // 4, lengths % 4 == 0
    filled = lengths > 0
    whole = ~filled | (numbers.data[numbers.stops - 1] < 128)
    width = int(lengths.max(initial=0))
    if width <= LONGEST_VARINT:
        last = (numbers.stacked(width) < 128) & (np.arange(width) < lengths[:, None])
        return np.count_nonzero(last, axis=1), whole
    last = numbers.joined(np.empty) < 128
    firsts, counts = np.cumsum(lengths) - lengths, np.zeros(len(lengths), np.int64)
    counts[filled] = np.add.reduceat(last, firsts[filled], dtype=np.int64)
    ends = np.flatnonzero(last)
    too_long = ends[np.diff(ends, prepend=-1) > LONGEST_VARINT]
    whole[np.searchsorted(firsts, too_long, side="right") - 1] = False
    return counts, whole
