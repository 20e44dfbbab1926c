"""The options for reading files, and the arrays and columns that they choose."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from beam_jobs.errors import RejectError
from beam_jobs.jobs.sensors.recording import TimesPolicy
from beam_jobs.storage.encodings import UTF8
from beam_jobs.storage.limits import DEFAULT_RECORD_BYTES

TimeUnit = Literal["auto", "s", "ms", "us", "ns"]

Header = Literal["auto", "yes", "no"]

# The usual names of times in logs, and of row numbers in pandas.
_TIME = re.compile(
    r"(?:t|time|timestamps?|date|date[ _]?time|epoch|elapsed|unix[ _]?time)"
    r"(?:[ _-](?:s|sec|seconds|ms|us|ns|utc)|\s*[\[(].*[\])])?",
    re.IGNORECASE,
)
_ROW_NUMBER = re.compile(r"|#|Unnamed: \d+|__index_level_\d+__")


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
        time_unit: The unit of times that are plain numbers; "auto" for the one that the file states, or s.
        times: "strict" rejects recordings whose times do not increase, "drop_duplicates" drops rows that
            repeat the previous time, "sort" sorts rows by time first.
        delimiter: The character between the columns of tables of text, of which a blank stands for
            several; "" to recognise it.
        header: Whether the first row of tables of text has names: "yes", "no", or "auto" to recognise it.
        skip_lines: Lines above tables of text that are not read.
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
    time_unit: TimeUnit = "auto"
    times: TimesPolicy = "strict"
    delimiter: str = ""
    header: Header = "auto"
    skip_lines: int = 0
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
        titles: The names of all columns; 0, 1, 2 and so on if they have none.
        notes: Remarks about columns that are left out, or are in the metadata too.
        signal: The value of `Recording.channels`.
    """

    channels: list[int]
    time: int | None
    own_columns: dict[str, int]
    titles: list[str]
    notes: tuple[str, ...]
    signal: dict[str, tuple[str, ...]]


def lay_out(
    names: Sequence[str], width: int, options: ReadOptions, kinds: Sequence[str] = ()
) -> Layout:
    """The columns of a table that are read.

    The channels are `options.columns`; without it all columns of numbers except those that `options`
    names otherwise, and those with names of times or row numbers.

    Args:
        names: The names of the columns; empty if they have none.
        width: The number of columns.
        kinds: What each column holds if that is not numbers, else ""; empty if all may hold numbers.

    Raises:
        RejectError: A column that `options` names is missing or ambiguous, or none is left.
    """
    titles, kinds = list(names) or list(map(str, range(width))), kinds or [""] * width
    time = column_places(titles, [options.time_column] if options.time_column else ())
    column_places(titles, options.drop_columns)
    own_columns = column_places(titles, options.own_columns, " in its metadata")
    in_both = {*options.metadata_columns} - {*options.own_columns}
    notes = [
        f"column {name!r} is in the metadata and in the file: the metadata is used"
        for name in names
        if name in in_both
    ]
    places = column_places(titles, options.columns)
    channels = [places[name] for name in options.columns]
    if not options.columns:
        roles = {options.time_column, *options.drop_columns, *options.metadata_columns} - {""}
        others = [place for place in range(width) if titles[place] not in roles]
        numeric = [place for place in others if not kinds[place]]
        unusual = [place for place in numeric if names and _is_left_out(titles[place])]
        channels = sorted({*numeric} - {*unusual})
        kinds_left = ", ".join(f"{titles[i]} ({kinds[i]})" for i in others if kinds[i])
        if not channels:
            which = kinds_left or ", ".join(titles) or "(it has none)"
            raise RejectError(
                f"none of its columns {which} is a channel; name channels with --columns"
            )
        if unusual:
            notes.append(
                "not a channel, as its name is that of times or row numbers: "
                f"{', '.join(titles[place] or '(no name)' for place in unusual)}; "
                "use times with --time_column, or keep the channel with --columns"
            )
        if kinds_left:
            notes.append(f"not a channel, as it does not hold numbers: {kinds_left}")
    signal = {"signal": tuple(titles[place] for place in channels)} if names else {}
    place = time.get(options.time_column)
    return Layout(channels, place, own_columns, titles, tuple(notes), signal)


def _is_left_out(name: str) -> bool:
    # T is rather a temperature.
    return bool((name != "T" and _TIME.fullmatch(name)) or _ROW_NUMBER.fullmatch(name))


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
