"""A sample of a dataset: for each record the numbers that describe it, its digest, sketch, label and key.

The records of a split are in the order of hashes of their keys, so its first records are a sample that
depends on nothing but the keys, and are read as one range of bytes. They are decoded one by one in windows of a few
MiB, so that they fit memory.
"""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, field
from threading import Lock
from typing import Any

import numpy as np

from readers.files.processors import processors
from readers.format.decode.images import EncodedImage, pixels_of
from readers.format.features import Features, undecoded
from readers.format.manifest import Manifest
from readers.format.schema import Feature, Schema
from readers.format.similarity.likeness import DEFAULTS, Likeness, Sketches
from readers.format.splits import Split
from readers.measures.arrays import measure_array, measure_number, measure_signal
from readers.measures.pictures import measure_picture
from readers.measures.texts import measure_text
from readers.shards.index import read_offsets
from readers.shards.resolve import resolve
from readers.source import RecordSource

# Bytes of all samples of a dataset as they are stored, and values of features: a table may have thousands of columns.
_MOST_BYTES, _MOST_VALUES = 2 << 30, 1 << 22

# Bytes of a window, unless a record is larger. Windows of more than the second are visited one at a time.
_WINDOW, _LARGE_WINDOW = 4 << 20, 32 << 20

# Records that are larger, as they are stored or with the pixels of a picture, are left out.
LARGEST = 256 << 20

# Texts that are larger are, too: of each character, several bytes are in memory.
_LARGEST_TEXT = 32 << 20

# Stands for the pixels of a picture that cannot be decoded.
_UNDECODABLE = np.zeros((0, 0, 3), np.uint8)

# Kind of a feature -> when two of its values are near duplicates.
LIKENESS = {
    "picture": Likeness("picture", DEFAULTS["picture"]),
    "text": Likeness("text", DEFAULTS["text"]),
    "signal": Likeness("recording", DEFAULTS["recording"]),
}

_NONE = np.empty(0, np.uint64)

Measures = dict[str, np.ndarray]
Record = Mapping[str, Any]


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
        classes: Feature whose classes have names -> how often each occurs.
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
    classes: Mapping[str, Counter[int]] = field(default_factory=dict)

    def named(self, number: int) -> str:
        """The name by which a user finds a record of the sample: its key, or its number in the split."""
        place = int(np.searchsorted(self.numbers, number))
        return self.keys[place] if self.keys else f"record {number}"


def sample_of(directory: str, manifest: Manifest, most: int) -> dict[str, SplitSample]:
    """The samples of all splits by name, shared by their sizes.

    Together they are `most` records; fewer if these have more than 2 GiB, or more than four million values of features.

    Args:
        directory: The dataset's directory.
        manifest: Its manifest.
        most: How many records to look at.

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
    return {
        name: _sample(
            directory, manifest, name, min(split.records, max(1, int(share * split.records)))
        )
        for name, split in manifest.splits.items()
    }


def _sample(directory: str, manifest: Manifest, name: str, most: int) -> SplitSample:
    features, label = Features.of(manifest), manifest.counted_label
    key, kinds = features.named("key"), features.kinds
    names = [f for f in manifest.schema if f in (*kinds, label, key)]
    schema, windows = manifest.schema.select(tuple(names)), list[_Window]()
    if most and schema:
        part = f"{name}[:{most}]"
        windows = _visited(directory, part, schema, lambda: _Window(features))
    kept = [window for window in windows if window.numbers]
    numbers = np.array([number for window in kept for number in window.numbers], np.int64)
    measures = {f: _joined([window.measures[f] for window in kept]) for f in kinds}
    return SplitSample(
        manifest.splits[name],
        len(numbers),
        numbers,
        most - len(numbers) if windows else 0,
        measures,
        {f: np.concatenate([window.digests[f] for window in kept] or [_NONE]) for f in kinds},
        {
            f: Sketches.joined([window.sketches[f] for window in kept])
            for f, kind in kinds.items()
            if kept and kind in LIKENESS
        },
        measures[label].get("mean", np.empty(0)).astype(np.int64) if label else None,
        tuple(key for window in kept for key in window.keys),
        {f: sum((w.classes[f] for w in kept), Counter()) for f in _with_classes(features)},
    )


def _with_classes(features: Features) -> list[str]:
    """The features of whole numbers that have names of classes."""
    names = [name for name in features.classes if name in features.kinds]
    return [name for name in names if "int" in features.schema[name].dtype]


class _Window:
    """What is kept of a window of records of some features."""

    def __init__(self, features: Features) -> None:
        self._kinds, self._key = features.kinds, features.named("key")
        self.classes = {name: Counter[int]() for name in _with_classes(features)}
        self.numbers, self.keys = list[int](), list[str]()
        self.measures: dict[str, Measures] = {}
        self.digests: dict[str, np.ndarray] = {}
        self.sketches: dict[str, Sketches] = {}
        self._rows = defaultdict[str, list[tuple[dict[str, float], int, Any]]](list)

    def add(self, number: int, record: Record) -> None:
        """Looks at a record, and keeps none of its values but texts and signals until the end of the window."""
        self.numbers.append(number)
        if self._key:
            self.keys.append(record[self._key].decode("utf-8", "replace"))
        for name, kind in self._kinds.items():
            value = record[name]
            compared: Any = None
            if kind == "picture":  # Its pixels take too much memory to be kept.
                compared = LIKENESS[kind].sketch([np.asarray(value)])
            elif kind in LIKENESS:
                is_text = kind == "text"
                compared = value.decode("utf-8", "replace") if is_text else [np.asarray(value)]
            if name in self.classes:
                several = np.unique(value, return_counts=True) if np.ndim(value) else ([value], [1])
                for id_, count in zip(*several, strict=True):
                    self.classes[name][int(id_)] += int(count)
            self._rows[name].append((_measured(kind, value), _digest(value), compared))

    def finish(self) -> None:
        """Makes columns of what was found."""
        for name, rows in self._rows.items():
            measures, digests, compared = zip(*rows, strict=True)
            self.measures[name], self.digests[name] = (
                _columns(measures),
                np.array(digests, np.uint64),
            )
            kind = self._kinds[name]
            if kind in LIKENESS:
                join = Sketches.joined if kind == "picture" else LIKENESS[kind].sketch
                self.sketches[name] = join(compared)
        self._rows.clear()


def _visited(
    directory: str, part: str, schema: Schema, make: Callable[[], _Window]
) -> list[_Window]:
    """The windows of records of a part of a split, such as `train[:100]`, in their order.

    Raises:
        CorruptRecordError: (a ValueError) The checksum of a record is wrong.
        ValueError: A record does not fit the schema.
    """
    plan = resolve(directory, part, schema, None)
    offsets = [np.diff(read_offsets(part))[part.skip :][: part.take] for part in plan.parts]
    lengths = np.concatenate([*offsets, np.empty(0, np.int64)])
    source, large = RecordSource(directory, part, schema=undecoded(schema)), Lock()

    def visited(numbers: range) -> _Window:
        window, size = make(), int(lengths[numbers.start : numbers.stop].sum())
        with large if size > _LARGE_WINDOW else nullcontext():
            records = source.__getitems__(numbers) if size <= LARGEST else []
            for number, stored in zip(numbers, records, strict=False):
                record = _decoded(stored, schema)
                if record is not None:
                    window.add(number, record)
            window.finish()
        return window

    with ThreadPoolExecutor(processors()) as threads:
        return list(threads.map(visited, _windows(lengths)))


def _windows(lengths: np.ndarray) -> Iterator[range]:
    """The numbers of the records that are read together."""
    ends = np.cumsum(lengths)
    start = 0
    while start < len(ends):
        before = ends[start - 1] if start else 0
        stop = max(start + 1, int(np.searchsorted(ends, before + _WINDOW, side="right")))
        yield range(start, stop)
        start = stop


def _decoded(stored: Record, schema: Schema) -> Record | None:
    """A record with the pixels of its pictures; None if it is too large once it is decoded."""
    record = dict(stored)
    for name, value in stored.items():
        if schema[name].is_image:
            record[name] = _pixels(name, schema[name], value)
            if record[name] is None:
                return None
        elif isinstance(value, bytes) and len(value) > _LARGEST_TEXT:
            return None
    return record


def _pixels(name: str, feature: Feature, encoded: Any) -> Any:
    """The pixels of a picture, or of a list of pictures; None if they are larger than `LARGEST`."""
    several = encoded if feature.step else [encoded]
    try:
        images = [EncodedImage(name, feature.step or feature, data) for data in several]
        sizes = [
            image.dtype.itemsize * int(np.prod(image.shape, dtype=np.int64)) for image in images
        ]
        return pixels_of(name, feature, encoded) if sum(sizes) <= LARGEST else None
    except ValueError:
        return _UNDECODABLE


_MEASURES: dict[str, Callable[[Any], dict[str, float]]] = {
    "picture": measure_picture,
    "signal": measure_signal,
    "floats": measure_array,
    "integers": measure_array,
}


def _measured(kind: str, value: Any) -> dict[str, float]:
    if value is _UNDECODABLE:
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
    if isinstance(value, bytes):
        shape, data = b"", memoryview(value)
    else:
        # Without a copy, because a value may be as large as memory allows.
        shape = repr(np.shape(value)).encode()
        data = np.ascontiguousarray(value).reshape(-1).view(np.uint8).data
    found = hashlib.blake2b(shape + b"|", digest_size=8)
    found.update(data)
    return int.from_bytes(found.digest(), "little")


def _columns(rows: Sequence[dict[str, float]]) -> Measures:
    """The measures of all records as columns; NaN where a record has none of a name."""
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: np.array([row.get(name, np.nan) for row in rows], np.float64) for name in names}


def _joined(parts: Sequence[Measures]) -> Measures:
    """The measures of runs of records as those of all of them; NaN where a run has none of a name."""
    names = dict.fromkeys(name for part in parts for name in part)
    lengths = [len(next(iter(part.values()))) for part in parts]
    columns = {
        name: [part.get(name, np.full(n, np.nan)) for part, n in zip(parts, lengths, strict=True)]
        for name in names
    }
    return {name: np.concatenate(column) for name, column in columns.items()}
