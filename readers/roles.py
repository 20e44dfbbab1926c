"""What the features of a dataset are by their names, dtypes and shapes: keys, boxes, captions, tokens and others."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from readers.describe import class_names, counted_label
from readers.format.manifest import Manifest
from readers.format.schema import Feature, Schema
from readers.format.similarity.kinds import kind_of

# Role -> names that it has beside its own.
_NAMES = {
    "boxes": re.compile(r"(?:.*_)?b?box(?:es)?", re.IGNORECASE),
    "tokens": re.compile(r".*_tokens"),
    "rate": re.compile("sample_?rate|sampling_rate"),
}


def roles_of(manifest: Manifest) -> dict[str, str]:
    """Feature -> its role, of those that have one."""
    former = _former_names(manifest.options.get("names"))
    label = counted_label(manifest)
    roles = {}
    for name, feature in manifest.schema.items():
        role = _role(former.get(name, name), feature)
        if name == label or (not label and name == "label" and len(feature.shape) < 2):
            role = "label"
        if role:
            roles[name] = role
    return roles


def feature_of(role: str, roles: Mapping[str, str]) -> str:
    """The first feature of a role, given the roles of all; empty without one."""
    return next((name for name, found in roles.items() if found == role), "")


def _former_names(renamed: Any) -> dict[str, str]:
    """New name -> the name that a job gave, of the option `--names`."""
    pairs = (pair.split("=", 1) for pair in renamed.split(",")) if isinstance(renamed, str) else ()
    return {pair[1].strip(): pair[0].strip() for pair in pairs if len(pair) == 2}


def _role(name: str, feature: Feature) -> str:
    rank, last = len(feature.shape), feature.shape[-1] if feature.shape else None
    is_text = feature.dtype == "string"
    is_float = feature.dtype.startswith(("float", "bfloat"))
    is_whole = not is_text and not is_float and not feature.dtype.startswith("complex")
    fits = {
        "key": is_text and rank == 0,
        "boxes": is_float and rank == 2 and last == 4,
        "box_labels": is_whole and rank == 1,
        "mask": is_whole and rank == 3 and last == 1,
        "instance_masks": is_whole and rank == 3,
        "keypoints": is_float and rank == 3 and last == 3,
        "captions": is_text and rank == 1,
        "tokens": is_whole and rank == 1,
        "rate": rank == 0 and not is_text,
    }
    role = next((role for role, names in _NAMES.items() if names.fullmatch(name)), name)
    if fits.get(role, False) and feature.step is None:
        return role
    named = re.search("mel|spectrogram", name, re.IGNORECASE) is not None
    return "spectrogram" if named and is_float and rank in (2, 3) else ""


def undecoded(schema: Schema) -> Schema:
    """The features with which encoded images are read as the bytes that are stored."""
    return Schema({name: _undecoded(feature) for name, feature in schema.items()})


def _undecoded(feature: Feature) -> Feature:
    if not feature.is_image:
        return feature
    if feature.step:
        return Feature("string", feature.shape[:1], "text steps")
    return Feature("string")


# Roles of features that hold positions in a picture.
_POSITIONS = ("boxes", "keypoints")


def kinds_of(manifest: Manifest) -> dict[str, str]:
    """Feature -> `picture`, `text`, `signal`, `floats` or `integers`, of those that are measured.

    Pictures and signals have levels, which are floats, or integers of 8 or 16 bits without names of classes. Boxes and
    keypoints are floats that are neither.
    """
    names, roles = class_names(manifest), roles_of(manifest)
    kinds = {
        name: "floats" if roles.get(name) in _POSITIONS else kind_of(feature, name in names)
        for name, feature in manifest.schema.items()
        if roles.get(name) != "key"
    }
    return {name: kind for name, kind in kinds.items() if kind}
