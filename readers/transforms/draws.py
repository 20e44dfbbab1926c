"""Random numbers for records: each depends only on the record's key and a salt for its purpose."""

from __future__ import annotations

from types import ModuleType

from readers.order.draws import random_bits, salt_keys
from readers.transforms.operations import Array, operations_of


def uniform(keys: Array, salt: str) -> Array:
    """A random number for each key, float32 [B], from 0 to below 1 in steps of 2**-24.

    Args:
        keys: int64 [B], the keys of the records, a `tf.Tensor` or `np.ndarray`.
        salt: The purpose of the numbers; numbers with different salts are independent.

    Raises:
        ValueError: `keys` is not a batch of integers.

    Example:
        >>> keys = np.array([5, 6])
        >>> transforms.uniform(keys, "brightness").round(2)
        array([0.22, 0.73], dtype=float32)
    """
    ops = operations_of(keys)
    return ops.float32(_bits(ops, keys, salt) // 256) * 2.0**-24


def below(keys: Array, salt: str, count: int | Array) -> Array:
    """A random integer from 0 to count - 1 for each key, int64 [B].

    Args:
        keys: int64 [B], the keys of the records, a `tf.Tensor` or `np.ndarray`.
        salt: The purpose of the numbers; numbers with different salts are independent.
        count: An integer from 1 to below 2**31.

    Raises:
        ValueError: `keys` is not a batch of integers.

    Example:
        >>> transforms.below(np.array([5, 6]), "quarter turns", 4)
        array([0, 3])
    """
    ops = operations_of(keys, count)
    return _bits(ops, keys, salt) * ops.int64(count) // (1 << 32)


def _bits(ops: ModuleType, keys: Array, salt: str) -> Array:
    """32 random bits for each key, as int64 [B]."""
    return random_bits(ops.checked_keys(keys), salt_keys(salt))
