"""Which columns of a table are channels."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from beam_jobs.errors import RejectError
from beam_jobs.jobs.sensors.recording import ReadOptions

# Names that loggers give to times, and pandas to the numbers of rows.
_TIME = re.compile(
    r"(?:t|time|timestamps?|date|date[ _]?time|epoch|elapsed|unix[ _]?time)"
    r"(?:[ _-](?:s|sec|seconds|ms|us|ns|utc)|\s*[\[(].*[\])])?",
    re.IGNORECASE,
)
_ROW_NUMBER = re.compile(r"|Unnamed: \d+|__index_level_\d+__")


def choose_channels(names: Sequence[str], options: ReadOptions) -> tuple[list[int], list[str]]:
    """Returns the places of the channels, and the names of columns that are left out by name alone.

    The channels are `options.columns`; without it all columns but those that `options` names
    otherwise, those called like times, and those called like the numbers of rows.

    Raises:
        RejectError: a column that `options` names is missing or ambiguous, or none is left.
    """
    column_indexes(names, [*filter(None, (options.time_column, *options.drop_columns))])
    if options.columns:
        return column_indexes(names, options.columns), []
    named = {options.time_column, *options.drop_columns, *options.metadata_columns} - {""}
    rest = [place for place, name in enumerate(names) if name not in named]
    by_name = {place for place in rest if _is_time_or_row_number(names[place])}
    places = [place for place in rest if place not in by_name]
    left_out = [names[place] for place in rest if place in by_name]
    if not places:
        raise RejectError(
            f"none of its columns {', '.join(names)} is a channel; name channels with --columns"
        )
    return places, left_out


def _is_time_or_row_number(name: str) -> bool:
    return bool(_TIME.fullmatch(name) or _ROW_NUMBER.fullmatch(name))


def note_left_out(names: Sequence[str]) -> tuple[str, ...]:
    """Returns a remark about columns that were left out by name alone, if there are any."""
    if not names:
        return ()
    listed = ", ".join(name or "without a name" for name in names)
    return (
        f"left out as times or row numbers: column {listed}; name the channels with --columns to "
        "keep it",
    )


def note_twice(names: Sequence[str], options: ReadOptions) -> tuple[str, ...]:
    """Returns a remark about each column of the metadata that the file has, too."""
    elsewhere = {*options.metadata_columns} - {*options.inside}
    return tuple(
        f"column {name!r} is in the metadata and in the file: that of the metadata is used"
        for name in names
        if name in elsewhere
    )


def column_index(names: Sequence[str], name: str, where: str = "") -> int:
    """Returns the place of the column with a name.

    Args:
        where: The other place where it was looked for, for the error.

    Raises:
        RejectError: no column or more than one has the name.
    """
    return column_indexes(names, [name], where)[0]


def column_indexes(names: Sequence[str], wanted: Sequence[str], where: str = "") -> list[int]:
    """Returns the places of several columns, as `column_index` does for one."""
    counts = Counter(names)
    for name in wanted:
        if counts[name] != 1:
            count = "two columns" if name in counts else "no column"
            raise RejectError(f"{count} {name!r}{where}: the file has {', '.join(names)}")
    places = {name: place for place, name in enumerate(names)}
    return [places[name] for name in wanted]
