"""A split as it is stored: which records readers see or a condition chooses, the hashes of keys, frames and values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from readers.files.files import Range
from readers.files.of_path import files_of, read_file
from readers.format.compiled.library import address, intact
from readers.format.decode.batches import ColumnDecoder
from readers.format.decode.column import FeatureColumn
from readers.format.index import HASH, HASH_LOW, OFFSET
from readers.format.lookup.index_file import IndexFile, joined_sections, sections_of
from readers.format.lookup.rows import SeenRows, unpack_rows
from readers.format.lookup.where import Where
from readers.format.manifest import DatasetError, Manifest, join
from readers.format.schema import Schema
from readers.format.splits import Split
from readers.format.tfrecord import CorruptRecordError

# Records that are read at a time, and the bytes between two of them that are read as well, rather than separately.
_TOGETHER, _GAP_BYTES = 128, 64 << 10


class StoredFrames(NamedTuple):
    """Some stored records: `data`, uint8 [m], in which frames begin and end, int64 [n], and sections of the index."""

    data: np.ndarray
    starts: np.ndarray
    stops: np.ndarray
    columns: dict[str, np.ndarray]


@dataclass(frozen=True)
class StoredSplit:
    """The stored records of a split, each with its number among them, its row.

    Its methods raise FileNotFoundError if a file is missing, and DatasetError (a ValueError) if an index or a list of rows
    is damaged. A family names its own shards, "" those of the split.

    Attributes:
        directory: The dataset.
        manifest: That of one of its generations.
        split: A split in that.
    """

    directory: str
    manifest: Manifest
    split: Split

    @property
    def seen(self) -> SeenRows | None:
        """The rows that readers see; None for all."""
        listed = self.split.gone or self.split.rows
        if listed is None:
            return None
        path = join(self.directory, listed.path)
        try:
            rows = unpack_rows(read_file(path), listed, self.split.stored)
        except FileNotFoundError:
            raise FileNotFoundError(
                f"{path}: the manifest lists these rows, but they are missing"
            ) from None
        except ValueError as error:
            raise DatasetError(
                f"{path}: {error}; copy it again from where it was written"
            ) from None
        return SeenRows(self.split.stored, rows, self.split.gone is not None)

    def flags(self) -> np.ndarray:
        """Whether readers see each record, bool [stored]."""
        seen = self.seen
        flags = np.full(self.split.stored, seen is None or seen.are_gone)
        if seen is not None:
            flags[seen.listed] = not seen.are_gone
        return flags

    def indexes(self, family: str = "") -> list[IndexFile]:
        """The indexes of the shards of a family."""
        return [IndexFile.of(self.directory, shard) for shard in self.split.shards_of(family)]

    def sections(self, names: Sequence[str]) -> Iterator[dict[str, np.ndarray]]:
        """Yields some sections of the index of each shard, as `sections_of`."""
        return sections_of(self.indexes(), names)

    def hashes(self) -> np.ndarray:
        """The hash of the key of each record, uint64 [stored]."""
        found = [np.empty(0, np.uint64)]
        for columns in self.sections([HASH, HASH_LOW]):
            found.append(columns[HASH].astype(np.uint64) << np.uint64(32) | columns[HASH_LOW])
        return np.concatenate(found)

    def sizes(self, family: str) -> np.ndarray:
        """The size of each record in the shards of a family, in bytes, int64 [stored]."""
        offsets = sections_of(self.indexes(family), [OFFSET])
        found = [np.diff(columns[OFFSET].astype(np.int64)) for columns in offsets]
        return np.concatenate([np.empty(0, np.int64), *found])

    def seen_hashes(self) -> np.ndarray:
        """Those of the records that readers see, uint64 [n]."""
        return self.hashes()[self.flags()]

    def rows_where(self, where: Where) -> np.ndarray:
        """The rows that readers see and that fulfil a condition, int64 [n]."""
        features = self.manifest.features_of.items()
        files = ((names, self.indexes(family)) for family, names in features)
        found = map(where, joined_sections(files, where.sections))
        return np.flatnonzero(np.concatenate([np.empty(0, bool), *found]) & self.flags())

    def frames(
        self, rows: np.ndarray, family: str = "", names: Sequence[str] = ()
    ) -> Iterator[StoredFrames]:
        """Yields some records of a family with sections of their indexes; other arguments and errors as for `columns`."""
        shards, indexes = self.split.shards_of(family), self.indexes(family)
        first = np.cumsum([0, *(shard.records for shard in shards)])
        parts = np.split(rows, rows.searchsorted(first[1:]))
        some = [number for number in range(len(shards)) if len(parts[number])]
        read = sections_of([indexes[number] for number in some], [OFFSET, *names])
        for number, columns in zip(some, read, strict=True):
            path, of_shard = indexes[number].file, parts[number] - first[number]
            for numbers in np.split(of_shard, range(_TOGETHER, len(of_shard), _TOGETHER)):
                starts, stops = columns[OFFSET][[numbers, numbers + 1]].astype(np.int64)
                gaps = np.flatnonzero(starts[1:] - stops[:-1] > _GAP_BYTES) + 1
                begins, ends = starts[np.append(0, gaps)], stops[np.append(gaps, 0) - 1]
                # From places in the file to places in the data.
                moves = np.cumsum(ends - begins) - ends
                moved = np.repeat(moves, np.diff([0, *gaps, len(numbers)]))
                starts, stops = starts + moved, stops + moved
                data = _read(path, begins, ends)
                if (
                    len(data) != stops[-1]
                    or not intact(address(data) + starts, stops - starts).all()
                ):
                    raise CorruptRecordError(
                        f"{path}: damaged; beam-shards verify names the record"
                    )
                yield StoredFrames(
                    data, starts, stops, {name: columns[name][numbers] for name in names}
                )

    def columns(
        self, rows: np.ndarray, schema: Schema, family: str = ""
    ) -> Iterator[dict[str, FeatureColumn]]:
        """Yields the column of each feature of some records, in several parts.

        Args:
            rows: int64 [n], ascending.
            schema: The features to read.
            family: The family that has them.

        Raises:
            CorruptRecordError: (a ValueError) A record is damaged.
        """
        decoder = ColumnDecoder(schema)
        for data, starts, stops, _ in self.frames(rows, family):
            found, errors, _ = decoder.decode(data, starts, stops)
            if errors:
                raise CorruptRecordError(f"{self.directory}: {min(errors.values())}")
            yield found


def stored_splits(directory: str, manifest: Manifest) -> dict[str, StoredSplit]:
    """The splits of a generation."""
    return {
        name: StoredSplit(directory, manifest, split) for name, split in manifest.splits.items()
    }


def _read(path: str, begins: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """The bytes of a shard from some places, int64 [n], to before others, one after another."""
    places = zip(begins.tolist(), ends.tolist(), strict=True)
    try:
        pieces = files_of(path).read_ranges([Range(path, *place) for place in places])
        return np.frombuffer(b"".join(pieces), np.uint8)
    except FileNotFoundError:
        message = "the manifest lists this shard, but it is missing; copy it again"
        raise DatasetError(f"{path}: {message}") from None
