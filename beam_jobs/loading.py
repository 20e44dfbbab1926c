"""Files -> framed records, in whichever process: nothing here imports Beam.

A reference is what travels in place of a file's bytes: its size, when it was modified, its key.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np

from beam_jobs.encode import RecordEncoder
from beam_jobs.errors import RejectError
from beam_jobs.files import NOT_UTF8, File, Inputs, is_utf8
from beam_jobs.labels import LabelIds, Labels
from beam_jobs.rejects import Reject
from beam_jobs.statistics import Statistics
from readers.format.example import Encoder
from readers.format.schema import Schema
from readers.format.tfrecord import FRAME_BYTES

_REFERENCE = struct.Struct("<Qq")


def pack_reference(file: File) -> bytes:
    """The reference of a file whose path is its key."""
    key = file.path.encode("utf-8", "surrogateescape")
    return _REFERENCE.pack(file.size, file.modified) + key


def unpack_reference(reference: bytes) -> File:
    """The file of a reference, its key in place of its path."""
    key = reference_key(reference).decode("utf-8", "surrogateescape")
    return File(key, *_REFERENCE.unpack_from(reference))


def reference_key(reference: bytes) -> bytes:
    """The key in a reference, as bytes."""
    return reference[_REFERENCE.size :]


class FileJob(Protocol):
    """A job whose record is a file."""

    @property
    def inputs(self) -> Inputs:
        """The files."""

    @property
    def labels(self) -> Labels:
        """Where their labels come from."""

    def load(self, key: str) -> dict[str, Any]:
        """The features of one file, without `key` and `label`.

        Raises:
            RejectError: The file cannot become a record.
            UsageError: It can, but does not fit the others.
        """


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
    """Loads and encodes the files of a job.

    Attributes:
        job: What a record is.
        schema: Of the records.
        names: Of the labels, as `label_names` gives them.
        stored: What features are called in Examples, where it is not their name in the schema.
    """

    job: FileJob
    schema: Schema
    names: tuple[str, ...] = ()
    stored: Mapping[str, str] = field(default_factory=dict)

    @functools.cached_property
    def _ids(self) -> LabelIds:
        return LabelIds(self.names)

    @functools.cached_property
    def _encoder(self) -> Encoder:
        return Encoder(self.schema, self.stored)

    def record(self, key: str) -> dict[str, Any]:
        """The whole record of a file.

        Raises:
            RejectError, UsageError: As `FileJob.load`.
        """
        if not is_utf8(key):
            raise RejectError(NOT_UTF8)
        record = self.job.load(key)
        record["key"] = key
        label = self.job.labels.of(key)
        if label is not None:
            record["label"] = self._ids[label]
        return record

    def load(self, keys: Sequence[bytes]) -> Loaded:
        """The records of files by their keys.

        Raises:
            UsageError: As `FileJob.load`.
        """
        encoder = RecordEncoder(self._encoder)
        frames: list[bytes] = []
        rejects: list[Reject] = []
        for encoded in keys:
            key = encoded.decode("utf-8", "surrogateescape")
            try:
                frames.append(encoder.encode(0, self.record(key)))
            except RejectError as error:
                rejects.append(Reject.of(key, "decode", error))
            except ValueError as error:
                rejects.append(Reject.of(key, "encode", error))
        statistics = dict(encoder.statistics()).get(0, Statistics(self.schema))
        lengths = np.fromiter(map(len, frames), np.int64, len(frames))
        return Loaded(b"".join(frames), lengths, rejects, statistics)

    def measure(self, keys: Sequence[str]) -> list[int | None]:
        """The bytes of each file's record, framing included; None where it cannot become one."""
        sizes: list[int | None] = []
        for key in keys:
            try:
                record = self.job.load(key) | {"key": key}
                if "label" in self.schema:
                    record["label"] = 0
                example = self._encoder.encode(record)
                sizes.append(FRAME_BYTES + len(example))
            except (RejectError, ValueError):
                sizes.append(None)  # The shard's writer will list it.
        return sizes
