"""The encodings of features that are chosen by name, instead of those that a job would choose."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Any

from beam_jobs.errors import UsageError, did_you_mean
from readers.format.encodings.spec import format_shape
from readers.format.schema import Feature

# Feature -> encoding.
Encodings = Mapping[str, str]

NONE: Mapping[str, Any] = MappingProxyType({})

# The encodings between which a value can change without further computation.
_OF_VALUES = ("tensor", "raw", "list", "text", "zlib", "zlib_shuffled")


def parse_encodings(text: str) -> dict[str, str]:
    """Feature -> encoding, from `boxes=list,image=png`.

    Raises:
        UsageError: The text has another form, or names a feature twice.
    """
    encodings: dict[str, str] = {}
    for part in filter(None, text.split(",")):
        name, _, encoding = part.strip().rpartition("=")
        if not (name and encoding) or name in encodings:
            raise UsageError(
                f"--encodings {text}: expected FEATURE=ENCODING,… such as boxes=list, each feature "
                f"once; got {part!r}"
            )
        encodings[name] = encoding
    return encodings


def with_encodings(
    features: Mapping[str, Feature],
    encodings: Encodings,
    compressed: Mapping[str, Collection[str]] = NONE,
) -> dict[str, Feature]:
    """Features with the chosen encodings.

    Args:
        features: Feature by name, as the job makes them without a choice.
        compressed: The encodings of images that the job can also give a feature.

    Raises:
        UsageError: A feature does not exist, or an encoding cannot hold it.
    """
    changed = dict(features)
    for name, encoding in encodings.items():
        if name not in features:
            raise UsageError(
                f"--encodings {name}={encoding}: no feature {name!r}: the records have "
                f"{', '.join(sorted(features))}{did_you_mean(name, features)}"
            )
        feature = features[name]
        able = [each for each in (*_OF_VALUES, *compressed.get(name, ())) if _holds(feature, each)]
        if encoding not in able:
            raise UsageError(
                f"--encodings {name}={encoding}: {feature.dtype} {format_shape(feature.shape)} can be "
                f"{', '.join(able) or f'only {feature.encoding}'}"
            )
        changed[name] = Feature(feature.dtype, feature.shape, encoding)
    return changed


def _holds(feature: Feature, encoding: str) -> bool:
    """Whether an encoding holds the values of a feature."""
    if feature.is_sequence:  # Its values are lists of arrays.
        return False
    try:
        Feature(feature.dtype, feature.shape, encoding)
    except ValueError:
        return False
    return True
