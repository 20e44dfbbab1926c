"""A sample of a dataset: for each record the numbers that describe it, its digest, label and key.

The records of a split are in the order of hashes of their keys, so its first records are a sample that
depends on nothing but the keys, and are read as one range of bytes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from readers.describe import counted_label
from readers.format.manifest import Manifest
from readers.format.similarity.levels import reduced
from readers.format.similarity.pictures import hash_and_luma
from readers.format.similarity.texts import SIGNATURE_SIZE, text_signatures
from readers.format.splits import Split
from readers.measures.arrays import measure_array, measure_number, measure_signal
from readers.measures.details import Details, DetailsCollector, joined_details
from readers.measures.kinds import KEY, kinds_of
from readers.measures.pictures import measure_picture
from readers.measures.signals import signal_portraits, signal_sketch
from readers.measures.texts import measure_text
from readers.measures.values import rows_each
from readers.measures.visits import Undecodable, Visited, visit

# Bytes of all samples of a dataset as they are stored; and what visiting them may cost, in bytes of decoded arrays.
_MOST_BYTES, _MOST_COST = 2 << 30, 8 << 30

_NO_PIXELS = np.zeros((0, 0, 3), np.uint8)
_NO_LUMA = np.zeros((16, 16), np.float32)

Measures = dict[str, np.ndarray]


@dataclass(frozen=True)
class SplitSample:
    """The first records of a split.

    Attributes:
        split: The split.
        seen: The number of records in the sample.
        numbers: Their numbers in the split, int64 [seen].
        too_large: How many records before the last of them were left out because they are too large.
        measures: Feature -> name of a number -> its values, float64 [seen].
        digests: Feature -> digests of its values, uint64 [seen]; equal values have equal ones, and empty
            arrays and texts 0.
        hashes: Picture or signal -> hashes that near duplicates share, uint64 [seen]; 0 of one that has none, which
            `hashed` tells.
        hashed: Picture or signal -> whether it has such a hash, bool [seen].
        portraits: Signal -> what is compared of signals with near hashes, int8 [seen, 129].
        lumas: Picture -> 16 x 16 levels of luma, float32 [seen, 16, 16].
        signatures: Text -> MinHash signatures, uint16 [seen, size]; zeros of a text without characters.
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
    hashes: Mapping[str, np.ndarray]
    hashed: Mapping[str, np.ndarray]
    lumas: Mapping[str, np.ndarray]
    portraits: Mapping[str, np.ndarray]
    signatures: Mapping[str, np.ndarray]
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

    Together they are `most` records; fewer if these have more than 2 GiB, or if visiting them costs more than
    8 GiB of decoded arrays do (`visits.py`).

    Args:
        directory: The dataset's directory.
        manifest: Its manifest.
        most: The number of records.
        has_details: Whether to collect what a report shows.

    Raises:
        CorruptRecordError: (a ValueError) The checksum of a record is wrong.
        DatasetError: (a ValueError) A shard differs from the manifest.
        FileNotFoundError: A file is missing.
        StoreError: (an OSError) A store still fails after several retries.
    """
    records = sum(split.records for split in manifest.splits.values())
    size = sum(split.bytes for split in manifest.splits.values())
    share = min(1.0, most / max(1, records), _MOST_BYTES / max(1, size))
    # One of each split at least: a small split is not left out.
    seen = {
        name: min(split.records, max(1, int(share * split.records)))
        for name, split in manifest.splits.items()
    }
    each = rows_each(manifest.schema, sum(seen.values())) if has_details else {}
    return {
        name: _sample(
            directory,
            manifest,
            name,
            seen[name],
            _MOST_COST * count / max(1, sum(seen.values())),
            each,
        )
        for name, count in seen.items()
    }


def _sample(
    directory: str,
    manifest: Manifest,
    name: str,
    most: int,
    cost: float,
    each: Mapping[str, int],
) -> SplitSample:
    split, label = manifest.splits[name], counted_label(manifest)
    kinds = kinds_of(manifest)
    wanted = [f for f in manifest.schema if each or f in (*kinds, label, KEY)]

    def visitor(numbers: list[int], records: Iterator[Mapping[str, Any]]) -> _Kept:
        collector = DetailsCollector(manifest.schema, kinds, each) if each else None
        rows = list[_Row]()
        texts = {feature: list[str]() for feature, kind in kinds.items() if kind == "text"}
        for found in records:
            broken = [name for name, value in found.items() if isinstance(value, Undecodable)]
            record = {**found, **dict.fromkeys(broken, _NO_PIXELS)}
            rows.append(_row(record, kinds, broken))
            for feature, several in texts.items():
                several.append(record[feature].decode("utf-8", "replace"))
            if collector:
                collector.add(record, numbers[-1])
        return _Kept(
            rows,
            {feature: _columns([row.measures.pop(feature) for row in rows]) for feature in kinds},
            {feature: text_signatures(several)[0] for feature, several in texts.items()},
            collector.details() if collector else None,
        )

    if most and wanted:
        visited = visit(directory, f"{name}[:{most}]", wanted, cost, visitor)
    else:
        visited = Visited([], [], 0)
    rows = [row for kept in visited.kept for row in kept.rows]
    details = [kept.details for kept in visited.kept if kept.details]
    keys = tuple(row.key.decode("utf-8", "replace") for row in rows if isinstance(row.key, bytes))
    pictures, signals = (
        [feature for feature, found in kinds.items() if found == kind]
        for kind in ("picture", "signal")
    )
    hashed = [*pictures, *signals]
    texts = [feature for feature, kind in kinds.items() if kind == "text"]
    measures = {f: _joined([kept.measures[f] for kept in visited.kept]) for f in kinds}
    return SplitSample(
        split,
        len(visited.numbers),
        np.array(visited.numbers, np.int64),
        visited.too_large,
        measures,
        {f: np.array([row.digests[f] for row in rows], np.uint64) for f in kinds},
        {f: np.array([row.hashes[f] or 0 for row in rows], np.uint64) for f in hashed},
        {f: np.array([row.hashes[f] is not None for row in rows], bool) for f in hashed},
        {
            f: np.array([row.lumas[f] for row in rows], np.float32).reshape(-1, 16, 16)
            for f in pictures
        },
        {f: signal_portraits([row.portraits[f] for row in rows]) for f in signals},
        {f: _signatures([kept.signatures[f] for kept in visited.kept]) for f in texts},
        measures[label].get("mean", np.empty(0)).astype(np.int64) if label else None,
        keys,
        joined_details(details) if details else None,
    )


class _Row(NamedTuple):
    """What is kept of a record; `measures` is empty once they are columns of its run."""

    measures: dict[str, dict[str, float]]
    digests: dict[str, int]
    hashes: dict[str, int | None]
    lumas: dict[str, np.ndarray]
    portraits: dict[str, np.ndarray | None]
    key: bytes | None


class _Kept(NamedTuple):
    """What is kept of a run of records."""

    rows: list[_Row]
    measures: dict[str, Measures]
    signatures: dict[str, np.ndarray]
    details: Details | None


def _row(record: Mapping[str, Any], kinds: Mapping[str, str], broken: list[str]) -> _Row:
    pictures = {
        feature: hash_and_luma(reduced(record[feature]))
        if record[feature].size
        else (None, _NO_LUMA)
        for feature, kind in kinds.items()
        if kind == "picture"
    }
    signals = {f: signal_sketch(record[f]) for f, kind in kinds.items() if kind == "signal"}
    return _Row(
        {f: _measured(kind, record[f]) for f, kind in kinds.items()}
        | {feature: {"undecodable": 1.0} for feature in broken},
        {feature: _digest(record[feature]) for feature in kinds},
        {feature: found for feature, (found, _) in pictures.items()}
        | {feature: sketch.hash if sketch else None for feature, sketch in signals.items()},
        {feature: luma for feature, (_, luma) in pictures.items()},
        {feature: sketch.portrait if sketch else None for feature, sketch in signals.items()},
        record.get(KEY),
    )


def _signatures(parts: list[np.ndarray]) -> np.ndarray:
    return np.concatenate([*parts, np.empty((0, SIGNATURE_SIZE), np.uint16)])


def _measured(kind: str, value: Any) -> dict[str, float]:
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


def _columns(rows: list[dict[str, float]]) -> Measures:
    """The measures of all records as columns; NaN where a record has none of a name."""
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: np.array([row.get(name, np.nan) for row in rows], np.float64) for name in names}
