"""Infers the schema of existing Examples from the first ones of each file."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from beam_jobs.errors import DataError, UsageError
from beam_jobs.jobs.reshard.record_fit import (
    DTYPES,
    SHAPE,
    Values,
    image_format,
    is_gray,
    is_utf8,
    lists_of,
    tensor_type,
)
from beam_jobs.records.pieces import Divisible
from readers.format.dtypes import numpy_dtype
from readers.format.schema import Feature, Schema

Shape = tuple[int | None, ...]

# The schema is learned from this many records of each file, or of each range of a large one. It takes 15 to
# 110 µs per record, as long as the rest of the job, and 0.7% of files miss a feature that 1 of 100 records has.
LEARNED = 500

# More different names than this are data, not names.
MAX_FEATURES = 10_000

# The most dimensions of a tensor, as in TensorFlow. The product of more sizes could take very long.
_MAX_RANK = 254

# Precedes the dtype in the counts of tensors among byte strings.
_TENSOR = "tensor "

_ONE_BYTES_VALUE = Feature("string", (), "list")


@dataclass
class FeatureGuess:
    """Facts about a feature, or the steps of a feature list, of some records; they may be merged in any order.

    Attributes:
        counts: How often something was seen: lists of a kind, empty ones included; "filled" lists; byte strings
            ("values"), and those that are "text", "jpeg", "png", "coloured" images, or tensors of a dtype. Of lists
            `<name>/shape`, those that are the shape "of list" or "of tensor", or the rows "of sequence", of `<name>`,
            and those "paired" with values of `<name>`. Of feature lists, the "records" that have one, and "steps".
        shapes: The common shape of some arrays: None for a size that differs; None in place of all if ranks differ.
            Of each "list", "tensor" and list `<name>/shape` ("sizes"); of each record, the number of "steps".
    """

    counts: Counter[str] = field(default_factory=Counter)
    shapes: dict[str, Shape | None] = field(default_factory=dict)

    def add(self, values: Values) -> None:
        """Adds a list that has a kind; raises UsageError if a tensor's dtype needs a package that is not installed."""
        kind, items = values
        self.counts[kind] += 1
        if len(items):
            self.counts["filled"] += 1
            self._add_shape("list", (len(items),))
        for value in items if kind == "bytes" else ():
            self.counts["values"] += 1
            self.counts["text"] += is_utf8(value)
            if image := image_format(value):
                self.counts[image] += 1
                self.counts["coloured"] += not is_gray(value)
            if tensor := tensor_type(value):
                self.counts[_TENSOR + tensor[0]] += 1
                self._add_shape("tensor", tensor[1])

    def add_sizes(self, sizes: list[int], values: Values | None) -> None:
        """Compares a list `<name>/shape`, which is not empty, with `<name>` in the same record, if it has that."""
        kind, items = values or ("", ())
        self._add_shape("sizes", tuple(sizes))
        self.counts["paired"] += len(items) > 0
        possible = len(sizes) <= _MAX_RANK and min(sizes) >= 0
        self.counts["of list"] += possible and math.prod(sizes) == len(items)
        types = [tensor_type(value) for value in items] if kind == "bytes" else []
        tensors = [one for one in types if one]
        if 0 < len(tensors) == len(types):
            self.counts["of tensor"] += [list(shape) for _, shape in tensors] == [sizes]
            self.counts["of sequence"] += _rows_of(tensors) == sizes

    def add_steps(self, steps: Sequence[Values]) -> None:
        """Adds the steps of a feature list of a record."""
        self.counts["records"] += 1
        self.counts["steps"] += len(steps)
        self._add_shape("steps", (len(steps),))
        for step in steps:
            if step[0]:
                self.add(step)

    def merge(self, other: FeatureGuess) -> None:
        """Adds the facts of another instance."""
        self.counts.update(other.counts)
        for name, shape in other.shapes.items():
            self._add_shape(name, shape)

    def _add_shape(self, name: str, shape: Shape | None) -> None:
        known = self.shapes.get(name, shape)
        if known is None or shape is None or len(known) != len(shape):
            self.shapes[name] = None
        else:
            pairs = zip(known, shape, strict=True)
            self.shapes[name] = tuple(a if a == b else None for a, b in pairs)

    @property
    def kinds(self) -> dict[str, int]:
        """How many lists there are of each kind that was seen."""
        return {kind: self.counts[kind] for kind in DTYPES if self.counts[kind]}

    @property
    def tensor(self) -> Feature | None:
        """The feature of tensors in every record; None if some values are not tensors, or dtypes or ranks differ."""
        shape, dtypes = self.shapes.get("tensor"), [n for n in self.counts if n.startswith(_TENSOR)]
        if shape is None or len(dtypes) != 1 or self._are_few(self.counts[dtypes[0]], 0.8):
            return None
        return Feature(dtypes[0].removeprefix(_TENSOR), shape, "tensor")

    def feature(self, records: int) -> Feature:
        """The schema entry, given the number of records or steps; ignores `<name>/shape`."""
        dtype, size = DTYPES[next(iter(self.kinds))], self.shapes.get("list")
        if self.counts["filled"] < records or size in (None, (None,)):
            return Feature(dtype, (None,), "list")
        if size != (1,):
            return Feature(dtype, size, "list")
        return Feature(dtype) if dtype != "string" else self.tensor or self._of_bytes()

    def _of_bytes(self) -> Feature:
        """The feature of one byte string in every record, which is not always a tensor."""
        images = [name for name in ("jpeg", "png") if self.counts[name]]
        if not self._are_few(sum(self.counts[name] for name in images), 0.8):
            shape = (None, None, 3 if self.counts["coloured"] else 1)
            return Feature("uint8", shape, "source" if len(images) > 1 else images[0])
        return _ONE_BYTES_VALUE if self._are_few(self.counts["text"], 0.99) else Feature("string")

    def _are_few(self, count: int, share: float) -> bool:
        """Whether too few byte strings are of a kind to reject the others as errors."""
        return count < max(1, share * self.counts["values"])

    def of_steps(self, records: int) -> Feature:
        """The schema entry of a feature list, given the number of records."""
        step = self.feature(self.counts["steps"])
        length = self.shapes["steps"] if self.counts["records"] == records else (None,)
        return Feature(step.dtype, (*(length or (None,)), *step.shape), f"{step.encoding} steps")

    def with_sizes(self, sizes: FeatureGuess, records: int) -> Feature | None:
        """The schema entry if `<name>/shape` has its shapes; None if it has other values."""
        feature, tensor, counts = self.feature(records), self.tensor, sizes.counts
        if list(sizes.kinds) != ["int64"] or counts["paired"] < self.counts["filled"]:
            return None
        every = {
            name
            for name in ("list", "tensor", "sequence")
            if counts[f"of {name}"] == counts["filled"]
        }
        if feature.encoding == "tensor" and "tensor" in every:
            return feature
        missing = self.counts["filled"] < records
        if tensor and "sequence" in every:
            length = (None,) if missing else self.shapes["list"]
            return Feature(tensor.dtype, (*(length or (None,)), *tensor.shape), "sequence")
        shape = sizes.shapes.get("sizes", (None,))
        if feature.encoding not in ("list", "text") or "list" not in every or shape is None:
            return None
        if missing and None not in shape:
            shape = (None, *shape[1:])
        # Readers derive the shape of a missing list from the known sizes.
        if counts["filled"] < records and (shape.count(None) > 1 or 0 in shape):
            return None
        return Feature(feature.dtype, shape, "list")


def _rows_of(tensors: list[tuple[str, tuple[int, ...]]]) -> list[int]:
    """The values that the encoding `sequence` stores: the bytes and the shape of each tensor; none of texts."""
    return [
        number
        for dtype, shape in tensors
        if dtype != "string"
        for number in (math.prod(shape) * numpy_dtype(dtype).itemsize, *shape)
    ]


@dataclass
class SchemaGuess(Divisible):
    """Facts about the features of some records, in memory that does not grow with their number.

    Attributes:
        records: The number of records.
        features: The features by name; in SequenceExamples those of the context.
        lists: The feature lists by name.
        broken: The reason of one record that is not an Example; empty without any.
    """

    records: int = 0
    features: dict[str, FeatureGuess] = field(default_factory=dict)
    lists: dict[str, FeatureGuess] = field(default_factory=dict)
    broken: str = ""

    def learn(self, key: str, record: memoryview) -> None:
        """Adds a serialized Example or SequenceExample; of anything else only the reason.

        Args:
            key: Names the record in errors.
            record: Its bytes.

        Raises:
            UsageError: A schema cannot have the names of the features, or the dtype of a tensor needs a
                package that is not installed.
        """
        try:
            features, lists = lists_of(record)
        except ValueError as error:
            self.merge(SchemaGuess(broken=f"{key}: not an Example: {error}"))
            return
        self.records += 1
        try:
            for name, values in features.items():
                kind, items = values
                if kind:
                    guess = self._entry(self.features, name)
                    guess.add(values)
                    if kind == "int64" and items and name.endswith(SHAPE):
                        guess.add_sizes(items, features.get(name.removesuffix(SHAPE)))
            for name, steps in lists.items():
                self._entry(self.lists, name).add_steps(steps)
        except UsageError as error:
            raise UsageError(f"{key}: {error.message}") from None

    def merge(self, other: SchemaGuess) -> None:
        """Adds the records of another instance; raises UsageError if together they have too many features."""
        self.records += other.records
        self.broken = min(filter(None, (self.broken, other.broken)), default="")
        for ours, theirs in ((self.features, other.features), (self.lists, other.lists)):
            for name, guess in theirs.items():
                self._entry(ours, name).merge(guess)

    def pieces(self) -> Iterator[tuple[Any, SchemaGuess]]:
        yield (), SchemaGuess(self.records, broken=self.broken)
        for name, guess in self.features.items():
            yield (name, "feature"), SchemaGuess(features={name: guess})
        for name, guess in self.lists.items():
            yield (name, "list"), SchemaGuess(lists={name: guess})

    def _entry(self, guesses: dict[str, FeatureGuess], name: str) -> FeatureGuess:
        if name not in guesses:
            try:
                Schema({name: _ONE_BYTES_VALUE})
            except ValueError:
                raise UsageError(
                    f"feature name {name[:80]!r}: expected 1 to 255 characters, without \\ and control "
                    "characters; state the features to read with --schema, or rename it in the records"
                ) from None
            if len(self.features) + len(self.lists) >= MAX_FEATURES:
                raise UsageError(
                    f"more than {MAX_FEATURES:,} different features, one of them {name!r}: expected the "
                    "same names in all records; leave out the files that differ, or move data from names into values"
                )
            guesses[name] = FeatureGuess()
        return guesses[name]

    def schema(self) -> Schema:
        """The schema that the records have in common.

        A list of numbers is a scalar or has a fixed length if all records have the same number of
        values; otherwise, or if it is missing in some, it has any length. One byte string in each
        record is a tensor, an image or a text, if nearly all are, otherwise bytes; several are a list. An
        int64 list `<name>/shape` with the shape of `<name>` in every record is not a separate
        feature. If it has other values, a tensor of unknown sizes stays bytes, so that both can be
        read.

        Raises:
            UsageError: Records contradict each other, or have no feature; or `<name>/shape` is not
                the shape of a list of any length, but readers would take it for that.
            DataError: None of the records is an Example.
        """
        if self.broken and not self.records:
            raise DataError(f"no record to learn the schema from: {self.broken}")
        lists = {name: guess for name, guess in self.lists.items() if guess.kinds}
        for name, guess in [*sorted(self.features.items()), *sorted(lists.items())]:
            if len(guess.kinds) > 1:
                kinds = ", ".join(f"{kind} in {count:,}" for kind, count in guess.kinds.items())
                raise UsageError(
                    f"feature {name!r}: a list of {kinds} records or steps; all records of a dataset "
                    "must agree: leave out the files that differ"
                )
        if both := sorted(lists.keys() & self.features.keys()):
            raise UsageError(
                f"feature {both[0]!r}: a feature in some records and a feature list in others; "
                "all records of a dataset must agree: leave out the files that differ"
            )
        features = {name: guess.of_steps(self.records) for name, guess in lists.items()}
        companions = set()
        for name in sorted(self.features):
            if name not in companions:
                features[name], has_companion = self._feature(name)
                companions |= {name + SHAPE} if has_companion else set()
        if not features:
            raise UsageError(f"none of {self.records:,} records has a feature: check the files")
        return Schema(features)

    def _feature(self, name: str) -> tuple[Feature, bool]:
        """A feature, and whether `<name>/shape` holds its shapes."""
        guess, sizes = self.features[name], self.features.get(name + SHAPE)
        if sizes and (feature := guess.with_sizes(sizes, self.records)):
            return feature, True
        feature = guess.feature(self.records)
        if not feature.has_companion or name + SHAPE not in self.features | self.lists:
            return feature, False
        if feature.encoding == "tensor":
            return _ONE_BYTES_VALUE, False
        raise UsageError(
            f"feature {name!r}: expected its shape in {name + SHAPE!r}, which is another feature; "
            "rename one of the two in the records"
        )
