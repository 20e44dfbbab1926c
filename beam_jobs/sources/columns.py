"""The contents of columns that must be known before a run: names of splits and classes, first values."""

from __future__ import annotations

import itertools
import math
from typing import Any

from beam_jobs.errors import RejectError, UsageError
from beam_jobs.sources.arrow_rows import class_names
from beam_jobs.sources.inputs import Inputs
from beam_jobs.sources.source import COLUMN
from beam_jobs.sources.table_inputs import SAMPLED_ROWS, usage_errors
from beam_jobs.sources.tables import distinct, read_rows, table_kind
from beam_jobs.storage.files import open_seekable
from beam_jobs.storage.listing import match

# With more names of splits, it is the wrong column. A dataset has at most `placement.MAX_SPLITS`.
_MAX_SPLIT_NAMES = 256


def known_columns(inputs: Inputs) -> set[str]:
    """The names of the columns that the first inputs have as metadata."""
    first = (inputs.first(pattern, SAMPLED_ROWS) for pattern in inputs.patterns)
    return {name for source, _ in itertools.chain.from_iterable(first) for name in source.row}


def first_value(inputs: Inputs, column: str) -> Any:
    """The first value of a column in the first rows; None if they have none."""
    for pattern in inputs.patterns:
        for source, _ in inputs.first(pattern, SAMPLED_ROWS):
            if source.row.get(column) not in (None, ""):
                return source.row[column]
    return None


def stated_classes(inputs: Inputs, column: str) -> tuple[str, ...]:
    """The names of classes by id that Parquet tables state of a column; empty if they state none.

    Tables that cannot be read are passed over; they become rejects where records are made.

    Raises:
        UsageError: a table states others than the first.
    """
    first = ""
    names: tuple[str, ...] = ()
    for path in sorted(file.path for pattern in inputs.patterns for file in match(pattern)):
        if table_kind(path) != ("parquet", False):
            return ()
        try:
            with open_seekable(path) as file:
                found = class_names(file, column)
        except (OSError, RejectError):
            continue
        if first and found != names:
            raise UsageError(
                f"label column {column!r}: {path} states other classes than {first}: make a dataset of "
                "each"
            )
        first, names = path, found
        if not names:
            return ()
    return names


def holds_lists(column: str, value: Any) -> bool:
    """Whether a column of labels holds lists of them.

    Args:
        column: The column.
        value: Its first value; None if it has none.

    Raises:
        UsageError: the value is a number that is not whole.
    """
    if isinstance(value, float) and not value.is_integer() and not math.isnan(value):
        raise UsageError(
            f"label column {column!r} holds {value!r}, and labels are classes: keep numbers with "
            f"--target {COLUMN}{column} instead"
        )
    return isinstance(value, list)


def split_names(inputs: Inputs, column: str) -> list[str]:
    """The names of splits in a column of tables: `train` first, the others sorted.

    Rows without a valid name are ignored; they are rejected where records are made.

    Raises:
        UsageError: a file is not a table or cannot be read, or there are no names, or too many.
    """
    found: set[str] = set()
    for pattern in inputs.patterns:
        for path, *_ in match(pattern):
            kind = table_kind(path)
            if kind is None:
                raise UsageError(
                    f"--split_column {column}: {path} is not a table, so the names in the column are not known "
                    "before its records are read: give --splits train,val"
                )
            where = f"--split_column {column}: {path}"
            with usage_errors(where), open_seekable(path) as file:
                rows = read_rows(file, *kind, {column}, inputs.dialect)
                found |= set(distinct(rows, column, _MAX_SPLIT_NAMES))
    if not found:
        raise UsageError(
            f"--split_column {column}: no row has a name there; is it the right column?"
        )
    return sorted(found, key=lambda name: (name != "train", name))
