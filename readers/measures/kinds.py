"""What the features of a dataset hold, as far as it is measured."""

from __future__ import annotations

from readers.describe import class_names
from readers.format.manifest import Manifest
from readers.similarity.kinds import kind_of

# The feature that names the input of a record.
KEY = "key"


def kinds_of(manifest: Manifest) -> dict[str, str]:
    """Feature -> `picture`, `text`, `signal`, `floats` or `integers`, of those that are measured.

    Pictures and signals have levels, which are floats, or integers of 8 or 16 bits without names of classes.
    """
    names = class_names(manifest)
    kinds = {
        name: kind_of(feature, name in names)
        for name, feature in manifest.schema.items()
        if name != KEY
    }
    return {name: kind for name, kind in kinds.items() if kind}
