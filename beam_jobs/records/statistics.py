"""Statistics of every feature, exact and independent of the order in which they are merged.

Sums are exact integers (`numbers.py`). NumPy adds the values within a record, in their fixed order.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from beam_jobs.records.numbers import Numbers, add_channels, sums_of_bytes
from beam_jobs.records.pieces import Divisible, checksum_of, parts_of
from readers.format.decode.column import FeatureColumn
from readers.format.decode.image_size import image_size
from readers.format.manifest import Manifest
from readers.format.protobuf.tensor import string_values
from readers.format.remarks import Remarks
from readers.format.schema import Feature, Schema

# Labels and tokens are counted up to this number of distinct ones, the maximum for labels.
MAX_COUNTED = 100_000

# Sizes of a last dimension that count as channels, each with its own mean and std. A channel takes a
# microsecond or two per record.
_CHANNELS = range(2, 65)

_WITHOUT_NUMBERS = "string", "complex"


def are_complete(manifest: Manifest) -> bool:
    """Whether the statistics of a dataset are of all of its records, unlike those of a subset, whose values are not read."""
    for split in (split for split in manifest.splits.values() if split.records):
        for name in manifest.features_of[""]:
            feature, figures = manifest.schema[name], split.statistics.get(name, {})
            if any("count" not in lengths for lengths in figures.get("lengths", {}).values()):
                return False
            # Complex numbers have none, and an array of an open size may be empty everywhere.
            has_values = feature.is_fixed and 0 not in feature.shape
            is_number = not feature.codec.is_bytes and not feature.dtype.startswith(
                _WITHOUT_NUMBERS
            )
            if has_values and is_number and "count" not in figures:
                return False
    return True


def channels_of(feature: Feature) -> int:
    """The number of channels with their own statistics; 1 if all values are counted together.

    Channels are the last dimension of images [height, width, channels], recordings [time, channels] and other
    arrays of two or more dimensions, unless it is long.
    """
    if feature.dtype == "string" or feature.codec.is_bytes or feature.is_sequence:
        return 1
    last = feature.shape[-1] if len(feature.shape) > 1 else None
    return last if last is not None and last in _CHANNELS else 1


@dataclass
class FeatureStatistics:
    """Statistics of one feature of some records.

    Attributes:
        channels: Statistics of all values, or of each channel; unused for strings and encoded images.
        lengths: Statistics of each unknown dimension, and of the bytes of strings and encoded images. The sizes of images
            are in JPEG and PNG headers; images of other formats, or damaged ones, have none.
        counted: Occurrences of each value, for the label and for tokens; None if not counted.
        values: The checksum of all occurrences that were added to `counted`.
    """

    channels: list[Numbers]
    lengths: dict[str, Numbers] = field(default_factory=dict)
    counted: Counter[int] | None = None
    records: int = 0
    values: int = 0

    def _add_lengths(self, name: str, lengths: np.ndarray) -> None:
        self.lengths.setdefault(name, Numbers()).add_integers(lengths)

    def _add_lengths_of(self, name: str, values: Sequence[Any]) -> None:
        self._add_lengths(name, np.fromiter(map(len, values), np.int64, len(values)))

    def add(self, feature: Feature, values: Sequence[Any]) -> None:
        """Adds the values of many records, from `Encoder.check`."""
        self.records += len(values)
        if feature.codec.is_bytes:
            self._add_lengths_of("bytes", values)
            if feature.is_image and not feature.is_fixed:
                self._add_sizes(feature, values)
        elif feature.is_sequence:
            self._add_lengths_of("0", values)
            self.channels[0].add([array for value in values for array in value])
        elif feature.dtype == "string":
            texts = (string_values(np.asarray(value, object)) for value in values)
            self._add_lengths_of("bytes", [text for some in texts for text in some])
        elif feature.is_integer:
            self._add_numbers(
                feature, np.array(values, np.int64), np.empty((len(values), 0), np.int64)
            )
        else:
            flats = [value.reshape(-1) for value in values]
            flat = flats[0] if len(flats) == 1 else np.concatenate(flats)
            self._add_numbers(feature, flat, np.array([value.shape for value in values], np.int64))

    def add_column(self, feature: Feature, column: FeatureColumn) -> None:
        """Adds the decoded values of many records; numbers without a loop over the records."""
        values = column.flat()
        if values.dtype == object:
            self.add(feature, column.arrays())
            return
        shapes = column.shapes
        if shapes is None:
            shapes = np.full((len(values), values.ndim - 1), values.shape[1:], np.int64)
        self.records += len(shapes)
        self._add_numbers(feature, values.reshape(-1), shapes)

    def _add_numbers(self, feature: Feature, flat: np.ndarray, shapes: np.ndarray) -> None:
        """Adds the values [n] of records with some shapes, int64 [records, dimensions]."""
        count = len(self.channels)
        if count > 1 and flat.dtype == np.uint8:
            self._add_bytes(flat)
        else:
            add_channels(self.channels, flat.reshape(-1, count), shapes.prod(axis=1) // count)
        if self.counted is not None:
            self._count(flat)
        for axis, size in enumerate(feature.shape):
            if size is None:
                self._add_lengths(str(axis), shapes[:, axis])

    def _add_sizes(self, feature: Feature, images: Sequence[bytes | memoryview]) -> None:
        """Adds the heights and widths of encoded images, as far as they are unknown in the feature, and found."""
        sizes = [size for image in images if (size := image_size(image))]
        for axis, of_axis in enumerate(zip(*sizes, strict=True)):
            if feature.shape[axis] is None:
                self._add_lengths(str(axis), np.array(of_axis, np.int64))

    def _add_bytes(self, flat: np.ndarray) -> None:
        if not flat.size:
            return
        # The extremes of single channels are never shown, so each gets the extremes of all.
        low, high, each = int(flat.min()), int(flat.max()), flat.size // len(self.channels)
        sums = sums_of_bytes(flat, len(self.channels))
        for numbers, (total, squares) in zip(self.channels, sums, strict=True):
            numbers.add_sums(each, low, high, total, squares)

    def _count(self, flat: np.ndarray) -> None:
        values, counts = np.unique(flat, return_counts=True)
        self.values += checksum_of(values.astype(np.uint64), counts)
        self._update(dict(zip(values.tolist(), counts.tolist(), strict=True)))

    def _update(self, counted: Mapping[int, int] | None) -> None:
        if self.counted is None or counted is None:
            self.counted = None
            return
        self.counted.update(counted)
        if len(self.counted) > MAX_COUNTED:
            self.counted = None

    def merge(self, other: FeatureStatistics) -> None:
        """Adds the values that another object has counted."""
        self.records += other.records
        self.values += other.values
        for numbers, others in zip(self.channels, other.channels, strict=True):
            numbers.merge(others)
        for name, numbers in other.lengths.items():
            self.lengths.setdefault(name, Numbers()).merge(numbers)
        self._update(other.counted)

    def negative(self) -> FeatureStatistics:
        """Statistics that take these values away where they are merged; the extremes there become bounds."""
        counted = (
            None if self.counted is None else Counter({v: -n for v, n in self.counted.items()})
        )
        lengths = {name: numbers.negative() for name, numbers in self.lengths.items()}
        channels = [numbers.negative() for numbers in self.channels]
        return FeatureStatistics(channels, lengths, counted, -self.records, -self.values)

    @property
    def missing(self) -> int:
        """The checksum of added occurrences that are missing; 0 if none are, or if there are too many to count."""
        if self.counted is None:
            return 0
        values = np.fromiter(self.counted, np.int64, len(self.counted))
        counts = np.fromiter(self.counted.values(), np.int64, len(self.counted))
        return (self.values - checksum_of(values.astype(np.uint64), counts)) % (1 << 64)

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

    def add_json(self, value: Mapping[str, Any], records: int) -> None:
        """Adds the values of some records, given the `to_json` of their statistics."""
        numbers, channels = Numbers.of_json(value), value.get("channels")
        each = [numbers]
        if channels:
            # The extremes of single channels are never shown, so each gets the extremes of all.
            ends = {"min": numbers.low, "max": numbers.high}
            columns = zip(*(channels[name] for name in ("count", "sum", "squares")), strict=True)
            names = "count", "sum", "squares"
            each = [Numbers.of_json({**dict(zip(names, c, strict=True)), **ends}) for c in columns]
            each[0].nan = numbers.nan
        elif len(self.channels) > 1:  # No record has a value.
            each = [numbers, *(Numbers() for _ in self.channels[1:])]
        lengths = {name: Numbers.of_json(each) for name, each in value.get("lengths", {}).items()}
        counted = value.get("values") if numbers.count else {}
        counts = None if counted is None else Counter({int(v): n for v, n in counted.items()})
        other = FeatureStatistics(each, lengths, counts, records)
        other.values = -other.missing
        self.merge(other)

    def to_json(self) -> dict[str, Any]:
        result: dict[str, Any] = {}
        values = Numbers()
        for numbers in self.channels:
            values.merge(numbers)
        if values.count > 0 or values.nan > 0:
            result |= values.to_json()
        if values.count > 0 and len(self.channels) > 1:
            figures = [numbers.to_json() for numbers in self.channels]
            result["channels"] = {
                name: [channel.get(name) for channel in figures]
                for name in ("count", "mean", "std", "sum", "squares")
            }
        lengths = {
            name: numbers.to_json()
            for name, numbers in sorted(self.lengths.items())
            # Readers take the sizes of some images for those of all. A record may have any number of texts.
            if numbers.count > 0 and (name == "bytes" or numbers.count == self.records)
        }
        if lengths:
            result["lengths"] = lengths
        if counts := +(self.counted or Counter()):
            result["values"] = {str(value): n for value, n in sorted(counts.items())}
        return result


def _value_bytes(value: int) -> bytes:
    return value.to_bytes(8, "little", signed=True)


class Statistics:
    """The statistics of some records by feature, and the remarks about their inputs."""

    def __init__(
        self, schema: Mapping[str, Feature], name_of_job: Callable[[str], str] = str
    ) -> None:
        self._schema = schema
        self.records, self.remarks = 0, Remarks()
        self.features = {
            name: FeatureStatistics([Numbers() for _ in range(channels_of(feature))])
            for name, feature in schema.items()
        }
        for name, feature in schema.items():
            is_label = name_of_job(name) == "label" and not feature.shape
            if feature.dtype == "int64" and (is_label or name_of_job(name) == "tokens"):
                self.features[name].counted = Counter()

    @classmethod
    def of(cls, manifest: Manifest) -> Statistics:
        """Statistics without records, of the features of a dataset that have some."""
        features = {name: each for name, each in manifest.schema.items() if not each.step}
        return cls(features, manifest.name_of_job)

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

    def add_decoded(self, records: int, columns: Mapping[str, FeatureColumn]) -> None:
        """Adds records, given the decoded column of each feature."""
        self.records += records
        for name, statistics in self.features.items():
            statistics.add_column(self._schema[name], columns[name])

    def merge(self, other: Statistics) -> None:
        """Adds the values that another object has counted."""
        self.records += other.records
        self.remarks.merge(other.remarks)
        for name, statistics in other.features.items():
            self.features.setdefault(name, statistics.empty_copy()).merge(statistics)

    def pieces(self) -> Iterator[tuple[Any, Statistics]]:
        """Yields (key, statistics with a part of one feature), and those without features."""
        head = Statistics({})
        head.records, head.remarks = self.records, self.remarks
        yield (), head
        for name, one in self.features.items():
            for number, part in one.pieces():
                piece = Statistics({})
                piece.features[name] = part
                yield (name, number), piece

    def state(self) -> dict[str, Any]:
        """Its exact state as JSON values."""
        features = self.to_json()
        return {"records": self.records, "remarks": self.remarks.to_json(), "features": features}

    @classmethod
    def of_state(cls, schema: Schema, state: dict[str, Any]) -> Statistics:
        """The statistics with a state."""
        statistics, remarks = cls(schema), Remarks.from_json(state["remarks"])
        statistics.add_json(state["features"], state["records"], remarks)
        return statistics

    def add_json(self, value: Mapping[str, Any], records: int, remarks: Remarks) -> None:
        """Adds some records, given the `to_json` of their statistics; ValueError if it is wrong."""
        self.records += records
        self.remarks.merge(remarks)
        try:
            for name, statistics in self.features.items():
                statistics.add_json(value.get(name, {}), records)
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"the statistics of the manifest are incomplete ({error})") from None

    def to_json(self) -> dict[str, Any]:
        """Statistics by feature, as the manifest holds them."""
        return {name: statistics.to_json() for name, statistics in self.features.items()}


@dataclass
class SplitStatistics(Divisible):
    """Split -> the statistics of its records."""

    splits: dict[int, Statistics] = field(default_factory=dict)
    checksum: int = 0

    what = "statistics"

    @classmethod
    def of(cls, split: int, statistics: Statistics) -> SplitStatistics:
        """The statistics of one split."""
        whole = cls({split: statistics})
        whole.checksum = whole.contents()
        return whole

    def contents(self) -> int:
        """The checksum of the records that each feature has, and of the occurrences of its values."""
        return sum(
            zlib.crc32(name.encode(), split) * one.records + one.missing
            for split, found in self.splits.items()
            for name, one in found.features.items()
        )

    def merge(self, other: SplitStatistics) -> None:
        """Adds the records of `other`."""
        self.checksum += other.checksum
        for split, found in other.splits.items():
            self.splits.setdefault(split, Statistics({})).merge(found)

    def pieces(self) -> Iterator[tuple[Any, SplitStatistics]]:
        yield (), SplitStatistics(checksum=self.checksum)
        for split, found in self.splits.items():
            for key, piece in found.pieces():
                yield (split, *key), SplitStatistics({split: piece})

    def by_split(self, schema: Schema) -> dict[int, Statistics]:
        """Split -> the statistics of its records, which have this schema."""
        by_split = {}
        for split, found in sorted(self.splits.items()):
            whole = by_split[split] = Statistics(schema)
            whole.records, whole.remarks = found.records, found.remarks
            whole.features = {n: found.features[n] for n in schema if n in found.features}
        return by_split
