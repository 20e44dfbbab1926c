"""Makes the plan for some records of a dataset."""

from __future__ import annotations

import numpy as np

from readers.shards.plan import Plan
from readers.shards.rows import Rows


def subset(plan: Plan, rows: Rows) -> Plan:
    """The plan for some records of another plan, in its order; ValueError if `rows` does not suit it."""
    numbers = _numbers(rows, plan)
    return plan.of(numbers)


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
