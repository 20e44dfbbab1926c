"""What the features of a dataset hold, as far as it is measured."""

from __future__ import annotations

from readers.describe import class_names
from readers.format.manifest import Manifest
from readers.format.similarity.kinds import kind_of
from readers.roles import roles_of

# The feature that names the input of a record.
KEY = "key"

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
        if name != KEY
    }
    return {name: kind for name, kind in kinds.items() if kind}
