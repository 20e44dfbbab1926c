"""The sensors job: a record is a recording, an array whose first axis is time, or a window of one."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from beam_jobs.errors import RejectError, UsageError
from beam_jobs.jobs.file_passes import FilesInParts
from beam_jobs.jobs.protocols import complete_schema
from beam_jobs.jobs.sensors.conditioning import Conditioning, Records
from beam_jobs.jobs.sensors.formats import read_recording
from beam_jobs.jobs.sensors.recording import Reading, Recording
from beam_jobs.sources.classes import Names
from beam_jobs.sources.extra_features import ExtraFeature
from beam_jobs.sources.inputs import Inputs
from beam_jobs.sources.labels import Labels
from beam_jobs.sources.source import Source
from beam_jobs.storage.files import read_bytes
from readers.format.schema import (
    TENSORFLOW_DTYPES,
    Feature,
    Schema,
    fits,
    format_shape,
    numpy_dtype,
)

ENCODINGS = ("tensor", "raw", "list")

# A CSV file names no dtype; float32 is what models take.
CSV_DTYPE = "float32"

# Files looked at for one that can be read, to learn the schema from.
_TRIED = 20

# What an Example adds to its arrays; only sizes of shards depend on it.
_OVERHEAD_BYTES = 150


@dataclass(frozen=True)
class SensorJob(FilesInParts):
    """What a sensor record is.

    Attributes:
        inputs: Files of the kinds of `read_recording`.
        labels: Where labels come from.
        features: Name -> dtype, shape and encoding of every array of a record.
        reading: How files are read.
        dtype: What to convert every array to; empty for the input's own.
        example: The key of the file that `features` was learned from.
        encoding: Of every array: one of `ENCODINGS`.
        extras: Columns that are kept as features.
        conditioning: What is done to recordings.
        rate: Samples a second of all records, where the first file says.
    """

    inputs: Inputs
    labels: Labels
    features: tuple[tuple[str, Feature], ...] = ()
    reading: Reading = field(default_factory=Reading)
    dtype: str = ""
    example: str = ""
    encoding: str = "tensor"
    extras: tuple[ExtraFeature, ...] = ()
    conditioning: Conditioning = field(default_factory=Conditioning)
    rate: float | None = None

    def learned(self) -> SensorJob:
        """The job whose schema is that of the first readable file: all others must agree with it.

        Raises:
            UsageError: None of the first files can be read, or what it holds cannot be encoded so.
        """
        errors: list[str] = []
        first = (self.inputs.first(pattern, _TRIED) for pattern in self.inputs.patterns)
        for source, data in itertools.chain.from_iterable(first):
            try:
                recording, records = self._records(source, data)
                record = next(iter(records))
            except RejectError as error:
                errors.append(f"{source.key}: {error}")
                continue
            return replace(self, rate=recording.rate)._like(source.key, record)
        if not errors:
            raise UsageError("the inputs hold no recording: no dataset was written")
        raise UsageError(f"no recording among the first {len(errors)} files: {errors[0]}")

    def _like(self, key: str, record: dict[str, Any]) -> SensorJob:
        """The job whose schema is that of one record."""
        try:
            features = tuple((name, self._feature(value)) for name, value in record.items())
        except ValueError as error:
            raise UsageError(
                f"{key}: {error}; choose another --encoding, or convert with --dtype"
            ) from None
        job = replace(self, features=features, example=key)
        for name, feature in features:
            if not _agrees(record[name], feature):
                raise UsageError(
                    f"{key}: {_described(name, record[name])}: the arrays of a --sequence must "
                    "agree: convert with --dtype, or choose with --arrays"
                )
        try:
            job.schema  # noqa: B018  (the names of arrays are the file's)
        except ValueError as error:
            raise UsageError(f"{key}: {error}; choose others with --arrays") from None
        return job

    def _feature(self, value: Any) -> Feature:
        if isinstance(value, list):
            first = value[0]
            return Feature(first.dtype.name, (None, None, *first.shape[1:]), "sequence")
        if value.ndim == 0:  # the share of samples that were filled in
            return Feature(value.dtype.name)
        length = len(value) if self.conditioning.cuts else None
        return Feature(value.dtype.name, (length, *value.shape[1:]), self.encoding)

    @property
    def schema(self) -> Schema:
        """Of the records: the arrays, and what every job's have."""
        return complete_schema(dict(self.features), self.labels, self.extras)

    @property
    def has_windows(self) -> bool:
        return self.conditioning.cuts

    @property
    def class_names(self) -> Names:
        return {}

    def sources(self, pattern: str) -> Iterator[Source]:
        return self.inputs.sources(pattern)

    def unpacked(self, source: Source) -> Iterator[tuple[Source, bytes]]:
        return self.inputs.unpacked(source)

    def classes_of(self, source: Source) -> Mapping[str, Iterable[str]]:
        return {}

    def load(self, source: Source) -> dict[str, Any]:
        """The arrays of one recording, [time, ...] each.

        Raises:
            RejectError: It cannot be read as a recording.
            UsageError: It can, but its arrays do not fit those of the other files.
        """
        recording, records = self._records(source, None)
        return self._checked(source.key, recording, next(iter(records)))

    def parts_of(self, source: Source, data: bytes) -> list[tuple[str, int]]:
        recording, records = self._records(source, data)
        # Several records of a file are windows, of which one is as large as another.
        first = self._checked(source.key, recording, next(iter(records)))
        size = _OVERHEAD_BYTES + sum(map(_bytes_of, first.values()))
        return [(key, size) for key in self._keys(source, len(records))]

    def records_of(self, source: Source, data: bytes) -> Iterator[tuple[str, dict[str, Any]]]:
        recording, records = self._records(source, data)
        for key, record in zip(self._keys(source, len(records)), records, strict=True):
            yield key, self._checked(source.key, recording, record)

    def _keys(self, source: Source, records: int) -> list[str]:
        if not self.conditioning.cuts:
            return [source.key]
        return [f"{source.key}#{number}" for number in range(1, records + 1)]

    def _records(
        self, source: Source, data: bytes | None
    ) -> tuple[Recording, Records | list[dict[str, Any]]]:
        """What a source holds, and the records that become of it."""
        recording, times = self._recording(source, data)
        segments = self.conditioning.segments(recording.arrays, times, recording.rate)
        if self.conditioning.keeps_whole:  # `Records` would give the same, in 5 us more
            arrays = segments[0].arrays.items()
            return recording, [{name: self._prepared(array) for name, array in arrays}]
        return recording, Records(self.conditioning, segments, recording.rate, self._prepared)

    def _prepared(self, array: np.ndarray) -> np.ndarray:
        return _prepared(array, self.dtype)

    def _checked(self, key: str, recording: Recording, record: dict[str, Any]) -> dict[str, Any]:
        """The record, which agrees with the first one.

        Raises:
            UsageError: It does not.
        """
        if recording.rate != self.rate and not self.conditioning.resample:
            raise UsageError(
                f"{key}: {_rate(recording.rate)}, but {self.example} has {_rate(self.rate)}; "
                "records of one dataset must agree: narrow --input, or add --resample"
            )
        expected = dict(self.features)
        for name in sorted(expected.keys() | record.keys()):
            found, feature = record.get(name), expected.get(name)
            if feature and _agrees(found, feature):
                continue
            raise UsageError(
                f"{key}: {_described(name, found)}, but {self.example} has "
                f"{_described(name, feature)}; records of one dataset must agree: narrow "
                "--input, or convert with --dtype"
            )
        return record

    def read(self, source: Source) -> dict[str, np.ndarray]:
        """The arrays of one file by feature name, [time, ...] each, whatever the others hold.

        Raises:
            RejectError: The file cannot be read as a recording.
        """
        _, records = self._records(source, None)
        return next(iter(records))

    def _recording(
        self, source: Source, data: bytes | None
    ) -> tuple[Recording, dict[str, np.ndarray]]:
        """What a source holds, and the times of those arrays that have some.

        Args:
            data: Its bytes, where they are read.

        Raises:
            RejectError: It cannot be read as a recording.
        """
        if source.error:
            raise RejectError(source.error)
        if not source.joined:
            found = self._file(source.file, self._bytes(source) if data is None else data)
            times = {} if found.times is None else dict.fromkeys(found.arrays, found.times)
            return found, times
        arrays: dict[str, np.ndarray] = {}
        clocks: dict[str, np.ndarray] = {}
        rates: set[float | None] = set()
        for name, path, _, _ in source.joined:
            try:
                found = self._file(path, read_bytes(path))
            except OSError as error:
                raise RejectError(f"{name}: cannot be read: {error}") from None
            except RejectError as error:
                raise RejectError(f"{name}: {error}") from None
            rates.add(found.rate)
            for array, values in found.arrays.items():
                whole = name if array == "signal" else f"{name}/{array}"
                arrays[whole] = values
                if found.times is not None:
                    clocks[whole] = found.times
                elif found.rate and self.conditioning.resample:
                    clocks[whole] = np.arange(len(values)) / found.rate
        if self.conditioning.resample:
            return Recording(arrays), clocks
        if len(rates) > 1:
            raise RejectError(
                f"its files have {' and '.join(sorted(map(_rate, rates)))}: --resample brings them "
                "to one rate"
            )
        return Recording(arrays, rates.pop()), clocks

    def _bytes(self, source: Source) -> bytes:
        try:
            return self.inputs.read(source)
        except OSError as error:
            raise RejectError(f"cannot be read: {error}") from None

    def _file(self, name: str, data: bytes) -> Recording:
        kind = name.rsplit(".", 1)[-1].lower()
        found = read_recording(kind, data, self.reading)
        if kind == "csv" and not self.dtype:
            arrays = {n: _converted(array, CSV_DTYPE) for n, array in found.arrays.items()}
            found = found._replace(arrays=arrays)
        return found


def _rate(rate: float | None) -> str:
    return f"{rate:g} Hz" if rate else "no rate"


def _bytes_of(value: Any) -> int:
    if isinstance(value, list):
        return sum(map(_bytes_of, value))
    size: int = value.nbytes
    return size


def _agrees(value: Any, feature: Feature) -> bool:
    if value is None:
        return False
    if isinstance(value, list):
        part = Feature(feature.dtype, feature.shape[1:], "tensor")
        return feature.encoding == "sequence" and all(_agrees(array, part) for array in value)
    array: np.ndarray = value
    # The name of a dtype takes ten times as long as the comparison that nearly always decides.
    same = array.dtype == numpy_dtype(feature.dtype) or array.dtype.name == feature.dtype
    return same and fits(feature.shape, array.shape)


@functools.cache
def _is_tensor_dtype(dtype: np.dtype) -> bool:
    return dtype.name in TENSORFLOW_DTYPES


def _prepared(array: np.ndarray, dtype: str) -> np.ndarray:
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


def _described(name: str, spec: Any) -> str:
    if spec is None:
        return f"no {name}"
    if isinstance(spec, list):
        shapes = sorted({f"{array.dtype.name} {format_shape(array.shape)}" for array in spec})
        return f"{name} of {', '.join(shapes[:3])}"
    shape = spec.shape if isinstance(spec, Feature) else (None, *spec.shape[1:])
    dtype = spec.dtype if isinstance(spec, Feature) else spec.dtype.name
    return f"{name} {dtype} {format_shape(shape)}"
