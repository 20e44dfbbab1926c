"""A recording, the options for reading one, and the checks that all formats share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

from beam_jobs.errors import RejectError
from beam_jobs.jobs.sensors.inside.columns import Column
from beam_jobs.storage.encodings import UTF8
from beam_jobs.storage.limits import DEFAULT_RECORD_BYTES
from readers.format.schema import is_feature_name

# Text states no dtype; models take this one.
TEXT_DTYPE = "float32"

TimeUnit = Literal["s", "ms", "us", "ns"]

TimesPolicy = Literal["strict", "drop_duplicates", "sort"]


_NOTHING: Mapping[str, Any] = {}  # A MappingProxyType could not be pickled.


class Recording(NamedTuple):
    """The contents of a recording file.

    Attributes:
        arrays: Name -> [time, ...] in the file's dtype; the only array of a file is called `signal`.
        rate: Samples per second, if the file states it.
        times: float64 [time], seconds on the file's own clock, if a time column was asked for.
        notes: Remarks for the owner of the file, such as columns that were left out.
        columns: Those of `ReadOptions.inside` that have a value for each sample.
        metadata: Those of `ReadOptions.inside` that have one value.
        dtype: The dtype of records without --dtype, if the file states none.
    """

    arrays: dict[str, np.ndarray]
    rate: float | None = None
    times: np.ndarray | None = None
    notes: tuple[str, ...] = ()
    columns: Mapping[str, Column] = _NOTHING
    metadata: Mapping[str, Any] = _NOTHING
    dtype: str = ""

    @property
    def clocks(self) -> dict[str, np.ndarray | float]:
        """The times of the samples of each array, if they are known."""
        return {} if self.times is None else dict.fromkeys(self.arrays, self.times)

    def check_columns(self) -> None:
        """Checks that the columns have a value for each sample of the arrays.

        Raises:
            RejectError: an array has more or fewer samples.
        """
        for name, column in self.columns.items():
            for array, values in self.arrays.items():
                if not values.ndim or len(values) != len(column.codes):
                    raise RejectError(
                        f"{name!r} has {len(column.codes)} values, which the first axis of {array!r} "
                        "does not have; choose arrays with --arrays"
                    )

    def take(self, rows: np.ndarray) -> Recording:
        """Returns the recording of some of its samples.

        Args:
            rows: int64 [n], their numbers.

        Raises:
            RejectError: an array has more or fewer samples than the columns.
        """
        self.check_columns()
        return self._replace(
            arrays={name: array[rows] for name, array in self.arrays.items()},
            times=None if self.times is None else self.times[rows],
            columns={
                name: column._replace(codes=column.codes[rows])
                for name, column in self.columns.items()
            },
        )

    def in_order(self, policy: TimesPolicy) -> Recording:
        """Returns the recording with its samples in the order of their times, as the policy states.

        Raises:
            RejectError: a time is missing or infinite, or the policy does not allow their order.
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
            cure = "drop_duplicates" if steps[row] == 0 else "sort"
            raise RejectError(
                f"row {row + 1}: time {times[row]} s does not come after {times[row - 1]} s; --times "
                f"{cure} accepts it"
            )
        rows = rows[steps > 0]
        unchanged = len(rows) == len(steps) and policy != "sort"
        return self if unchanged else self.take(rows)


@dataclass(frozen=True)
class ReadOptions:
    """How files are read; each format uses the options that apply to it.

    Attributes:
        arrays: The names of the arrays to read; all of them if empty.
        columns: The channels to read from tables, in this order; if empty, every column of a table of
            text, or every numeric column of one with dtypes, except those below, times and row
            numbers.
        drop_columns: Columns that every file has and that are no channels.
        metadata_columns: Columns that are no channels in the files that have them.
        time_column: The column of sample times; "" without one.
        time_unit: The unit of times that are plain numbers.
        times: "strict" rejects recordings whose times do not increase, "drop_duplicates" drops rows with
            the time of the row before, "sort" sorts rows by time first.
        delimiter: The character between the columns of tables of text; "" to recognise it.
        encoding: The encoding of tables of text, a name from `encoding_name`.
        float_audio: Whether integer samples of audio become float32 from -1 to 1.
        mono: Whether the channels of audio become one, their mean.
        inside: Columns and arrays that are no channels and no arrays of records, but state labels
            and other metadata.
        recording_column: The one of these that says which recording a row belongs to; "" if a file
            is one recording.
        max_bytes: The most bytes that the arrays of a file may take.
    """

    arrays: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    drop_columns: tuple[str, ...] = ()
    metadata_columns: tuple[str, ...] = ()
    time_column: str = ""
    time_unit: TimeUnit = "s"
    times: TimesPolicy = "strict"
    delimiter: str = ""
    encoding: str = UTF8
    float_audio: bool = False
    mono: bool = False
    inside: tuple[str, ...] = ()
    recording_column: str = ""
    max_bytes: int = DEFAULT_RECORD_BYTES


def choose_arrays(names: Iterable[str], options: ReadOptions) -> list[str]:
    """Returns `options.arrays`, or without it all names but `options.inside`.

    Raises:
        RejectError: the file lacks a wanted array.
    """
    names = [name for name in names if name not in options.inside]
    if missing := [name for name in options.arrays if name not in names]:
        raise RejectError(f"no array {missing[0]!r}: the file has {', '.join(names)}")
    return list(options.arrays) or names


def name_arrays(arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Returns the arrays of an archive by feature name: a single array becomes `signal`.

    Raises:
        RejectError: there is no array, or one has the name of another feature.
    """
    if not arrays:
        raise RejectError("the archive holds no array")
    if len(arrays) == 1:
        return {"signal": next(iter(arrays.values()))}
    for name in arrays:
        if not is_feature_name(name):
            raise RejectError(
                f"an array may not be called {name[:80]!r}: expected 1 to 255 characters, without \\ and "
                "control characters; choose others with --arrays"
            )
    if clash := arrays.keys() & {"key", "label"}:
        raise RejectError(f"an array may not be called {min(clash)!r}: choose with --arrays")
    return arrays


def single_signal(
    signal: np.ndarray,
    options: ReadOptions,
    rate: float | None = None,
    times: np.ndarray | None = None,
    notes: tuple[str, ...] = (),
    columns: Mapping[str, Column] = _NOTHING,
    dtype: str = "",
) -> Recording:
    """Returns the recording of a file whose format holds one array without a name.

    Raises:
        RejectError: an array other than `signal` is wanted.
    """
    choose_arrays(("signal",), options)
    return Recording({"signal": signal}, rate, times, notes, columns, dtype=dtype)
