"""The lengths of records by their numbers: from the indexes of their files, or found once by decoding them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from readers.batches.collate import lengths_of
from readers.files.kept import kept
from readers.files.of_path import files_of
from readers.format.index import LENGTH, Index
from readers.format.schema import Schema
from readers.shards.index import read_offsets
from readers.shards.plan import Part, Plan
from readers.shards.records import Records

_LENGTH = np.dtype("<u4")

# Records of a file without lengths that are decoded together.
_TOGETHER = 4096


class Lengths:
    """The lengths of the records of a plan.

    Args:
        records: The records.
        features: The features whose first unknown dimension is meant.
        limits: The largest length of each, to which longer values are cut; None for no limit.

    Raises:
        CorruptRecordError: (a ValueError) A file has no lengths in its index, and a record is damaged.
        ValueError: It has none, and a record does not fit the schema.
    """

    def __init__(
        self, records: Records, features: Sequence[str], limits: Sequence[int | None]
    ) -> None:
        self._records = records
        largest = np.iinfo(_LENGTH).max
        self._limits = np.array([largest if n is None else n for n in limits], np.int64)
        self._sections = [LENGTH + name for name in features]
        self._decoded: np.ndarray | None = None
        if not all(records.shards.has_section(section, _LENGTH) for section in self._sections):
            parts = [_decoded(records, part, features) for part in records.plan.parts]
            empty = np.empty((0, len(features)), _LENGTH)
            self._decoded = np.concatenate([empty, *parts])

    def of(self, numbers: np.ndarray) -> np.ndarray:
        """The lengths of the records of some numbers, int64 [k, features].

        Raises:
            DatasetError: (a ValueError) An index is damaged.
        """
        if self._decoded is not None:
            found = self._decoded[numbers]
        else:
            columns = [
                self._records.shards.section(name, _LENGTH, numbers) for name in self._sections
            ]
            found = np.stack(columns, axis=1)
        return np.minimum(found, self._limits)


def _decoded(records: Records, part: Part, features: Sequence[str]) -> np.ndarray:
    """The lengths of the records of a part, uint32 [take, features]; they are kept for the file as a whole."""
    schema = records.plan.stored.select(tuple(features))
    key = "lengths", part.path, files_of(part.path).stat(part.path).version, schema.to_json()
    with kept(key, lambda: _index_of(records, part, schema).to_bytes()) as file:
        sections = Index.of_bytes(file.read(), f"{part.path}, its lengths").sections
    found = np.stack([sections[LENGTH + name] for name in features], axis=1)
    return found[part.skip :][: part.take]


def _index_of(records: Records, part: Part, schema: Schema) -> Index:
    """The index of a part's file with the lengths of features; of a damaged record that is skipped it has that of the next one."""
    total = part.total or 0
    plan = Plan("all", schema, (part.whole(),), total, records.plan.record_bytes, ())
    whole = records.of_plan(plan)
    found = np.zeros((total, len(schema)), _LENGTH)
    for first in range(0, total, _TOGETHER):
        numbers = np.arange(first, min(first + _TOGETHER, total))

        def following(row: int, begin: int, end: int, after: int = first + 1) -> np.ndarray:
            return (after + row + np.arange(begin, end)) % total

        (columns,) = whole.batches(numbers, (0, len(numbers)), following)
        lengths = [lengths_of(feature, columns[name]) for name, feature in schema.items()]
        firsts = [each if each.ndim == 1 else each[:, 0] for each in lengths]
        found[numbers] = np.stack(firsts, axis=1)
    sections = {LENGTH + name: found[:, column] for column, name in enumerate(schema)}
    return Index(np.diff(read_offsets(part)), sections)
