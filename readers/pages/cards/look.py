"""The properties of a dataset that its records are drawn with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from readers.files.of_path import read_file
from readers.format.features import Features
from readers.format.manifest import (
    RESERVED_IDS,
    UNKNOWN,
    UNKNOWN_ID,
    VOCABULARY,
    Manifest,
    divided,
    join,
)


@dataclass(frozen=True)
class Look:
    """The properties of a dataset that its records are drawn with; `rate` is in samples per second, 0 if unknown."""

    features: Features
    is_x_first: bool = False
    rate: float = 0.0
    vocabulary: Mapping[int, str] = field(default_factory=dict)
    channels: Mapping[str, Sequence[str]] = field(default_factory=dict)

    @classmethod
    def of(cls, directory: str, manifest: Manifest) -> Look:
        """Collects the properties of a dataset; reads its vocabulary, if it has one."""
        is_x_first = manifest.options.get("box_order") == "xyxy"
        vocabulary = _vocabulary(directory, manifest)
        rate, channels = manifest.sample_rate, manifest.channel_titles
        return cls(Features.of(manifest), is_x_first, rate, vocabulary, channels)

    def rate_of(self, record: Mapping[str, Any]) -> float:
        """The samples per second of the recordings in a record; 0 if unknown."""
        value = record.get(self.features.named("rate"))
        rate = float(value) if isinstance(value, np.number) and value.dtype.kind in "uif" else 0.0
        return rate if 0 < rate < float("inf") else self.rate


def _vocabulary(directory: str, manifest: Manifest) -> dict[int, str]:
    """The words of `vocabulary.txt` by id; empty without that file."""
    if VOCABULARY not in manifest.files:
        return {}
    try:
        words = read_file(join(divided(directory)[0], manifest.files[VOCABULARY].path)).split(b"\n")
    except FileNotFoundError:
        return {}
    ids = dict(enumerate(words, RESERVED_IDS)) | {0: b"[PAD]", UNKNOWN_ID: UNKNOWN}
    return {id_: word.decode("utf-8", "backslashreplace") for id_, word in ids.items()}
