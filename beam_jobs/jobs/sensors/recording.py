"""A recording: its arrays, and the other values in its file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal, NamedTuple

import numpy as np

from beam_jobs.errors import RejectError
from beam_jobs.packages import require
from beam_jobs.sources.labels import label_text
from readers.format.encodings.spec import format_shape

TimesPolicy = Literal["strict", "drop_duplicates", "sort"]

# The times of an array's samples, float64 [time] in seconds, or its samples per second.
Clock = np.ndarray | float

_NOTHING: Mapping[str, Any] = {}  # A MappingProxyType could not be pickled.

# The cures of times that do not increase, and what these do to a recording.
_REPEATED = "--times drop_duplicates drops the rows that repeat a time, unless the times are too coarse, such as float32"
_FALLING = "--times sort sorts the rows by time, and drops those that repeat one"


class Column(NamedTuple):
    """A value for each sample of a recording, or for each row of a file.

    Attributes:
        values: The different values as Python objects.
        codes: int64 [time], the place of each sample's value in `values`.
    """

    values: list[Any]
    codes: np.ndarray

    @classmethod
    def of(cls, name: str, array: np.ndarray) -> Column:
        """The column of an array [time] or [time, 1] of numbers or text.

        Raises:
            RejectError: The array has another shape or other values.
        """
        if not array.ndim or array.size != len(array) or array.dtype.kind not in "biufSUO":
            raise RejectError(
                f"array {name!r} is {array.dtype} {format_shape(array.shape)}: expected one number "
                "or text for each sample or row"
            )
        values, codes = np.unique(array.reshape(-1), return_inverse=True)
        return cls([plain_value(name, value) for value in values.tolist()], codes.reshape(-1))

    @classmethod
    def of_cells(cls, cells: list[Any]) -> Column:
        """The column of Arrow arrays of text or numbers.

        Raises:
            RejectError: The list of arrays is empty.
        """
        if not cells:
            raise RejectError("it has no rows")
        column = require("pyarrow", "beam", "tables").chunked_array(cells)
        encoded = column.dictionary_encode().unify_dictionaries().combine_chunks()
        values = [*encoded.dictionary.to_pylist(), None]
        codes = encoded.indices.fill_null(len(values) - 1)
        return cls(values, codes.to_numpy(zero_copy_only=False).astype(np.int64))

    def of_rows(self) -> list[Any]:
        """The value of each row."""
        return list(map(self.values.__getitem__, self.codes.tolist()))

    def single(self, name: str) -> Any:
        """The only value, without missing ones; None if all are missing.

        Raises:
            RejectError: The column has several values.
        """
        values = [self.values[code] for code in np.unique(self.codes).tolist()]
        values = [value for value in values if not is_missing(value)]
        if len(values) > 1:
            raise RejectError(
                f"{name!r} has {len(values)} different values, such as {values[0]!r:.40} and "
                f"{values[1]!r:.40}, expected one per recording; cut it into labelled windows with --window, "
                f"or at these values with --recording_column {name}"
            )
        return values[0] if values else None

    def groups(self) -> Iterator[tuple[str, str, np.ndarray]]:
        """Yields (text of a value, error, its rows) for each value, in the order of first rows.

        The error is empty if the value can name a recording. Rows are int64 and ascending.
        """
        without = np.array([is_missing(value) for value in self.values])
        codes = np.where(without[self.codes], -1, self.codes)
        order = np.argsort(codes, kind="stable")
        codes, starts = np.unique(codes[order], return_index=True)
        groups = zip(codes.tolist(), np.split(order, starts[1:]), strict=True)
        for code, rows in sorted(groups, key=lambda group: group[1][0]):
            if code < 0:
                yield "", f"{len(rows)} rows do not state their recording", rows
                continue
            try:
                yield label_text(self.values[code]), "", rows
            except RejectError as error:
                yield str(self.values[code]), str(error), rows


class Recording(NamedTuple):
    """The contents of a recording file.

    Attributes:
        arrays: Name -> [time, ...] in the file's dtype; the only array of a file is called `signal`.
        rate: Samples per second, if the file states it.
        times: float64 [time], seconds on the file's own clock, if a time column was asked for.
        notes: Remarks for the owner of the file, such as columns that were left out.
        columns: Those of `ReadOptions.own_columns` that have a value for each sample.
        metadata: Those of `ReadOptions.own_columns` that have one value.
        dtype: The dtype of records without --dtype, if the file states none.
        clocks: Name -> the clock of an array that was joined from a separate file.
        channels: Name -> the names of the channels of an array [time, channels], if the file states them.
        units: Name -> the unit of each channel, "" if unknown.
        array: The name in the file of the only array, `signal`; "" if it has none.

    Example:
        >>> def read(data, options):  # --reader MODULE:read
        ...     return Recording({"signal": np.frombuffer(data, ">i2")[:, None]}, rate=500.0)
        >>> read(bytes(8), ReadOptions()).arrays["signal"].shape
        (4, 1)
    """

    arrays: dict[str, np.ndarray]
    rate: float | None = None
    times: np.ndarray | None = None
    notes: tuple[str, ...] = ()
    columns: Mapping[str, Column] = _NOTHING
    metadata: Mapping[str, Any] = _NOTHING
    dtype: str = ""
    clocks: Mapping[str, Clock | None] = _NOTHING
    channels: Mapping[str, tuple[str, ...]] = _NOTHING
    units: Mapping[str, tuple[str, ...]] = _NOTHING
    array: str = ""

    def clock(self, name: str) -> Clock | None:
        """The clock of an array; None if neither times nor a rate are stated."""
        return self.clocks.get(name, self.rate if self.times is None else self.times)

    def check_columns(self) -> None:
        """Checks that the columns have a value for each sample of the arrays.

        Raises:
            RejectError: An array has more or fewer samples.
        """
        for name, column in self.columns.items():
            for array, values in self.arrays.items():
                if not values.ndim or len(values) != len(column.codes):
                    raise RejectError(
                        f"{name!r} has {len(column.codes)} values, which is not the length of {array!r}; "
                        "choose arrays with --arrays"
                    )

    def take(self, rows: np.ndarray) -> Recording:
        """The recording of some of its samples.

        Args:
            rows: int64 [n], their numbers.

        Raises:
            RejectError: An array has more or fewer samples than the columns.
        """
        self.check_columns()
        return self._replace(
            arrays={name: array[rows] for name, array in self.arrays.items()},
            times=None if self.times is None else self.times[rows],
            columns={n: c._replace(codes=c.codes[rows]) for n, c in self.columns.items()},
        )

    def in_order(self, policy: TimesPolicy) -> Recording:
        """The recording with its samples in the order of their times, as the policy states.

        Raises:
            RejectError: A time is missing or infinite, or the policy does not allow their order.
        """
        times = self.times
        if times is None:
            return self
        if not np.isfinite(times).all():
            row = int(np.argmin(np.isfinite(times)))
            raise RejectError(f"row {row + 1}: time {times[row]} is not finite")
        rows = np.argsort(times, kind="stable") if policy == "sort" else np.arange(len(times))
        times = times[rows]
        steps = np.diff(times, prepend=-np.inf)
        wrong = steps <= 0 if policy == "strict" else steps < 0
        if wrong.any():
            row = int(np.argmax(wrong))
            cure = _REPEATED if steps[row] == 0 else _FALLING
            raise RejectError(
                f"row {row + 1}: time {times[row]} s does not come after {times[row - 1]} s; {cure}"
            )
        rows = rows[steps > 0]
        if len(rows) == len(steps):
            return self.take(rows) if policy == "sort" else self
        dropped = f"some of its rows repeat a time, and were dropped (--times {policy})"
        return self.take(rows)._replace(notes=(*self.notes, dropped))


def plain_value(name: str, value: Any) -> Any:
    """A value of an array as a Python object; bytes are text in UTF-8."""
    if not isinstance(value, bytes):
        return value
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise RejectError(f"{name!r} holds {value!r:.40}, expected text in UTF-8") from None


def is_missing(value: Any) -> bool:
    """Whether a value is null, empty text or NaN."""
    return value is None or value == "" or value != value
