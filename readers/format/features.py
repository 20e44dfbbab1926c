"""The roles and kinds of features: keys, labels, pictures, texts, signals, tokens, boxes and others.

The checks, the report, and the search for near duplicates use them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from readers.format.manifest import Manifest
from readers.format.schema import Feature, Schema

# Role -> names of features with this role, in addition to the role itself.
_NAMES = {
    "boxes": re.compile(r"(?:.*_)?b?box(?:es)?", re.IGNORECASE),
    "tokens": re.compile(r".*_tokens"),
    "rate": re.compile("sample_?rate|sampling_rate"),
}

# Roles of features that hold positions in a picture: floats that are not levels.
_POSITIONS = ("boxes", "keypoints")

_SMALL_INTEGERS = ("uint8", "uint16", "int8", "int16")

# A table of bytes with at least this many rows and columns is a gray picture.
_GRAY_SIDE = 16


@dataclass(frozen=True)
class Features:
    """The roles and kinds of a dataset's features.

    Attributes:
        roles: Feature -> its role in a record: `key`, `label`, `boxes`, `box_labels`, `mask`, `instance_masks`,
            `keypoints`, `captions`, `tokens`, `spectrogram` or `rate`; features without a role are left out.
        kinds: Feature -> its kind, as `kind_of` names it; keys and features that are not measured are left out.
        classes: Feature -> the names of its classes by id, if it has any.
    """

    schema: Schema
    roles: Mapping[str, str] = field(default_factory=dict)
    kinds: Mapping[str, str] = field(default_factory=dict)
    classes: Mapping[str, Sequence[str]] = field(default_factory=dict)

    @classmethod
    def of(cls, manifest: Manifest) -> Features:
        """The features of a dataset, under any names that the option `--names` of its job gave them."""
        classes, roles, kinds = manifest.classes, dict[str, str](), dict[str, str]()
        for name, feature in manifest.schema.items():
            if role := _role(manifest, name, feature):
                roles[name] = role
            kind = "floats" if role in _POSITIONS else kind_of(feature, name in classes)
            if kind and role != "key":
                kinds[name] = kind
        return cls(manifest.schema, roles, kinds, classes)

    def named(self, role: str) -> str:
        """The first feature with a role; empty without one."""
        return next((name for name, found in self.roles.items() if found == role), "")

    def of_kind(self, *kinds: str) -> list[str]:
        """The features of the given kinds."""
        return [name for name, kind in self.kinds.items() if kind in kinds]


def kind_of(feature: Feature, is_class: bool) -> str:
    """`picture`, `text`, `signal`, `floats` or `integers`; empty if the feature is not measured.

    Pictures and signals have levels: floats, or integers of 8 or 16 bits without class names.
    """
    shape, dtype = feature.shape, feature.dtype
    if (feature.is_sequence and not feature.step) or dtype.startswith("complex"):
        return ""
    if dtype == "string":
        return "text" if shape == () else ""
    is_float = dtype.startswith(("float", "bfloat"))
    if is_class or not (is_float or dtype in _SMALL_INTEGERS):
        return "integers"
    is_gray = (
        dtype == "uint8" and len(shape) == 2 and min(size or 0 for size in shape) >= _GRAY_SIDE
    )
    has_colors = len(shape) == 3 and shape[2] in (1, 3, 4)
    if (feature.is_image and not feature.step) or has_colors or is_gray:
        return "picture"
    if len(shape) in (1, 2):
        return "signal"
    return "floats" if is_float else "integers"


def undecoded(schema: Schema) -> Schema:
    """A schema that reads encoded images as their stored bytes."""
    return Schema({name: _undecoded(feature) for name, feature in schema.items()})


def _undecoded(feature: Feature) -> Feature:
    if not feature.is_image:
        return feature
    if feature.step:
        return Feature("string", feature.shape[:1], "text steps")
    return Feature("string")


def _role(manifest: Manifest, name: str, feature: Feature) -> str:
    shape, dtype, rank = feature.shape, feature.dtype, len(feature.shape)
    name_of_job = manifest.name_of_job(name)
    if name == manifest.label:
        return "label"
    is_text = dtype == "string"
    is_float = dtype.startswith(("float", "bfloat"))
    is_whole = not is_text and not is_float and not dtype.startswith("complex")
    fits = {
        "key": is_text and rank == 0,
        "boxes": is_float and rank == 2 and shape[-1] == 4,
        "box_labels": is_whole and rank == 1,
        "mask": is_whole and rank == 3 and shape[-1] == 1,
        "instance_masks": is_whole and rank == 3,
        "keypoints": is_float and rank == 3 and shape[-1] == 3,
        "captions": is_text and rank == 1,
        "tokens": is_whole and rank == 1,
        "rate": rank == 0 and not is_text,
    }
    role = next((r for r, names in _NAMES.items() if names.fullmatch(name_of_job)), name_of_job)
    if fits.get(role, False) and not feature.step:
        return role
    is_spectrogram = re.search("mel|spectrogram", name_of_job, re.IGNORECASE) is not None
    return "spectrogram" if is_spectrogram and is_float and rank in (2, 3) else ""
