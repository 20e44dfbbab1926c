"""Finds equal texts among any number of records, with the interface in which `Likeness` finds near duplicates."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from readers.format.similarity.likeness import Kind, Likeness, Sketches
from readers.format.similarity.texts import mixed

_DIGEST = 16


@dataclass(frozen=True)
class Equality:
    """Finds equal texts: those with the same digest of 128 bits."""

    kind: Kind = "text"

    @property
    def distance(self) -> int:
        """The bits of digests that may differ: none."""
        return 0

    def sketch(self, values: Sequence[bytes]) -> Sketches:
        """Sketches texts in UTF-8: one key each, from the digest."""
        digests = b"".join(hashlib.blake2b(value, digest_size=_DIGEST).digest() for value in values)
        probes = np.frombuffer(digests, np.uint8).reshape(-1, _DIGEST)
        halves = np.ascontiguousarray(probes[:, :8]).view("<u8")
        return Sketches(mixed(halves), np.ones((len(probes), 1), bool), halves[:, 0], probes)

    def near(self, one: np.ndarray, other: np.ndarray) -> np.ndarray:
        """Which pairs are equal, bool [pairs], given their probes, uint8 [pairs, bytes]."""
        equal: np.ndarray = (one == other).all(axis=1)
        return equal


# The measure of near, or equal, records.
Similarity = Likeness | Equality
