"""The sensors job: a record is a recording, arrays whose first axis is time, or a window of one."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from beam_jobs.errors import RejectError, UsageError
from beam_jobs.jobs.file_passes import FilesInParts
from beam_jobs.jobs.near import Compared, compared_of
from beam_jobs.jobs.protocols import FileJob, Part, complete_schema
from beam_jobs.jobs.sensors.inside.parts import first_record, parts_of_recording, with_rate
from beam_jobs.jobs.sensors.reading import read_source
from beam_jobs.jobs.sensors.recording import Recording
from beam_jobs.jobs.sensors.records import RecordingRecords
from beam_jobs.jobs.sensors.spec import SensorSpec
from beam_jobs.jobs.sensors.values import (
    describe,
    fits_feature,
)
from beam_jobs.sources.classes import Names
from beam_jobs.sources.source import Source
from readers.format.manifest import SAMPLE_RATE
from readers.format.schema import Feature, Schema

# Files that are tried when the schema is learned from the first readable one.
_TRIED = 20


@dataclass(frozen=True)
class SensorJob(SensorSpec, FilesInParts):
    """Turns recording files into records."""

    def with_schema(self) -> SensorJob:
        """Returns the job with the schema of the first readable file, which all files must fit.

        Raises:
            UsageError: none of the first files can be read, or its arrays cannot be encoded.
        """
        errors: list[str] = []
        first = (self.inputs.first(pattern, _TRIED) for pattern in self.inputs.patterns)
        for source, data in itertools.chain.from_iterable(first):
            try:
                recording, clocks, record = self._first_record(source, data)
            except RejectError as error:
                errors.append(f"{source.key}: {error}")
                continue
            warnings = self._warnings(source.key, recording, clocks)
            job = replace(self, rate=recording.rate, warnings=warnings)
            return job._with_schema_of(source.key, record)
        if not errors:
            raise UsageError("the inputs hold no recording: no dataset was written")
        if len(errors) == 1:
            raise UsageError(errors[0])
        raise UsageError(f"no recording among the first {len(errors)} files: {errors[0]}")

    def _first_record(
        self, source: Source, data: bytes | None
    ) -> tuple[Recording, dict[str, np.ndarray | float], dict[str, Any]]:
        """Returns the first recording of a file, its clocks, and the features of its first record.

        Raises:
            RejectError: none of the first parts of the file becomes a record.
        """
        recording, clocks = read_source(self, source, data)
        if not self._reads_inside:
            recording, records = self._records(source, recording, clocks)
            return recording, clocks, next(iter(records))
        recording, record = first_record(self, source, recording)
        return recording, recording.clocks, record

    def _with_schema_of(self, key: str, record: dict[str, Any]) -> SensorJob:
        try:
            features = tuple((name, self._feature(name, value)) for name, value in record.items())
        except ValueError as error:
            raise UsageError(
                f"{key}: {error}; choose another --encoding, or convert with --dtype"
            ) from None
        job = replace(self, features=features, example=key)
        for name, feature in features:
            if not fits_feature(record[name], feature):
                raise UsageError(
                    f"{key}: {describe(name, record[name])}: the arrays of a --sequence must "
                    "agree: convert with --dtype, or choose with --arrays"
                )
        try:
            job.schema  # noqa: B018  (raises if a name in the file cannot be a feature's)
        except ValueError as error:
            raise UsageError(f"{key}: {error}; choose others with --arrays") from None
        return job

    def _warnings(
        self, key: str, recording: Recording, clocks: Mapping[str, np.ndarray | float]
    ) -> tuple[str, ...]:
        notes = [f"{key}: {note}" for note in recording.notes]
        rate = self.conditioning.resample
        for name, clock in clocks.items():
            if not rate or not isinstance(clock, np.ndarray) or len(clock) < 2:
                continue
            found = 1 / float(np.median(np.diff(clock)))
            if found > 1.1 * rate:
                notes.append(
                    f"{key}: {name!r} has about {found:.6g} samples a second, at the times of "
                    f"--time_column: --resample {rate:g}Hz interpolates them without a filter, and "
                    f"frequencies above {rate / 2:g} Hz appear as lower ones; if they are evenly "
                    "spaced, --rate instead of --time_column filters them"
                )
        return tuple(notes)

    def _feature(self, name: str, value: Any) -> Feature:
        if isinstance(value, list):
            first = value[0]
            return Feature(first.dtype.name, (None, None, *first.shape[1:]), "sequence")
        if value.ndim == 0:  # the share of interpolated samples
            return Feature(value.dtype.name)
        length = len(value) if self.conditioning.cuts or self.rows else None
        encoding = "tensor" if name in self.encodings else self.encoding
        return Feature(value.dtype.name, (length, *value.shape[1:]), encoding)

    @property
    def schema(self) -> Schema:
        """The schema of the records: their arrays, key, label and extra columns."""
        return complete_schema(dict(self.features), self.labels, self.extras, self.encodings)

    @property
    def facts(self) -> Mapping[str, Any]:
        """The sampling rate of all files, if they state one and `--resample` does not replace it."""
        return {SAMPLE_RATE: self.rate} if self.rate and not self.conditioning.resample else {}

    @property
    def record_rate(self) -> float | None:
        return None if self.rows else self.conditioning.record_rate(self.rate)

    @property
    def record_channels(self) -> int | None:
        found = {feature.shape[-1] for _, feature in self.features if len(feature.shape) > 1}
        return None if self.rows or len(found) != 1 else found.pop()

    @property
    def _reads_inside(self) -> bool:
        """Whether the records of a file, or what is stated of them, are known only when it is read."""
        return self.rows or bool(self.read_options.inside)

    def as_file_job(self) -> FileJob | None:
        return None if self._reads_inside else super().as_file_job()

    def parts_in(self, source: Source, content: Callable[[], bytes]) -> Iterator[Part]:
        if not self._reads_inside:
            return super().parts_in(source, content)
        return self._parts_inside(source, content)

    def _parts_inside(self, source: Source, content: Callable[[], bytes]) -> Iterator[Part]:
        recording, _ = read_source(self, source, content())
        yield from parts_of_recording(self, source, recording)

    @property
    def class_names(self) -> Names:
        return self.labels.class_names

    @property
    def compared(self) -> Compared:
        signals = {name: f for name, f in self.features if f.encoding == "sequence" or f.shape}
        if self.rows or any(len(feature.shape) > 2 for feature in signals.values()):
            raise UsageError(
                "--drop_near_duplicates, --keep_out and --check compare signals [time] or [time, channels]: "
                f"drop {'--record row' if self.rows else 'other arrays'}, or these flags"
            )
        return compared_of(signals)

    def unpacked(self, source: Source) -> Iterator[tuple[Source, bytes]]:
        return self.inputs.unpacked(source)

    def classes_of(self, source: Source) -> Mapping[str, Iterable[str]]:
        return {}

    def load(self, source: Source) -> dict[str, Any]:
        recording, records = self.read(source)
        return self.check_record(source.key, recording, next(iter(records)))

    def parts_of(self, source: Source, data: bytes) -> list[tuple[str, int]]:
        recording, records = self.read(source, data)
        # Several records of a file are windows, which all have the same size.
        size = self.record_size(self.check_record(source.key, recording, next(iter(records))))
        return [(key, size) for key in self.keys(source, len(records))]

    def records_of(self, source: Source, data: bytes) -> Iterator[tuple[str, dict[str, Any]]]:
        recording, records = self.read(source, data)
        for key, record in zip(self.keys(source, len(records)), records, strict=True):
            yield key, self.check_record(source.key, recording, record)

    def read(
        self, source: Source, data: bytes | None = None
    ) -> tuple[Recording, RecordingRecords | list[dict[str, Any]]]:
        """Reads a source, whatever the schema.

        Args:
            data: The bytes of the file if they were read already.

        Returns:
            The recording, and its records as arrays [time, ...] by name.

        Raises:
            RejectError: the source cannot be read as a recording. Iteration may raise it, too.
            UsageError: a length is in seconds and no rate is known.
        """
        recording, clocks = read_source(self, source, data)
        return self._records(source, recording, clocks)

    def _records(
        self, source: Source, recording: Recording, clocks: Mapping[str, np.ndarray | float]
    ) -> tuple[Recording, RecordingRecords | list[dict[str, Any]]]:
        recording = with_rate(recording, self.rate_column, source)
        if self.conditioning.keeps_whole:  # as `RecordingRecords` gives it, which takes 5 us more
            segments = self.conditioning.segments(recording.arrays, clocks, recording.rate)
            arrays = segments[0].arrays.items()
            return recording, [{name: self._prepare(array) for name, array in arrays}]
        return recording, self.records_from(recording, clocks)
