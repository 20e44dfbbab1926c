"""The arrays of a file that has them by name: which are read, and a remark about the others."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from beam_jobs.errors import RejectError
from beam_jobs.jobs.sensors.read_options import ReadOptions, choose_arrays
from beam_jobs.jobs.sensors.recording import Column, Recording, plain_value
from beam_jobs.storage.limits import check_bytes
from readers.format.display import first_names
from readers.format.encodings.spec import format_shape

NUMBERS = "numbers"
# The parts of complex numbers as MATLAB, Octave and Julia write them in HDF5; h5py knows its own, `r` and `i`.
COMPLEX = ("real", "imag")
_NAMES_SHOWN = 8


class StoredArray(NamedTuple):
    """An array of a file, before it is read.

    Attributes:
        kind: `NUMBERS`, or the kind of values that records cannot hold, such as "text".
        shape: Its shape.
        nbytes: The bytes that it takes once it is read.
        read: Reads it.
        role: Why it is read only if `--arrays` names it, such as "coordinate"; "" if it is read without.
        unit: The unit of its values; "" if unknown.
    """

    kind: str
    shape: tuple[int, ...]
    nbytes: int = 0
    read: Callable[[], np.ndarray] = lambda: np.empty(0)
    role: str = ""
    unit: str = ""


def kind_of(dtype: np.dtype) -> str:
    """What an array of a dtype holds; h5py's dtypes of objects have metadata."""
    if dtype.names and dtype.names != COMPLEX:
        return f"compound of {first_names(dtype.names, _NAMES_SHOWN)}"
    of: Mapping[str, Any] = dtype.metadata or {}
    if dtype.kind in "SU" or of.get("vlen") in (str, bytes):
        return "text"
    if dtype.kind == "O":
        return "ragged" if "vlen" in of else "references" if "ref" in of else "pickled objects"
    return NUMBERS if dtype.kind in "biufc" or dtype.names else dtype.name


def read_stored(
    stored: Mapping[str, StoredArray],
    options: ReadOptions,
    attributes: Mapping[str, Any],
) -> Recording:
    """The recording of the chosen arrays, or of all that hold numbers along time; a single one is called `signal`.

    Args:
        stored: The arrays by name.
        attributes: Those of the file; arrays go first.

    Raises:
        RejectError: An array that is asked for is missing, holds no numbers along time, or has not one value
            for each sample; none is left; or they take more than `options.max_bytes`.
    """
    names, others = dict.fromkeys(choose_arrays(stored, options)), list[str]()
    for name in [*names]:
        kind, shape, _, _, role, _ = stored[name]
        if options.arrays and (kind != NUMBERS or not shape):
            found = f"{kind} {format_shape(shape)}"
            raise RejectError(f"array {name!r} is {found}: expected numbers along time")
        role = "" if options.arrays else role or ("" if shape else "single number")
        if why := role if kind == NUMBERS else kind:
            others.append(f"{name} ({why})")
            del names[name]
    listed = first_names(others, _NAMES_SHOWN)
    if not names:
        raise RejectError(f"it has no array of numbers{listed and f', only {listed}'}")
    if clash := {"key", "label"}.intersection(names) if len(names) > 1 else ():
        raise RejectError(f"an array may not be called {min(clash)!r}: choose others with --arrays")
    check_bytes(sum(stored[name].nbytes for name in names), options.max_bytes)
    features = {name if len(names) > 1 else "signal": stored[name].read() for name in names}
    own = {n: stored[n].read() for n in options.own_columns if n in stored}
    for name in options.own_columns:
        if name not in own and name in attributes and np.size(attributes[name]) == 1:
            own[name] = np.asarray(attributes[name])
    units = {
        feature: (stored[name].unit,) * (array.shape[1] if array.ndim == 2 else 1)
        for name, (feature, array) in zip(names, features.items(), strict=True)
        if stored[name].unit
    }
    return Recording(
        features,
        notes=(f"not read: {listed}; choose arrays with --arrays",) if others else (),
        columns={n: Column.of(n, array) for n, array in own.items() if array.size != 1},
        metadata={n: plain_value(n, array.item()) for n, array in own.items() if array.size == 1},
        units=units,
        array="" if len(names) > 1 else next(iter(names)),
    )
