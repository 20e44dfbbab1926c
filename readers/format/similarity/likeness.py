"""Defines near duplicates, and finds all pairs among any number of records on many machines.

A record becomes a sketch: keys, at least one of which near duplicates share, and a probe of a few hundred bytes.
Records that share a key are candidates, and their probes are compared. A record without a hash, such as
a picture of one color, is a near duplicate only of records that are equal to it.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, Literal, NamedTuple

import numpy as np

from readers.format.similarity.levels import reduced
from readers.format.similarity.pairs import pairs_in_runs, popcount
from readers.format.similarity.pictures import (
    PICTURE_CORRELATION,
    PICTURE_DIFFERENCE,
    alike_pictures,
    hash_and_luma,
)
from readers.format.similarity.recordings import (
    PORTRAIT_SIZE,
    RECORDING_CORRELATION,
    alike_recordings,
    recording_sketch,
)
from readers.format.similarity.texts import (
    SIGNATURE_SIZE,
    TEXT_SIMILARITY,
    band_rows,
    mixed,
    row_digests,
    text_signatures,
)

Kind = Literal["picture", "text", "recording"]

# The thresholds of the checks, and the smallest ones that keys exist for. With 0.9, hashes of near duplicates differ in
# at most six bits. For 980 photographs, parts of them, and synthetic pictures, this finds all copies of half or double size,
# in gray, and as JPEGs of quality 50, except for 3 with too little detail left, and all but 7 brighter copies, which had
# become mostly white. Of the 480,000 pairs of originals it finds two: a chessboard that occurs twice, and a
# scene seen by two lenses.
DEFAULTS: dict[Kind, float] = {"picture": 0.9, "text": TEXT_SIMILARITY, "recording": 0.9}
SMALLEST: dict[Kind, float] = {"picture": 0.9, "text": 0.5, "recording": 0.9}

_PICTURE, _TEXT = 16 * 16, 2 * SIGNATURE_SIZE
_DIGEST = 16
_BITS = 64
# Sums of floats are not exact, but equal records should have a correlation of 1.
_ROUNDING = 1e-9


class Sketches(NamedTuple):
    """The sketches of n records.

    Attributes:
        keys: uint32 [n, bands]. Near duplicates have an equal key in at least one band.
        known: bool [n, bands], whether each key exists.
        digests: uint64 [n], hashes, or digests that equal records share.
        probes: uint8 [n, bytes], from which it is computed whether two records are near.
    """

    keys: np.ndarray
    known: np.ndarray
    digests: np.ndarray
    probes: np.ndarray

    @staticmethod
    def joined(parts: Sequence[Sketches]) -> Sketches:
        """Joins the sketches of several groups of records, at least one."""
        return Sketches(*(np.concatenate(part) for part in zip(*parts, strict=True)))


@dataclass(frozen=True)
class Likeness:
    """A definition of near duplicates.

    Two pictures are near if at most (1 - threshold) * 64 bits of their hashes differ, the correlation of their lumas
    is at least 1 - (1 - threshold) / 5, and no part of them differs by more than 6 (1 - threshold) standard deviations.

    Two texts are near if at least `threshold` of the numbers in their MinHash signatures are equal. This estimates
    Jaccard's similarity of their runs of five characters.

    Two recordings are near if their hashes differ as little as those of near pictures, and the likeness of their
    portraits is at least 1 - (1 - threshold) / 10. If a recording has several arrays, this must hold for each of them.

    Attributes:
        kind: `picture`, `text` or `recording`.
        threshold: From `SMALLEST` of the kind to 1.
        arrays: The number of arrays of a recording.
    """

    kind: Kind
    threshold: float
    arrays: int = 1

    def __post_init__(self) -> None:
        if not SMALLEST[self.kind] <= self.threshold <= 1:
            raise ValueError(
                f"{self.threshold:g}: expected a similarity of {self.kind}s from {SMALLEST[self.kind]:g} to 1"
            )

    @property
    def distance(self) -> int:
        """The number of bits of hashes that may differ; -1 for texts, which have no hashes."""
        if self.kind == "text":
            return -1
        return math.floor((1 - self.threshold) * _BITS + _ROUNDING)

    def sketch(self, values: Sequence[Any]) -> Sketches:
        """Makes sketches of pictures, of texts as `str`, or of recordings, each a list of `arrays` arrays.

        Pictures are [height, width] or [height, width, 1, 3 or 4] of any real dtype, including bfloat16; the arrays of
        recordings are [time] or [time, channels].
        """
        if self.kind == "text":
            return self._texts(values)
        made = [self._picture(v) if self.kind == "picture" else self._recording(v) for v in values]
        hashes = np.array([digest for _, digest, _ in made], np.uint64)
        hashed = np.array([is_hash for is_hash, _, _ in made], bool)
        keys = np.stack([mixed(hashes & mask) for mask in _masks(self.distance)], axis=1)
        size = 1 + (_PICTURE if self.kind == "picture" else self.arrays * _ARRAY)
        probes = np.frombuffer(b"".join(probe.ljust(size, b"\0") for *_, probe in made), np.uint8)
        return _with_equals(Sketches(keys, hashed[:, None], hashes, probes.reshape(-1, size)))

    def near(self, one: np.ndarray, other: np.ndarray) -> np.ndarray:
        """Whether each pair is a near duplicate, bool [pairs], given probes, uint8 [pairs, bytes]."""
        equal: np.ndarray = (one == other).all(axis=1)
        sketched = (one[:, 0] == 1) & (other[:, 0] == 1)
        compare = {"picture": self._near_pictures, "text": self._near_texts}
        decide: Callable[..., np.ndarray] = compare.get(self.kind, self._near_recordings)
        return equal | (sketched & decide(one[:, 1:], other[:, 1:]))

    def pairs(self, sketches: Sketches) -> tuple[np.ndarray, np.ndarray]:
        """Finds near duplicates: the number of each record, and that of a later one, int64 [pairs] each, in order.

        Several records with equal digests are each compared with the first of them, and only the first with records of
        other digests, so a million equal records make only a million pairs.
        """
        _, first, number = np.unique(sketches.digests, return_index=True, return_inverse=True)
        firsts = first[number.reshape(-1)]
        copies = np.flatnonzero(firsts != np.arange(len(firsts)))
        found = [self._near_of(sketches, firsts[copies], copies)]
        for band in range(sketches.keys.shape[1]):
            rows = first[sketches.known[first, band]]
            rows = rows[np.argsort(sketches.keys[rows, band], kind="stable")]
            keys = sketches.keys[rows]
            for i, j in pairs_in_runs(keys[1:, band] == keys[:-1, band]):
                # Pairs with an equal key in an earlier band were compared there.
                new = (keys[i, :band] != keys[j, :band]).all(axis=1)
                found.append(self._near_of(sketches, rows[i[new]], rows[j[new]]))
        one, other = np.concatenate(found, axis=1)
        order = np.lexsort((other, one))
        return one[order], other[order]

    def _near_of(self, sketches: Sketches, one: np.ndarray, other: np.ndarray) -> np.ndarray:
        """Selects the near duplicates from some pairs of records, int64 [2, pairs]."""
        if self.distance >= 0:
            different = popcount(sketches.digests[one] ^ sketches.digests[other])
            one, other = one[different <= self.distance], other[different <= self.distance]
        near = self.near(sketches.probes[one], sketches.probes[other])
        return np.sort([one[near], other[near]], axis=0)

    def _texts(self, texts: Sequence[str]) -> Sketches:
        signatures, there = text_signatures(texts)
        rows = band_rows(self.threshold)
        starts = range(0, SIGNATURE_SIZE - rows + 1, rows)
        bands = [row_digests(signatures[:, start : start + rows]) for start in starts]
        keys = np.stack([mixed(band) for band in bands], axis=1)
        probes = np.zeros((len(texts), 1 + _TEXT), np.uint8)
        probes[:, 0] = there
        probes[:, 1:] = signatures.astype("<u2").view(np.uint8).reshape(-1, _TEXT)
        # All texts without characters are equal.
        return _with_equals(Sketches(keys, there[:, None], row_digests(signatures), probes))

    def _picture(self, pixels: np.ndarray) -> tuple[bool, int, bytes]:
        """Whether a picture has a hash; the hash or a digest; and the probe."""
        pixels = _real(pixels)
        found, luma = hash_and_luma(reduced(pixels)) if pixels.size else (None, pixels)
        if found is None:
            return False, *_exact([pixels])
        return True, found, b"\1" + np.rint(255 * luma).astype(np.uint8).tobytes()

    def _recording(self, arrays: Sequence[np.ndarray]) -> tuple[bool, int, bytes]:
        arrays = list(map(_real, arrays))
        found = [recording_sketch(array) for array in arrays]
        hashes = [sketch[0] for sketch in found if sketch]
        if not hashes:
            return False, *_exact(arrays)
        parts = [
            b"\1" + sketch[1].tobytes() if sketch else b"\0" + _exact([array])[1]
            for array, sketch in zip(arrays, found, strict=True)
        ]
        return True, hashes[0], b"\1" + b"".join(part.ljust(_ARRAY, b"\0") for part in parts)

    def _near_pictures(self, one: np.ndarray, other: np.ndarray) -> np.ndarray:
        lumas = (probes.reshape(-1, 16, 16) for probes in (one, other))
        correlation, difference = alike_pictures(*lumas)
        least = 1 - (1 - self.threshold) * (1 - PICTURE_CORRELATION) / 0.1
        most = (1 - self.threshold) * PICTURE_DIFFERENCE / 0.1
        near: np.ndarray = (correlation >= least - _ROUNDING) & (difference <= most + _ROUNDING)
        return near

    def _near_texts(self, one: np.ndarray, other: np.ndarray) -> np.ndarray:
        numbers = (np.ascontiguousarray(probes).view("<u2") for probes in (one, other))
        near: np.ndarray = np.equal(*numbers).mean(axis=1) >= self.threshold - _ROUNDING
        return near

    def _near_recordings(self, one: np.ndarray, other: np.ndarray) -> np.ndarray:
        least = 1 - (1 - self.threshold) * (1 - RECORDING_CORRELATION) / 0.1
        near = np.ones(len(one), bool)
        for start in range(0, self.arrays * _ARRAY, _ARRAY):
            first, second = (probes[:, start : start + _ARRAY] for probes in (one, other))
            sketched = (first[:, 0] == 1) & (second[:, 0] == 1)
            portraits = (probes[:, 1:].astype(np.uint8).view(np.int8) for probes in (first, second))
            alike = alike_recordings(*portraits) >= least - _ROUNDING
            near &= np.where(sketched, alike, (first == second).all(axis=1))
        return near


# A flag, then a portrait or a digest.
_ARRAY = 1 + PORTRAIT_SIZE


def _real(array: np.ndarray) -> np.ndarray:
    """The array itself, or as float32 if its dtype is not one of NumPy's."""
    return array if array.dtype.kind in "biuf" else array.astype(np.float32)


def _exact(values: Sequence[np.ndarray]) -> tuple[int, bytes]:
    """A 64-bit digest that equal values share, and a probe with a 128-bit digest."""
    hashed = hashlib.blake2b(digest_size=_DIGEST)
    for value in values:
        hashed.update(f"{value.dtype.str}{value.shape}|".encode())
        hashed.update(np.ascontiguousarray(value).tobytes())
    digest = hashed.digest()
    return int.from_bytes(digest[:8], "little"), b"\0" + digest


def _with_equals(found: Sketches) -> Sketches:
    """Gives records without a hash a single key, their digest."""
    hashed = found.known[:, 0]
    keys = found.keys.copy()
    keys[~hashed, 0] = mixed(found.digests[~hashed])
    known = np.repeat(found.known, keys.shape[1], axis=1)
    known[:, 0] = True
    return found._replace(keys=keys, known=known)


def _masks(distance: int) -> list[np.ndarray]:
    """Masks of the bits that form keys: hashes within the distance agree in at least one mask.

    Hashes of 64 bits are cut into blocks, at most `distance` of which differ. A key has 16 bits or more.
    """
    agreeing = 1 if distance <= 3 else 2
    blocks = distance + agreeing
    edges = [_BITS * place // blocks for place in range(blocks + 1)]
    whole = [((1 << edges[n + 1]) - (1 << edges[n])) for n in range(blocks)]
    return [np.uint64(sum(chosen)) for chosen in combinations(whole, agreeing)]
