"""The sensors job: a record is a recording (arrays whose first axis is time), a window of one, or a row."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from beam_jobs.engines.pool import note_reading
from beam_jobs.errors import RejectError, UsageError
from beam_jobs.jobs.file_passes import FilesInParts
from beam_jobs.jobs.job import Part
from beam_jobs.jobs.record import Record, source_values
from beam_jobs.jobs.sensors.arrays import convert_array, note_rounded, prepare_array
from beam_jobs.jobs.sensors.channels import aligned
from beam_jobs.jobs.sensors.conditioning import parse_rate
from beam_jobs.jobs.sensors.formats.registry import read_recording
from beam_jobs.jobs.sensors.recording import Clock, Recording
from beam_jobs.jobs.sensors.sensor_spec import SensorSpec, format_rate
from beam_jobs.jobs.sensors.windows import Windows, rows_of, window_labels
from beam_jobs.records.rejects import Reject
from beam_jobs.sources.source import Source, column_of
from beam_jobs.storage.files import read_bytes
from beam_jobs.storage.limits import check_bytes

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


class SensorJob(SensorSpec, FilesInParts):
    """Turns recording files into records."""

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

    def classes_of(self, source: Source) -> Mapping[str, Iterable[str]]:
        return {}

    def unpacked(self, source: Source) -> Iterator[tuple[Source, bytes]]:
        return self.inputs.unpacked(source)

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
