"""Which stored records of a split a reader sees or a condition chooses, and the values in some of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from readers.files.files import Range
from readers.files.of_path import files_of
from readers.format.decode.batches import ColumnDecoder
from readers.format.index import OFFSET
from readers.format.lookup.sections import sections
from readers.format.lookup.seen import seen_rows
from readers.format.lookup.where import Where
from readers.format.manifest import join
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


def flags_where(directory: str, split: Split, where: Where) -> np.ndarray:
    """Whether each stored record of a split fulfils a condition, bool [stored]; errors as for `sections`."""
    found = map(where, sections(directory, split.shards, where.sections))
    return np.concatenate([np.empty(0, bool), *found])


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
    ends = rows.searchsorted(starts)
    numbers = np.flatnonzero(np.diff(ends)).tolist()
    read = sections(directory, [shards[number] for number in numbers], [OFFSET])
    for number, columns in zip(numbers, read, strict=True):
        path = join(directory, shards[number].path)
        of_shard = rows[ends[number] : ends[number + 1]] - starts[number]
        for some in np.split(of_shard, range(_TOGETHER, len(of_shard), _TOGETHER)):
            begins, stops = (columns[OFFSET][some + end].astype(np.int64) for end in (0, 1))
            places = zip(begins.tolist(), stops.tolist(), strict=True)
            ranges = [Range(path, *place) for place in places]
            data = np.frombuffer(b"".join(files_of(path).read_ranges(ranges)), np.uint8)
            lengths = stops - begins
            stops = np.cumsum(lengths)
            if len(data) != stops[-1] or not intact(data, lengths).all():
                raise CorruptRecordError(f"{path}: damaged; beam-shards verify names the record")
            decoded = decoder.decode(data, stops - lengths, stops)
            if decoded.errors:
                raise CorruptRecordError(f"{path}: {min(decoded.errors.values())}")
            yield {name: column.arrays() for name, column in decoded.columns.items()}
