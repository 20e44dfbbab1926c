"""A sample of a dataset: for each record the numbers that describe it, its digest, label and key.

The records of a split are in the order of hashes of their keys, so its first records are a sample that
depends on nothing but the keys, and are read as one range of bytes.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from readers.describe import counted_label
from readers.format.manifest import Manifest
from readers.format.splits import Split
from readers.measures.arrays import measure_array, measure_signal
from readers.measures.kinds import KEY, kinds_of
from readers.measures.pictures import measure_picture
from readers.measures.reading import SampleReader, Undecodable
from readers.measures.signals import signal_portraits, signal_sketch
from readers.measures.texts import measure_text
from readers.similarity.levels import reduced
from readers.similarity.pictures import picture_hash, small_luma
from readers.similarity.texts import SIGNATURE_SIZE, text_signatures

# Read at a time, unless a record is larger: of encoded pictures, the pixels are ten times as many bytes.
_BATCH_BYTES = 4 << 20

# Bytes of all samples of a dataset.
_MOST_BYTES = 2 << 30

_NO_PIXELS = np.zeros((0, 0, 3), np.uint8)
_NO_LUMA = np.zeros((16, 16), np.float32)

Measures = dict[str, np.ndarray]


@dataclass(frozen=True)
class SplitSample:
    """The first records of a split.

    Attributes:
        split: The split.
        seen: The number of records in the sample.
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
    """

    split: Split
    seen: int
    measures: Mapping[str, Measures]
    digests: Mapping[str, np.ndarray]
    hashes: Mapping[str, np.ndarray]
    hashed: Mapping[str, np.ndarray]
    lumas: Mapping[str, np.ndarray]
    portraits: Mapping[str, np.ndarray]
    signatures: Mapping[str, np.ndarray]
    labels: np.ndarray | None
    keys: tuple[str, ...]

    def named(self, number: int) -> str:
        """The name by which a user finds a record: its key, or its number."""
        return self.keys[number] if self.keys else f"record {number}"


_MEASURES: dict[str, Callable[[Any], dict[str, float]]] = {
    "picture": measure_picture,
    "text": measure_text,
    "signal": measure_signal,
    "floats": measure_array,
    "integers": measure_array,
}


def sample_of(directory: str, manifest: Manifest, most: int) -> dict[str, SplitSample]:
    """The samples of all splits by name: together `most` records or 2 GiB, shared by their sizes.

    Args:
        directory: The dataset's directory.
        manifest: Its manifest.
        most: The number of records.

    Raises:
        CorruptRecordError: (a ValueError) The checksum of a record is wrong.
        DatasetError: (a ValueError) A shard differs from the manifest.
        FileNotFoundError: A file is missing.
        StoreError: (an OSError) A store still fails after several retries.
    """
    records = sum(split.records for split in manifest.splits.values())
    size = sum(split.bytes for split in manifest.splits.values())
    share = min(1.0, most / max(1, records), _MOST_BYTES / max(1, size))
    samples = {}
    for name, split in manifest.splits.items():
        # One of each split at least: a small split is not left out.
        seen = min(split.records, max(1, int(share * split.records)))
        samples[name] = _sample(directory, manifest, name, seen)
    return samples


def _sample(directory: str, manifest: Manifest, name: str, seen: int) -> SplitSample:
    split, label = manifest.splits[name], counted_label(manifest)
    kinds = kinds_of(manifest)
    wanted = [feature for feature in manifest.schema if feature in (*kinds, label, KEY)]
    rows = (
        _rows(directory, split, f"{name}[:{seen}]", seen, wanted, kinds) if seen and wanted else []
    )
    keys = tuple(row.key.decode("utf-8", "replace") for row in rows if isinstance(row.key, bytes))
    pictures, signals = (
        [feature for feature, kind in kinds.items() if kind == wanted]
        for wanted in ("picture", "signal")
    )
    hashed = [*pictures, *signals]
    texts = [feature for feature, kind in kinds.items() if kind == "text"]
    numbers = [row.measures[label]["mean"] for row in rows] if label else []
    return SplitSample(
        split,
        seen,
        {feature: _columns([row.measures[feature] for row in rows]) for feature in kinds},
        {f: np.array([row.digests[f] for row in rows], np.uint64) for f in kinds},
        {f: np.array([row.hashes[f] or 0 for row in rows], np.uint64) for f in hashed},
        {f: np.array([row.hashes[f] is not None for row in rows], bool) for f in hashed},
        {
            f: np.array([row.lumas[f] for row in rows], np.float32).reshape(-1, 16, 16)
            for f in pictures
        },
        {f: signal_portraits([row.portraits[f] for row in rows]) for f in signals},
        {f: _signatures([row.signatures[f] for row in rows]) for f in texts},
        np.array(numbers, np.int64) if label else None,
        keys,
    )


class _Row(NamedTuple):
    """What is kept of a record."""

    measures: dict[str, dict[str, float]]
    digests: dict[str, int]
    hashes: dict[str, int | None]
    lumas: dict[str, np.ndarray]
    portraits: dict[str, np.ndarray | None]
    signatures: dict[str, np.ndarray]
    key: bytes | None


def _rows(
    directory: str,
    split: Split,
    part: str,
    seen: int,
    columns: list[str],
    kinds: Mapping[str, str],
) -> list[_Row]:
    """What is kept of each record of a part of a split, which is read and measured by a thread a core."""
    pictures = [feature for feature, kind in kinds.items() if kind == "picture"]
    reader = SampleReader(directory, part, columns, pictures)
    at_once = max(1, _BATCH_BYTES * split.records // max(1, split.bytes))

    def rows(start: int) -> list[_Row]:
        records = reader.read(range(start, min(seen, start + at_once)))
        signatures = {
            feature: text_signatures(
                [record[feature].decode("utf-8", "replace") for record in records]
            )[0]
            for feature, kind in kinds.items()
            if kind == "text"
        }
        return [
            _row(record, kinds, {f: s[i] for f, s in signatures.items()})
            for i, record in enumerate(records)
        ]

    with ThreadPoolExecutor(os.cpu_count()) as threads:
        return [row for several in threads.map(rows, range(0, seen, at_once)) for row in several]


def _row(
    record: Mapping[str, Any], kinds: Mapping[str, str], signatures: dict[str, np.ndarray]
) -> _Row:
    broken = [feature for feature in kinds if isinstance(record[feature], Undecodable)]
    record = {**record, **dict.fromkeys(broken, _NO_PIXELS)}
    pictures = {f: reduced(record[f]) for f, kind in kinds.items() if kind == "picture"}
    signals = {f: signal_sketch(record[f]) for f, kind in kinds.items() if kind == "signal"}
    return _Row(
        {f: _measured(kind, record[f]) for f, kind in kinds.items()}
        | {feature: {"undecodable": 1.0} for feature in broken},
        {feature: _digest(record[feature]) for feature in kinds},
        {
            feature: picture_hash(pixels) if pixels.size else None
            for feature, pixels in pictures.items()
        }
        | {feature: sketch.hash if sketch else None for feature, sketch in signals.items()},
        {
            feature: small_luma(pixels) if pixels.size else _NO_LUMA
            for feature, pixels in pictures.items()
        },
        {feature: sketch.portrait if sketch else None for feature, sketch in signals.items()},
        signatures,
        record.get(KEY),
    )


def _signatures(rows: list[np.ndarray]) -> np.ndarray:
    return np.array(rows, np.uint16).reshape(len(rows), SIGNATURE_SIZE)


def _measured(kind: str, value: Any) -> dict[str, float]:
    if kind == "text":
        return measure_text(value)
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
    data = value if isinstance(value, bytes) else np.ascontiguousarray(value).tobytes()
    found = hashlib.blake2b(shape + b"|" + data, digest_size=8)
    return int.from_bytes(found.digest(), "little")


def _columns(rows: list[dict[str, float]]) -> Measures:
    """The measures of all records as columns; NaN where a record has none of a name."""
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: np.array([row.get(name, np.nan) for row in rows], np.float64) for name in names}
