"""The records of a sensors job, and the check that they agree."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np

from beam_jobs.errors import UsageError
from beam_jobs.jobs.encodings import Encodings
from beam_jobs.jobs.job import complete_schema
from beam_jobs.jobs.near import Compared, compared_of
from beam_jobs.jobs.sensors.arrays import describe, fits_feature
from beam_jobs.jobs.sensors.channels import few
from beam_jobs.jobs.sensors.conditioning import Conditioning
from beam_jobs.jobs.sensors.formats.registry import flags_of
from beam_jobs.jobs.sensors.read_options import ReadOptions
from beam_jobs.jobs.sensors.recording import Recording
from beam_jobs.sources.extra_features import ExtraFeature
from beam_jobs.sources.inputs import Inputs
from beam_jobs.sources.labels import Labels, Names
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
        window_label: The rule of `window_labels` that makes labels of windows.
        rate_column: The column of metadata with the samples per second of files that do not state it.
        encodings: The encodings of features that are chosen by name.
        first: The first file, without its arrays.
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
        return complete_schema(dict(self.features), self.labels, self.extras, self.encodings)

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
        counts = {feature.shape[-1] for _, feature in self.features if len(feature.shape) > 1}
        return None if self.rows or len(counts) != 1 else counts.pop()

    @property
    def class_names(self) -> Names:
        return self.labels.class_names

    @property
    def compared(self) -> Compared:
        signals = {name: f for name, f in self.features if f.is_sequence or f.shape}
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

    def features_of(self, key: str, record: Mapping[str, Any]) -> tuple[tuple[str, Feature], ...]:
        """The value of `features` that a record defines, which all records must fit.

        Args:
            key: The key of its file.
            record: Its arrays, or lists of arrays, by name.

        Raises:
            UsageError: The arrays cannot be encoded.
        """
        try:
            features = tuple((name, self._feature(name, value)) for name, value in record.items())
            replace(self, features=features).schema  # noqa: B018  (raises if no feature has such a name)
        except ValueError as error:
            cure = "choose another --encoding, convert with --dtype, or choose others with --arrays"
            raise UsageError(f"{key}: {error}; {cure}") from None
        for name, feature in features:
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
        if len(record) == len(self.features) and all(
            fits_feature(record.get(name), feature) for name, feature in self.features
        ):
            return
        expected = dict(self.features)
        for name in sorted(expected.keys() | record.keys()):
            value, feature = record.get(name), expected.get(name)
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


def format_rate(rate: float | None) -> str:
    """A rate in samples per second as errors state it."""
    return f"{rate:g} Hz" if rate else "no rate"
