"""Which columns of a table are channels, times and labels."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

from beam_jobs.errors import RejectError
from beam_jobs.jobs.sensors.recording import ReadOptions

# Names that loggers give to times, and pandas to the numbers of rows.
_TIME = re.compile(
    r"(?:t|time|timestamps?|date|date[ _]?time|epoch|elapsed|unix[ _]?time)"
    r"(?:[ _-](?:s|sec|seconds|ms|us|ns|utc)|\s*[\[(].*[\])])?",
    re.IGNORECASE,
)
_ROW_NUMBER = re.compile(r"|Unnamed: \d+|__index_level_\d+__")


class Layout(NamedTuple):
    """Which columns of a table are read, by their places.

    Attributes:
        channels: The channels of the signal.
        time: The times of the samples; None without `ReadOptions.time_column`.
        inside: The columns of `ReadOptions.inside`, by name.
        notes: Remarks about columns that are left out by name alone, or are in the metadata, too.
    """

    channels: list[int]
    time: int | None
    inside: dict[str, int]
    notes: tuple[str, ...]


def lay_out(
    names: Sequence[str],
    width: int,
    options: ReadOptions,
    has_numbers: Callable[[int], bool] = lambda place: True,
) -> Layout:
    """Returns which columns of a table are read.

    The channels are `options.columns`; without it all columns of numbers but those that `options`
    names otherwise, those called like times, and those called like the numbers of rows.

    Args:
        names: The names of the columns; empty if they have none.
        width: The number of columns.
        has_numbers: Whether the column at a place can be a channel.

    Raises:
        RejectError: a column that `options` names is missing or ambiguous, or none is left.
    """
    if not names and (options.columns or options.drop_columns or options.time_column):
        raise RejectError(
            "its columns have no names for --columns, --drop_columns or --time_column"
        )
    time = column_indexes(names, [options.time_column])[0] if options.time_column else None
    column_indexes(names, options.drop_columns)
    inside = column_indexes(names, options.inside, " in its metadata")
    channels, left_out = _choose(names, width, options, has_numbers)
    # Those of the metadata are used.
    twice = {*options.metadata_columns} - {*options.inside}
    notes = [
        f"column {name!r} is in the metadata and in the file: that of the metadata is used"
        for name in names
        if name in twice
    ]
    if left_out:
        listed = ", ".join(name or "without a name" for name in left_out)
        notes[:0] = [
            f"left out as times or row numbers: column {listed}; name the channels with --columns to "
            "keep it"
        ]
    return Layout(channels, time, dict(zip(options.inside, inside, strict=True)), tuple(notes))


def _choose(
    names: Sequence[str], width: int, options: ReadOptions, has_numbers: Callable[[int], bool]
) -> tuple[list[int], list[str]]:
    """Returns the places of the channels, and the names of columns that are left out by name alone."""
    if options.columns:
        return column_indexes(names, options.columns), []
    rest = list(filter(has_numbers, range(width)))
    left_out: list[int] = []
    if names:
        named = {options.time_column, *options.drop_columns, *options.metadata_columns} - {""}
        rest = [place for place in rest if names[place] not in named]
        left_out = [place for place in rest if _is_time_or_row_number(names[place])]
    channels = sorted({*rest} - {*left_out})
    if not channels:
        which = f"columns {', '.join(names)}" if names else f"{width} columns"
        raise RejectError(f"none of its {which} is a channel; name channels with --columns")
    return channels, [names[place] for place in left_out]


def _is_time_or_row_number(name: str) -> bool:
    return bool(_TIME.fullmatch(name) or _ROW_NUMBER.fullmatch(name))


def column_indexes(names: Sequence[str], wanted: Sequence[str], where: str = "") -> list[int]:
    """Returns the places of the columns with some names.

    Args:
        where: The other place where they were looked for, for the error.

    Raises:
        RejectError: no column or more than one has such a name.
    """
    counts = Counter(names if wanted else ())
    for name in wanted:
        if counts[name] != 1:
            count = "two columns" if name in counts else "no column"
            listed = ", ".join(names) or "columns without names"
            raise RejectError(f"{count} {name!r}{where}: the file has {listed}")
    places = {name: place for place, name in enumerate(names)} if wanted else {}
    return [places[name] for name in wanted]
