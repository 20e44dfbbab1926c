"""Bits of hashes."""

from __future__ import annotations

import numpy as np


def popcount(numbers: np.ndarray) -> np.ndarray:
    """How many bits of each uint64 number are set, uint8."""
    if hasattr(np, "bitwise_count"):
        return np.bitwise_count(numbers)
    # NumPy 1 counts no bits.
    pairs = numbers - ((numbers >> np.uint64(1)) & np.uint64(0x5555555555555555))
    low = np.uint64(0x3333333333333333)
    fours = (pairs & low) + ((pairs >> np.uint64(2)) & low)
    octets = (fours + (fours >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return ((octets * np.uint64(0x0101010101010101)) >> np.uint64(56)).astype(np.uint8)
