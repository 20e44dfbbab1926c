"""What the features of a dataset are to those who look at its records."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from readers.describe import class_names, counted_label
from readers.format.manifest import Manifest
from readers.format.schema import Feature, Schema
from readers.gallery.pictures import MOST_BYTES
from readers.gallery.sounds import LOWEST_RATE
from readers.gallery.tokens import Vocabulary, vocabulary_of

_RATES = ("sample_rate", "sampling_rate", "samplerate")

# A key that names a file of sound, perhaps with the number of a row or a window.
_SOUND = re.compile(
    rb"\.(wav|flac|ogg|oga|opus|mp3|aiff?|aifc|au|snd|caf|w64|sph|voc)([#@]|$)", re.IGNORECASE
)
# The rate from which a recording of anything else is taken for sound.
_AUDIBLE = 8_000


@dataclass(frozen=True)
class Look:
    """What the features of a dataset are to those who look at its records.

    Attributes:
        schema: The features.
        roles: Feature -> what it is: `key`, `label`, `boxes`, `box_labels`, `mask`, `instance_masks`,
            `keypoints`, `captions`, `tokens`, `spectrogram` or `rate`; others are what their values are.
        names: Feature -> the names of its classes by id.
        is_x_first: Whether x comes before y in boxes and keypoints.
        rate: Samples per second of all recordings; 0 if unknown.
        vocabulary: What token ids stand for.
        most: About how many bytes a picture may have.
    """

    schema: Schema
    roles: Mapping[str, str] = field(default_factory=dict)
    names: Mapping[str, Sequence[str]] = field(default_factory=dict)
    is_x_first: bool = False
    rate: float = 0.0
    vocabulary: Vocabulary = field(default_factory=Vocabulary)
    most: int = MOST_BYTES

    @classmethod
    def of(cls, directory: str, manifest: Manifest) -> Look:
        """What the options of its job, and the names of its features, say of a dataset.

        Args:
            directory: The dataset's directory.
            manifest: Its manifest.

        Raises:
            StoreError: (an OSError) A store still fails after several retries.
        """
        options, roles = manifest.options, roles_of(manifest)
        has_tokens = "tokens" in roles.values()
        return cls(
            manifest.schema,
            roles,
            class_names(manifest),
            options.get("box_order") == "xyxy",
            manifest.sample_rate,
            vocabulary_of(directory, manifest) if has_tokens else Vocabulary(),
        )

    def feature_of(self, role: str) -> str:
        """The first feature of a role; empty without one."""
        return next((name for name, found in self.roles.items() if found == role), "")

    def value_of(self, role: str, record: Mapping[str, Any]) -> Any:
        """The value that a record has for a role; None without one."""
        return record.get(self.feature_of(role))

    def rate_of(self, record: Mapping[str, Any]) -> float:
        """Samples per second of the recordings in a record; 0 if unknown."""
        value = self.value_of("rate", record)
        rate = float(value) if isinstance(value, np.number) and value.dtype.kind in "uif" else 0.0
        return rate if 0 < rate < float("inf") else self.rate

    def is_sound(self, record: Mapping[str, Any]) -> bool:
        """Whether the recordings of a record come from a file of sound, or have the rate of one."""
        key = self.value_of("key", record)
        named = isinstance(key, bytes) and _SOUND.search(key[-100:]) is not None
        return named or self.rate_of(record) >= _AUDIBLE

    def is_audible(self, record: Mapping[str, Any]) -> bool:
        """Whether its recordings can be played."""
        return self.is_sound(record) and self.rate_of(record) >= LOWEST_RATE


def undecoded(schema: Schema) -> Schema:
    """The features with which encoded images are read as the bytes that are stored."""
    return Schema({name: _undecoded(feature) for name, feature in schema.items()})


def _undecoded(feature: Feature) -> Feature:
    if not feature.is_image:
        return feature
    if feature.step:
        return Feature("string", feature.shape[:1], "text steps")
    return Feature("string")


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
    role = "tokens" if name.endswith("_tokens") else "rate" if name in _RATES else name
    if fits.get(role, False) and not feature.encoding.endswith("steps"):
        return role
    named = re.search("mel|spectrogram", name, re.IGNORECASE) is not None
    return "spectrogram" if named and is_float and rank in (2, 3) else ""
