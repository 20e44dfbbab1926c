"""The parts of a recording file: the file itself, recordings that a column tells apart, or rows."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any, NamedTuple

from beam_jobs.errors import RejectError, UsageError
from beam_jobs.jobs.record import source_values
from beam_jobs.jobs.sensors.inside.columns import Column, groups_of, row_columns
from beam_jobs.jobs.sensors.inside.rows import RowPart, rows_of
from beam_jobs.jobs.sensors.recording import Recording
from beam_jobs.jobs.sensors.records import RecordingRecords
from beam_jobs.jobs.sensors.spans import parse_rate
from beam_jobs.jobs.sensors.spec import SensorSpec
from beam_jobs.records.rejects import Reject
from beam_jobs.sources.source import Source, column_of

# Parts of a file that are tried when the schema is learned.
_TRIED = 20

_NO_LABEL = "none of its samples has a label"


class RecordingPart(NamedTuple):
    """A recording in a file.

    Attributes:
        spec: Defines the records.
        source: Its key, its metadata, and why it cannot become records.
        recording: The recording.
        made: Its records.
        keys: Their keys.
        labels: The label of each record that has one; None if `source` states that of all.
        rejects: The records without a label.
    """

    spec: SensorSpec
    source: Source
    recording: Recording
    made: RecordingRecords | tuple[()] = ()
    keys: tuple[str, ...] = ()
    labels: list[str] | None = None
    rejects: tuple[Reject, ...] = ()

    @property
    def place(self) -> str:
        return self.source.key

    def planned(self) -> list[tuple[str, int]]:
        size = self.spec.record_size(self._checked(next(iter(self.made))))
        rejected = {reject.key for reject in self.rejects}
        return [(key, size) for key in self.keys if key not in rejected]

    def records(self) -> Iterator[tuple[str, dict[str, Any]]]:
        rejected = {reject.key for reject in self.rejects}
        for key, record in zip(self.keys, self.made, strict=True):
            if key not in rejected:
                yield key, self._checked(record)

    def _checked(self, record: dict[str, Any]) -> dict[str, Any]:
        return self.spec.check_record(self.source.key, self.recording, record)


def parts_of_recording(
    spec: SensorSpec, source: Source, recording: Recording
) -> Iterator[RecordingPart | RowPart]:
    """Yields the parts of a recording file.

    Raises:
        RejectError: the file cannot become records.
    """
    if spec.rows:
        yield from _row_parts(spec, source, recording)
        return
    name = spec.read_options.recording_column
    if not name:
        yield _recording_part(spec, source, recording)
        return
    if name not in recording.columns:
        raise RejectError(f"{name!r} is a single value: expected the recording of each sample")
    for value, error, rows in groups_of(recording.columns[name]):
        inner = source._replace(key=f"{source.key}#{value}", path=source.file, error=error)
        yield _recording_part(spec, inner, recording.take(rows))


def first_record(
    spec: SensorSpec, source: Source, recording: Recording
) -> tuple[Recording, dict[str, Any]]:
    """Returns the first recording of a file that becomes records, and the first of these.

    Raises:
        RejectError: none of its first parts becomes a record.
    """
    errors: list[RejectError | Reject] = []
    for part in itertools.islice(parts_of_recording(spec, source, recording), _TRIED):
        try:
            source_values(spec, part.source, labelled=part.labels is not None)
            for _, record in part.records():
                return part.recording, record
            errors += part.rejects
        except RejectError as error:
            errors.append(error)
    raise RejectError(str(errors[0]) if errors else "it has no rows")


def _recording_part(spec: SensorSpec, source: Source, recording: Recording) -> RecordingPart:
    if source.error:
        return RecordingPart(spec, source, recording)
    try:
        recording = recording.in_order(spec.read_options.times)
        source, labels = _stated(spec, source, recording)
        recording = with_rate(recording, spec.rate_column, source)
        made = spec.records_from(recording, recording.clocks, labelled=labels is not None)
        found = spec.window_label.of(labels, made.samples()) if labels else None
    except RejectError as error:
        return RecordingPart(spec, source._replace(error=str(error)), recording)
    keys = tuple(spec.keys(source, len(made)))
    part = RecordingPart(spec, source, recording, made, keys)
    if found is None:
        return part
    rejects = [
        Reject.of(key, "read", _NO_LABEL)
        for key, label in zip(keys, found, strict=True)
        if label is None
    ]
    labels_found = [label for label in found if label is not None]
    return part._replace(labels=labels_found, rejects=tuple(rejects))


def _stated(spec: SensorSpec, source: Source, recording: Recording) -> tuple[Source, Column | None]:
    """Returns the source with the metadata of its file, and the labels that each window has by itself.

    Raises:
        RejectError: a column has several values, or not one for each sample.
    """
    recording.check_columns()
    columns = dict(recording.columns)
    labels = columns.pop(spec.labels.table, None) if spec.has_windows else None
    row = {name: column.single(name) for name, column in columns.items()}
    return source._replace(row={**recording.metadata, **row, **source.row}), labels


def with_rate(recording: Recording, column: str, source: Source) -> Recording:
    """Returns the recording with the rate in a column of its metadata, unless its file states one.

    Raises:
        RejectError: there is no such column, or its value is not a rate.
    """
    if not column or recording.rate:
        return recording
    value = column_of(source.row, column)
    try:
        text = value if isinstance(value, str) else f"{value:f}"
        return recording._replace(rate=parse_rate(text.strip()))
    except (UsageError, TypeError, ValueError):
        raise RejectError(
            f"--rate column:{column} is {value!r:.80}: expected samples per second, such as 50"
        ) from None


def _row_parts(spec: SensorSpec, source: Source, recording: Recording) -> Iterator[RowPart]:
    recording = recording._replace(rate=None, times=None)  # A row has no time.
    arrays, errors = rows_of(recording, spec.conditioning.nan, spec.dtype)
    first = {name: array[0] for name, array in arrays.items()}
    size = spec.record_size(spec.check_record(source.key, recording, first))
    count = len(next(iter(arrays.values())))
    for number, row in zip(range(count), row_columns(recording.columns), strict=False):
        inner = source._replace(
            key=f"{source.key}#{number + 1}",
            path=source.file,
            row={**recording.metadata, **row, **source.row},
            error=errors.get(number, ""),
        )
        yield RowPart(inner, recording, arrays, number, size)
