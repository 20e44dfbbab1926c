"""The sensors job: a record is a recording, arrays whose first axis is time, or a window of one."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np

from beam_jobs.errors import RejectError, UsageError
from beam_jobs.jobs.encodings import Encodings
from beam_jobs.jobs.file_passes import FilesInParts
from beam_jobs.jobs.near import Compared, compared_of
from beam_jobs.jobs.protocols import FileJob, Part, complete_schema
from beam_jobs.jobs.sensors.conditioning import Conditioning
from beam_jobs.jobs.sensors.formats.registry import flags_of
from beam_jobs.jobs.sensors.inside.labels import WindowLabel
from beam_jobs.jobs.sensors.inside.parts import first_record, parts_of_recording, with_rate
from beam_jobs.jobs.sensors.reading import format_rate, read_source
from beam_jobs.jobs.sensors.recording import ReadOptions, Recording
from beam_jobs.jobs.sensors.records import RecordingRecords
from beam_jobs.jobs.sensors.values import (
    count_bytes,
    describe,
    fits_feature,
    prepare_array,
)
from beam_jobs.sources.classes import Names
from beam_jobs.sources.extra_features import ExtraFeature
from beam_jobs.sources.inputs import Inputs
from beam_jobs.sources.labels import Labels
from beam_jobs.sources.source import Source
from readers.format.manifest import SAMPLE_RATE
from readers.format.schema import Feature, Schema

SensorEncoding = Literal["tensor", "raw", "list"]

# Files that are tried when the schema is learned from the first readable one.
_TRIED = 20

# What makes shapes agree, by the flag that a format has.
_CURES = {
    "arrays": ", or choose with --arrays",
    "columns": ", or choose with --columns",
    "channels": ", or mix audio to one channel with --channels 1",
}

# Bytes of an Example besides its arrays; affects only the planned sizes of shards.
_OVERHEAD_BYTES = 150


@dataclass(frozen=True)
class SensorJob(FilesInParts):
    """Turns recording files into records.

    Attributes:
        inputs: Files of the kinds that `read_recording` reads.
        labels: Where labels come from.
        features: Name and feature of every array of a record.
        read_options: How files are read.
        dtype: The dtype to convert every array to; "" keeps the input's own.
        example: The key of the file that `features` was learned from.
        encoding: The encoding of every array.
        extras: Columns that are kept as features.
        conditioning: The steps from a recording to its records.
        rows: Whether each row of a file is a record.
        window_label: How labels of samples become labels of windows.
        rate_column: The column of metadata with the samples per second of files that do not state it.
        rate: Samples per second of all records, if the first file states it.
        encodings: The encodings of features that are chosen by name.
        warnings: Remarks about the first file, to be printed before the job runs.
    """

    inputs: Inputs
    labels: Labels
    features: tuple[tuple[str, Feature], ...] = ()
    read_options: ReadOptions = field(default_factory=ReadOptions)
    dtype: str = ""
    example: str = ""
    encoding: SensorEncoding = "tensor"
    extras: tuple[ExtraFeature, ...] = ()
    conditioning: Conditioning = field(default_factory=Conditioning)
    rows: bool = False
    window_label: WindowLabel = field(default_factory=WindowLabel)
    rate_column: str = ""
    rate: float | None = None
    encodings: Encodings = field(default_factory=dict)
    warnings: tuple[str, ...] = ()

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
    def has_windows(self) -> bool:
        return self.conditioning.cuts

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

    def record_size(self, record: dict[str, Any]) -> int:
        """Returns roughly how many bytes a record takes in its shard."""
        return _OVERHEAD_BYTES + sum(map(count_bytes, record.values()))

    def keys(self, source: Source, records: int) -> list[str]:
        """Returns the keys of the records of a recording, given their number."""
        if not self.conditioning.cuts:
            return [source.key]
        return [f"{source.key}#{number}" for number in range(1, records + 1)]

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

    def records_from(
        self,
        recording: Recording,
        clocks: Mapping[str, np.ndarray | float],
        labelled: bool = False,
    ) -> RecordingRecords:
        """Returns the records of a recording; the arguments are those of `Conditioning.segments`.

        Raises:
            RejectError: it cannot become a record.
            UsageError: a length is in seconds and no rate is known.
        """
        segments = self.conditioning.segments(
            recording.arrays, clocks, recording.rate, labelled=labelled
        )
        return RecordingRecords(self.conditioning, segments, recording.rate, self._prepare)

    def _prepare(self, array: np.ndarray) -> np.ndarray:
        return prepare_array(array, self.dtype)

    def check_record(
        self, key: str, recording: Recording, record: dict[str, Any]
    ) -> dict[str, Any]:
        """Returns the record.

        Raises:
            UsageError: the record does not fit the schema, or its rate is another.
        """
        if not self.features:  # They are being learned.
            return record
        if recording.rate != self.rate and not self.conditioning.resample:
            raise UsageError(
                f"{key}: {format_rate(recording.rate)}, but {self.example} has "
                f"{format_rate(self.rate)}; records of one dataset must agree: narrow --input, or "
                "add --resample"
            )
        expected = dict(self.features)
        for name in sorted(expected.keys() | record.keys()):
            found, feature = record.get(name), expected.get(name)
            if not feature or not fits_feature(found, feature):
                raise UsageError(
                    f"{key}: {describe(name, found, self.rows)}, but {self.example} has "
                    f"{describe(name, feature)}; records of one dataset must agree: narrow "
                    f"--input{self._cure(key, found, feature)}"
                )
        return record

    def _cure(self, key: str, found: Any, feature: Feature | None) -> str:
        """Returns the flag that makes an array fit the feature; empty if no flag does."""
        if found is None or feature is None:
            return ", or choose with --arrays"
        if isinstance(found, list) or found.dtype.name != feature.dtype:
            return ", or convert with --dtype"
        flags = flags_of(key)
        return next((cure for flag, cure in _CURES.items() if flag in flags), "")
