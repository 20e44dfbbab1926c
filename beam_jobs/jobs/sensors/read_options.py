"""The options for reading files, and the arrays and columns that they choose."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from beam_jobs.errors import RejectError
from beam_jobs.jobs.sensors.recording import TimesPolicy
from beam_jobs.storage.encodings import UTF8
from beam_jobs.storage.limits import DEFAULT_RECORD_BYTES

TimeUnit = Literal["s", "ms", "us", "ns"]

# The usual names of times in logs, and of row numbers in pandas.
_TIME = re.compile(
    r"(?:t|time|timestamps?|date|date[ _]?time|epoch|elapsed|unix[ _]?time)"
    r"(?:[ _-](?:s|sec|seconds|ms|us|ns|utc)|\s*[\[(].*[\])])?",
    re.IGNORECASE,
)
_ROW_NUMBER = re.compile(r"|Unnamed: \d+|__index_level_\d+__")


@dataclass(frozen=True)
class ReadOptions:
    """How files are read; each format uses the options that apply to it.

    Attributes:
        arrays: The names of the arrays to read; all of them if empty.
        columns: The channels to read from tables, in this order; if empty, every column of a table of
            text, or every numeric column of one with dtypes, except those below, times and row
            numbers.
        drop_columns: Columns that every file has and that are not channels.
        metadata_columns: Columns that are not channels in the files that have them.
        time_column: The column of sample times; "" without one.
        time_unit: The unit of times that are plain numbers.
        times: "strict" rejects recordings whose times do not increase, "drop_duplicates" drops rows that
            repeat the previous time, "sort" sorts rows by time first.
        delimiter: The character between the columns of tables of text; "" to recognise it.
        encoding: The encoding of tables of text, a name from `encoding_name`.
        float_audio: Whether integer samples of audio become float32 from -1 to 1.
        mono: Whether the channels of audio become one, their mean.
        own_columns: Columns and arrays with labels and other metadata, which are neither channels nor
            arrays of records.
        recording_column: One of these, with the recording of each row; "" if a file is one recording.
        max_bytes: The most bytes that the arrays of a recording may take.
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
    own_columns: tuple[str, ...] = ()
    recording_column: str = ""
    max_bytes: int = DEFAULT_RECORD_BYTES


def choose_arrays(names: Iterable[str], options: ReadOptions) -> list[str]:
    """The names in `options.arrays`, or without them all names but those in `options.own_columns`.

    Raises:
        RejectError: The file lacks an array that is asked for.
    """
    names = [name for name in names if name not in options.own_columns]
    if missing := [name for name in options.arrays if name not in names]:
        raise RejectError(f"no array {missing[0]!r}: the file has {', '.join(names)}")
    return list(options.arrays) or names


class Layout(NamedTuple):
    """The columns of a table to read, by their places.

    Attributes:
        channels: The channels of the signal.
        time: The times of the samples; None without `ReadOptions.time_column`.
        own_columns: The columns of `ReadOptions.own_columns`, by name.
        notes: Remarks about columns that are left out only because of their names, or are in the metadata too.
        names: The names of the channels; empty if the columns have none.
    """

    channels: list[int]
    time: int | None
    own_columns: dict[str, int]
    notes: tuple[str, ...]
    names: tuple[str, ...] = ()

    @property
    def signal(self) -> dict[str, tuple[str, ...]]:
        """The value of `Recording.channels`."""
        return {"signal": self.names} if self.names else {}


def lay_out(
    names: Sequence[str],
    width: int,
    options: ReadOptions,
    has_numbers: Callable[[int], bool] = lambda place: True,
) -> Layout:
    """The columns of a table that are read.

    The channels are `options.columns`; without it all columns of numbers except those that `options`
    names otherwise, and those with names of times or row numbers.

    Args:
        names: The names of the columns; empty if they have none.
        width: The number of columns.
        has_numbers: Whether the column at a place can be a channel.

    Raises:
        RejectError: A column that `options` names is missing or ambiguous, or none is left.
    """
    if not names and (options.columns or options.drop_columns or options.time_column):
        raise RejectError(
            "its columns have no names for --columns, --drop_columns or --time_column"
        )
    time = column_places(names, [options.time_column] if options.time_column else ())
    column_places(names, options.drop_columns)
    own_columns = column_places(names, options.own_columns, " in its metadata")
    channels, left_out = _choose(names, width, options, has_numbers)
    notes = []
    if left_out:
        listed = ", ".join(name or "without a name" for name in left_out)
        notes.append(
            f"left out as times or row numbers: column {listed}; name the channels with --columns to "
            "keep it"
        )
    in_both = {*options.metadata_columns} - {*options.own_columns}
    notes += (
        f"column {name!r} is in the metadata and in the file: the metadata is used"
        for name in names
        if name in in_both
    )
    channel_names = tuple(names[place] for place in channels) if names else ()
    return Layout(channels, time.get(options.time_column), own_columns, tuple(notes), channel_names)


def _choose(
    names: Sequence[str], width: int, options: ReadOptions, has_numbers: Callable[[int], bool]
) -> tuple[list[int], list[str]]:
    """The places of the channels, and the columns that are left out only because of their names."""
    if options.columns:
        places = column_places(names, options.columns)
        return [places[name] for name in options.columns], []
    channels, left_out = list(filter(has_numbers, range(width))), list[str]()
    if names:
        roles = {options.time_column, *options.drop_columns, *options.metadata_columns} - {""}
        channels = [place for place in channels if names[place] not in roles]
        left_out = [names[place] for place in channels if _is_left_out(names[place])]
        channels = [place for place in channels if not _is_left_out(names[place])]
    if not channels:
        which = f"columns {', '.join(names)}" if names else f"{width} columns"
        raise RejectError(f"none of its {which} is a channel; name channels with --columns")
    return channels, left_out


def _is_left_out(name: str) -> bool:
    return bool(_TIME.fullmatch(name) or _ROW_NUMBER.fullmatch(name))


def column_places(names: Sequence[str], chosen: Sequence[str], where: str = "") -> dict[str, int]:
    """The places of the columns with some names.

    Args:
        where: The other place that was searched, for the error.

    Raises:
        RejectError: No column or more than one has such a name.
    """
    counts, places = Counter(names), {name: place for place, name in enumerate(names)}
    for name in chosen:
        if counts[name] != 1:
            count = "two columns" if name in counts else "no column"
            listed = ", ".join(names) or "columns without names"
            raise RejectError(f"{count} {name!r}{where}: the file has {listed}")
    return {name: places[name] for name in chosen}
