"""The sensors job: a record is a recording (arrays whose first axis is time), a window of one, or a row."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple

import numpy as np

from beam_jobs.engines.pool import note_reading
from beam_jobs.errors import RejectError, UsageError
from beam_jobs.jobs.encodings import Encodings
from beam_jobs.jobs.file_passes import FilesInParts
from beam_jobs.jobs.job import Part, complete_schema
from beam_jobs.jobs.near import Compared, compared_of
from beam_jobs.jobs.record import Record, source_values
from beam_jobs.jobs.sensors.arrays import (
    convert_array,
    describe,
    fits_feature,
    note_rounded,
    prepare_array,
)
from beam_jobs.jobs.sensors.channels import aligned, few
from beam_jobs.jobs.sensors.conditioning import Conditioning, parse_rate
from beam_jobs.jobs.sensors.formats.registry import flags_of, read_recording
from beam_jobs.jobs.sensors.read_options import ReadOptions
from beam_jobs.jobs.sensors.recording import Clock, Recording
from beam_jobs.jobs.sensors.windows import Windows, rows_of, window_labels
from beam_jobs.records.rejects import Reject
from beam_jobs.sources.extra_features import ExtraFeature
from beam_jobs.sources.inputs import Inputs
from beam_jobs.sources.labels import Labels, Names
from beam_jobs.sources.source import Source, column_of
from beam_jobs.storage.files import read_bytes
from beam_jobs.storage.limits import check_bytes
from readers.format.manifest import CHANNELS, SAMPLE_RATE, UNITS
from readers.format.schema import Feature, Schema

SensorEncoding = Literal["tensor", "raw", "list", "zlib", "zlib_shuffled"]

# The advice about shapes that differ, by the flag that a format has.
_CURES = {
    "arrays": ", or choose with --arrays",
    "columns": ", or choose with --columns",
    "channels": ", or mix audio to one channel with --channels 1",
}

# Bytes of an Example besides its arrays; affects only the planned sizes of shards.
_OVERHEAD_BYTES = 150

# The schema is learned from the first readable file; this many files, and parts of a file, are tried.
_TRIED = 20

_NO_LABEL = "none of its samples has a label"

# The records of a recording, as arrays [time, ...] by name.
Records = Windows | Sequence[dict[str, Any]]


class RecordingPart(NamedTuple):
    """A recording of a file, or a row of one, once the file is read.

    Attributes:
        source: Its key, its metadata, and the reason if it cannot become records.
        recording: The recording, or all rows.
        made: Its records.
        keys: Their keys; empty for those among `rejects`.
        size: Checks the records, and returns the approximate bytes of each in its shard.
        labels: The label of each record that has one; None if `source` states that of all.
        rejects: The records without a label.
    """

    source: Source
    recording: Recording
    made: Records = ()
    keys: Sequence[str] = ()
    size: Callable[[], int] = int
    labels: Sequence[str] | None = None
    rejects: Sequence[Reject] = ()

    @property
    def place(self) -> str:
        return self.source.key

    def planned(self) -> list[tuple[str, int]]:
        size = self.size()
        return [(key, size) for key in self.keys if key]

    def records(self) -> Iterator[tuple[str, Record]]:
        self.size()
        for key, record in zip(self.keys, self.made, strict=True):
            if key:
                yield key, Record(record, self.recording.notes)


@dataclass(frozen=True)
class SensorJob(FilesInParts):
    """The records of a sensors job: recordings, or parts of them.

    Attributes:
        inputs: Files of the kinds that `read_recording` reads.
        labels: Where labels come from.
        features: The feature of every array of a record, by name.
        read_options: How files are read.
        dtype: The dtype to convert every array to; "" keeps the input's own.
        example: The key of the file that `features` was learned from.
        encoding: The encoding of every array.
        extras: Columns that are kept as features.
        conditioning: The steps from a recording to its records.
        rows: Whether each row of a file is a record.
        window_label: The rule of `window_labels` that makes labels of windows.
        rate_column: The column of metadata with the samples per second of files that do not state it.
        encodings: The encodings of features that are chosen by name.
        first: The first file, without its arrays.
        warnings: Remarks about the first file, to be printed before the job runs.
    """

    inputs: Inputs
    labels: Labels
    features: Mapping[str, Feature] = field(default_factory=dict)
    read_options: ReadOptions = field(default_factory=ReadOptions)
    dtype: str = ""
    example: str = ""
    encoding: SensorEncoding = "tensor"
    extras: tuple[ExtraFeature, ...] = ()
    conditioning: Conditioning = field(default_factory=Conditioning)
    rows: bool = False
    window_label: str = "majority"
    rate_column: str = ""
    encodings: Encodings = field(default_factory=dict)
    first: Recording = field(default_factory=lambda: Recording({}))
    warnings: tuple[str, ...] = ()

    @property
    def has_windows(self) -> bool:
        return self.conditioning.cuts

    @property
    def needs_content(self) -> bool:
        """Whether the records of a file, or their labels and columns, are known only after reading it."""
        return self.rows or bool(self.read_options.own_columns)

    @property
    def schema(self) -> Schema:
        """The schema of the records: their arrays, key, label and extra columns."""
        return complete_schema(self.features, self.labels, self.extras, self.encodings)

    @property
    def facts(self) -> Mapping[str, Any]:
        """What all files state: the names and units of channels, and the rate unless `--resample` replaces it."""
        rate = 0 if self.conditioning.resample else self.first.rate
        facts = {
            SAMPLE_RATE: rate,
            CHANNELS: few(self.first.channels),
            UNITS: few(self.first.units),
        }
        return {name: fact for name, fact in facts.items() if fact}

    @property
    def record_rate(self) -> float | None:
        return None if self.rows else self.conditioning.record_rate(self.first.rate)

    @property
    def record_channels(self) -> int | None:
        counts = {f.shape[-1] for f in self.features.values() if len(f.shape) > 1}
        return None if self.rows or len(counts) != 1 else counts.pop()

    @property
    def class_names(self) -> Names:
        return self.labels.class_names

    @property
    def compared(self) -> Compared:
        signals = {name: f for name, f in self.features.items() if f.is_sequence or f.shape}
        if self.rows or any(len(feature.shape) > 2 for feature in signals.values()):
            raise UsageError(
                "--drop_near_duplicates and --keep_out compare signals [time] or [time, channels]: "
                f"drop {'--record row' if self.rows else 'other arrays'}, or these flags"
            )
        return compared_of(signals)

    def record_size(self, record: Mapping[str, Any]) -> int:
        """The approximate bytes of a record in its shard."""
        arrays = (value if isinstance(value, list) else [value] for value in record.values())
        return _OVERHEAD_BYTES + sum(array.nbytes for some in arrays for array in some)

    def features_of(self, key: str, record: Mapping[str, Any]) -> dict[str, Feature]:
        """The value of `features` that a record defines, which all records must fit.

        Args:
            key: The key of its file.
            record: Its arrays, or lists of arrays, by name.

        Raises:
            UsageError: The arrays cannot be encoded.
        """
        try:
            features = {name: self._feature(name, value) for name, value in record.items()}
            replace(self, features=features).schema  # noqa: B018  (raises if no feature has such a name)
        except ValueError as error:
            cure = "choose another --encoding, convert with --dtype, or choose others with --arrays"
            raise UsageError(f"{key}: {error}; {cure}") from None
        for name, feature in features.items():
            if not fits_feature(record[name], feature):
                raise UsageError(
                    f"{key}: {describe(name, record[name])}: the arrays of a --sequence must "
                    "agree: convert with --dtype, or choose with --arrays"
                )
        return features

    def _feature(self, name: str, value: Any) -> Feature:
        if isinstance(value, list):
            first = value[0]
            return Feature(first.dtype.name, (None, None, *first.shape[1:]), "sequence")
        if value.ndim == 0:  # the share of interpolated samples
            return Feature(value.dtype.name)
        length = len(value) if self.conditioning.cuts or self.rows else None
        encoding = "tensor" if name in self.encodings else self.encoding
        return Feature(value.dtype.name, (length, *value.shape[1:]), encoding)

    def warnings_of(self, key: str, recording: Recording) -> tuple[str, ...]:
        """The value of `warnings` for a recording of a file."""
        notes = [f"{key}: {note}" for note in recording.notes]
        rate = self.conditioning.resample
        for name in recording.arrays if rate else ():
            clock = recording.clock(name)
            steps = np.diff(clock) if isinstance(clock, np.ndarray) else np.empty(0)
            if len(steps) and np.median(steps) * rate < 1 / 1.1:
                notes.append(
                    f"{key}: --resample {rate:g}Hz interpolates {name!r} at the times of --time_column, without "
                    f"a filter, so frequencies above {rate / 2:g} Hz appear as lower ones; if samples are "
                    "evenly spaced, replace --time_column by --rate, which filters them"
                )
        return tuple(notes)

    def check(self, key: str, recording: Recording, record: Mapping[str, Any]) -> None:
        """Checks that a record of a recording fits the schema, if it is known.

        Raises:
            UsageError: The record does not fit, or its rate differs.
        """
        if not self.features:
            return
        if recording.rate != self.first.rate and not self.conditioning.resample:
            raise UsageError(
                f"{key}: {format_rate(recording.rate)}, but {self.example} has "
                f"{format_rate(self.first.rate)}; records of one dataset must agree: narrow --input, or "
                "add --resample"
            )
        for name in sorted(self.features.keys() | record.keys()):
            value, feature = record.get(name), self.features.get(name)
            if not feature or not fits_feature(value, feature):
                raise UsageError(
                    f"{key}: {describe(name, value, self.rows)}, but {self.example} has "
                    f"{describe(name, feature)}; records of one dataset must agree: narrow "
                    f"--input{self._cure(key, value, feature)}"
                )

    def _cure(self, key: str, value: Any, feature: Feature | None) -> str:
        """The flag that makes a value fit the feature; empty if no flag does."""
        if value is None or feature is None:
            return ", or choose with --arrays"
        if isinstance(value, list) or value.dtype.name != feature.dtype:
            return ", or convert with --dtype"
        return next((cure for flag, cure in _CURES.items() if flag in flags_of(key)), "")

    def with_schema(self) -> SensorJob:
        """The job with the schema of the first readable file, which all files must fit.

        Raises:
            UsageError: None of the first files can be read, or its arrays cannot be encoded.
        """
        errors: list[str] = []
        for source, data in self.inputs.first(_TRIED):
            try:
                recording, record = self._first_record(source, data)
            except RejectError as error:
                errors.append(f"{source.key}: {error}")
                continue
            return replace(
                self,
                features=self.features_of(source.key, record),
                example=source.key,
                first=recording._replace(arrays={}, times=None, columns={}, metadata={}, clocks={}),
                warnings=self.warnings_of(source.key, recording),
            )
        if not errors:
            raise UsageError("the inputs have no recording: no dataset was written")
        several = f"no recording among the first {len(errors)} files: " if errors[1:] else ""
        raise UsageError(several + errors[0])

    def _first_record(self, source: Source, data: bytes | None) -> tuple[Recording, dict[str, Any]]:
        """The first recording of a file that becomes records, and the first of these."""
        if not self.needs_content:
            recording, records = self.read(source, data)
            return recording, next(iter(records))
        errors: list[RejectError | Reject] = []
        parts = self._parts(source, self._read_source(source, data))
        for part in itertools.islice(parts, _TRIED):
            try:
                source_values(self, part.source, labelled=part.labels is not None)
                for _, record in part.records():
                    return part.recording, record
                errors += part.rejects
            except RejectError as error:
                errors.append(error)
        raise RejectError(str(errors[0]) if errors else "it has no rows")

    @property
    def whole_files(self) -> bool:
        return super().whole_files and not self.needs_content

    def load(self, source: Source) -> Record:
        recording, records = self.read(source)
        record = next(iter(records))
        self.check(source.key, recording, record)
        return Record(record, recording.notes)

    def parts_of(self, source: Source, data: bytes) -> list[tuple[str, int]]:
        return self._part(source, *self.read(source, data)).planned()

    def records_of(self, source: Source, data: bytes) -> Iterator[tuple[str, Record]]:
        return self._part(source, *self.read(source, data)).records()

    def parts_in(self, source: Source, content: Callable[[], bytes]) -> Iterator[Part]:
        if self.needs_content:
            yield from self._parts(source, self._read_source(source, content()))
        else:
            yield from super().parts_in(source, content)

    # Reading.

    def read(self, source: Source, data: bytes | None = None) -> tuple[Recording, Records]:
        """The recording of a source, and its records, whatever the schema.

        Args:
            data: The bytes of the file if they were read already.

        Raises:
            RejectError: The source cannot be read as a recording. Iteration may raise it, too.
            UsageError: A length is in seconds and no rate is known.
        """
        recording = self._with_rate(source, self._read_source(source, data))
        steps = self.conditioning
        if steps.window or steps.resample or steps.sequence:
            return recording, Windows(steps, recording, self.dtype)
        arrays = steps.segments(recording)[0].arrays  # `Windows` takes 5 us more.
        return recording, [{n: prepare_array(a, self.dtype) for n, a in arrays.items()}]

    def _read_source(self, source: Source, data: bytes | None) -> Recording:
        if source.error:
            raise RejectError(source.error)
        if source.joined:
            recording = self._read_joined(source)
        else:
            data = self.inputs.read(source) if data is None else data
            recording = self._read_file(source.file, data)
        if not self.features:
            return recording
        return aligned(source.key, recording, self.example, self.first)

    def _read_joined(self, source: Source) -> Recording:
        """The recording that several files form."""
        limit = self.read_options.max_bytes
        note_reading(source.key)
        check_bytes(source.size, limit, "its files have")
        arrays: dict[str, np.ndarray] = {}
        clocks: dict[str, Clock | None] = {}
        channels: dict[str, tuple[str, ...]] = {}
        units: dict[str, tuple[str, ...]] = {}
        rates: set[float | None] = set()
        notes: list[str] = []
        for name, path, _, _ in source.joined:
            try:
                recording = self._read_file(path, read_bytes(path))
            except (OSError, RejectError) as error:
                raise RejectError(f"{name}: {error}") from None
            rates.add(recording.rate)
            notes += (f"{name}: {note}" for note in recording.notes)
            for array, values in recording.arrays.items():
                joined = name if array == "signal" else f"{name}/{array}"
                arrays[joined], clocks[joined] = values, recording.clock(array)
                for stated, texts in ((channels, recording.channels), (units, recording.units)):
                    stated |= {joined: texts[array]} if array in texts else {}
            check_bytes(sum(each.nbytes for each in arrays.values()), limit, "its arrays take")
        if not self.conditioning.resample and len(rates) > 1:
            listed = " and ".join(sorted(map(format_rate, rates)))
            raise RejectError(f"its files have {listed}: --resample brings them to one rate")
        rate = None if self.conditioning.resample else rates.pop()
        return Recording(
            arrays, rate, notes=tuple(notes), clocks=clocks, channels=channels, units=units
        )

    def _read_file(self, name: str, data: bytes) -> Recording:
        recording = read_recording(name, data, self.read_options)
        if not recording.dtype or self.dtype:
            return recording
        arrays = {n: convert_array(a, recording.dtype) for n, a in recording.arrays.items()}
        rounded = map(note_rounded, recording.arrays.values())
        return recording._replace(arrays=arrays, notes=sum(rounded, recording.notes))

    def _with_rate(self, source: Source, recording: Recording) -> Recording:
        """The recording with the rate in its metadata, unless its file states one."""
        if not self.rate_column or recording.rate:
            return recording
        value = column_of(source.row, self.rate_column)
        try:
            text = value if isinstance(value, str) else f"{value:f}"
            return recording._replace(rate=parse_rate(text.strip()))
        except (UsageError, TypeError, ValueError):
            raise RejectError(
                f"--rate column:{self.rate_column} is {value!r:.80}: expected samples per second, such as 50"
            ) from None

    # Parts.

    def _part(self, source: Source, recording: Recording, records: Records) -> RecordingPart:
        """The part with the records of a recording, which all have the same shapes."""
        numbers = range(1, len(records) + 1)
        cuts = self.conditioning.cuts
        keys = [f"{source.key}#{number}" for number in numbers] if cuts else [source.key]

        def size() -> int:
            first = next(iter(records))
            self.check(source.key, recording, first)
            return self.record_size(first)

        return RecordingPart(source, recording, records, keys, size)

    def _parts(self, source: Source, recording: Recording) -> Iterator[RecordingPart]:
        """Yields the recordings or the rows of a file; raises RejectError if it cannot become records."""
        name = self.read_options.recording_column
        if self.rows:
            yield from self._rows(source, recording)
        elif not name:
            yield self._recording(source, recording)
        elif name not in recording.columns:
            raise RejectError(f"{name!r} is a single value: expected the recording of each sample")
        else:
            for value, error, rows in recording.columns[name].groups():
                part = source._replace(key=f"{source.key}#{value}", path=source.file, error=error)
                yield self._recording(part, recording.take(rows))

    def _recording(self, source: Source, recording: Recording) -> RecordingPart:
        if source.error:
            return RecordingPart(source, recording)
        try:
            if self.read_options.recording_column:
                recording = recording.in_order(self.read_options.times)
            recording.check_columns()
            columns = dict(recording.columns)
            # Each window has its own label.
            of_samples = columns.pop(self.labels.table, None) if self.has_windows else None
            stated = {name: column.single(name) for name, column in columns.items()}
            source = source._replace(row={**recording.metadata, **stated, **source.row})
            recording = self._with_rate(source, recording)
            made = Windows(self.conditioning, recording, self.dtype)
            labels = window_labels(self.window_label, of_samples, made) if of_samples else None
        except RejectError as error:
            return RecordingPart(source._replace(error=str(error)), recording)
        part = self._part(source, recording, made)
        if labels is None:
            return part
        of_keys = dict(zip(part.keys, labels, strict=True))
        return part._replace(
            keys=[key if label else "" for key, label in of_keys.items()],
            labels=list(filter(None, labels)),
            rejects=[Reject.of(key, "read", _NO_LABEL) for key in of_keys if not of_keys[key]],
        )

    def _rows(self, source: Source, recording: Recording) -> Iterator[RecordingPart]:
        recording = recording._replace(rate=None, times=None)  # A row has no time.
        arrays, errors = rows_of(recording, self.conditioning.nan, self.dtype)
        first = {name: array[0] for name, array in arrays.items()}
        size = self._part(source, recording, [first]).size()
        columns = {name: column.of_rows() for name, column in recording.columns.items()}
        for number in range(len(next(iter(arrays.values())))):
            row = {name: values[number] for name, values in columns.items()}
            part = source._replace(
                key=f"{source.key}#{number + 1}",
                path=source.file,
                row={**recording.metadata, **row, **source.row},
                error=errors.get(number, ""),
            )
            record = {name: array[number] for name, array in arrays.items()}
            yield RecordingPart(part, recording, [record], [part.key], lambda: size)


def format_rate(rate: float | None) -> str:
    """A rate in samples per second as errors state it."""
    return f"{rate:g} Hz" if rate else "no rate"
