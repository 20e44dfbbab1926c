"""The schema of a dataset: the name, dtype, shape and encoding of each feature."""

from __future__ import annotations

import functools
import math
import operator
import re
from collections.abc import ItemsView, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from readers.format.dtypes import (
    FLOATS_IN_A_LIST,
    INTEGERS_IN_A_LIST,
    TENSORFLOW_DTYPES,
    numpy_dtype,
)
from readers.format.encodings.encoding import Encoding
from readers.format.encodings.spec import Spec, format_shape
from readers.format.encodings.table import ENCODINGS, StepsEncoding

IMAGE_ENCODINGS = tuple(
    name
    for name, each in ENCODINGS.items()
    if each.is_image and not isinstance(each, StepsEncoding)
)

# Slashes are allowed because other writers use them (image/encoded); 255 characters are enough.
_NAME = re.compile(r"[^\x00-\x1f\\\ud800-\udfff]{1,255}")

# Of a feature in one record, which has at most this many bytes.
_MOST_VALUES = (1 << 31) - 1

# NumPy 1 has no more. TensorFlow takes minutes for ragged tensors of a thousand.
MAX_DIMENSIONS = 32


def _default_encoding(dtype: str, shape: tuple[int | None, ...]) -> str:
    if dtype == "string" and not shape:
        return "text"
    is_list = not shape and dtype in INTEGERS_IN_A_LIST + FLOATS_IN_A_LIST
    return "list" if is_list else "tensor"


@dataclass(frozen=True)
class Feature(Spec):
    """The dtype, shape and encoding of one feature.

    Attributes:
        dtype: `"bool"`, `"string"`, `"int8"` to `"int64"`, `"uint8"` to `"uint64"`, `"float16"` to
            `"float64"`, `"bfloat16"`, `"complex64"` or `"complex128"`.
        shape: The shape in one record, without a batch dimension. None is a size that varies
            between records. For `sequence`, the first dimension counts the arrays and the others
            are the shape of each; for `… steps`, the first dimension counts the steps.
        encoding: How the value is stored: `tensor`, `list`, `raw`, `zlib`, `zlib_shuffled`, `text`,
            `jpeg`, `png`, `source` or `sequence`. By default `text` for a single string, `list` for a
            single number that an Example can hold natively, and `tensor` for
            everything else. `list steps` is a feature list of a SequenceExample whose steps are
            each encoded as `list`, and so on.

    Raises:
        ValueError: The dtype or the encoding is unknown, or dtype, encoding and shape do not fit
            together.

    Example:
        >>> readers.Feature("uint8", [None, None, 3], "jpeg").is_image
        True
    """

    encoding: str = ""

    if TYPE_CHECKING:  # The shape may be any sequence, and is stored as a tuple.

        def __init__(
            self, dtype: str, shape: Sequence[int | None] = (), encoding: str = ""
        ) -> None: ...

    def __post_init__(self) -> None:
        try:
            shape = tuple(None if d is None else operator.index(d) for d in self.shape)
        except TypeError:
            raise ValueError(
                f"shape {self.shape!r}: expected a list of sizes, such as [28, None]"
            ) from None
        object.__setattr__(self, "shape", shape)
        if not isinstance(self.dtype, str):
            raise ValueError(f"dtype {self.dtype!r}: expected a name such as 'float32'")
        if self.dtype not in TENSORFLOW_DTYPES:
            numpy_dtype(self.dtype)
        if len(shape) > MAX_DIMENSIONS:
            raise ValueError(
                f"a shape of {len(shape)} dimensions: expected at most {MAX_DIMENSIONS}"
            )
        if any(d is not None and d < 0 for d in shape):
            raise ValueError(
                f"shape {format_shape(shape)}: a size is negative; use None for a size that varies"
            )
        if math.prod(size or 1 for size in shape) > _MOST_VALUES:
            raise ValueError(f"shape {format_shape(shape)}: too many values for one record")
        if self.encoding == "":
            object.__setattr__(self, "encoding", _default_encoding(self.dtype, shape))
        if self.encoding not in list(ENCODINGS):  # From JSON, it may be of any type.
            raise ValueError(
                f"{self.dtype} {format_shape(shape)}, {self.encoding}: unknown encoding {self.encoding!r}: "
                f"expected one of {', '.join(ENCODINGS)}"
            )
        if problem := self.codec.problem(self):
            raise ValueError(f"{self}: {problem}")

    @functools.cached_property
    def codec(self) -> Encoding:
        """The encoding as an object."""
        return ENCODINGS[self.encoding]

    @functools.cached_property
    def step(self) -> Feature | None:
        """The feature in each step of a feature list; None for other features."""
        codec = self.codec
        if not isinstance(codec, StepsEncoding) or codec.of is None:
            return None
        return Feature(self.dtype, self.shape[1:], codec.of.name)

    @property
    def is_image(self) -> bool:
        """Whether the feature, or each step of it, is an encoded image."""
        return self.codec.is_image

    @functools.cached_property
    def is_sequence(self) -> bool:
        """Whether the value in a record is a list of arrays, rather than one array."""
        return self.codec.is_sequence(self)

    @property
    def is_integer(self) -> bool:
        """Whether the feature is a single int64 in a list, as labels are."""
        return self == _INTEGER

    def __str__(self) -> str:
        return self.codec.described(self)

    @functools.cached_property
    def is_rows(self) -> bool:
        """Whether the value is an array of numbers with only the first size unknown."""
        is_array = not self.is_sequence and self.dtype != "string"
        return is_array and self.shape[:1] == (None,) and None not in self.shape[1:]

    @property
    def varying_rank(self) -> int:
        """How many leading dimensions a mask covers: up to and including the last unknown one."""
        return max((i + 1 for i, d in enumerate(self.shape) if d is None), default=0)

    @property
    def has_length(self) -> bool:
        """Whether the shape has unknown dimensions, and a record has exactly one size in each of them.

        The arrays of a sequence can differ in size, so it must have fixed inner dimensions.
        """
        return not self.is_fixed and (not self.is_sequence or None not in self.shape[1:])

    @property
    def first_unknown(self) -> int:
        """The index of the first unknown dimension. The shape must have one."""
        return self.shape.index(None)

    @property
    def has_companion(self) -> bool:
        """Whether an Example stores an int64 list `<name>/shape` next to the value."""
        return self.codec.stores_shape(self)

    @functools.cached_property
    def needs_companion(self) -> bool:
        """Whether readers take the shape from `<name>/shape`, if an Example has it."""
        return self.codec.reads_shape(self)

    @classmethod
    def of(cls, value: Any) -> Feature:
        """Makes a feature from any value that a schema accepts.

        Args:
            value: A feature; its arguments as a tuple; a dtype, or its name in NumPy or TensorFlow, for
                a single value; or a `tf.io.FixedLenFeature`, `VarLenFeature`, `FixedLenSequenceFeature`
                or `RaggedFeature`, which mean a list in an Example.

        Raises:
            ValueError: It is none of these.
        """
        if isinstance(value, cls):
            return value
        if isinstance(value, tuple) and hasattr(value, "dtype"):
            return cls(_dtype_name(value.dtype), _shape_in_example(value), "list")
        if isinstance(value, (tuple, list)) and 1 <= len(value) <= 3:
            return cls(_dtype_name(value[0]), *value[1:])
        return cls(_dtype_name(value))

    def to_json(self) -> dict[str, Any]:
        """The feature as JSON values, for the manifest."""
        return {"dtype": self.dtype, "shape": list(self.shape), "encoding": self.encoding}

    @classmethod
    def from_json(cls, value: Any) -> Feature:
        """Makes a feature from the JSON values that `to_json` returned.

        Raises:
            ValueError: A field is missing or wrong.
        """
        if not isinstance(value, Mapping) or not {"dtype", "shape", "encoding"} <= set(value):
            raise ValueError(f"a feature is {{dtype, shape, encoding}}, got {value!r}")
        return cls(value["dtype"], value["shape"], value["encoding"])


def _dtype_name(dtype: Any) -> str:
    """The name of a dtype, which may be from NumPy or TensorFlow."""
    if isinstance(dtype, str):
        return dtype
    name = getattr(dtype, "name", None)  # Of tf.float32 and np.dtype("float32").
    if not isinstance(name, str):
        try:
            name = np.dtype(dtype).name
        except TypeError:
            raise ValueError(
                f"{dtype!r:.200}: expected a dtype such as 'float32', or (dtype, shape)"
            ) from None
    return "string" if name.startswith(("bytes", "str")) else name


def _shape_in_example(spec: Any) -> tuple[int | None, ...]:
    """The shape of the values of a feature spec of `tf.io`; ValueError if they have no single shape."""
    kind = type(spec).__name__
    if kind in ("VarLenFeature", "RaggedFeature") and not getattr(spec, "partitions", ()):
        return (None,)
    if kind in ("FixedLenFeature", "FixedLenSequenceFeature"):
        shape = tuple(spec.shape)
        return shape if kind == "FixedLenFeature" else (None, *shape)
    raise ValueError(
        f"a tf.io.{kind} has no single shape: expected (dtype, shape), or a FixedLenFeature, "
        "VarLenFeature, FixedLenSequenceFeature or RaggedFeature without partitions"
    )


_INTEGER = Feature("int64", (), "list")


def is_feature_name(name: str) -> bool:
    """Whether a name is valid for a feature."""
    return _NAME.fullmatch(name) is not None


class Schema(Mapping[str, Feature]):
    """The features of a dataset: an immutable mapping from name to `Feature`, sorted by name.

    Args:
        features: Name -> a `Feature`, or a value that one can be made from (see `Feature.of`): its arguments as a
            tuple, `(dtype,)`, `(dtype, shape)` or `(dtype, shape, encoding)`; a dtype, for a single
            value; or TensorFlow's own `tf.io.FixedLenFeature` and the like.

    Raises:
        ValueError: There are no features, or a name or a feature is not valid.

    Example:
        >>> Schema({"image": Feature("uint8", [28, 28, 1]), "label": Feature("int64")})["label"]
        Feature(dtype='int64', shape=(), encoding='list')
    """

    def __init__(self, features: Mapping[str, Any]) -> None:
        if not isinstance(features, Mapping):
            raise ValueError(
                f"schema={features!r:.200}: expected a dict of features by name, as in "
                '{"image": ("uint8", [28, 28, 1]), "label": "int64"}'
            )
        checked: dict[str, Feature] = {}
        for name in sorted(features, key=lambda name: str(name).encode(errors="replace")):
            if not isinstance(name, str) or not is_feature_name(name):
                raise ValueError(
                    f"feature name {name!r}: expected text of 1 to 255 characters, without \\ and "
                    "control characters"
                )
            try:
                checked[name] = Feature.of(features[name])
            except ValueError as error:
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
        # Called for every record; takes a fifth of the time of Mapping's own method.
        return self._features.items()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Schema) and self._features == other._features

    def __hash__(self) -> int:
        return hash(tuple(self._features.items()))

    def __repr__(self) -> str:
        return f"Schema({self._features!r})"

    def select(self, names: list[str] | tuple[str, ...]) -> Schema:
        """Returns the schema of some of the features.

        Raises:
            ValueError: A name is not in the schema; the message lists the names that are.
        """
        unknown = [name for name in names if name not in self]
        if unknown:
            raise ValueError(f"unknown feature {unknown[0]!r}: the dataset has {', '.join(self)}")
        return Schema({name: self[name] for name in names})

    def difference(self, other: Mapping[str, Feature]) -> str:
        """The first feature that differs in another schema, as in `'x' (missing, not float32 [3])`; empty without one."""
        for name in {**self._features, **other}:
            ours, theirs = (each.get(name, "missing") for each in (self._features, other))
            if ours != theirs:
                return f"{name!r} ({theirs}, not {ours})"
        return ""

    def to_json(self) -> dict[str, Any]:
        """The schema as JSON values, for the manifest."""
        return {name: feature.to_json() for name, feature in self.items()}

    @classmethod
    def from_json(cls, value: Any) -> Schema:
        """Makes a schema from the JSON values that `to_json` returned.

        Raises:
            ValueError: A feature is missing or wrong.
        """
        if not isinstance(value, Mapping):
            raise ValueError(f"a schema maps names to features, got {type(value).__name__}")
        features = {}
        for name, feature in value.items():
            try:
                features[name] = Feature.from_json(feature)
            except ValueError as error:
                raise ValueError(f"feature {name!r}: {error}") from None
        return cls(features)
