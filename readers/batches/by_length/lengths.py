"""The lengths of records: from the indexes of their files, or from the records, which are decoded once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from readers.batches.collate import lengths_of
from readers.files.kept import kept
from readers.files.of_path import files_of
from readers.format.index import LENGTH, Index
from readers.format.schema import Schema
from readers.shards.plan import Part, Plan
from readers.shards.records import Records

_LENGTH = np.dtype("<u4")

# Records of a file without lengths that are decoded together.
_TOGETHER = 4096


class Lengths:
    """The lengths of records: the size of the first unknown dimension of some features, up to its limit.

    If an index lacks them, all records are decoded. Raises CorruptRecordError if a record is damaged, and
    ValueError if one does not fit the schema.
    """

    def __init__(
        self, records: Records, features: Sequence[str], limits: Sequence[int | None]
    ) -> None:
        self._features, largest = features, np.iinfo(_LENGTH).max
        self._limits = np.array([largest if n is None else n for n in limits], np.int64)
        # Feature -> a function of the numbers of records.
        self._lengths = dict[str, Callable[[np.ndarray], np.ndarray]]()
        for files in records.files:
            names = [name for name in features if name in files.plan.stored]
            shards = files.shards
            if all(shards.has_section(LENGTH + name, _LENGTH) for name in names):
                for name in names:
                    self._lengths[name] = partial(shards.section, LENGTH + name, _LENGTH)
                continue
            parts = [_decoded(records, part, names) for part in files.plan.parts]
            decoded = np.concatenate([np.empty((0, len(names)), _LENGTH), *parts])
            rows = records.plan.rows
            decoded = decoded[rows.of(np.arange(len(rows)))] if rows is not None else decoded
            for name, column in zip(names, decoded.T, strict=True):
                self._lengths[name] = column.__getitem__

    def of(self, numbers: np.ndarray) -> np.ndarray:
        """The lengths of the records with some numbers, int64 [k, features]."""
        columns = [self._lengths[name](numbers) for name in self._features]
        return np.minimum(np.stack(columns, axis=1), self._limits)


def _decoded(records: Records, part: Part, features: Sequence[str]) -> np.ndarray:
    """The lengths of the records of a part, uint32 [take, features], from a kept file that covers the whole file."""
    schema = records.plan.stored.select(tuple(features))
    key = "lengths", part.path, files_of(part.path).stat(part.path).version, schema.to_json()
    with kept(key, lambda: _index_of(records, part, schema).to_bytes()) as file:
        sections = Index.of_bytes(file.read(), f"{part.path}, its lengths").sections
    found = np.stack([sections[LENGTH + name] for name in features], axis=1)
    return found[part.skip :][: part.take]


def _index_of(records: Records, part: Part, schema: Schema) -> Index:
    """Makes an index of a part's file with the lengths of features.

    A damaged record that is skipped has the lengths of the next one.
    """
    total = part.total or 0
    plan = Plan("all", schema, (part.whole(),), total, records.plan.record_bytes, ())
    whole = records.of_plan(plan)
    found = np.zeros((total, len(schema)), _LENGTH)
    for first in range(0, total, _TOGETHER):
        numbers = np.arange(first, min(first + _TOGETHER, total))

        def following(row: int, begin: int, end: int, after: int = first + 1) -> np.ndarray:
            return (after + row + np.arange(begin, end)) % total

        (columns,) = whole.batches(numbers, (0, len(numbers)), following)
        for place, (name, feature) in enumerate(schema.items()):
            found[numbers, place] = lengths_of(feature, columns[name]).reshape(len(numbers), -1)[
                :, 0
            ]
    sections = {LENGTH + name: found[:, place] for place, name in enumerate(schema)}
    return Index(np.diff(part.index.read_offsets()), sections)
