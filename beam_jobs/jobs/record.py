"""The parts of a record that its source states: its key, its label and its extra columns."""

from __future__ import annotations

from typing import Any, NamedTuple

from beam_jobs.errors import RejectError
from beam_jobs.jobs.job import FileJob
from beam_jobs.records.encode import Record
from beam_jobs.sources.extra_features import extra_values
from beam_jobs.sources.labels import LABEL, ClassIds
from beam_jobs.sources.source import NOT_UTF8, Label, Source
from beam_jobs.storage.encodings import is_utf8


class SourceValues(NamedTuple):
    """The values that a source states of its records, before it is read.

    Attributes:
        label: The label; None without labels.
        extras: The values of extra columns, by feature.
        remark: A remark about the records; empty for none.
    """

    label: Label | None
    extras: dict[str, Any]
    remark: str = ""


def source_values(job: FileJob, source: Source, labelled: bool = False) -> SourceValues:
    """The label and the extra columns of a source, which states no label if its records are `labelled`.

    Raises:
        RejectError: The source has an error, its key is not UTF-8, or its label or a column is
            missing or does not fit.
        UsageError: A label is not of the kind that the job expects.
    """
    if not is_utf8(source.key):
        raise RejectError(NOT_UTF8)
    if source.error:
        raise RejectError(source.error)
    label = source.label
    if label is None and not labelled:
        label = job.labels.of(source)
    extras = extra_values(job.extras, source.row) if job.extras else {}
    return SourceValues(label, extras, source.remark)


def complete(record: Record, key: str, values: SourceValues, class_ids: ClassIds) -> Record:
    """Adds key, label, extra columns and ids of classes to the job's own features of a record."""
    if values.label is not None:
        record[LABEL] = values.label
    class_ids.put(record)
    # Extra columns come last: one of them may have the name of a feature of classes.
    record.update(values.extras)
    record["key"] = key
    record.remarks += (values.remark,) if values.remark else ()
    return record
