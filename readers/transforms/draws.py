"""Random numbers for records: each depends only on the record's key and a salt for its purpose.

So they do not depend on the batch size, the host, or earlier draws. They come from a Feistel
network over the two halves of the key, whose rounds depend on the salt: different keys never
collide.
"""

from __future__ import annotations

import hashlib
from types import ModuleType

from readers.order.permutation import hash32, round_keys
from readers.transforms.operations import Array, operations_of

_LOW = 0xFFFFFFFF

# The fewest rounds that look random (Luby and Rackoff, 1988).
_ROUNDS = 3


def uniform(keys: Array, salt: str) -> Array:
    """A random number for each key, float32 [B], from 0 to below 1 in steps of 2**-24.

    Args:
        keys: int64 [B], the keys of the records, a `tf.Tensor` or `np.ndarray`.
        salt: The purpose of the numbers; numbers with different salts are independent.

    Raises:
        ValueError: `keys` is not a batch of integers.
    """
    ops = operations_of(keys)
    return ops.float32(ops.shift(_bits(ops, keys, salt), 8)) * 2.0**-24


def below(keys: Array, salt: str, count: int | Array) -> Array:
    """A random integer from 0 to count - 1 for each key, int64 [B].

    Args:
        keys: int64 [B], the keys of the records, a `tf.Tensor` or `np.ndarray`.
        salt: The purpose of the numbers; numbers with different salts are independent.
        count: An integer from 1 to below 2**31.

    Raises:
        ValueError: `keys` is not a batch of integers.
    """
    ops = operations_of(keys, count)
    return ops.shift(_bits(ops, keys, salt) * ops.int64(count), 32)


def _bits(ops: ModuleType, keys: Array, salt: str) -> Array:
    """32 random bits for each key, as int64 [B]."""
    digest = hashlib.blake2b(salt.encode(), digest_size=8).digest()
    keys = ops.checked_keys(keys)
    left, right = ops.shift(keys, 32) & _LOW, keys & _LOW
    for key in round_keys([int.from_bytes(digest, "little") >> 1])[:_ROUNDS]:
        left, right = right, left ^ hash32(right ^ key, ops.shift)
    return right
