"""Shows some records of a dataset, for `beam-shards head`."""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from readers.batches.read_sizes import records_together
from readers.describe import named
from readers.format.dtypes import dtype_name
from readers.format.encodings.spec import format_shape
from readers.format.manifest import Manifest, open_generation
from readers.shards.find import find
from readers.shards.records import Records
from readers.shards.resolving.datasets import dataset_plan

# The most values of an array, and characters of all texts in it, that are shown.
_VALUES_SHOWN, _CHARACTERS_SHOWN = 5, 100


def shown_records(
    directory: str, split: str | None, count: int, keys: Sequence[str] = ()
) -> Iterator[str]:
    """Yields records as text: dtype, shape and first values of each array.

    These are the first ones of a split or a slice, or those with some keys, by default of any split; ValueError without one.
    """
    chosen, manifest = _chosen(directory, split, count, keys)
    names = manifest.classes
    width = max(map(len, manifest.schema))
    for records, numbers in chosen:
        for number, record in zip(numbers, _read(records, numbers), strict=True):
            yield f"{records.plan.name}, record {number:,} of {len(records):,}"
            for name, value in record.items():
                yield f"  {name.ljust(width)}  {summary(value, names.get(name, ()))}"
        if not len(records):
            yield f"{records.plan.name} has no records"


def shown_records_as_json(
    directory: str, split: str | None, count: int, keys: Sequence[str] = ()
) -> Iterator[str]:
    """Yields these records as JSON: floats with the digits of their dtype, NaN as null, complex as two numbers."""
    for records, numbers in _chosen(directory, split, count, keys)[0]:
        for record in _read(records, numbers):
            values = {name: _as_json(value) for name, value in record.items()}
            yield json.dumps(values, ensure_ascii=False, allow_nan=False)


def _chosen(
    directory: str, split: str | None, count: int, keys: Sequence[str]
) -> tuple[list[tuple[Records, Sequence[int]]], Manifest]:
    """The numbers of the records to show, by split."""
    if count < 1:
        raise ValueError(f"-n {count}: expected a number of at least 1")
    generation = open_generation(directory)
    splits = list(generation.manifest.splits) if keys and split is None else [split]
    every = [Records(dataset_plan(generation, name)) for name in splits]
    if not keys:
        return [(every[0], range(min(count, len(every[0]))))], generation.manifest
    return [_found(directory, every, key) for key in keys], generation.manifest


def _found(directory: str, every: Sequence[Records], key: str) -> tuple[Records, Sequence[int]]:
    for records in every:
        with contextlib.suppress(KeyError):
            return records, [find(records.plan, key)]
    raise ValueError(f"{directory}: no record has the key {key!r}")


def _read(records: Records, numbers: Sequence[int]) -> Iterator[dict[str, Any]]:
    """Yields records, reading several at a time."""
    size = records_together(records.plan)
    for first in range(0, len(numbers), size):
        yield from records.read(numbers[first : first + size])


def summary(value: Any, names: Sequence[str] = ()) -> str:
    """Describes an array, or a list of arrays, in one line: dtype, shape, first values or class names, and range."""
    if isinstance(value, list):
        shown = "; ".join(summary(array, names) for array in value[:1])
        return f"{len(value):,} arrays: {shown}{'; ...' if len(value) > 1 else ''}"
    kind = f"{dtype_name(value.dtype)} {format_shape(value.shape)}"
    first = value.reshape(-1)[:_VALUES_SHOWN]
    if value.dtype == object:
        shown = ", ".join(_text(item, _CHARACTERS_SHOWN // len(first)) for item in first)
    elif names and value.dtype.kind in "iu":
        shown = ", ".join(named(int(item), names) for item in first)
    else:
        shown = ", ".join(map(str, first))
    if value.size > _VALUES_SHOWN:
        shown += ", ..."
    if value.size > 1 and value.dtype.kind not in "Oc" and not names:
        shown += f"  ({value_range(value)})"
    return f"{kind}  {shown}".rstrip()


def value_range(value: np.ndarray, text: Callable[[Any], str] = str) -> str:
    """The smallest and the largest number, and how many are NaN: `0.5 to 3.0, 2 NaN`."""
    numbers = value[~np.isnan(value)]
    if not numbers.size:
        return "all NaN"
    unknown = value.size - numbers.size
    ends = f"{text(numbers.min())} to {text(numbers.max())}"
    return ends + (f", {unknown:,} NaN" if unknown else "")


def _text(data: bytes, characters: int) -> str:
    text = data.decode("utf-8", "replace")
    return repr(text[:characters]) + ("..." if len(text) > characters else "")


def _as_json(value: Any) -> Any:
    """An array, a list of arrays, or one element as JSON values."""
    if isinstance(value, list) or np.ndim(value):
        return [_as_json(item) for item in value]
    item = value[()] if isinstance(value, np.ndarray) else value
    if isinstance(item, bytes):
        return item.decode("utf-8", "replace")
    if item.dtype.kind == "c":
        return [_as_json(item.real), _as_json(item.imag)]
    if item.dtype.kind in "biu":
        return item.item()
    number = float(str(item))  # The shortest digits of its own dtype, not those of a float64.
    return number if math.isfinite(number) else None
