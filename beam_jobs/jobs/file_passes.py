"""The passes over files that hold many records, or lie in an archive that is read from its front.

In any process: nothing here imports Beam.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from beam_jobs.errors import RejectError
from beam_jobs.jobs.passes import FirstPass, Found, Made, SecondPass
from beam_jobs.jobs.protocols import PartsJob
from beam_jobs.records.encode import RecordEncoder
from beam_jobs.records.rejects import Reject
from beam_jobs.sources.chunks import Work
from beam_jobs.sources.extra_features import extra_values
from beam_jobs.sources.labels import LABEL, Label
from beam_jobs.sources.source import NOT_UTF8, Source, is_utf8

# Bytes of encoded records that are handed over at once.
_BYTES_TOGETHER = 16 << 20


def _files(job: PartsJob, work: Work) -> Iterator[tuple[Source, bytes]]:
    """Yields the files of some work and their bytes; none where a source has an error."""
    for chunk in work.chunks:
        source = chunk.source
        if source.packed and not source.error:
            yield from job.unpacked(source)
            continue
        data = b""
        if not source.error and is_utf8(source.key):
            try:
                data = job.inputs.read(source)
            except OSError as error:
                source = source._replace(error=f"cannot be read: {error}")
            except RejectError as error:
                source = source._replace(error=str(error))
        yield source, data


def _check(source: Source) -> None:
    if not is_utf8(source.key):
        raise RejectError(NOT_UTF8)
    if source.error:
        raise RejectError(source.error)


@dataclass(frozen=True, kw_only=True)
class FileFirstPass(FirstPass):
    """Work -> keys and labels of the records in files.

    Attributes:
        job: What a record is.
    """

    job: PartsJob

    def found(self, work: Work) -> Iterator[Found]:
        for source, data in _files(self.job, work):
            try:
                _check(source)
                label = self.job.labels.of(source)
                extra_values(self.job.extras, source.row)
                split = _split(self, source, label)
                parts = self.job.parts_of(source, data)
            except RejectError as error:
                reject = Reject.of(source.key, "read", error)
                nothing = np.empty(0, np.uint8)
                yield Found([], nothing, nothing.astype(np.int64), [], [reject])
                continue
            splits = np.full(len(parts), split, np.uint8)
            sizes = np.array([size for _, size in parts], np.int64)
            yield Found([key.encode() for key, _ in parts], splits, sizes, [label] * len(parts), [])


def _split(passing: FirstPass | SecondPass, source: Source, label: Label | None) -> int:
    """The one split of all records of a file.

    Raises:
        RejectError: Its name or its row should tell, and does not.
    """
    splits, errors = passing.places.splits_of([source.file.encode()], [source.row], [label])
    if errors:
        raise RejectError(errors[0])
    return int(splits[0])


@dataclass(frozen=True, kw_only=True)
class FileSecondPass(SecondPass):
    """Work -> the encoded records in files.

    Attributes:
        job: What a record is.
    """

    job: PartsJob

    def made(self, work: Work, encoder: RecordEncoder) -> Iterator[Made]:
        for source, data in _files(self.job, work):
            try:
                _check(source)
                label = self.job.labels.of(source)
                extras = extra_values(self.job.extras, source.row)
                split = _split(self, source, label)
            except RejectError as error:
                yield _rejected(source, error)
                continue
            yield from self._encoded(source, data, split, label, extras, encoder)

    def _encoded(
        self,
        source: Source,
        data: bytes,
        split: int,
        label: Label | None,
        extras: dict[str, Any],
        encoder: RecordEncoder,
    ) -> Iterator[Made]:
        """Yields the records of a file, not all at once: windows may take many times its bytes."""
        keys: list[bytes] = []
        frames: list[bytes] = []
        made = size = 0
        late: list[tuple[Reject, int]] = []
        try:
            for key, record in self.job.records_of(source, data):
                if label is not None:
                    record[LABEL] = label
                # Last, as a column that is kept may be called as classes are.
                whole = self.class_ids.put(record) | extras | {"key": key}
                frames.append(encoder.encode(split, whole))
                keys.append(key.encode())
                made, size = made + 1, size + len(frames[-1])
                if size >= _BYTES_TOGETHER:
                    yield _made(keys, frames, split)
                    keys, frames, size = [], [], 0
        except (RejectError, ValueError) as error:
            stage = "decode" if isinstance(error, RejectError) else "encode"
            try:
                planned = [key for key, _ in self.job.parts_of(source, data)]
            except RejectError:
                yield _rejected(source, error)
                return
            late = [(Reject.of(key, stage, error), split) for key in planned[made:]]
        yield _made(keys, frames, split)._replace(late=late)


def _made(keys: list[bytes], frames: list[bytes], split: int) -> Made:
    return Made(keys, np.full(len(frames), split, np.uint8), frames, [])


def _rejected(source: Source, error: Exception) -> Made:
    return Made([], np.empty(0, np.uint8), [], [Reject.of(source.key, "read", error)])
