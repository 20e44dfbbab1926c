"""Random numbers for records: each depends only on the record's key and a salt for its purpose.

So they do not depend on the batch size, the host, or earlier draws. They come from a Feistel
network over the two halves of the key, whose rounds depend on the salt: different keys never
collide.
"""

from __future__ import annotations

import hashlib

import tensorflow as tf

from readers.order.permutation import hash32, round_keys
from readers.tfdata.permutation import shift

_LOW = 0xFFFFFFFF

# The fewest rounds that look random (Luby and Rackoff, 1988).
_ROUNDS = 3


def uniform(keys: tf.Tensor, salt: str) -> tf.Tensor:
    """A random number for each key, float32 [B], from 0 to below 1 in steps of 2**-24.

    Args:
        keys: int64 [B], the keys of the records.
        salt: The purpose of the numbers; numbers with different salts are independent.
    """
    return tf.cast(shift(_bits(keys, salt), 8), tf.float32) * 2.0**-24


def below(keys: tf.Tensor, salt: str, count: int | tf.Tensor) -> tf.Tensor:
    """A random integer from 0 to count - 1 for each key, int64 [B].

    Args:
        keys: int64 [B], the keys of the records.
        salt: The purpose of the numbers; numbers with different salts are independent.
        count: An integer from 1 to below 2**31.
    """
    return shift(_bits(keys, salt) * tf.cast(count, tf.int64), 32)


def _bits(keys: tf.Tensor, salt: str) -> tf.Tensor:
    """32 random bits for each key, as int64 [B]."""
    digest = hashlib.blake2b(salt.encode(), digest_size=8).digest()
    keys = tf.ensure_shape(tf.convert_to_tensor(keys, tf.int64), [None])
    left, right = shift(keys, 32) & _LOW, keys & _LOW
    for key in round_keys([int.from_bytes(digest, "little") >> 1])[:_ROUNDS]:
        left, right = right, left ^ hash32(right ^ key, shift)
    return right
