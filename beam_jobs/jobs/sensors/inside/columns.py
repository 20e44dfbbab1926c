"""Values that a recording file states besides its signals: one for each sample, or one for the file."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from beam_jobs.errors import RejectError
from beam_jobs.packages import require
from beam_jobs.sources.labels import label_text
from readers.format.schema import format_shape


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
        """The column that an array [time] or [time, 1] of numbers or text holds.

        Raises:
            RejectError: the array has another shape or holds something else.
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
        """The column that Arrow arrays of text or numbers hold.

        Raises:
            RejectError: there are no arrays.
        """
        if not cells:
            raise RejectError("it has no rows")
        whole = require("pyarrow", "beam", "tables").chunked_array(cells)
        encoded = whole.dictionary_encode().unify_dictionaries().combine_chunks()
        values = [*encoded.dictionary.to_pylist(), None]
        codes = encoded.indices.fill_null(len(values) - 1)
        return cls(values, codes.to_numpy(zero_copy_only=False).astype(np.int64))

    def of_rows(self) -> list[Any]:
        """The value of each row."""
        return list(map(self.values.__getitem__, self.codes.tolist()))

    def single(self, name: str) -> Any:
        """The only value, missing ones apart; None if all are missing.

        Raises:
            RejectError: there are several.
        """
        found = [self.values[code] for code in np.unique(self.codes).tolist()]
        found = [value for value in found if not is_missing(value)]
        if len(found) > 1:
            raise RejectError(
                f"{name!r} has {len(found)} different values, such as {found[0]!r:.40} and "
                f"{found[1]!r:.40}: a recording has one; cut it into labelled windows with --window, "
                f"or at these values with --recording_column {name}"
            )
        return found[0] if found else None


def is_missing(value: Any) -> bool:
    """Whether a value is null, empty text or NaN."""
    return value is None or value == "" or value != value


def plain_value(name: str, value: Any) -> Any:
    """A single value of a file as a Python object; bytes are text in UTF-8.

    Raises:
        RejectError: the bytes are not UTF-8.
    """
    if isinstance(value, np.ndarray | np.generic):
        value = value.item()
    if not isinstance(value, bytes):
        return value
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise RejectError(f"{name!r} holds {value!r:.40}, expected text in UTF-8") from None


def find_values(
    names: tuple[str, ...], read: Callable[[str], np.ndarray | None]
) -> tuple[dict[str, Column], dict[str, Any]]:
    """Returns the columns of a file, and its single values.

    Args:
        names: The names of the values that are wanted.
        read: Returns the array of a name; None if the file has none.

    Raises:
        RejectError: an array holds neither numbers nor text, or not one for each sample.
    """
    columns, single = {}, {}
    for name in names:
        array = read(name)
        if array is None:
            continue
        if array.size == 1:
            single[name] = plain_value(name, array)
        else:
            columns[name] = Column.of(name, array)
    return columns, single


def groups_of(column: Column) -> Iterator[tuple[str, str, np.ndarray]]:
    """Yields (text of a value, error, rows) for each value of a column, in the order of first rows.

    The error is empty if the value can name a recording. Rows are int64 and ascending.
    """
    missing = [code for code, value in enumerate(column.values) if is_missing(value)]
    found = np.where(np.isin(column.codes, missing[1:]), (missing or [0])[0], column.codes)
    order = np.argsort(found, kind="stable")
    codes, starts = np.unique(found[order], return_index=True)
    rows = np.split(order, starts[1:])
    for place in np.argsort([part[0] for part in rows], kind="stable").tolist():
        value = column.values[int(codes[place])]
        if is_missing(value):
            yield "", f"{len(rows[place])} rows do not state their recording", rows[place]
            continue
        try:
            yield label_text(value), "", rows[place]
        except RejectError as error:
            yield str(value), str(error), rows[place]


def row_columns(columns: Mapping[str, Column]) -> Iterator[dict[str, Any]]:
    """Yields the columns of each row; without columns an empty dict, without end."""
    while not columns:
        yield {}
    values = (column.of_rows() for column in columns.values())
    for row in zip(*values, strict=True):
        yield dict(zip(columns, row, strict=True))
