"""What a record holds: the name, dtype, shape and encoding of each feature."""

from __future__ import annotations

import functools
import operator
import re
from collections.abc import ItemsView, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

# numpy name -> the number of the dtype in TensorFlow's types.proto (enum DataType).
TENSORFLOW_DTYPES: dict[str, int] = {
    "float32": 1,
    "float64": 2,
    "int32": 3,
    "uint8": 4,
    "int16": 5,
    "int8": 6,
    "string": 7,
    "complex64": 8,
    "int64": 9,
    "bool": 10,
    "bfloat16": 14,
    "uint16": 17,
    "complex128": 18,
    "float16": 19,
    "uint32": 22,
    "uint64": 23,
}

INTEGERS_IN_A_LIST = ("int64", "int32", "int16", "int8", "uint32", "uint16", "uint8", "bool")

FLOATS_IN_A_LIST = ("float32", "float16", "bfloat16")

_OF_A_STEP = ("tensor", "list", "raw", "text", "jpeg", "png", "source")

_STEPS = " steps"

ENCODINGS = (*_OF_A_STEP, "sequence", *(encoding + _STEPS for encoding in _OF_A_STEP))

PICTURES = ("jpeg", "png", "source")

WITH_COMPANION = ("tensor", "list", "raw")

# Other writers use slashes (image/encoded); 255 is generous.
_NAME = re.compile(r"[^\x00-\x1f\\\ud800-\udfff]{1,255}")


@functools.cache
def numpy_dtype(name: str) -> np.dtype[Any]:
    """The little-endian NumPy dtype of a feature's dtype name; `object` for "string".

    Raises:
        ValueError: TensorFlow's `serialize_tensor` has no such dtype.
        ImportError: "bfloat16" without the ml_dtypes package.
    """
    if name not in TENSORFLOW_DTYPES:
        raise ValueError(f"unknown dtype {name!r}: one of {', '.join(sorted(TENSORFLOW_DTYPES))}")
    if name == "string":
        return np.dtype(object)
    if name == "bfloat16":
        try:
            import ml_dtypes
        except ImportError:
            raise ImportError("dtype bfloat16 needs ml_dtypes: pip install ml_dtypes") from None
        return np.dtype(ml_dtypes.bfloat16)
    return np.dtype(name).newbyteorder("<")


def dtype_name(dtype: np.dtype[Any]) -> str:
    """The feature dtype name of a NumPy dtype: "string" for text, bytes and object arrays."""
    return "string" if dtype.kind in "SUOT" else dtype.name


def format_shape(shape: tuple[int | None, ...]) -> str:
    """`[224, 224, 3]`, `[None, 6]` or `[]`, as error messages and reports print it."""
    return "[" + ", ".join(str(d) for d in shape) + "]"


def fits(expected: tuple[int | None, ...], found: tuple[int, ...]) -> bool:
    """Whether a shape has the expected rank and every known dimension."""
    return expected == found or (
        len(expected) == len(found)
        and all(e is None or e == f for e, f in zip(expected, found, strict=True))
    )


def _default_encoding(dtype: str, shape: tuple[int | None, ...]) -> str:
    if shape:
        return "tensor"
    if dtype == "string":
        return "text"
    return "list" if dtype in INTEGERS_IN_A_LIST + FLOATS_IN_A_LIST else "tensor"


@dataclass(frozen=True)
class Feature:
    """One named value of every record.

    Attributes:
        dtype: A name of `TENSORFLOW_DTYPES`.
        shape: Without the batch dimension; None is a dimension that differs between records.
            For `sequence` the first dimension counts the arrays and the others are those of one;
            for `… steps`, the steps.
        encoding: One of `ENCODINGS`. By default `text` for a string, `list` for a number that
            an Example holds natively, `tensor` for everything else. `list steps` stands for a
            feature list of a SequenceExample, each of whose steps is encoded as `list` says; and so
            do the others.

    Raises:
        ValueError: An unknown dtype or encoding, or two that do not go together.
    """

    dtype: str
    shape: tuple[int | None, ...] = ()
    encoding: str = ""

    def __post_init__(self) -> None:
        try:
            shape = tuple(None if d is None else operator.index(d) for d in self.shape)
        except TypeError:
            raise ValueError(f"shape {self.shape!r}: expected a list of sizes and None") from None
        object.__setattr__(self, "shape", shape)
        if not isinstance(self.dtype, str):
            raise ValueError(f"dtype {self.dtype!r}: expected a name such as 'float32'")
        if self.dtype not in TENSORFLOW_DTYPES:
            numpy_dtype(self.dtype)
        if any(d is not None and d < 0 for d in shape):
            raise ValueError(
                f"shape {format_shape(shape)}: a size is negative; use None if it varies"
            )
        if self.encoding == "":
            object.__setattr__(self, "encoding", _default_encoding(self.dtype, shape))
        problem = self._problem()
        if problem:
            raise ValueError(f"{self}: {problem}")

    def _problem(self) -> str | None:
        numeric = self.dtype != "string"
        if self.encoding not in ENCODINGS:
            return f"unknown encoding {self.encoding!r}: one of {', '.join(ENCODINGS)}"
        if self.encoding.endswith(_STEPS):
            return self._problem_of_steps()
        if self.encoding == "text" and (numeric or self.shape):
            return "text is one UTF-8 string: dtype string, shape []"
        if self.encoding == "raw" and not numeric:
            return "raw bytes need a numeric dtype"
        if self.encoding == "list" and self.dtype not in (
            *INTEGERS_IN_A_LIST,
            *FLOATS_IN_A_LIST,
            "string",
        ):
            return "an Example's lists hold int64, float32 and bytes: use the tensor encoding"
        if self.encoding in PICTURES and (
            self.dtype != "uint8" or len(self.shape) != 3 or self.shape[2] not in (1, 3)
        ):
            return "an encoded picture is uint8 [height, width, 1 or 3]"
        if self.encoding == "sequence" and (not numeric or len(self.shape) < 1):
            return "a sequence is numeric, its first dimension counts the arrays"
        return None

    def _problem_of_steps(self) -> str | None:
        if not self.shape:
            return (
                "the first dimension of a feature list counts its steps: [None] for one value each"
            )
        try:
            step = self.step
        except ValueError as error:
            return f"a step is {error}"
        if step and step.needs_companion and step.shape.count(None) > 1:
            return "the values of a step tell one unknown dimension alone"
        return None

    @functools.cached_property
    def step(self) -> Feature | None:
        """What each step of a feature list holds; None for a feature that is in none."""
        if not self.encoding.endswith(_STEPS):
            return None
        return Feature(self.dtype, self.shape[1:], self.encoding.removesuffix(_STEPS))

    @property
    def is_picture(self) -> bool:
        """Whether its bytes, or those of each step, are an encoded picture."""
        return (self.step or self).encoding in PICTURES

    @property
    def is_sequence(self) -> bool:
        """Whether the value of a record is a list of arrays, not an array."""
        return self.encoding == "sequence" or (self.step is not None and not self.step.is_fixed)

    def __str__(self) -> str:
        return f"{self.dtype} {format_shape(self.shape)}, {self.encoding}"

    @property
    def is_fixed(self) -> bool:
        """Whether every record has the same shape."""
        return None not in self.shape

    @property
    def varying_rank(self) -> int:
        """How many leading dimensions a mask covers: up to and including the last unknown one."""
        return max((i + 1 for i, d in enumerate(self.shape) if d is None), default=0)

    @property
    def has_length(self) -> bool:
        """Whether a record has a size of its own in each unknown dimension, of which there is one.

        The arrays of a sequence have one each.
        """
        return not self.is_fixed and (not self.is_sequence or None not in self.shape[1:])

    @property
    def first_unknown(self) -> int:
        """The first dimension whose size is unknown; there is one."""
        return self.shape.index(None)

    @property
    def has_companion(self) -> bool:
        """Whether an int64 list `<name>/shape` stands beside the value in the Example."""
        return self.encoding == "sequence" or (
            self.encoding in WITH_COMPANION and not self.is_fixed
        )

    @property
    def needs_companion(self) -> bool:
        """Whether the shape is read from the companion, where there is one."""
        return self.encoding in ("list", "raw") and not self.is_fixed

    def to_json(self) -> dict[str, Any]:
        return {"dtype": self.dtype, "shape": list(self.shape), "encoding": self.encoding}

    @classmethod
    def from_json(cls, value: Any) -> Feature:
        if not isinstance(value, Mapping) or not {"dtype", "shape", "encoding"} <= set(value):
            raise ValueError(f"a feature is {{dtype, shape, encoding}}, got {value!r}")
        return cls(value["dtype"], value["shape"], value["encoding"])


class Schema(Mapping[str, Feature]):
    """The features of a dataset: an immutable mapping from name to `Feature`, sorted by name.

    A value may be given as a `Feature` or as `(dtype, shape)` or `(dtype, shape, encoding)`.

    Example:
        >>> Schema({"image": Feature("uint8", [28, 28, 1]), "label": Feature("int64")})["label"]
        Feature(dtype='int64', shape=(), encoding='list')
    """

    def __init__(self, features: Mapping[str, Feature | tuple[Any, ...]]) -> None:
        checked: dict[str, Feature] = {}
        for name in sorted(features, key=lambda name: str(name).encode(errors="replace")):
            if not isinstance(name, str) or not _NAME.fullmatch(name):
                raise ValueError(
                    f"feature name {name!r}: expected text without \\ and control characters"
                )
            value = features[name]
            try:
                checked[name] = value if isinstance(value, Feature) else Feature(*value)
            except (TypeError, ValueError) as error:
                raise ValueError(f"feature {name!r}: {error}") from None
        for name, feature in checked.items():
            if feature.has_companion and f"{name}/shape" in checked:
                raise ValueError(
                    f"feature '{name}/shape': this name is taken by the shapes of {name!r}"
                )
        if not checked:
            raise ValueError("a schema needs at least one feature")
        self._features = checked

    def __getitem__(self, name: str) -> Feature:
        try:
            return self._features[name]
        except KeyError:
            raise KeyError(f"no feature {name!r}: the schema has {', '.join(self)}") from None

    def __contains__(self, name: object) -> bool:
        return name in self._features

    def __iter__(self) -> Iterator[str]:
        return iter(self._features)

    def __len__(self) -> int:
        return len(self._features)

    def items(self) -> ItemsView[str, Feature]:
        # In a fifth of the time of Mapping's own: it is asked for with every record.
        return self._features.items()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Schema) and self._features == other._features

    def __hash__(self) -> int:
        return hash(tuple(self._features.items()))

    def __repr__(self) -> str:
        return f"Schema({self._features!r})"

    def select(self, names: list[str] | tuple[str, ...]) -> Schema:
        """The schema of these features alone.

        Raises:
            ValueError: A name is not in the schema; the message lists those that are.
        """
        unknown = [name for name in names if name not in self]
        if unknown:
            raise ValueError(f"unknown feature {unknown[0]!r}: the dataset has {', '.join(self)}")
        return Schema({name: self[name] for name in names})

    def to_json(self) -> dict[str, Any]:
        return {name: feature.to_json() for name, feature in self.items()}

    @classmethod
    def from_json(cls, value: Any) -> Schema:
        if not isinstance(value, Mapping):
            raise ValueError(f"a schema maps names to features, got {type(value).__name__}")
        features = {}
        for name, feature in value.items():
            try:
                features[name] = Feature.from_json(feature)
            except ValueError as error:
                raise ValueError(f"feature {name!r}: {error}") from None
        return cls(features)
