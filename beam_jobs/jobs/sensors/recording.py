"""A recording, the options for reading one, and the checks that all formats share."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from beam_jobs.errors import RejectError
from readers.format.tfrecord import MAX_RECORD_BYTES

TimeUnit = Literal["s", "ms", "us", "ns"]

TimesPolicy = Literal["strict", "drop_duplicates", "sort"]


class Recording(NamedTuple):
    """The contents of a recording file.

    Attributes:
        arrays: Name -> [time, ...] in the file's dtype; the only array of a file is called `signal`.
        rate: Samples per second, if the file states it.
        times: float64 [time], seconds on the file's own clock, if a time column was asked for.
        notes: Remarks for the owner of the file, such as columns that were left out.
    """

    arrays: dict[str, np.ndarray]
    rate: float | None = None
    times: np.ndarray | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class ReadOptions:
    """How files are read; each format uses the options that apply to it.

    Attributes:
        arrays: The names of the arrays to read; all of them if empty.
        columns: The channels to read from `.csv` and `.parquet` files, in this order; if empty, every
            column of a `.csv` file, or every numeric column of a `.parquet` file, except those
            below, times and row numbers.
        drop_columns: Columns that every file has and that are no channels.
        metadata_columns: Columns that are no channels in the files that have them.
        time_column: The column of sample times; "" without one.
        time_unit: The unit of times that are plain numbers.
        times: "strict" rejects recordings whose times do not increase, "drop_duplicates" drops rows with
            the time of the row before, "sort" sorts rows by time first.
        float_audio: Whether integer samples of audio become float32 from -1 to 1.
        mono: Whether the channels of audio become one, their mean.
    """

    arrays: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    drop_columns: tuple[str, ...] = ()
    metadata_columns: tuple[str, ...] = ()
    time_column: str = ""
    time_unit: TimeUnit = "s"
    times: TimesPolicy = "strict"
    float_audio: bool = False
    mono: bool = False


def choose_arrays(names: Iterable[str], wanted: tuple[str, ...]) -> list[str]:
    """Returns the wanted names, or all of them if none is wanted.

    Raises:
        RejectError: the file lacks a wanted array.
    """
    names = list(names)
    if missing := [name for name in wanted if name not in names]:
        raise RejectError(f"no array {missing[0]!r}: the file has {', '.join(names)}")
    return list(wanted) or names


def name_arrays(arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Returns the arrays of an archive by feature name: a single array becomes `signal`.

    Raises:
        RejectError: there is no array, or one has the name of another feature.
    """
    if not arrays:
        raise RejectError("the archive holds no array")
    if len(arrays) == 1:
        return {"signal": next(iter(arrays.values()))}
    if clash := arrays.keys() & {"key", "label"}:
        raise RejectError(f"an array may not be called {min(clash)!r}: choose with --arrays")
    return arrays


def single_signal(
    signal: np.ndarray,
    options: ReadOptions,
    rate: float | None = None,
    times: np.ndarray | None = None,
    notes: tuple[str, ...] = (),
) -> Recording:
    """Returns the recording of a file whose format holds one array without a name.

    Raises:
        RejectError: an array other than `signal` is wanted.
    """
    choose_arrays(("signal",), options.arrays)
    return Recording({"signal": signal}, rate, times, notes)


def check_size(size: int, claim: str = "it unpacks to") -> None:
    """Checks a number of bytes before they are allocated: a small file may claim to hold anything.

    Raises:
        RejectError: the size exceeds protobuf's 2 GiB for a record.
    """
    if size > MAX_RECORD_BYTES:
        raise RejectError(f"{claim} {size} bytes, more than a record can hold (2 GiB)")
