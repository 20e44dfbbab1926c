"""References -> framed records. Runs in any process: nothing here imports Beam."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from beam_jobs.dataset.shard_writer import Stretch
from beam_jobs.errors import RejectError
from beam_jobs.jobs.job import FileJob
from beam_jobs.jobs.record import Record, complete, source_values
from beam_jobs.records.encode import RecordEncoder
from beam_jobs.records.mapping import Mapper
from beam_jobs.records.rejects import Reject
from beam_jobs.records.statistics import Statistics
from beam_jobs.sources.classes import ClassIds, Names
from beam_jobs.sources.source import Source, unpack_reference
from beam_jobs.storage.files import reading_ahead
from readers.files.stores.ahead import Window
from readers.format.encode import Encoder
from readers.format.schema import Schema


@dataclass(frozen=True)
class Loader:
    """Loads and encodes the records of a job.

    Attributes:
        job: Defines the records.
        schema: The features of every record.
        names: Names of classes by feature; None if they are not known yet.
        feature_names: Names of features in Examples that differ from those in the schema.
        mapper: Makes the features of `schema` from those of the job; None if they are the same.
    """

    job: FileJob
    schema: Schema
    names: Names | None = None
    feature_names: Mapping[str, str] = field(default_factory=dict)
    mapper: Mapper | None = None

    @functools.cached_property
    def _encoder(self) -> Encoder:
        return Encoder(self.schema, self.feature_names)

    @functools.cached_property
    def _class_ids(self) -> ClassIds:
        return ClassIds(self.names)

    def record(self, source: Source) -> Record:
        """The whole record of a source.

        Raises:
            RejectError: The source cannot become a record.
            UsageError: The record does not fit the other records.
        """
        values = source_values(self.job, source)
        return complete(self.job.load(source), source.key, values, self._class_ids)

    def load(self, hashes: np.ndarray, references: Sequence[bytes]) -> tuple[Stretch, Statistics]:
        """The records of some references, in order, framed, and their statistics.

        Args:
            hashes: uint64 [n], the hash of each record.
            references: Their n references.

        Raises:
            UsageError: A record does not fit the others.
        """
        sources = list(map(unpack_reference, references))
        with self._reading_ahead(sources):
            return self._framed(hashes, sources)

    def measure(self, references: Sequence[bytes]) -> list[int | Reject]:
        """The size of each framed record in bytes, or its reject."""
        sources = list(map(unpack_reference, references))
        with self._reading_ahead(sources):
            loaded = [self._framed(np.zeros(1, np.uint64), [source])[0] for source in sources]
        return [part.rejects[0] if part.rejects else int(part.lengths[0]) for part in loaded]

    def _reading_ahead(self, sources: Sequence[Source]) -> Window:
        return reading_ahead(itertools.chain.from_iterable(map(self.job.reads, sources)))

    def _framed(self, hashes: np.ndarray, sources: Sequence[Source]) -> tuple[Stretch, Statistics]:
        encoder = RecordEncoder(self._encoder, self.mapper)
        frames: list[bytes] = []
        rows: list[bytes] = []
        good: list[int] = []
        rejects: list[Reject] = []
        for number, source in enumerate(sources):
            try:
                record = self.record(source)
                facts = record.more_frames, record.unannotated
                frame, row = encoder.encode(0, record, *facts)
                frames.append(frame)
                rows.append(row)
                good.append(number)
            except RejectError as error:
                rejects.append(Reject.of(source.key, "decode", error))
            except ValueError as error:
                rejects.append(Reject.of(source.key, "encode", error))
        statistics = dict(encoder.statistics()).get(0, Statistics(self.schema))
        lengths = np.fromiter(map(len, frames), np.int64, len(frames))
        stretch = Stretch(b"".join(frames), lengths, hashes[good], b"".join(rows), rejects)
        return stretch, statistics
