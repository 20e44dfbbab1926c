"""The sensors job: a record is a recording, an array whose first axis is time."""

from __future__ import annotations

import csv
import functools
import io
import math
import warnings
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from beam_jobs.errors import RejectError, UsageError
from beam_jobs.files import Inputs, read_bytes
from beam_jobs.labels import Labels
from readers.format.schema import (
    TENSORFLOW_DTYPES,
    Feature,
    Schema,
    format_shape,
    numpy_dtype,
)

# NumPy tells every user of a file that Python 2 wrote how to make it load faster.
warnings.filterwarnings("ignore", ".*additional header parsing", UserWarning)

ENCODINGS = ("tensor", "raw", "list")

# A CSV file names no dtype; float32 is what models take.
CSV_DTYPE = "float32"

# An archive may claim to unpack to anything; a record cannot exceed protobuf's 2 GiB.
_MAX_ARRAY_BYTES = 1 << 31

# Files looked at for one that can be read, to learn the schema from.
_TRIED = 20


@dataclass(frozen=True)
class SensorJob:
    """What a sensor record is.

    Attributes:
        inputs: `.npy`, `.npz` and `.csv` files.
        labels: Where labels come from.
        features: Name -> dtype and shape [None, ...] of every array of a recording.
        arrays: The names of the arrays to take from `.npz` files; all of them if empty.
        dtype: What to convert every array to; empty for the input's own.
        example: The key of the file that `features` was learned from.
        encoding: Of every array: one of `ENCODINGS`.
    """

    inputs: Inputs
    labels: Labels
    features: tuple[tuple[str, Feature], ...] = ()
    arrays: tuple[str, ...] = ()
    dtype: str = ""
    example: str = ""
    encoding: str = "tensor"

    @classmethod
    def of(
        cls,
        inputs: Inputs,
        labels: Labels,
        arrays: tuple[str, ...] = (),
        dtype: str = "",
        encoding: str = "tensor",
    ) -> SensorJob:
        """The job whose schema is that of the first readable file: all others must agree with it.

        Raises:
            UsageError: None of the first files can be read, or what it holds cannot be encoded so.
        """
        blank = cls(inputs, labels, (), arrays, dtype, encoding=encoding)
        errors: list[str] = []
        for pattern in inputs.patterns:
            for key, _, _ in inputs.files(pattern, limit=_TRIED):
                try:
                    found = blank.read(key)
                except RejectError as error:
                    errors.append(f"{key}: {error}")
                    continue
                return blank._like(key, found)
        raise UsageError(f"no recording among the first {len(errors)} files: {errors[0]}")

    def _like(self, key: str, arrays: dict[str, np.ndarray]) -> SensorJob:
        """The job whose schema is that of one file, with these arrays."""
        try:
            features = tuple(
                (name, Feature(array.dtype.name, (None, *array.shape[1:]), self.encoding))
                for name, array in arrays.items()
            )
        except ValueError as error:
            raise UsageError(
                f"{key}: {error}; choose another --encoding, or convert with --dtype"
            ) from None
        job = replace(self, features=features, example=key)
        try:
            job.schema  # noqa: B018  (the names of arrays are the file's)
        except ValueError as error:
            raise UsageError(f"{key}: {error}; choose others with --arrays") from None
        return job

    @property
    def schema(self) -> Schema:
        """Of the records: the arrays, label unless there are none, key."""
        features = {**dict(self.features), "key": Feature("string")}
        if self.labels.mode != "none":
            features["label"] = Feature("int64")
        return Schema(features)

    def load(self, key: str) -> dict[str, Any]:
        """The arrays of one file, [time, ...] each.

        Raises:
            RejectError: The file cannot be read as a recording.
            UsageError: It can, but its arrays do not fit those of the other files.
        """
        record = self.read(key)
        expected = dict(self.features)
        for name in sorted(expected.keys() | record.keys()):
            found = record.get(name)
            feature = expected.get(name)
            if found is None or feature is None or not _agrees(found, feature):
                raise UsageError(
                    f"{key}: {_described(name, found)}, but {self.example} has "
                    f"{_described(name, feature)}; records of one dataset must agree: narrow "
                    "--input, or convert with --dtype"
                )
        return dict(record)

    def read(self, key: str) -> dict[str, np.ndarray]:
        """The arrays of one file by feature name, [time, ...] each, whatever the others hold.

        Raises:
            RejectError: The file cannot be read as a recording.
        """
        kind = key.rsplit(".", 1)[-1].lower()
        if kind not in _LOADERS:
            raise RejectError(f"expected a .npy, .npz or .csv file, got .{kind}")
        try:
            arrays = _LOADERS[kind](read_bytes(self.inputs.path(key)))
        except RejectError:
            raise
        except OSError as error:
            raise RejectError(f"cannot be read: {error}") from None
        except Exception as error:  # zipfile, NumPy and csv raise nearly everything on broken input
            raise RejectError(f"not a whole .{kind} file: {error}") from None
        dtype = self.dtype or (CSV_DTYPE if kind == "csv" else "")
        return {name: _prepared(array, dtype) for name, array in self._named(arrays).items()}

    def _named(self, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        if missing := [name for name in self.arrays if name not in arrays]:
            raise RejectError(f"no array {missing[0]!r}: the file has {', '.join(arrays)}")
        chosen = {name: arrays[name] for name in self.arrays or arrays}
        if not chosen:
            raise RejectError("the archive holds no array")
        if len(chosen) == 1:
            return {"signal": next(iter(chosen.values()))}
        if clash := chosen.keys() & {"key", "label"}:
            raise RejectError(f"an array may not be called {min(clash)!r}: choose with --arrays")
        return chosen


def _agrees(array: np.ndarray, feature: Feature) -> bool:
    # The name of a dtype takes ten times as long as the comparison that nearly always decides.
    same = array.dtype == numpy_dtype(feature.dtype) or array.dtype.name == feature.dtype
    return same and array.shape[1:] == feature.shape[1:]


@functools.cache
def _is_tensor_dtype(dtype: np.dtype) -> bool:
    return dtype.name in TENSORFLOW_DTYPES


def _prepared(array: np.ndarray, dtype: str) -> np.ndarray:
    if array.ndim == 0:
        raise RejectError("a single number is not a recording")
    if dtype:
        array = _converted(array, dtype)
    if not _is_tensor_dtype(array.dtype):
        raise RejectError(f"dtype {array.dtype} is none that a tensor can have")
    return array[:, None] if array.ndim == 1 else array


def _converted(array: np.ndarray, dtype: str) -> np.ndarray:
    if np.can_cast(array.dtype, dtype, "same_kind"):
        with np.errstate(over="ignore"):
            result = array.astype(dtype)
        if result.dtype.kind in "iu":
            kept = np.array_equal(result, array)
        else:
            kept = np.array_equal(np.isfinite(result), np.isfinite(array))
        if kept:
            return result
    raise RejectError(f"{array.dtype.name} cannot become {dtype} without harm")


def _described(name: str, spec: np.ndarray | Feature | None) -> str:
    if spec is None:
        return f"no {name}"
    shape = spec.shape if isinstance(spec, Feature) else (None, *spec.shape[1:])
    dtype = spec.dtype if isinstance(spec, Feature) else spec.dtype.name
    return f"{name} {dtype} {format_shape(shape)}"


def _load_npy(data: bytes) -> dict[str, np.ndarray]:
    return {"signal": parse_npy(data)}


def parse_npy(data: bytes) -> np.ndarray:
    """The array of a `.npy` file's bytes, as `np.load` reads it but never from pickled objects.

    Raises:
        RejectError: It holds objects.
        ValueError: The bytes are no whole `.npy` file.
    """
    # The parts of a header that NumPy needs 30 us to read; few headers differ in a dataset.
    shape, fortran_order, dtype = _npy_header(data[: _npy_header_bytes(data)])
    if dtype.hasobject:
        raise RejectError("it holds pickled objects, which are never loaded")
    count = math.prod(shape)
    array = (
        np.frombuffer(data, dtype, count, _npy_header_bytes(data)) if count else np.empty(0, dtype)
    )
    return array.reshape(shape[::-1]).T if fortran_order else array.reshape(shape)


def _npy_header_bytes(data: bytes) -> int:
    wide = data[6:7] > b"\x01"
    return (12 if wide else 10) + int.from_bytes(data[8 : 12 if wide else 10], "little")


@functools.lru_cache(maxsize=4096)
def _npy_header(head: bytes) -> tuple[tuple[int, ...], bool, np.dtype]:
    stream = io.BytesIO(head)
    version = np.lib.format.read_magic(stream)
    if version not in ((1, 0), (2, 0), (3, 0)):
        raise ValueError(f"version {version}")
    # Version 3 is version 2 with names of fields in UTF-8, which no recording has.
    wide = version != (1, 0)
    read = np.lib.format.read_array_header_2_0 if wide else np.lib.format.read_array_header_1_0
    shape, fortran_order, dtype = read(stream)
    if min(shape, default=0) < 0:
        raise ValueError(f"shape {shape}")
    return shape, fortran_order, dtype


def _load_npz(data: bytes) -> dict[str, np.ndarray]:
    arrays = {}
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        size = sum(member.file_size for member in archive.infolist())
        if size > _MAX_ARRAY_BYTES:
            raise RejectError(f"it unpacks to {size} bytes, more than a record can hold (2 GiB)")
        for member in archive.infolist():
            if member.filename.endswith(".npy"):
                arrays[member.filename.removesuffix(".npy")] = parse_npy(archive.read(member))
    return arrays


def _load_csv(data: bytes) -> dict[str, np.ndarray]:
    """Columns are channels, rows are times; a first line of names is passed over."""
    rows = [row for row in csv.reader(io.StringIO(data.decode("utf-8-sig"), newline="")) if row]
    if not rows:
        raise RejectError("the file is empty")
    body = rows if _is_numeric(rows[0]) else rows[1:]
    if ragged := next((i for i, row in enumerate(body) if len(row) != len(rows[0])), None):
        raise RejectError(f"row {ragged + 1} has {len(body[ragged])} values, not {len(rows[0])}")
    values = np.array(body, object).reshape(len(body), len(rows[0]))
    return {"signal": values.astype(np.float64)}


def _is_numeric(row: list[str]) -> bool:
    try:
        list(map(float, row))
    except ValueError:
        return False
    return True


_LOADERS: dict[str, Callable[[bytes], dict[str, np.ndarray]]] = {
    "npy": _load_npy,
    "npz": _load_npz,
    "csv": _load_csv,
}
