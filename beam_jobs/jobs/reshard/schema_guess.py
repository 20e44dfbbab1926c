"""Infers the schema of existing Examples from the first ones of each file."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeVar

from beam_jobs.errors import DataError, UsageError
from beam_jobs.jobs.reshard.feature_guess import CommonShape, FeatureGuess, ShapesGuess
from beam_jobs.jobs.reshard.values import ValueList, lists_of
from beam_jobs.records.pieces import Divisible
from readers.format.protobuf.wire import BYTES_LIST, FLOAT_LIST, INT64_LIST
from readers.format.schema import Feature, Schema

# Records of each file, or of each range of a large one, that the schema is learned from. It takes 15 to
# 110 µs a record, as long as the rest of the job, and shows what 1 of 100 records has: 0.7 % of files miss it.
LEARNED = 500

# More different names than this are data, not names.
MAX_FEATURES = 10_000

_KINDS = {BYTES_LIST: "bytes", FLOAT_LIST: "float", INT64_LIST: "int64"}

_SHAPE = "/shape"

_ONE_BYTES_VALUE = Feature("string", (), "list")


@dataclass
class StepsGuess:
    """Facts about a feature list.

    Attributes:
        length: The common number of steps of the records that have it.
        steps: The number of steps in all records.
        step: Facts about a single step.
    """

    length: CommonShape = field(default_factory=CommonShape)
    steps: int = 0
    step: FeatureGuess = field(default_factory=FeatureGuess)

    def add(self, steps: list[ValueList]) -> None:
        """Adds the steps of a record."""
        self.length.add((len(steps),))
        self.steps += len(steps)
        for step in steps:
            if step.kind:
                self.step.add(step)

    def merge(self, other: StepsGuess) -> None:
        """Adds the facts of another instance."""
        self.length.merge(other.length)
        self.steps += other.steps
        self.step.merge(other.step)

    def feature(self, records: int) -> Feature:
        """The schema entry, given the number of records."""
        step = self.step.feature(self.steps)
        length = self.length.shape if self.length.count == records else None
        return Feature(step.dtype, (*(length or (None,)), *step.shape), f"{step.encoding} steps")


_Guess = TypeVar("_Guess", FeatureGuess, StepsGuess)


@dataclass
class SchemaGuess(Divisible):
    """Facts about the features of some records, in memory that does not grow with their number.

    Attributes:
        records: The number of records.
        features: The features by name; in SequenceExamples those of the context.
        feature_lists: The feature lists by name.
        broken: The reason of one record that is not an Example; empty without any.
    """

    records: int = 0
    features: dict[str, FeatureGuess] = field(default_factory=dict)
    feature_lists: dict[str, StepsGuess] = field(default_factory=dict)
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
            features, feature_lists = lists_of(record)
        except ValueError as error:
            return self._merge_broken(f"{key}: not an Example: {error}")
        self.records += 1
        try:
            for name, found in features.items():
                if found.kind:
                    guess = self._entry(self.features, name, FeatureGuess)
                    guess.add(found)
                    if found.numbers and name.endswith(_SHAPE):
                        guess.shapes.add(found.numbers, features.get(name.removesuffix(_SHAPE)))
            for name, steps in feature_lists.items():
                self._entry(self.feature_lists, name, StepsGuess).add(steps)
        except UsageError as error:
            raise UsageError(f"{key}: {error.message}") from None

    def merge(self, other: SchemaGuess) -> None:
        """Adds the records of another instance.

        Raises:
            UsageError: Together they have too many features.
        """
        self.records += other.records
        self._merge_broken(other.broken)
        for name, guess in other.features.items():
            self._entry(self.features, name, FeatureGuess).merge(guess)
        for name, steps in other.feature_lists.items():
            self._entry(self.feature_lists, name, StepsGuess).merge(steps)

    def add(self, part: SchemaGuess, /) -> None:
        """Adds what was learned from other records, as a `Learner`."""
        self.merge(part)

    def elements(self) -> Iterator[SchemaGuess]:
        """Yields itself, as a `Learner`."""
        yield self

    def _merge_broken(self, broken: str) -> None:
        self.broken = min(filter(None, (self.broken, broken)), default="")

    def pieces(self) -> Iterator[tuple[Any, SchemaGuess]]:
        yield (), SchemaGuess(self.records, broken=self.broken)
        for name, guess in self.features.items():
            yield (name, "feature"), SchemaGuess(features={name: guess})
        for name, steps in self.feature_lists.items():
            yield (name, "list"), SchemaGuess(feature_lists={name: steps})

    def _entry(self, guesses: dict[str, _Guess], name: str, empty: Callable[[], _Guess]) -> _Guess:
        if name not in guesses:
            self._check_new(name)
            guesses[name] = empty()
        return guesses[name]

    def _check_new(self, name: str) -> None:
        try:
            Schema({name: _ONE_BYTES_VALUE})
        except ValueError:
            raise UsageError(
                f"feature name {name[:80]!r}: expected 1 to 255 characters, without \\ and "
                "control characters; state the features to read with --schema, or rename it in the records"
            ) from None
        if len(self.features) + len(self.feature_lists) >= MAX_FEATURES:
            raise UsageError(
                f"more than {MAX_FEATURES:,} different features, one of them {name!r}: expected the "
                "same names in all records; narrow --input, or move data from names into values"
            )

    def schema(self) -> Schema:
        """The schema that the records have in common.

        A list of numbers is a scalar or has a fixed length if all records have the same number of
        values; otherwise, or if it is missing in some, it has any length. One byte string in each
        record is a tensor, an image or a text, if all are, otherwise bytes; several are a list. An
        int64 list `<name>/shape` that holds the shape of `<name>` in every record is not a feature
        of its own. If it holds something else, a tensor of unknown sizes stays bytes, so that both
        can be read.

        Raises:
            UsageError: Records contradict each other, or have no feature; or a list of any length
                comes with a `<name>/shape` that is not its shape, but that readers take for it.
            DataError: None of the records is an Example.
        """
        if self.broken and not self.records:
            raise DataError(f"no record to learn the schema from: {self.broken}")
        for name, guess in sorted(self.features.items()):
            _check_kinds(name, guess)
        for name, steps in sorted(self.feature_lists.items()):
            _check_kinds(name, steps.step)
        features = {
            n: s.feature(self.records) for n, s in self.feature_lists.items() if s.step.kinds
        }
        if both := sorted(features.keys() & self.features.keys()):
            raise UsageError(
                f"feature {both[0]!r}: a feature in some records and a feature list in others; "
                "all records of a dataset must agree: narrow --input"
            )
        companions = set()
        for name in sorted(self.features):
            if name in companions:
                continue
            features[name], has_companion = self._feature(name)
            if has_companion:
                companions.add(name + _SHAPE)
        if not features:
            raise UsageError(f"none of {self.records:,} records has a feature: check --input")
        return Schema(features)

    def _feature(self, name: str) -> tuple[Feature, bool]:
        """A feature, and whether `<name>/shape` holds its shapes."""
        guess, shapes = self.features[name], self.features.get(name + _SHAPE)
        if shapes and list(shapes.kinds) == [INT64_LIST]:
            shaped = _with_shapes(guess, shapes.shapes, self.records)
            if shaped:
                return shaped, True
        feature = guess.feature(self.records)
        if not feature.has_companion or name + _SHAPE not in self.features | self.feature_lists:
            return feature, False
        if feature.encoding == "tensor":
            return _ONE_BYTES_VALUE, False
        raise UsageError(
            f"feature {name!r}: expected its shape in {name + _SHAPE!r}, which is another feature; "
            "rename one of the two in the records"
        )


def _check_kinds(name: str, guess: FeatureGuess) -> None:
    if len(guess.kinds) > 1:
        found = ", ".join(f"{_KINDS[kind]} in {n:,}" for kind, n in sorted(guess.kinds.items()))
        raise UsageError(
            f"feature {name!r}: a list of {found} records or steps; all records of a dataset must "
            "agree: narrow --input"
        )


def _with_shapes(guess: FeatureGuess, shapes: ShapesGuess, records: int) -> Feature | None:
    """The feature whose shapes are in `<name>/shape`; None if that holds something else."""
    feature, tensor = guess.feature(records), guess.values.tensor
    if shapes.filled < guess.size.count:  # Some records have values without a shape.
        return None
    if feature.encoding == "tensor" and shapes.of_tensor:
        return feature
    if tensor and shapes.of_sequence:
        length = guess.size.shape if guess.size.count == records else None
        return Feature(tensor.dtype, (*(length or (None,)), *tensor.shape), "sequence")
    shape = shapes.shape.shape if shapes.shape.count else (None,)
    if feature.encoding not in ("list", "text") or not shapes.of_list or shape is None:
        return None
    if guess.size.count < records and None not in shape:
        shape = (None, *shape[1:])
    # Readers derive the shape of a missing list from the known sizes.
    if shapes.shape.count < records and (shape.count(None) > 1 or 0 in shape):
        return None
    return Feature(feature.dtype, shape, "list")
