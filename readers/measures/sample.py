"""A sample of a dataset: the measures, digest, sketch, label and key of each record.

The records of a split are stored in the order of hashes of their keys, so its first records are a random sample, always the
same, and are read as one range of bytes. They are decoded one by one, in windows of a few MiB, so that they fit memory.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass
from threading import Lock
from typing import Any

import numpy as np

from readers.files.processors import processors
from readers.format.decode.images import EncodedImage, pixels_of
from readers.format.features import Features, undecoded
from readers.format.manifest import Manifest
from readers.format.schema import Feature, Schema
from readers.format.similarity.likeness import DEFAULTS, Likeness, Sketches
from readers.measures.arrays import measure_array, measure_number, measure_signal
from readers.measures.pictures import measure_picture
from readers.measures.texts import measure_text
from readers.shards.resolve import resolve
from readers.source import RecordSource

# The most bytes of all samples of a dataset, as stored, and values of features: a table may have thousands of columns.
_MOST_BYTES, _MOST_VALUES = 2 << 30, 1 << 22

# Bytes of a window, unless a single record is larger. Windows larger than the second limit are read one at a time.
_WINDOW, _LARGE_WINDOW = 4 << 20, 32 << 20

# Records that are larger, as stored or with the decoded pixels of a picture, are left out.
LARGEST = 256 << 20

# So are records with larger texts: several bytes of memory are used per character.
_LARGEST_TEXT = 32 << 20

# Stands for the pixels of a picture that cannot be decoded.
_UNDECODABLE = np.zeros((0, 0, 3), np.uint8)

# Kind of a feature -> the criterion for near duplicates.
LIKENESS = {
    "picture": Likeness("picture", DEFAULTS["picture"]),
    "text": Likeness("text", DEFAULTS["text"]),
    "signal": Likeness("recording", DEFAULTS["recording"]),
}

Measures = dict[str, np.ndarray]
Record = Mapping[str, Any]


@dataclass(frozen=True)
class SplitSample:
    """The first records of a split that are not too large: their numbers in the split, int64 [seen], and keys, if stored.

    By feature: measures, float64 [seen]; digests, uint64 [seen], equal for equal values and 0 for empty ones;
    sketches to find near duplicates with, unless no record was seen; and the count of each named class. `labels`
    is int64 [seen]; None unless each record has a single label.
    """

    numbers: np.ndarray
    measures: Mapping[str, Measures]
    digests: Mapping[str, np.ndarray]
    sketches: Mapping[str, Sketches]
    keys: tuple[str, ...]
    classes: Mapping[str, Counter[int]]
    labels: np.ndarray | None = None
    too_large: int = 0

    @property
    def seen(self) -> int:
        """The number of records in the sample."""
        return len(self.numbers)

    def named(self, number: int) -> str:
        """The name by which a user can find a sampled record: its key, or its number in the split."""
        place = int(np.searchsorted(self.numbers, number))
        return self.keys[place] if self.keys else f"record {number}"


def sample_of(directory: str, manifest: Manifest, most: int) -> dict[str, SplitSample]:
    """The samples of all splits, proportional to their sizes: `most` records, but at most 2 GiB and four million values of features.

    Raises CorruptRecordError or DatasetError (each a ValueError) for a damaged shard, or one that differs from the manifest;
    FileNotFoundError; StoreError if a store still fails after several retries.
    """
    splits = manifest.splits.items()
    size = sum(split.bytes for _, split in splits)
    most = min(most, _MOST_VALUES // max(1, len(manifest.schema)))
    records = sum(split.records for _, split in splits)
    share = min(1.0, most / max(1, records), _MOST_BYTES / max(1, size))
    # At least one record of each split, however small.
    counts = {name: min(s.records, max(1, int(share * s.records))) for name, s in splits}
    return {name: _sample(directory, manifest, name, count) for name, count in counts.items()}


def _sample(directory: str, manifest: Manifest, name: str, most: int) -> SplitSample:
    features, label = Features.of(manifest), manifest.counted_label
    kinds = features.kinds
    used = [f for f in manifest.schema if f in (*kinds, label, features.named("key"))]
    schema, windows = manifest.schema.select(tuple(used)), list[SplitSample]()
    if most and schema:
        windows = _visited(directory, f"{name}[:{most}]", schema, features)
    kept = [window for window in windows if window.seen]
    numbers = np.concatenate([np.empty(0, np.int64), *(window.numbers for window in kept)])
    measures = {f: _joined([window.measures[f] for window in kept]) for f in kinds}
    none = np.empty(0, np.uint64)
    return SplitSample(
        numbers,
        measures,
        {f: np.concatenate([none, *(window.digests[f] for window in kept)]) for f in kinds},
        {
            f: Sketches.joined([window.sketches[f] for window in kept])
            for f in features.of_kind(*LIKENESS)
            if kept
        },
        tuple(key for window in kept for key in window.keys),
        {f: sum((w.classes[f] for w in kept), Counter()) for f in _with_classes(features)},
        measures[label].get("mean", np.empty(0)).astype(np.int64) if label else None,
        most - len(numbers) if windows else 0,
    )


def _with_classes(features: Features) -> list[str]:
    """The integer features with named classes."""
    names = [name for name in features.classes if name in features.kinds]
    return [name for name in names if "int" in features.schema[name].dtype]


def _window(features: Features, records: Iterable[tuple[int, Record]]) -> SplitSample:
    """The sample of some records, without labels; their texts and signals are kept until all are measured."""
    numbers, keys, key = list[int](), list[str](), features.named("key")
    classes = {name: Counter[int]() for name in _with_classes(features)}
    rows = defaultdict[str, list[tuple[dict[str, float], int, Any]]](list)
    for number, record in records:
        numbers.append(number)
        if key:
            keys.append(record[key].decode("utf-8", "replace"))
        for name, kind in features.kinds.items():
            value = record[name]
            compared: Any = None
            if kind == "picture":  # Its pixels take too much memory to keep.
                compared = LIKENESS[kind].sketch([np.asarray(value)])
            elif kind == "text":
                compared = value.decode("utf-8", "replace")
            elif kind == "signal":
                compared = [np.asarray(value)]
            if name in classes:
                ids, counts = np.unique(value, return_counts=True)
                classes[name].update(dict(zip(ids.tolist(), counts.tolist(), strict=True)))
            rows[name].append((_measured(kind, value), _digest(value), compared))
    measures, digests, sketches = dict[str, Measures](), {}, {}
    for name, found in rows.items():
        measured, of_values, several = zip(*found, strict=True)
        names = dict.fromkeys(measure for row in measured for measure in row)
        measures[name] = {
            m: np.array([row.get(m, np.nan) for row in measured], np.float64) for m in names
        }
        digests[name] = np.array(of_values, np.uint64)
        kind = features.kinds[name]
        if kind in LIKENESS:
            join = Sketches.joined if kind == "picture" else LIKENESS[kind].sketch
            sketches[name] = join(several)
    arrays = np.array(numbers, np.int64), measures, digests, sketches
    return SplitSample(*arrays, tuple(keys), classes)


def _visited(directory: str, part: str, schema: Schema, features: Features) -> list[SplitSample]:
    """The windows of records of part of a split, such as `train[:100]`, in order."""
    plan = resolve(directory, part, schema, None)
    lengths = np.zeros(sum(plan.takes), np.int64)
    for files in plan.files:
        sizes = [
            np.diff(part.index.read_offsets())[part.skip :][: part.take] for part in files.parts
        ]
        lengths += np.concatenate([*sizes, np.empty(0, np.int64)])
    lengths = lengths[plan.rows.of(np.arange(plan.records))] if plan.rows is not None else lengths
    source, large = RecordSource(directory, part, schema=undecoded(schema)), Lock()

    def decoded(numbers: range) -> Iterator[tuple[int, Record]]:
        if lengths[numbers].sum() > LARGEST:
            return
        for number, stored in zip(numbers, source.__getitems__(numbers), strict=True):
            record = _decoded(stored, schema)
            if record is not None:
                yield number, record

    def visited(numbers: range) -> SplitSample:
        with large if lengths[numbers].sum() > _LARGE_WINDOW else nullcontext():
            return _window(features, decoded(numbers))

    with ThreadPoolExecutor(processors()) as threads:
        return list(threads.map(visited, _windows(lengths)))


def _windows(lengths: np.ndarray) -> Iterator[range]:
    """The numbers of the records to read together."""
    ends = np.cumsum(lengths)
    start = 0
    while start < len(ends):
        before = ends[start - 1] if start else 0
        stop = max(start + 1, int(np.searchsorted(ends, before + _WINDOW, side="right")))
        yield range(start, stop)
        start = stop


def _decoded(stored: Record, schema: Schema) -> Record | None:
    """A record with the pixels of its pictures; None if it is too large when decoded."""
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
    """The pixels of a picture, or of a list of pictures; None if they take more than `LARGEST`."""
    several = encoded if feature.step else [encoded]
    try:
        images = [EncodedImage(name, feature.step or feature, data) for data in several]
        size = sum(image.dtype.itemsize * math.prod(image.shape) for image in images)
        return pixels_of(name, feature, encoded) if size <= LARGEST else None
    except ValueError:
        return _UNDECODABLE


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
    with np.errstate(all="ignore"):  # Sums of very large floats are infinite.
        measure = {"picture": measure_picture, "signal": measure_signal}.get(kind, measure_array)
        return measure(array)


def _digest(value: Any) -> int:
    """A 64-bit hash of a value: of its bytes, and the shape of an array; 0 for an empty value."""
    if (isinstance(value, bytes) and not value.strip()) or not np.size(value):
        return 0
    if isinstance(value, bytes):
        shape, data = b"", memoryview(value)
    else:
        # Without a copy, because a value may take most of the memory.
        shape = repr(np.shape(value)).encode()
        data = np.ascontiguousarray(value).reshape(-1).view(np.uint8).data
    found = hashlib.blake2b(shape + b"|", digest_size=8)
    found.update(data)
    return int.from_bytes(found.digest(), "little")


def _joined(parts: Sequence[Measures]) -> Measures:
    """Joins the measures of runs of records, with NaN where a run lacks one."""
    names = dict.fromkeys(name for part in parts for name in part)
    missing = [np.full(len(next(iter(part.values()))), np.nan) for part in parts]
    pairs = list(zip(parts, missing, strict=True))
    return {name: np.concatenate([part.get(name, nan) for part, nan in pairs]) for name in names}
