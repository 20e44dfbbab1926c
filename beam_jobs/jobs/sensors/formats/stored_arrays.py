"""The arrays of a file that has them by name: which are read, and a remark about the others."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

from beam_jobs.errors import RejectError
from beam_jobs.jobs.sensors.read_options import ReadOptions, choose_arrays
from beam_jobs.jobs.sensors.recording import Column, Recording, plain_value
from beam_jobs.storage.limits import check_bytes
from readers.format.display import first_names
from readers.format.encodings.spec import format_shape
from readers.format.schema import is_feature_name

NUMBERS, TEXT = "numbers", "text"

# What NumPy's kinds of dtypes hold.
_KINDS = {
    **dict.fromkeys("biufc", NUMBERS),
    **dict.fromkeys("SU", TEXT),
    "O": "pickled objects",
    "M": "dates",
    "m": "durations",
    "V": "bytes",
}

_NAMES_SHOWN = 8


class StoredArray(NamedTuple):
    """An array of a file, before it is read.

    Attributes:
        kind: What it holds: `NUMBERS`, `TEXT`, or what is never read, such as "cell".
        shape: Its shape.
        nbytes: The bytes that it takes once it is read.
        read: Reads numbers or text.
        role: Why it is read only if `--arrays` names it, such as "coordinate"; "" if it is read without.
        unit: The unit of its values; "" if unknown.
    """

    kind: str
    shape: tuple[int, ...]
    nbytes: int = 0
    read: Callable[[], np.ndarray] = functools.partial(np.empty, 0)
    role: str = ""
    unit: str = ""

    def left_out(self) -> str:
        """Why it is not read without `--arrays`; "" if it is."""
        if self.kind != NUMBERS:
            return self.kind
        return self.role or ("" if self.shape else "single number")


def kind_of(dtype: np.dtype) -> str:
    """What an array of a dtype holds."""
    if dtype.names:
        return f"compound of {first_names(dtype.names, _NAMES_SHOWN)}"
    return _KINDS[dtype.kind]


def read_stored(
    stored: Mapping[str, StoredArray],
    options: ReadOptions,
    attribute: Callable[[str], np.ndarray | None] = lambda name: None,
) -> Recording:
    """The recording of the chosen arrays, or of all that hold numbers along time.

    Args:
        stored: The arrays by name.
        attribute: Returns the value of an attribute of the file; None if there is none of this name.

    Raises:
        RejectError: An array that is asked for is missing or holds no numbers along time, there is none, one
            has the name of another feature, they take more than `options.max_bytes`, or one of
            `options.own_columns` has not one number or text for each sample.
    """
    names = choose_arrays(stored, options)
    left_out = {name: why for name in names if (why := stored[name].left_out())}
    listed = first_names([f"{name} ({why})" for name, why in left_out.items()], _NAMES_SHOWN)
    notes = []
    if options.arrays:
        for name in names:
            _check(name, stored[name], stored[name].kind == NUMBERS and bool(stored[name].shape))
    else:
        names = [name for name in names if name not in left_out]
        if not names:
            raise RejectError(f"it has no array of numbers{listed and f', only {listed}'}")
        if left_out:
            notes.append(f"not read: {listed}; choose arrays with --arrays")
    check_bytes(sum(stored[name].nbytes for name in names), options.max_bytes)

    arrays = {name: stored[name].read() for name in names}
    features = _features(arrays)
    values = dict[str, np.ndarray]()
    for name in options.own_columns:
        if name in stored:
            _check(name, stored[name], stored[name].kind in (NUMBERS, TEXT))
            values[name] = stored[name].read()
        elif (value := attribute(name)) is not None:
            values[name] = value
    return Recording(
        features,
        notes=tuple(notes),
        columns={n: Column.of(n, array) for n, array in values.items() if array.size != 1},
        metadata={n: plain_value(n, a.item()) for n, a in values.items() if a.size == 1},
        units={
            feature: (stored[name].unit,) * (array.shape[1] if array.ndim == 2 else 1)
            for name, (feature, array) in zip(names, features.items(), strict=True)
            if stored[name].unit
        },
        array="" if len(names) > 1 else names[0],
    )


def _features(arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The arrays by feature name: a single one is called `signal`."""
    if len(arrays) == 1:
        return {"signal": next(iter(arrays.values()))}
    for name in arrays:
        if not is_feature_name(name):
            raise RejectError(
                f"an array may not be called {name[:80]!r}: expected 1 to 255 characters, without \\ and "
                "control characters; choose others with --arrays"
            )
    if clash := arrays.keys() & {"key", "label"}:
        raise RejectError(f"an array may not be called {min(clash)!r}: choose others with --arrays")
    return arrays


def _check(name: str, array: StoredArray, fits: bool) -> None:
    if not fits:
        shape = format_shape(array.shape)
        raise RejectError(f"array {name!r} is {array.kind} {shape}: expected numbers along time")
