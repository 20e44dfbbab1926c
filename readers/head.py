"""The first records of a split, as text: each array by its dtype, shape and first values."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from readers.dataset import resolve
from readers.format.schema import dtype_name, format_shape
from readers.records import Records

_VALUES_SHOWN, _CHARACTERS_SHOWN = 5, 100


def first_records(directory: str, split: str | None, count: int) -> Iterator[str]:
    """Yields the lines that show the first records of a split, or of a slice of one.

    Raises:
        ValueError: The count is below 1, or the dataset, split or a record cannot be read.
    """
    if count < 1:
        raise ValueError(f"-n {count}: expected a number of at least 1")
    records = Records(resolve(directory, split, None, None))
    shown = min(count, len(records))
    width = max(map(len, records.plan.schema))
    for number in range(shown):
        yield f"{records.plan.name}, record {number} of {len(records)}"
        for name, value in records.read([number])[0].items():
            yield f"  {name.ljust(width)}  {summary(value)}"
    if not shown:
        yield f"{records.plan.name} holds no records"


def summary(value: Any) -> str:
    """An array in one line: dtype, shape, first values and range; text is cut."""
    if isinstance(value, list):
        shown = "; ".join(summary(array) for array in value[:3])
        return f"{len(value)} arrays: {shown}{'; ...' if len(value) > 3 else ''}"
    kind = f"{dtype_name(value.dtype)} {format_shape(value.shape)}"
    first = value.reshape(-1)[:_VALUES_SHOWN]
    if value.dtype == object:
        shown = ", ".join(_text(item) for item in first)
    else:
        shown = ", ".join(f"{item}" for item in first)
    if value.size > _VALUES_SHOWN:
        shown += ", ..."
    if value.size > 1 and value.dtype.kind not in "Oc":
        shown += f"  ({value.min()} to {value.max()})"
    return f"{kind}  {shown}".rstrip()


def _text(data: bytes) -> str:
    text = data.decode("utf-8", "replace")
    cut = len(text) > _CHARACTERS_SHOWN
    return repr(text[:_CHARACTERS_SHOWN]) + ("..." if cut else "")
