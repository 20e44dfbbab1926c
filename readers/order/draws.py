"""Random numbers that depend only on a record's key and a salt, and not on the batch size, the host, or earlier draws.

They come from a Feistel network over the two halves of the key; its rounds depend on the salt.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from readers.order.permutation import hash32, round_keys

_LOW = 0xFFFFFFFF

# The fewest rounds that look random (Luby and Rackoff, 1988).
_ROUNDS = 3


@functools.lru_cache(maxsize=1024)
def salt_keys(salt: str) -> np.ndarray:
    """The key of each round of `random_bits` for a salt, int64 [rounds]."""
    digest = hashlib.blake2b(salt.encode(), digest_size=8).digest()
    return round_keys([int.from_bytes(digest, "little") >> 1])[:_ROUNDS]


def random_bits(keys: Any, rounds: Any) -> Any:
    """32 random bits for each key, int64; `rounds` is the result of `salt_keys`, or arrays that broadcast with the keys."""
    left, right = keys // (1 << 32) & _LOW, keys & _LOW
    for key in rounds:
        left, right = right, left ^ hash32(right ^ key)
    return right


def uniforms(keys: np.ndarray, salts: Sequence[str]) -> np.ndarray:
    """Numbers from 0 to below 1, float64 [B, salts], for keys, int64 [B]; the same numbers as `transforms.uniform` for each salt."""
    rounds = np.stack([salt_keys(salt) for salt in salts], axis=1)
    bits: np.ndarray = random_bits(keys[:, None], rounds)
    return (bits >> 8) * 2.0**-24
