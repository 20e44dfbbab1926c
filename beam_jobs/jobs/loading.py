"""References -> framed records, in whichever process: nothing here imports Beam."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from beam_jobs.errors import RejectError
from beam_jobs.jobs.protocols import FileJob
from beam_jobs.records.encode import RecordEncoder
from beam_jobs.records.rejects import Reject
from beam_jobs.records.statistics import Statistics
from beam_jobs.sources.classes import ClassIds, Names
from beam_jobs.sources.extra_features import extra_values
from beam_jobs.sources.labels import LABEL, Label, count_labels
from beam_jobs.sources.source import NOT_UTF8, Source, is_utf8, unpack_reference
from readers.format.encode import Encoder
from readers.format.schema import Schema


def known_error(job: FileJob, source: Source) -> str:
    """Why a source cannot become a record, where its name or its row tell; else empty.

    Raises:
        UsageError: As `Labels.of`.
    """
    if not is_utf8(source.key):
        return NOT_UTF8
    try:
        job.labels.of(source)
        extra_values(job.extras, source.row)
    except RejectError as error:
        return str(error)
    return ""


def label_or_none(job: FileJob, source: Source) -> Label | None:
    """The label of a record; None where there are no labels, or it will be rejected."""
    if source.error or not is_utf8(source.key):
        return None
    try:
        return job.labels.of(source)
    except RejectError:
        return None


def classes_in(job: FileJob, sources: Sequence[Source]) -> dict[str, Counter[str]]:
    """How often each class occurs in some records, by feature."""
    found = {LABEL: count_labels(label_or_none(job, source) for source in sources)}
    for source in sources:
        try:
            for feature, names in job.classes_of(source).items():
                found.setdefault(feature, Counter()).update(names)
        except RejectError:
            pass  # Who loads it tells why.
    return found


class Loaded(NamedTuple):
    """Records in order, ready to be written.

    Attributes:
        frames: The framed Examples, one after another.
        lengths: int64 [n], bytes of each.
        rejects: The files that could not become records.
        statistics: Of the records.
    """

    frames: bytes
    lengths: np.ndarray
    rejects: list[Reject]
    statistics: Statistics


@dataclass(frozen=True)
class Loader:
    """Loads and encodes the records of a job.

    Attributes:
        job: What a record is.
        schema: Of the records.
        names: Of classes, as `label_names_of` gives them; None where they are not known yet.
        stored: What features are called in Examples, where it is not their name in the schema.
    """

    job: FileJob
    schema: Schema
    names: Names | None = None
    stored: Mapping[str, str] = field(default_factory=dict)

    @functools.cached_property
    def _encoder(self) -> Encoder:
        return Encoder(self.schema, self.stored)

    @functools.cached_property
    def _class_ids(self) -> ClassIds:
        return ClassIds(self.names)

    def record(self, source: Source) -> dict[str, Any]:
        """The whole record of a source.

        Raises:
            RejectError, UsageError: As `FileJob.load`.
        """
        if not is_utf8(source.key):
            raise RejectError(NOT_UTF8)
        if source.error:
            raise RejectError(source.error)
        record = self.job.load(source)
        record["key"] = source.key
        label = self.job.labels.of(source)
        if label is not None:
            record[LABEL] = label
        return self._class_ids.put(record) | extra_values(self.job.extras, source.row)

    def load(self, references: Sequence[bytes]) -> Loaded:
        """The records of some references.

        Raises:
            UsageError: As `FileJob.load`.
        """
        encoder = RecordEncoder(self._encoder)
        frames: list[bytes] = []
        rejects: list[Reject] = []
        for source in map(unpack_reference, references):
            try:
                frames.append(encoder.encode(0, self.record(source)))
            except RejectError as error:
                rejects.append(Reject.of(source.key, "decode", error))
            except ValueError as error:
                rejects.append(Reject.of(source.key, "encode", error))
        statistics = dict(encoder.statistics()).get(0, Statistics(self.schema))
        lengths = np.fromiter(map(len, frames), np.int64, len(frames))
        return Loaded(b"".join(frames), lengths, rejects, statistics)

    def measure(self, references: Sequence[bytes]) -> list[int | Reject]:
        """The bytes of each record, framing included; or why there is none."""
        loaded = (self.load([reference]) for reference in references)
        return [part.rejects[0] if part.rejects else int(part.lengths[0]) for part in loaded]
