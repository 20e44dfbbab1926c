"""The spec of the sensors job: its records, and the check that they agree."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from beam_jobs.errors import UsageError
from beam_jobs.jobs.encodings import Encodings
from beam_jobs.jobs.sensors.conditioning import Conditioning
from beam_jobs.jobs.sensors.formats.registry import flags_of
from beam_jobs.jobs.sensors.inside.labels import WindowLabel
from beam_jobs.jobs.sensors.recording import ReadOptions, Recording
from beam_jobs.jobs.sensors.records import RecordingRecords
from beam_jobs.jobs.sensors.values import count_bytes, describe, fits_feature, prepare_array
from beam_jobs.sources.extra_features import ExtraFeature
from beam_jobs.sources.inputs import Inputs
from beam_jobs.sources.labels import Labels
from beam_jobs.sources.source import Source
from readers.format.schema import Feature

SensorEncoding = Literal["tensor", "raw", "list"]

# What makes shapes agree, by the flag that a format has.
_CURES = {
    "arrays": ", or choose with --arrays",
    "columns": ", or choose with --columns",
    "channels": ", or mix audio to one channel with --channels 1",
}

# Bytes of an Example besides its arrays; affects only the planned sizes of shards.
_OVERHEAD_BYTES = 150


@dataclass(frozen=True)
class SensorSpec:
    """The records of a sensors job: recordings, or parts of them.

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

    @property
    def has_windows(self) -> bool:
        return self.conditioning.cuts

    def record_size(self, record: dict[str, Any]) -> int:
        """Returns roughly how many bytes a record takes in its shard."""
        return _OVERHEAD_BYTES + sum(map(count_bytes, record.values()))

    def keys(self, source: Source, records: int) -> list[str]:
        """Returns the keys of the records of a recording, given their number."""
        if not self.conditioning.cuts:
            return [source.key]
        return [f"{source.key}#{number}" for number in range(1, records + 1)]

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


def format_rate(rate: float | None) -> str:
    """Returns a rate in samples per second as errors state it."""
    return f"{rate:g} Hz" if rate else "no rate"
