"""Which stored records of a split a reader sees or a condition chooses, and the values in some of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from readers.files.files import Range
from readers.files.of_path import files_of
from readers.format.decode.batches import ColumnDecoder
from readers.format.index import OFFSET
from readers.format.lookup.index_file import IndexFile
from readers.format.lookup.sections import joined_sections, sections
from readers.format.lookup.seen import seen_rows
from readers.format.lookup.where import Where
from readers.format.manifest import Manifest, join
from readers.format.schema import Schema
from readers.format.splits import Shard, Split
from readers.format.tfrecord import CorruptRecordError, intact

# Records that are read together.
_TOGETHER = 128


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
    decoder, starts = ColumnDecoder(schema), np.cumsum([0, *(shard.records for shard in shards)])
    parts = np.split(rows, rows.searchsorted(starts[1:]))
    some = [
        (shard, part - start)
        for shard, part, start in zip(shards, parts, starts, strict=False)
        if len(part)
    ]
    read = sections(directory, [shard for shard, _ in some], [OFFSET])
    for (shard, of_shard), columns in zip(some, read, strict=True):
        path = join(directory, shard.path)
        for numbers in np.split(of_shard, range(_TOGETHER, len(of_shard), _TOGETHER)):
            places = columns[OFFSET][[numbers, numbers + 1]].astype(np.int64)
            ranges = [Range(path, start, stop) for start, stop in places.T.tolist()]
            data = np.frombuffer(b"".join(files_of(path).read_ranges(ranges)), np.uint8)
            lengths = places[1] - places[0]
            stops = np.cumsum(lengths)
            if len(data) != stops[-1] or not intact(data, lengths).all():
                raise CorruptRecordError(f"{path}: damaged; beam-shards verify names the record")
            found, errors, _ = decoder.decode(data, stops - lengths, stops)
            if errors:
                raise CorruptRecordError(f"{path}: {min(errors.values())}")
            yield {name: column.arrays() for name, column in found.items()}
