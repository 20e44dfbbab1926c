"""Which stored records of a split a reader sees or a condition chooses, and the values in some of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from readers.files.files import Range
from readers.files.of_path import files_of
from readers.format.compiled.library import address, intact
from readers.format.decode.batches import ColumnDecoder
from readers.format.index import HASH, HASH_LOW, OFFSET
from readers.format.lookup.index_file import IndexFile
from readers.format.lookup.sections import joined_sections, sections
from readers.format.lookup.seen import seen_rows
from readers.format.lookup.where import Where
from readers.format.manifest import DatasetError, Manifest, join
from readers.format.schema import Schema
from readers.format.splits import Shard, Split
from readers.format.tfrecord import CorruptRecordError

# Records that are read at a time, and the bytes between two of them that are read as well, rather than separately.
_TOGETHER, _GAP_BYTES = 128, 64 << 10


def seen_flags(directory: str, split: Split) -> np.ndarray:
    """Whether readers see each stored record of a split, bool [stored]; errors as for `seen_rows`."""
    seen = seen_rows(directory, split)
    flags = np.full(split.stored, seen is None or seen.are_gone)
    if seen is not None:
        flags[seen.listed] = not seen.are_gone
    return flags


def rows_where(directory: str, manifest: Manifest, split: Split, where: Where) -> np.ndarray:
    """The rows of a split that readers see and that fulfil a condition, int64 [n]; errors as for `sections`."""
    files = (
        (names, [IndexFile.of(directory, shard) for shard in split.shards_of(family)])
        for family, names in manifest.features_of.items()
    )
    found = map(where, joined_sections(files, [*where.sections]))
    flags = np.concatenate([np.empty(0, bool), *found])
    return np.flatnonzero(flags & seen_flags(directory, split))


def hashes_of(directory: str, split: Split) -> np.ndarray:
    """The hash of the key of each stored record of a split, uint64 [n]; errors as for `sections`."""
    found = [np.empty(0, np.uint64)]
    for columns in sections(directory, split.shards, [HASH, HASH_LOW]):
        found.append(columns[HASH].astype(np.uint64) << np.uint64(32) | columns[HASH_LOW])
    return np.concatenate(found)


class StoredFrames(NamedTuple):
    """Some stored records: `data`, uint8 [m], in which frames begin and end, int64 [n], and sections of the index."""

    data: np.ndarray
    starts: np.ndarray
    stops: np.ndarray
    columns: dict[str, np.ndarray]


def stored_frames(
    directory: str, shards: Sequence[Shard], rows: np.ndarray, names: Sequence[str] = ()
) -> Iterator[StoredFrames]:
    """Yields some records with sections of the index, in several parts; other arguments and errors as for `stored_values`."""
    first = np.cumsum([0, *(shard.records for shard in shards)])
    parts = np.split(rows, rows.searchsorted(first[1:]))
    some = [
        (shard, part - start)
        for shard, part, start in zip(shards, parts, first, strict=False)
        if len(part)
    ]
    read = sections(directory, [shard for shard, _ in some], [OFFSET, *names])
    for (shard, of_shard), columns in zip(some, read, strict=True):
        path = join(directory, shard.path)
        for numbers in np.split(of_shard, range(_TOGETHER, len(of_shard), _TOGETHER)):
            starts, stops = columns[OFFSET][[numbers, numbers + 1]].astype(np.int64)
            gaps = np.flatnonzero(starts[1:] - stops[:-1] > _GAP_BYTES) + 1
            begins, ends = starts[np.append(0, gaps)], stops[np.append(gaps, 0) - 1]
            places = zip(begins.tolist(), ends.tolist(), strict=True)
            ranges = [Range(path, *place) for place in places]
            try:
                data = np.frombuffer(b"".join(files_of(path).read_ranges(ranges)), np.uint8)
            except FileNotFoundError:
                message = "the manifest lists this shard, but it is missing; copy it again"
                raise DatasetError(f"{path}: {message}") from None
            # From places in the file to places in the data.
            moves = np.cumsum(ends - begins) - ends
            moved = np.repeat(moves, np.diff([0, *gaps, len(numbers)]))
            starts, stops = starts + moved, stops + moved
            if len(data) != stops[-1] or not intact(address(data) + starts, stops - starts).all():
                raise CorruptRecordError(f"{path}: damaged; beam-shards verify names the record")
            yield StoredFrames(
                data, starts, stops, {name: columns[name][numbers] for name in names}
            )


def stored_values(
    directory: str, shards: Sequence[Shard], schema: Schema, rows: np.ndarray
) -> Iterator[dict[str, list[Any]]]:
    """Yields the values of each feature of some records, in several parts.

    Args:
        directory: The dataset.
        shards: All shards of a split, or of a family of it.
        schema: The features to read.
        rows: int64 [n], ascending.

    Raises:
        FileNotFoundError: A file is missing.
        CorruptRecordError: (a ValueError) A record is damaged.
        DatasetError: (a ValueError) An index is damaged.
    """
    decoder = ColumnDecoder(schema)
    for data, starts, stops, _ in stored_frames(directory, shards, rows):
        found, errors, _ = decoder.decode(data, starts, stops)
        if errors:
            raise CorruptRecordError(f"{directory}: {min(errors.values())}")
        yield {name: column.arrays() for name, column in found.items()}
