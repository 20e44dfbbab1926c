"""The schema of Examples that others wrote, from what all of them hold."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from beam_jobs.errors import UsageError
from beam_jobs.jobs.reshard.example_lists import FeatureList, Features, parsed_lists
from beam_jobs.jobs.reshard.example_walk import walked_lists
from beam_jobs.jobs.reshard.feature_guess import CommonShape, FeatureGuess, ShapesGuess
from readers.format.schema import Feature, Schema
from readers.format.wire import BYTES_LIST, FLOAT_LIST, INT64_LIST

# With more of them, names are data.
MAX_FEATURES = 10_000

_KINDS = {BYTES_LIST: "bytes", FLOAT_LIST: "float", INT64_LIST: "int64"}

_SHAPE = "/shape"

_ONE_BYTES_VALUE = Feature("string", (), "list")


@dataclass
class StepsGuess:
    """What is known of a feature list.

    Attributes:
        length: Steps of the records that have it.
        steps: How many there are in all.
        step: What is known of one.
    """

    length: CommonShape = field(default_factory=CommonShape)
    steps: int = 0
    step: FeatureGuess = field(default_factory=FeatureGuess)

    @classmethod
    def of(cls, found: FeatureList) -> StepsGuess:
        """What a feature list of some records tells."""
        guess = cls(CommonShape.of(found.lengths[:, None]), int(found.lengths.sum()))
        for lists in found.lists:
            guess.step.merge(FeatureGuess.of(lists))
        return guess

    def merge(self, other: StepsGuess) -> None:
        """Adds what another one knows."""
        self.length.merge(other.length)
        self.steps += other.steps
        self.step.merge(other.step)

    def feature(self, records: int) -> Feature:
        """The feature that it is, of so many records."""
        step = self.step.feature(self.steps)
        length = self.length.shape if self.length.count == records else None
        return Feature(step.dtype, (*(length or (None,)), *step.shape), f"{step.encoding} steps")


@dataclass
class SchemaGuess:
    """What is known of the features of some records; it takes no more room for more records.

    Attributes:
        records: How many.
        features: By name; of SequenceExamples those of the context.
        feature_lists: By name.
    """

    records: int = 0
    features: dict[str, FeatureGuess] = field(default_factory=dict)
    feature_lists: dict[str, StepsGuess] = field(default_factory=dict)

    def add(self, data: np.ndarray, starts: np.ndarray, stops: np.ndarray) -> list[tuple[int, str]]:
        """Adds records.

        Args:
            data: uint8 [n], the records, serialized Examples or SequenceExamples; and behind the
                last one at least `readers.format.columns.MARGIN` bytes.
            starts, stops: int64 [B], where each begins and ends.

        Returns:
            The rows, rising, of records that are neither, with the reason. They are not added.

        Raises:
            UsageError: No schema can have the names of the features.
        """
        features, usual = walked_lists(data, starts, stops)
        self._add_features(features)
        others = np.flatnonzero(~usual)
        features, feature_lists, broken = parsed_lists(data, starts, stops, others)
        self._add_features(features)
        for name, found in feature_lists.items():
            self._add_list(name, StepsGuess.of(found))
        self.records += len(starts) - len(broken)
        return broken

    def merge(self, other: SchemaGuess) -> None:
        """Adds the records of another one.

        Raises:
            UsageError: Together they have too many features.
        """
        self.records += other.records
        for name, guess in other.features.items():
            self._add_feature(name, guess)
        for name, steps in other.feature_lists.items():
            self._add_list(name, steps)

    def _add_features(self, features: Features) -> None:
        for name, lists in features.items():
            for part in lists:
                self._add_feature(name, FeatureGuess.of(part))
                if part.kind == INT64_LIST and name.endswith(_SHAPE):
                    of = features.get(name.removesuffix(_SHAPE), [])
                    self.features[name].shapes.merge(ShapesGuess.of(part, of))

    def _add_feature(self, name: str, guess: FeatureGuess) -> None:
        if name not in self.features:
            self._check_new(name)
            self.features[name] = FeatureGuess()
        self.features[name].merge(guess)

    def _add_list(self, name: str, guess: StepsGuess) -> None:
        if name not in self.feature_lists:
            self._check_new(name)
            self.feature_lists[name] = StepsGuess()
        self.feature_lists[name].merge(guess)

    def _check_new(self, name: str) -> None:
        try:
            Schema({name: _ONE_BYTES_VALUE})
        except ValueError:
            raise UsageError(
                f"feature name {name[:80]!r}: expected from 1 to 255 characters without \\ and "
                "control characters; write the records with other names"
            ) from None
        if len(self.features) + len(self.feature_lists) >= MAX_FEATURES:
            raise UsageError(
                f"more than {MAX_FEATURES:,} different features, {name!r} among them: records of "
                "one dataset have the same names; narrow --input, or write what is in names as "
                "values"
            )

    def schema(self) -> Schema:
        """What all records have in common.

        A list of numbers is one value or `n` where every record has as many, otherwise, and where
        it is missing in some, of any length. One byte string in each record is a tensor, a picture,
        a text or, if not all are one of these, bytes; several are a list. An int64 list
        `<name>/shape` that is the shape of `<name>` in every record is no feature of its own. Where
        it is another, a tensor of unknown sizes is left as bytes, so that both can be read.

        Raises:
            UsageError: Records contradict each other, or have no feature; or a list of any length
                stands beside a `<name>/shape` that is not its shape, which no reader can tell.
        """
        for name, guess in sorted(self.features.items()):
            _check_kinds(name, guess)
        for name, steps in sorted(self.feature_lists.items()):
            _check_kinds(name, steps.step)
        features = {
            n: s.feature(self.records) for n, s in self.feature_lists.items() if s.step.kinds
        }
        if both := sorted(features.keys() & self.features.keys()):
            raise UsageError(
                f"feature {both[0]!r}: a feature of some records and a feature list of some; "
                "records of one dataset must agree: narrow --input"
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
        """A feature, and whether its shapes stand in `<name>/shape`."""
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
            f"feature {name!r}: {name + _SHAPE!r}, whose name its shapes would have, does not hold "
            "one in every record: write one of the two with another name"
        )


def _check_kinds(name: str, guess: FeatureGuess) -> None:
    if len(guess.kinds) > 1:
        found = ", ".join(f"{_KINDS[kind]} in {n:,}" for kind, n in sorted(guess.kinds.items()))
        raise UsageError(
            f"feature {name!r}: a list of {found} records or steps; records of one dataset must "
            "agree: narrow --input"
        )


def _with_shapes(guess: FeatureGuess, shapes: ShapesGuess, records: int) -> Feature | None:
    """The feature of lists or tensors whose shapes `shapes` are; None where they are not."""
    feature, tensor = guess.feature(records), guess.values.tensor
    if shapes.filled < guess.size.count:  # Some have values without a shape.
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
    # Readers tell the shape of a list that is missing from the known sizes.
    if shapes.shape.count < records and (shape.count(None) > 1 or 0 in shape):
        return None
    return Feature(feature.dtype, shape, "list")
