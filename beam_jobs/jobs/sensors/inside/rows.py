"""Files whose rows are records: each array is cut along its first axis."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from beam_jobs.errors import RejectError
from beam_jobs.jobs.sensors.recording import Recording
from beam_jobs.jobs.sensors.signals import NanPolicy, fill_missing
from beam_jobs.jobs.sensors.values import prepare_array
from beam_jobs.records.rejects import Reject
from beam_jobs.sources.source import Source


class RowPart(NamedTuple):
    """A row of a file.

    Attributes:
        source: Its key, its columns, and why it cannot become a record.
        recording: All rows, without a rate.
        arrays: The arrays of all rows.
        number: The row, from 0.
        size: Roughly how many bytes it takes in its shard.
    """

    source: Source
    recording: Recording
    arrays: dict[str, np.ndarray]
    number: int
    size: int
    labels: None = None
    rejects: tuple[Reject, ...] = ()

    @property
    def place(self) -> str:
        return self.source.key

    def planned(self) -> list[tuple[str, int]]:
        return [(self.source.key, self.size)]

    def records(self) -> Iterator[tuple[str, dict[str, Any]]]:
        number = self.number
        yield self.source.key, {name: array[number] for name, array in self.arrays.items()}


def rows_of(
    recording: Recording, nan: NanPolicy, dtype: str
) -> tuple[dict[str, np.ndarray], dict[int, str]]:
    """Returns the arrays [rows, ...] in their dtype, and why some rows cannot become records.

    Args:
        recording: Its arrays and columns must have as many rows.
        nan: Treatment of NaN and infinite values, in each row by itself.
        dtype: The dtype to convert to; "" keeps those of the arrays.

    Raises:
        RejectError: an array has no rows or another number of them, or cannot be stored.
    """
    _check_rows(recording)
    arrays: dict[str, np.ndarray] = {}
    errors: dict[int, str] = {}
    for name, array in recording.arrays.items():
        try:
            kept = np.ascontiguousarray(prepare_array(array, dtype).reshape(array.shape))
        except RejectError as error:
            raise RejectError(f"{name}: {error}; choose arrays with --arrays") from None
        arrays[name], bad = _fill_rows(kept, nan)
        for row, reason in bad.items():
            errors.setdefault(row, f"{name}: {reason}")
    return arrays, errors


def _check_rows(recording: Recording) -> None:
    lengths = {n: len(array) if array.ndim else None for n, array in recording.arrays.items()}
    lengths |= {name: len(column.codes) for name, column in recording.columns.items()}
    (first, rows), *others = lengths.items()
    for name, found in ((first, rows), *others):
        if found is None:
            raise RejectError(
                f"array {name!r} is a single number and has no rows; choose arrays with --arrays"
            )
        if found != rows:
            raise RejectError(
                f"{first!r} has {rows} rows, {name!r} {found}: --record row cuts arrays of one "
                "length; choose them with --arrays"
            )
    if not rows:
        raise RejectError("it has no rows")


def _fill_rows(array: np.ndarray, nan: NanPolicy) -> tuple[np.ndarray, dict[int, str]]:
    """Returns the array with `fill_missing` applied to each row, and the errors of some rows."""
    if nan == "keep" or array.dtype.kind not in "fc":
        return array, {}
    good = np.isfinite(array).all(tuple(range(1, array.ndim)))
    errors = {}
    filled = array if good.all() else array.copy()
    for row in np.flatnonzero(~good).tolist():
        try:
            filled[row] = fill_missing(np.atleast_1d(array[row]), nan).reshape(array.shape[1:])
        except RejectError as error:
            errors[row] = str(error)
    return filled, errors
