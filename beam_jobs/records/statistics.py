"""Statistics of every feature, exact and independent of the order in which they are merged.

Sums are exact integers (`exact_sums.py`). NumPy adds the values within a record, in their fixed order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from beam_jobs.errors import DataError
from beam_jobs.records.exact_sums import sums_of_bytes
from beam_jobs.records.numbers import Numbers
from beam_jobs.records.pieces import Divisible, parts_of
from readers.format.encode.values import is_integer
from readers.format.protobuf.tensor import string_values
from readers.format.schema import IMAGE_ENCODINGS, Feature, Schema

# Labels and tokens are counted up to this number of distinct ones, the maximum for labels.
MAX_COUNTED = 100_000

# Sizes of a last dimension that counts as channels, each with its own mean and std. A channel takes a
# microsecond or two for each record.
_CHANNELS = range(2, 65)


def channels_of(feature: Feature) -> int:
    """The number of channels with their own statistics; 1 if all values are counted together.

    Channels are the last dimension of images [height, width, channels], recordings [time, channels] and
    anything else of two or more dimensions, unless it is long.
    """
    if feature.dtype == "string" or feature.encoding in (*IMAGE_ENCODINGS, "sequence"):
        return 1
    last = feature.shape[-1] if len(feature.shape) > 1 else None
    return last if last is not None and last in _CHANNELS else 1


@dataclass
class FeatureStatistics:
    """Statistics of one feature.

    Attributes:
        channels: Statistics of all values, or of each channel; unused for strings and encoded images.
        lengths: Statistics of each unknown dimension, or of the bytes of strings and encoded images.
        counted: Occurrences of each value, for the label and for tokens; None if not counted.
    """

    channels: list[Numbers]
    lengths: dict[str, Numbers] = field(default_factory=dict)
    counted: Counter[int] | None = None

    def _add_lengths(self, name: str, lengths: list[int]) -> None:
        self.lengths.setdefault(name, Numbers()).add([np.array(lengths, np.int64)])

    def add(self, feature: Feature, values: Sequence[Any]) -> None:
        """Adds the values of many records, from `Encoder.check`."""
        if feature.encoding in (*IMAGE_ENCODINGS, "text"):
            self._add_lengths("bytes", [len(value) for value in values])
        elif feature.encoding == "sequence":
            self._add_lengths("0", [len(value) for value in values])
            self.channels[0].add([array for value in values for array in value])
        elif feature.dtype == "string":
            self._add_lengths("bytes", [len(i) for value in values for i in string_values(value)])
        else:
            if is_integer(feature):
                values = [np.array(values, np.int64)]
            self._add_values(values)
            if self.counted is not None:
                self._count(values)
            for axis, size in enumerate(feature.shape):
                if size is None:
                    self._add_lengths(str(axis), [value.shape[axis] for value in values])

    def _add_values(self, arrays: Sequence[np.ndarray]) -> None:
        if len(self.channels) == 1:
            self.channels[0].add(arrays)
            return
        if arrays[0].dtype == np.uint8:
            self._add_bytes(arrays)
            return
        count = len(self.channels)
        rows = [array.reshape(-1, count) for array in arrays if array.size]
        if not rows:
            return
        flat = rows[0] if len(rows) == 1 else np.concatenate(rows)
        sizes = np.fromiter(map(len, rows), np.int64)
        for channel, numbers in enumerate(self.channels):
            numbers.add_flat(flat[:, channel], sizes)

    def _add_bytes(self, arrays: Sequence[np.ndarray]) -> None:
        flats = [array.reshape(-1) for array in arrays]
        flat = flats[0] if len(flats) == 1 else np.concatenate(flats)
        if not flat.size:
            return
        # The extremes of a single channel are never shown, so each has those of all.
        low, high, each = int(flat.min()), int(flat.max()), flat.size // len(self.channels)
        sums = sums_of_bytes(flat, len(self.channels))
        for numbers, (total, squares) in zip(self.channels, sums, strict=True):
            numbers.add_sums(each, low, high, total, squares)

    def _count(self, arrays: Sequence[np.ndarray]) -> None:
        assert self.counted is not None
        flat = np.concatenate([array.reshape(-1) for array in arrays])
        found, counts = np.unique(flat, return_counts=True)
        self.counted.update(dict(zip(found.tolist(), counts.tolist(), strict=True)))
        if len(self.counted) > MAX_COUNTED:
            self.counted = None

    def merge(self, other: FeatureStatistics) -> None:
        """Adds the values that another object has counted."""
        for numbers, others in zip(self.channels, other.channels, strict=True):
            numbers.merge(others)
        for name, numbers in other.lengths.items():
            self.lengths.setdefault(name, Numbers()).merge(numbers)
        if self.counted is not None and other.counted is not None:
            self.counted.update(other.counted)
            if len(self.counted) > MAX_COUNTED:
                self.counted = None
        else:
            self.counted = None

    def empty_copy(self) -> FeatureStatistics:
        """Statistics of the same feature, without values."""
        counted: Counter[int] | None = None if self.counted is None else Counter()
        return FeatureStatistics([Numbers() for _ in self.channels], {}, counted)

    def pieces(self) -> Iterator[tuple[int, FeatureStatistics]]:
        """Yields (number, statistics with a part of the occurrences)."""
        empty = self.empty_copy()
        yield -1, replace(self, counted=empty.counted)
        for number, some in parts_of(self.counted or {}, _value_bytes):
            yield number, replace(empty, counted=Counter(some))

    def state(self) -> list[Any]:
        """Its exact state as JSON values."""
        lengths = {name: numbers.state() for name, numbers in self.lengths.items()}
        counted = None if self.counted is None else sorted(self.counted.items())
        return [[numbers.state() for numbers in self.channels], lengths, counted]

    @classmethod
    def of_state(cls, state: list[Any]) -> FeatureStatistics:
        """The statistics with a state."""
        channels, lengths, counted = state
        return cls(
            [Numbers(*numbers) for numbers in channels],
            {name: Numbers(*numbers) for name, numbers in lengths.items()},
            None if counted is None else Counter(dict(counted)),
        )

    def to_json(self) -> dict[str, Any]:
        result: dict[str, Any] = {}
        values = Numbers()
        for numbers in self.channels:
            values.merge(numbers)
        if values.count or values.nan:
            result |= values.to_json()
        if values.count and len(self.channels) > 1:
            figures = [numbers.to_json() for numbers in self.channels]
            result["channels"] = {
                name: [channel.get(name) for channel in figures]
                for name in ("count", "mean", "std", "sum", "squares")
            }
        if self.lengths:
            result["lengths"] = {
                name: numbers.to_json() for name, numbers in sorted(self.lengths.items())
            }
        if self.counted:
            result["values"] = {str(value): n for value, n in sorted(self.counted.items())}
        return result


def _value_bytes(value: int) -> bytes:
    return value.to_bytes(8, "little", signed=True)


# The counts of records in the state of statistics.
_COUNTS = ("records", "more_frames", "unannotated")

# After the name of a feature: the number of records that its statistics have seen, and of occurrences of
# its values that pieces have and the whole does not. They show a piece that was lost or repeated.
_SEEN, _COUNTED = ": seen", ": counted"

# The number of records that all features have seen together, which comes with the counts of records.
_SEEN_BY_ALL = "seen by all"


class Statistics:
    """The statistics of every feature of some records.

    Args:
        schema: The records' features, by name.

    Attributes:
        records: Number of records.
        more_frames: Number of records whose file has further frames, which are in no record.
        unannotated: Number of records that lack an annotation.
        features: Statistics by feature.
    """

    def __init__(self, schema: Mapping[str, Feature]) -> None:
        self._schema = schema
        self.records = self.more_frames = self.unannotated = 0
        self.features = {
            name: FeatureStatistics([Numbers() for _ in range(channels_of(feature))])
            for name, feature in schema.items()
        }
        label = schema.get("label")
        tokens = schema.get("tokens")
        if label is not None and not label.shape and label.dtype == "int64":
            self.features["label"].counted = Counter()
        if tokens is not None and tokens.dtype == "int64":
            self.features["tokens"].counted = Counter()

    def add(self, records: Sequence[Mapping[str, Any]]) -> None:
        """Adds records, from `Encoder.check`."""
        columns = {name: [record[name] for record in records] for name in self.features}
        self.add_columns(len(records), columns)

    def add_columns(self, records: int, columns: Mapping[str, Sequence[Any]]) -> None:
        """Adds records, given the values of each feature."""
        self.records += records
        if records:
            for name, statistics in self.features.items():
                statistics.add(self._schema[name], columns[name])

    def merge(self, other: Statistics) -> None:
        """Adds the values that another object has counted."""
        self.records += other.records
        self.more_frames += other.more_frames
        self.unannotated += other.unannotated
        for name, statistics in self.features.items():
            statistics.merge(other.features[name])

    def state(self) -> dict[str, Any]:
        """Its exact state as JSON values; `to_json` rounds them for people."""
        features = {name: statistics.state() for name, statistics in self.features.items()}
        counts = {name: getattr(self, name) for name in _COUNTS}
        return {**counts, "features": features}

    @classmethod
    def of_state(cls, schema: Schema, state: dict[str, Any]) -> Statistics:
        """The statistics with a state."""
        statistics = cls(schema)
        for name in _COUNTS:
            setattr(statistics, name, state.get(name, 0))
        for name in schema:
            statistics.features[name] = FeatureStatistics.of_state(state["features"][name])
        return statistics

    def to_json(self) -> dict[str, Any]:
        """Statistics by feature, as the manifest holds them."""
        return {name: statistics.to_json() for name, statistics in self.features.items()}


@dataclass
class SplitStatistics(Divisible):
    """The statistics of every split, one feature at a time.

    Attributes:
        counts: (split, name of a count of records) -> the count.
        features: (split, feature) -> its statistics.
    """

    counts: Counter[tuple[int, str]] = field(default_factory=Counter)
    features: dict[tuple[int, str], FeatureStatistics] = field(default_factory=dict)

    @classmethod
    def of(cls, split: int, statistics: Statistics) -> SplitStatistics:
        """Those of one split."""
        counts = Counter({(split, name): getattr(statistics, name) for name in _COUNTS})
        counts.update({(split, name + _SEEN): statistics.records for name in statistics.features})
        counts[split, _SEEN_BY_ALL] = statistics.records * len(statistics.features)
        return cls(counts, {(split, name): found for name, found in statistics.features.items()})

    def merge(self, other: SplitStatistics) -> None:
        """Adds the records of `other`."""
        self.counts.update(other.counts)
        for key, found in other.features.items():
            self.features.setdefault(key, found.empty_copy()).merge(found)

    def pieces(self) -> Iterator[tuple[Any, SplitStatistics]]:
        whole = (*_COUNTS, _SEEN_BY_ALL)
        yield (), SplitStatistics(Counter({k: n for k, n in self.counts.items() if k[1] in whole}))
        for (split, name), found in self.features.items():
            for number, piece in found.pieces():
                counted = -(piece.counted or Counter()).total()
                counts = Counter({(split, name + _COUNTED): counted})
                if number < 0:  # The only piece that may come without values.
                    counts[split, name + _SEEN] = self.counts[split, name + _SEEN]
                    counts[split, name + _COUNTED] += (found.counted or Counter()).total()
                    counts[split, name + _COUNTED] += self.counts[split, name + _COUNTED]
                yield (split, name, number), SplitStatistics(counts, {(split, name): piece})

    def by_split(self, schema: Schema) -> dict[int, Statistics]:
        """Split -> the statistics of its records, which have this schema.

        Raises:
            DataError: The runner lost or repeated pieces.
        """
        found = {}
        for split in sorted({split for split, _ in self.counts}):
            found[split] = Statistics(schema)
            for name in _COUNTS:
                setattr(found[split], name, self.counts[split, name])
            features = [name for name in schema if self.counts[split, name + _SEEN]]
            for name in features:
                records, values = (self.counts[split, name + what] for what in (_SEEN, _COUNTED))
                if records != found[split].records or values:
                    raise DataError(
                        f"the runner handed over statistics of {name!r} in {records} of "
                        f"{found[split].records} records; no dataset was written, run the job again"
                    )
            if len(features) * found[split].records != self.counts[split, _SEEN_BY_ALL]:
                raise DataError(
                    f"the runner handed over statistics of {len(features)} features, and lost those of "
                    "others; no dataset was written, run the job again"
                )
            found[split].features = {name: self.features[split, name] for name in features}
        return found
