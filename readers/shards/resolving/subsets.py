"""Makes the plan for some records of a dataset."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from readers.format.lookup.index_file import joined_sections
from readers.format.lookup.where import Where
from readers.shards.plan import Plan
from readers.shards.rows import Rows

# Names of sections -> the arrays of each part of a plan, for all records of its file.
ReadSections = Callable[[tuple[str, ...]], Sequence[dict[str, np.ndarray]]]


def subset(plan: Plan, rows: Rows, read: ReadSections) -> Plan:
    """The plan for some records of another plan, in its order; ValueError if `rows` does not suit it."""
    if rows.where is None:
        return plan.of(_numbers(rows, plan))
    classes = {name: meaning.get("classes", ()) for name, meaning in plan.meanings.items()}
    where = Where(rows.where, plan.stored, classes)
    fulfilled = [np.empty(0, bool)]
    for part, columns in zip(plan.parts, read(tuple(where.sections)), strict=True):
        run = slice(part.skip, part.skip + part.take)
        fulfilled.append(where({name: column[run] for name, column in columns.items()}))
    stored = np.flatnonzero(np.concatenate(fulfilled))
    if plan.rows is None:
        return plan.of(stored)
    numbers = plan.rows.numbers_of(stored)
    return plan.of(numbers[numbers >= 0])


def section_reader(plan: Plan) -> ReadSections:
    """Reads sections of the indexes of a plan; the arrays are in maps of these files."""
    known = dict[tuple[str, ...], Sequence[dict[str, np.ndarray]]]()

    def read(names: tuple[str, ...]) -> Sequence[dict[str, np.ndarray]]:
        if names not in known:
            files = ((each.stored, [part.index for part in each.parts]) for each in plan.files)
            known[names] = joined_sections(files, names)
        return known[names]

    return read


def _numbers(given: Rows, plan: Plan) -> np.ndarray:
    """The numbers of the records, int64 [n], ascending."""
    rows = np.asarray(given.rows)
    if rows.ndim != 1 or (rows.dtype.kind not in "iu" and rows.size):
        raise ValueError(
            f"Rows of {given.path}: expected a list of row numbers, got {rows.dtype} {rows.shape}"
        )
    numbers = np.sort(rows.astype(np.int64))
    if numbers.size and not 0 <= numbers[0] <= numbers[-1] < plan.records:
        raise ValueError(
            f"Rows of {given.path}: rows from {numbers[0]} to {numbers[-1]}, but {plan.name} has {plan.records} records"
        )
    if twice := np.flatnonzero(numbers[1:] == numbers[:-1]).tolist():
        raise ValueError(
            f"Rows of {given.path}: row {numbers[twice[0]]} occurs twice; weigh datasets with readers.Mix"
        )
    return numbers
