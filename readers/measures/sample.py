"""A sample of a dataset: for each record the numbers that describe it, its digest, sketch, label and key.

The records of a split are in the order of hashes of their keys, so its first records are a sample that
depends on nothing but the keys, and are read as one range of bytes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from readers.format.features import Features
from readers.format.manifest import Manifest
from readers.format.schema import Schema
from readers.format.similarity.likeness import DEFAULTS, Likeness, Sketches
from readers.format.splits import Split
from readers.measures.arrays import measure_array, measure_number, measure_signal
from readers.measures.channels import MOST_CHANNELS, Channels
from readers.measures.pictures import measure_picture
from readers.measures.texts import Words, measure_text, merged
from readers.measures.values import Collector, Values, joined, rows_each
from readers.measures.visits import UNDECODABLE, Record, visit

# Bytes of all samples of a dataset as they are stored, and values of features: a table may have thousands of columns.
_MOST_BYTES, _MOST_VALUES = 2 << 30, 1 << 22

# Kind of a feature -> when two of its values are near duplicates.
LIKENESS = {
    "picture": Likeness("picture", DEFAULTS["picture"]),
    "text": Likeness("text", DEFAULTS["text"]),
    "signal": Likeness("recording", DEFAULTS["recording"]),
}

Measures = dict[str, np.ndarray]


@dataclass(frozen=True)
class SplitSample:
    """The first records of a split.

    Attributes:
        split: The split.
        seen: The number of records in the sample.
        numbers: Their numbers in the split, int64 [seen].
        too_large: How many of the first records were left out because they are too large.
        measures: Feature -> name of a number -> its values, float64 [seen].
        digests: Feature -> digests of its values, uint64 [seen]; equal values have equal ones, and empty
            arrays and texts 0.
        sketches: Picture, text or signal -> its sketches, by which near duplicates are found; empty if no record
            was seen.
        labels: The labels, int64 [seen]; None if a record has none, or several.
        keys: The keys, which name the inputs; empty if they are not stored.
        details: What a report shows beyond that; None if it was not asked for, or no record was seen.
    """

    split: Split
    seen: int
    numbers: np.ndarray
    too_large: int
    measures: Mapping[str, Measures]
    digests: Mapping[str, np.ndarray]
    sketches: Mapping[str, Sketches]
    labels: np.ndarray | None
    keys: tuple[str, ...]
    details: Details | None = None

    def named(self, number: int) -> str:
        """The name by which a user finds a record of the sample: its key, or its number in the split."""
        place = int(np.searchsorted(self.numbers, number))
        return self.keys[place] if self.keys else f"record {number}"


_MEASURES: dict[str, Callable[[Any], dict[str, float]]] = {
    "picture": measure_picture,
    "text": measure_text,
    "signal": measure_signal,
    "floats": measure_array,
    "integers": measure_array,
}


def sample_of(
    directory: str, manifest: Manifest, most: int, has_details: bool = False
) -> dict[str, SplitSample]:
    """The samples of all splits by name, shared by their sizes.

    Together they are `most` records; fewer if these have more than 2 GiB, or more than four million values of features.

    Raises:
        CorruptRecordError: (a ValueError) The checksum of a record is wrong.
        DatasetError: (a ValueError) A shard differs from the manifest.
        FileNotFoundError: A file is missing.
        StoreError: (an OSError) A store still fails after several retries.
    """
    records = sum(split.records for split in manifest.splits.values())
    size = sum(split.bytes for split in manifest.splits.values())
    most = min(most, _MOST_VALUES // max(1, len(manifest.schema)))
    share = min(1.0, most / max(1, records), _MOST_BYTES / max(1, size))
    # One of each split at least: a small split is not left out.
    seen = {
        name: min(split.records, max(1, int(share * split.records)))
        for name, split in manifest.splits.items()
    }
    each = rows_each(manifest.schema, sum(seen.values())) if has_details else {}
    return {name: _sample(directory, manifest, name, count, each) for name, count in seen.items()}


def _sample(
    directory: str, manifest: Manifest, name: str, most: int, each: Mapping[str, int]
) -> SplitSample:
    features = Features.of(manifest)
    split, label, kinds = manifest.splits[name], manifest.counted_label, features.kinds
    key = features.named("key")
    schema = manifest.schema.select(
        tuple(f for f in manifest.schema if each or f in (*kinds, label, key))
    )

    def visitor(records: Iterator[tuple[int, Record]]) -> _Window:
        return _looked_at(records, kinds, key, DetailsCollector(schema, kinds, each))

    windows = visit(directory, f"{name}[:{most}]", schema, visitor) if most and schema else []
    kept = [window for window in windows if window.numbers]
    numbers = np.array([number for window in kept for number in window.numbers], np.int64)
    columns = {f: [window.columns[f] for window in kept] for f in kinds}
    measures = {f: _joined([found.measures for found in columns[f]]) for f in kinds}
    return SplitSample(
        split,
        len(numbers),
        numbers,
        most - len(numbers) if windows else 0,
        measures,
        {f: np.array([d for c in columns[f] for d in c.digests], np.uint64) for f in kinds},
        {
            f: Sketches.joined([found.sketches for found in columns[f] if found.sketches])
            for f, kind in kinds.items()
            if kept and kind in LIKENESS
        },
        measures[label].get("mean", np.empty(0)).astype(np.int64) if label else None,
        tuple(key for window in kept for key in window.keys),
        joined_details([window.details for window in kept]) if each and kept else None,
    )


class _Column(NamedTuple):
    """What is kept of a feature in a window of records; sketches of those that can be compared."""

    measures: Measures
    digests: tuple[int, ...]
    sketches: Sketches | None


class _Window(NamedTuple):
    """What is kept of a window of records."""

    numbers: list[int]
    keys: list[str]
    columns: dict[str, _Column]
    details: Details


def _looked_at(
    records: Iterator[tuple[int, Record]],
    kinds: Mapping[str, str],
    key: str,
    collector: DetailsCollector,
) -> _Window:
    """Looks at records one after another, and keeps their numbers, but none of their values."""
    numbers, keys = list[int](), list[str]()
    rows: dict[str, list[tuple[dict[str, float], int, Any]]] = {name: [] for name in kinds}
    for number, record in records:
        numbers.append(number)
        if key:
            keys.append(record[key].decode("utf-8", "replace"))
        for name, kind in kinds.items():
            value = record[name]
            compared = _compared(kind, value) if kind in LIKENESS else None
            rows[name].append((_measured(kind, value), _digest(value), compared))
        collector.add(record, number)
    columns = {name: _column(kinds[name], found) for name, found in rows.items() if found}
    return _Window(numbers, keys, columns, collector.details())


def _column(kind: str, rows: list[tuple[dict[str, float], int, Any]]) -> _Column:
    measures, digests, compared = zip(*rows, strict=True)
    sketches = _sketches(kind, compared) if kind in LIKENESS else None
    return _Column(_columns(measures), digests, sketches)


def _compared(kind: str, value: Any) -> Any:
    """A text, a list of a signal, or the sketch of a picture, whose pixels take too much memory to be kept."""
    if kind == "text":
        return value.decode("utf-8", "replace")
    array = np.asarray(value)
    # Sketches of bfloat16 are those of float32.
    array = array if array.dtype.kind in "biuf" else array.astype(np.float32)
    return LIKENESS[kind].sketch([array]) if kind == "picture" else [array]


def _sketches(kind: str, compared: Sequence[Any]) -> Sketches:
    return Sketches.joined(compared) if kind == "picture" else LIKENESS[kind].sketch(compared)


def _measured(kind: str, value: Any) -> dict[str, float]:
    if value is UNDECODABLE:
        return {"undecodable": 1.0}
    if kind == "text":
        return measure_text(value)
    if isinstance(value, np.generic):
        return measure_number(float(value))
    array = np.asarray(value)
    if not array.size:
        return {"size": 0}
    with np.errstate(all="ignore"):  # Sums of the largest floats are infinite.
        return _MEASURES[kind](array)


def _digest(value: Any) -> int:
    """64 bits of a hash of a value: of its bytes, and of the shape of an array; 0 of an empty value."""
    if (isinstance(value, bytes) and not value.strip()) or not np.size(value):
        return 0
    shape = b"" if isinstance(value, bytes) else repr(np.shape(value)).encode()
    found = hashlib.blake2b(shape + b"|", digest_size=8)
    # Without a copy, because a value may be as large as memory allows.
    found.update(value if isinstance(value, bytes) else _bytes_of(np.asarray(value)))
    return int.from_bytes(found.digest(), "little")


def _bytes_of(array: np.ndarray) -> memoryview:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


def _joined(parts: list[Measures]) -> Measures:
    """The measures of runs of records as those of all of them; NaN where a run has none of a name."""
    names = dict.fromkeys(name for part in parts for name in part)
    lengths = [len(next(iter(part.values()), ())) for part in parts]
    return {
        name: np.concatenate(
            [part.get(name, np.full(n, np.nan)) for part, n in zip(parts, lengths, strict=True)]
        )
        for name in names
    }


def _columns(rows: Sequence[dict[str, float]]) -> Measures:
    """The measures of all records as columns; NaN where a record has none of a name."""
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: np.array([row.get(name, np.nan) for row in rows], np.float64) for name in names}


@dataclass(frozen=True)
class Details:
    """What was found in some records, by feature.

    Attributes:
        values: Shapes and values of each feature.
        channels: The channels of each signal.
        words: The words of each text.
    """

    values: Mapping[str, Values]
    channels: Mapping[str, Channels]
    words: Mapping[str, Words]


class DetailsCollector:
    """Collects details from records one after another.

    Args:
        schema: The features.
        kinds: Feature -> its kind, as `kinds_of` names it.
        each: Feature -> how many rows of values to draw of each record; empty to collect nothing.
    """

    def __init__(self, schema: Schema, kinds: Mapping[str, str], each: Mapping[str, int]) -> None:
        self._values = {name: Collector(schema[name], rows) for name, rows in each.items()}
        self._channels = {
            name: Channels(_channels(schema[name].shape))
            for name in each
            if kinds.get(name) == "signal"
        }
        self._words = {name: Words() for name in each if kinds.get(name) == "text"}

    def add(self, record: Mapping[str, Any], number: int) -> None:
        """Adds a record."""
        for name, collector in self._values.items():
            collector.add(record[name], number)
        with np.errstate(all="ignore"):  # Squares of the largest floats are infinite.
            for name, channels in self._channels.items():
                channels.add(record[name])
        for name, words in self._words.items():
            words.add(record[name])

    def details(self) -> Details:
        """What was collected."""
        values = {name: collector.values() for name, collector in self._values.items()}
        words = {name: each.pruned() for name, each in self._words.items()}
        return Details(values, self._channels, words)


def joined_details(parts: Sequence[Details]) -> Details:
    """The details of runs of records, at least one, as those of all of them."""
    first, *others = parts
    return Details(
        {name: joined([part.values[name] for part in parts]) for name in first.values},
        {
            name: channels.merge([part.channels[name] for part in others])
            for name, channels in first.channels.items()
        },
        {name: merged(part.words[name] for part in parts) for name in first.words},
    )


def _channels(shape: tuple[int | None, ...]) -> int:
    """The channels of a signal that are looked at; those of an unknown number are one each in the first records."""
    return min(MOST_CHANNELS, shape[1] or 1) if len(shape) == 2 else 1
