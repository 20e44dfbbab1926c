"""Extra features: columns of tables that become features, such as `age:float32,tags:string[]`."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from beam_jobs.errors import RejectError, UsageError
from beam_jobs.sources.labels import list_in
from beam_jobs.sources.source import COLUMN
from readers.format.dtypes import (
    FLOATS_IN_A_LIST,
    INTEGERS_IN_A_LIST,
    TENSORFLOW_DTYPES,
    numpy_dtype,
)
from readers.format.schema import Feature, Schema

# Tables have no complex numbers, and bfloat16 is for models, not for data.
DTYPES = tuple(
    name for name in TENSORFLOW_DTYPES if name not in ("complex64", "complex128", "bfloat16")
)

_IN_A_LIST = (*INTEGERS_IN_A_LIST, *FLOATS_IN_A_LIST, "string")

_PART = re.compile(r"(.+):(\w+)(\[(?:[1-9][0-9]{0,8})?\])?")

# Also 1.0, because programs write a column of whole numbers or booleans with gaps as floats.
_BOOLEANS = {"true": True, "1": True, "1.0": True, "false": False, "0": False, "0.0": False}

# The errors of Python for a value that does not fit a dtype.
_UNFIT = (ValueError, TypeError, LookupError, OverflowError)


class ExtraFeature(NamedTuple):
    """A column that becomes a feature.

    Attributes:
        name: The name of the feature.
        feature: A single value, or a list of values.
        target: The column of the target that a model predicts, which every record must have; empty for other
            features, whose columns have their names.
    """

    name: str
    feature: Feature
    target: str = ""

    @property
    def column(self) -> str:
        """The name of the column."""
        return self.target or self.name


def parse_extra_features(text: str) -> tuple[ExtraFeature, ...]:
    """Parses an `--extra_features` flag, such as `age:float32,tags:string[]`; UsageError if it is not valid."""
    features: dict[str, Feature] = {}
    for part in text.split(","):
        parts = _PART.fullmatch(part.strip())
        if not parts or parts[2] not in DTYPES:
            raise UsageError(
                f"--extra_features {text}: got {part!r}, expected NAME:DTYPE, or for lists "
                f"NAME:DTYPE[] or NAME:DTYPE[COUNT]; dtypes are {', '.join(DTYPES)}"
            )
        name, dtype, count = parts.groups()
        if name in features:
            raise UsageError(f"--extra_features {text}: {name!r} is repeated, drop one")
        features[name] = _feature(dtype, count)
    try:
        Schema(features)
    except ValueError as error:
        raise UsageError(f"--extra_features {text}: {error}; rename the column") from None
    return tuple(map(ExtraFeature, features.keys(), features.values()))


def parse_target(text: str) -> ExtraFeature:
    """Parses a `--target` flag, `column:NAME`: the number there becomes `target`, float32 []; UsageError for other texts."""
    column = text.removeprefix(COLUMN)
    if not text.startswith(COLUMN) or not column:
        raise UsageError(f"--target {text}: expected {COLUMN}NAME; give a .csv file as --table")
    return ExtraFeature("target", Feature("float32"), column)


def _feature(dtype: str, count: str | None) -> Feature:
    if count is None:
        return Feature(dtype)
    shape = (int(count[1:-1]) if count != "[]" else None,)
    return Feature(dtype, shape, "list" if dtype in _IN_A_LIST else "tensor")


def extra_values(extras: tuple[ExtraFeature, ...], row: Mapping[str, Any]) -> dict[str, Any]:
    """The values of extra features in a row, by name; RejectError for a missing column or target, or an unfit value."""
    values: dict[str, Any] = {}
    for extra in extras:
        if extra.column not in row:
            raise RejectError(f"no column {extra.column!r}, the row has {', '.join(row) or 'none'}")
        values[extra.name] = feature_value(extra, row[extra.column])
        if extra.target and not math.isfinite(values[extra.name]):
            raise RejectError(f"--target column:{extra.target}: it is empty, NaN or infinite")
    return values


def feature_value(extra: ExtraFeature, value: Any) -> Any:
    """Converts a value of a table to one that `Encoder.check` accepts.

    Args:
        extra: The feature.
        value: The value in the table. Text is parsed if a number is expected. None and empty text
            become NaN for floats and "" for strings. A list may also be text, as for `list_in`; any
            other value is a list of one.

    Returns:
        An int for int64, a str for string, a NumPy scalar for other dtypes; for lists an array [n] of
        the dtype, or a list of str.

    Raises:
        RejectError: the value does not fit.
    """
    feature = extra.feature
    if feature.shape:
        return _list_value(extra, value)
    return _TYPES[feature.dtype](_item(extra.column, feature.dtype, value))


def _list_value(extra: ExtraFeature, value: Any) -> Any:
    name, feature = extra.column, extra.feature
    if value is None or value == "":
        raise RejectError(f"column {name!r} is empty")
    value = list_in(value)
    if isinstance(value, str) and value.lstrip().startswith("["):
        raise RejectError(f"column {name!r} holds {_shortened(value)}, expected a JSON list")
    items = value if isinstance(value, list) else [value]
    if feature.shape[0] not in (None, len(items)):
        raise RejectError(f"column {name!r} has {len(items)} values, expected {feature.shape[0]}")
    numbers = _plain_numbers(feature.dtype, items)
    if numbers is not None:
        return numbers
    try:
        values = list(map(_PARSERS[feature.dtype], items))
    except _UNFIT:
        values = [_item(f"{name}[{i}]", feature.dtype, item) for i, item in enumerate(items)]
    return values if feature.dtype == "string" else np.array(values, numpy_dtype(feature.dtype))


def _plain_numbers(dtype: str, items: list[Any]) -> np.ndarray | None:
    """Converts Python's numbers to an array, ten times as fast as one by one; None if types differ or one is out of range."""
    kinds = set(map(type, items))
    if kinds == {float} and dtype in _LIMITS:
        sizes = np.abs(np.array(items))
        fit = not np.any((sizes >= _LIMITS[dtype]) & (sizes < math.inf))
    elif kinds == {int} and dtype in _RANGES:
        low, high = _RANGES[dtype]
        fit = low <= min(items) and max(items) <= high
    else:
        return None
    return np.array(items, numpy_dtype(dtype)) if fit else None


def _item(column: str, dtype: str, value: Any) -> Any:
    """One value of a dtype, as a Python object."""
    try:
        return _PARSERS[dtype](value)
    except _UNFIT:
        if value not in (None, "") and value == value:  # NaN differs from itself.
            raise RejectError(
                f"column {column!r} holds {_shortened(value)}, expected {_EXPECTED[dtype]}"
            ) from None
        if dtype not in _EMPTY:
            raise RejectError(f"column {column!r} is empty") from None
        return _EMPTY[dtype]


def _shortened(value: Any) -> str:
    # A value may have many megabytes, and its repr more.
    short = value[:80] if isinstance(value, (str, bytes, list)) else value
    return repr(short)[:80]


def _written(text: str) -> str:
    """Checks that a number is not written in a form that only Python accepts: 1_000, non-ASCII digits."""
    if "_" in text or not text.isascii():
        raise ValueError
    return text


def _text(value: Any) -> str:
    if isinstance(value, bytes):
        return value.decode()
    if not isinstance(value, str):
        raise TypeError
    if not value.isascii():
        value.encode()
    return value


def _integer(low: int, high: int) -> Callable[[Any], int]:
    def parse(value: Any) -> int:
        if isinstance(value, str):
            value = int(_written(value).strip().removesuffix(".0"))
        elif isinstance(value, float) and value.is_integer():
            value = int(value)
        elif not isinstance(value, int):
            raise TypeError
        if not low <= value <= high:
            raise OverflowError
        return value

    return parse


def _real(limit: float) -> Callable[[Any], float]:
    def parse(value: Any) -> float:
        if isinstance(value, str):
            text, value = value, float(_written(value))
            if math.isinf(value) and "inf" not in text.lower():
                raise OverflowError
        elif isinstance(value, int):
            value = float(value)
        if limit <= abs(value) < math.inf:  # A TypeError if it is not a number.
            raise OverflowError
        return value

    return parse


def _limit(dtype: str) -> float:
    """The smallest number that is rounded to infinity."""
    if dtype == "float64":
        return math.inf
    info = np.finfo(dtype)
    return float(info.max) + 2.0 ** (info.maxexp - info.nmant - 2)


_RANGES = {
    name: (int(np.iinfo(name).min), int(np.iinfo(name).max))
    for name in DTYPES
    if numpy_dtype(name).kind in "iu"
}

_LIMITS = {name: _limit(name) for name in DTYPES if numpy_dtype(name).kind == "f"}

_PARSERS: dict[str, Callable[[Any], Any]] = {
    "string": _text,
    "bool": lambda value: _BOOLEANS[str(value).strip().lower()],
    **{name: _integer(low, high) for name, (low, high) in _RANGES.items()},
    **{name: _real(limit) for name, limit in _LIMITS.items()},
}

_EXPECTED = {
    "string": "UTF-8 text",
    "bool": "bool: true, false, 1 or 0",
    **{name: f"{name}: a whole number from {a} to {b}" for name, (a, b) in _RANGES.items()},
    **{name: f"{name}: a number up to {np.finfo(name).max:.6g}" for name in _LIMITS},
}

_EMPTY: dict[str, Any] = {"string": "", **dict.fromkeys(_LIMITS, math.nan)}

# Python's own types where the encoder is fastest with them.
_TYPES: dict[str, Callable[[Any], Any]] = {
    name: {"int64": int, "string": str}.get(name, numpy_dtype(name).type) for name in DTYPES
}
