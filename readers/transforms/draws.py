"""Random numbers of records: each follows from the record's key, and a salt for its purpose, alone.

So they do not depend on batch size, host or what was drawn before. A Feistel network over the two
halves of the key, whose rounds depend on the salt: different keys never fall together.
"""

from __future__ import annotations

import hashlib

import tensorflow as tf

from readers.order.permutation import mixed, round_keys

_LOW = 0xFFFFFFFF

# The fewest that look random (Luby and Rackoff, 1988).
_ROUNDS = 3


def uniform(keys: tf.Tensor, salt: str) -> tf.Tensor:
    """A number for each key, float32 [B], at least 0 and below 1, in steps of 2**-24.

    Args:
        keys: int64 [B].
        salt: What it is for; numbers with different salts are independent.
    """
    return tf.cast(_shift(_bits(keys, salt), 8), tf.float32) * 2.0**-24


def below(keys: tf.Tensor, salt: str, count: int | tf.Tensor) -> tf.Tensor:
    """A number from 0 to count - 1 for each key, int64 [B].

    Args:
        keys, salt: As for `uniform`.
        count: Below 2**31.
    """
    return _shift(_bits(keys, salt) * tf.cast(count, tf.int64), 32)


def _bits(keys: tf.Tensor, salt: str) -> tf.Tensor:
    """32 random bits for each key, as int64 [B]."""
    digest = hashlib.blake2b(salt.encode(), digest_size=8).digest()
    keys = tf.ensure_shape(tf.convert_to_tensor(keys, tf.int64), [None])
    left, right = _shift(keys, 32) & _LOW, keys & _LOW
    for key in round_keys([int.from_bytes(digest, "little") >> 1])[:_ROUNDS]:
        left, right = right, left ^ mixed(right ^ key, _shift)
    return right


def _shift(value: tf.Tensor, bits: int) -> tf.Tensor:
    return tf.bitwise.right_shift(value, tf.constant(bits, tf.int64))
