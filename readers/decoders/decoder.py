"""The base class of decoders, and `Skip`, which leaves the bytes as they are."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from readers.format.decode.column import Allocator, FeatureColumn, Rows, object_array
from readers.format.decode.image_columns import Located
from readers.format.dtypes import numpy_dtype
from readers.format.encodings.values import checked_array
from readers.format.protobuf.tensor import string_values
from readers.format.schema import Feature, Schema


@dataclass(frozen=True)
class Batch:
    """Records to decode together: their features as stored, and their keys, int64 [B].

    `rows` allocates the pixels of each record separately; None if they may be in one array.
    """

    columns: Mapping[str, FeatureColumn]
    keys: np.ndarray
    located: Located
    empty: Allocator
    rows: Rows | None = None


class Decoder(ABC):
    """Makes the value of a feature in each record from the stored bytes: the base class of all decoders."""

    @property
    def moved(self) -> Sequence[str]:
        """The names of other features that it changes."""
        return ()

    @abstractmethod
    def features(self, name: str, stored: Schema) -> dict[str, Feature]:
        """The features that the decoder of a feature makes: its own, and those that move with it.

        `stored` are the features as the dataset, or `schema=`, states them. Raises ValueError if it does not suit one of them.
        """

    @abstractmethod
    def columns(self, name: str, stored: Schema, batch: Batch) -> dict[str, FeatureColumn]:
        """Decodes the features into columns; ValueError if a value cannot be decoded, ImportError without a package."""


def image_of(name: str, feature: Feature, channels: int | None = None) -> Feature:
    """The feature of the whole images that a feature stores; raises ValueError unless it stores images or bytes."""
    if feature.step is None and feature.is_image:
        shape = (*feature.shape[:2], channels or feature.shape[2])
        return Feature(feature.dtype, shape, "png" if feature.dtype == "uint16" else "source")
    if is_bytes(feature):
        return Feature("uint8", (None, None, channels or 3), "source")
    raise ValueError(
        f"decoders: {name!r} is {feature}; expected an encoded image, or the bytes of one"
    )


def is_bytes(feature: Feature) -> bool:
    """Whether each record has a single bytes value."""
    return feature.dtype == "string" and not feature.shape


@dataclass(frozen=True)
class Skip(Decoder):
    """Leaves the bytes of an encoded image as they are stored: a string.

    Raises:
        ValueError: When a reader opens the dataset, if the feature is not an encoded image.

    Example:
        >>> batches = readers.as_numpy("shards/photos", 32, decoders={"image": readers.decoders.Skip()})
        >>> next(batches)["image"][0][:3]
        b'\\xff\\xd8\\xff'
    """

    def features(self, name: str, stored: Schema) -> dict[str, Feature]:
        """A string."""
        image_of(name, stored[name])
        return {name: Feature("string")}

    def columns(self, name: str, stored: Schema, batch: Batch) -> dict[str, FeatureColumn]:
        """The bytes of each image."""
        # Copied, so that the memory of the batch can be reused.
        values = [bytes(value) for value in batch.columns[name].flat().tolist()]
        return {name: FeatureColumn(object_array(values))}


def called(function: Callable[..., Any], what: str, *arguments: Any) -> Any:
    """Calls a user's function; if it fails, raises ValueError with its exception as the cause."""
    try:
        return function(*arguments)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise ValueError(f"{what} raised {type(error).__name__}: {error}") from error


def checked_value(name: str, feature: Feature, value: Any) -> Any:
    """Checks a value that a function returned, and converts it for `column_of`; ValueError if it does not fit its feature."""
    check_no_tensor(name, value)
    if feature.is_sequence:
        each = Feature(feature.dtype, feature.shape[1:])
        if not isinstance(value, (list, tuple, np.ndarray)):
            raise ValueError(
                f"feature {name!r}: map returned {type(value).__name__}, expected a list of arrays"
            )
        return [checked_value(name, each, array) for array in value]
    if type(value) is bytes and feature.dtype == "string" and not feature.shape:
        return value
    try:
        array = checked_array(name, feature, value)
        if feature.dtype != "string":
            return array.astype(numpy_dtype(feature.dtype), copy=False)
        strings = string_values(array)
    except ValueError as error:
        reason = str(error).removeprefix(f"feature {name!r}: ")
        raise ValueError(
            f"feature {name!r}: map returned a value that does not fit: {reason}; for a size that varies, use "
            "None in readers.Map(function, schema)"
        ) from None
    return object_array(strings).reshape(array.shape) if feature.shape else strings[0]


def check_no_tensor(name: str, value: Any) -> None:
    """Raises ValueError if a value is a TensorFlow tensor, which may be symbolic, and is slow for single records."""
    if type(value).__module__.startswith("tensorflow."):
        raise ValueError(
            f"feature {name!r}: map returned a TensorFlow tensor, expected a NumPy array; pass a function "
            "of TensorFlow operations as transform=, which receives whole batches"
        )
