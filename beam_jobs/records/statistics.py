"""Numbers about every feature, exact and the same whatever the order they are merged in.

Sums are exact integers (`exact_sums.py`). Within one record values are added by NumPy, in the record's
own fixed order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from beam_jobs.records.exact_sums import sums_of_bytes
from beam_jobs.records.numbers import Numbers
from readers.format.encode import is_integer
from readers.format.schema import IMAGE_ENCODINGS, Feature, Schema
from readers.format.tensor import string_values

# Distinct labels and tokens that are counted one by one: as many as a job takes for labels.
MAX_COUNTED = 100_000

# Sizes of a last dimension that are taken for channels, each with a mean and a deviation of its own;
# every one takes a microsecond or two of a record.
_CHANNELS = range(2, 65)


def channels_of(feature: Feature) -> int:
    """How many channels have figures of their own; 1 where all values are counted together.

    Channels are the last dimension of pictures [height, width, channels], of recordings [time,
    channels], and of whatever else has two dimensions or more, unless it is long.
    """
    if feature.dtype == "string" or feature.encoding in (*IMAGE_ENCODINGS, "sequence"):
        return 1
    last = feature.shape[-1] if len(feature.shape) > 1 else None
    return last if last is not None and last in _CHANNELS else 1


@dataclass
class FeatureStatistics:
    """What is known of one feature: its numbers, its lengths, and how often each label occurs.

    Attributes:
        channels: Of a numeric feature that is not an encoded picture: of all its values, or of
            those of each channel.
        lengths: Of each unknown dimension, or the bytes of a string or a picture.
        counted: Of the label and of tokens, occurrences by value.
    """

    channels: list[Numbers]
    lengths: dict[str, Numbers] = field(default_factory=dict)
    counted: Counter[int] | None = None

    def _add_lengths(self, name: str, lengths: list[int]) -> None:
        self.lengths.setdefault(name, Numbers()).add([np.array(lengths, np.int64)])

    def add(self, feature: Feature, values: Sequence[Any]) -> None:
        """Adds the values of many records, as `Encoder.check` gives them."""
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
        flat, sizes = np.concatenate(rows), np.fromiter(map(len, rows), np.int64)
        for channel, numbers in enumerate(self.channels):
            numbers.add_flat(flat[:, channel], sizes)

    def _add_bytes(self, arrays: Sequence[np.ndarray]) -> None:
        flat = np.concatenate([array.reshape(-1) for array in arrays])
        if not flat.size:
            return
        # Nobody asks for the extremes of one channel: each has those of all.
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
        """Adds what another one has seen."""
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

    def state(self) -> list[Any]:
        """All of it as JSON values, exactly."""
        lengths = {name: numbers.state() for name, numbers in self.lengths.items()}
        counted = None if self.counted is None else sorted(self.counted.items())
        return [[numbers.state() for numbers in self.channels], lengths, counted]

    @classmethod
    def of_state(cls, state: list[Any]) -> FeatureStatistics:
        """What gave `state`."""
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
                name: [channel.get(name) for channel in figures] for name in ("mean", "std")
            }
        if self.lengths:
            result["lengths"] = {
                name: numbers.to_json() for name, numbers in sorted(self.lengths.items())
            }
        if self.counted:
            result["values"] = {str(value): n for value, n in sorted(self.counted.items())}
        return result


class Statistics:
    """The statistics of every feature of some records.

    Args:
        schema: Of the records.

    Attributes:
        records: How many there are.
        features: Their figures by feature.
    """

    def __init__(self, schema: Mapping[str, Feature]) -> None:
        self._schema = schema
        self.records = 0
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
        """Adds records, as `Encoder.check` gives them."""
        columns = {name: [record[name] for record in records] for name in self.features}
        self.add_columns(len(records), columns)

    def add_columns(self, records: int, columns: Mapping[str, Sequence[Any]]) -> None:
        """Adds records by their values of each feature."""
        self.records += records
        if records:
            for name, statistics in self.features.items():
                statistics.add(self._schema[name], columns[name])

    def empty_copy(self) -> Statistics:
        """Those of no record of the same features."""
        return Statistics(self._schema)

    def merge(self, other: Statistics) -> None:
        """Adds what another one has seen."""
        self.records += other.records
        for name, statistics in self.features.items():
            statistics.merge(other.features[name])

    def state(self) -> dict[str, Any]:
        """All of it as JSON values, exactly; `to_json` is for people."""
        features = {name: statistics.state() for name, statistics in self.features.items()}
        return {"records": self.records, "features": features}

    @classmethod
    def of_state(cls, schema: Schema, state: dict[str, Any]) -> Statistics:
        """The statistics that gave `state`."""
        statistics = cls(schema)
        statistics.records = state["records"]
        for name in schema:
            statistics.features[name] = FeatureStatistics.of_state(state["features"][name])
        return statistics

    def to_json(self) -> dict[str, Any]:
        """Feature name -> its figures, as the manifest holds them."""
        return {name: statistics.to_json() for name, statistics in self.features.items()}
