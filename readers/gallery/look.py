"""What the features of a dataset are to those who look at its records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from readers.files.of_path import read_file
from readers.format.features import Features
from readers.format.manifest import RESERVED_IDS, UNKNOWN, UNKNOWN_ID, VOCABULARY, Manifest, join
from readers.format.schema import Schema
from readers.gallery.pictures import MOST_BYTES


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
        vocabulary: Token id -> its word; empty if ids are shown as they are.
        most: About how many bytes a picture may have.
    """

    schema: Schema
    roles: Mapping[str, str] = field(default_factory=dict)
    names: Mapping[str, Sequence[str]] = field(default_factory=dict)
    is_x_first: bool = False
    rate: float = 0.0
    vocabulary: Mapping[int, str] = field(default_factory=dict)
    most: int = MOST_BYTES

    @classmethod
    def of(cls, directory: str, manifest: Manifest) -> Look:
        """What the options of its job, and the names of its features, say of a dataset.

        Raises:
            StoreError: (an OSError) A store still fails after several retries.
        """
        features = Features.of(manifest)
        return cls(
            manifest.schema,
            features.roles,
            features.classes,
            manifest.options.get("box_order") == "xyxy",
            manifest.sample_rate,
            _vocabulary(directory, manifest),
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


def _vocabulary(directory: str, manifest: Manifest) -> dict[int, str]:
    """The words of `vocabulary.txt` by their ids; none without that file."""
    if VOCABULARY not in manifest.files:
        return {}
    try:
        words = read_file(join(directory, manifest.files[VOCABULARY].path)).split(b"\n")
    except FileNotFoundError:
        return {}
    ids = dict(enumerate(words, RESERVED_IDS)) | {0: b"[PAD]", UNKNOWN_ID: UNKNOWN}
    return {id_: word.decode("utf-8", "backslashreplace") for id_, word in ids.items()}
