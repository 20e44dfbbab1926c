"""CRC32C arithmetic: the checksum of a concatenation from those of its parts, and the reverse.

A CRC is the remainder of a polynomial over GF(2). Appending n bytes multiplies it by x^8n and then
adds the CRC of the appended bytes. Removing them multiplies by x^-8n; the powers of x repeat with
period 2^31 - 1.

Source: Mark Adler's crc32_combine in zlib, whose reflected bit order is used here.
"""

from __future__ import annotations

import functools

import google_crc32c
import numpy as np

_POLYNOMIAL = 0x82F63B78  # CRC32C, in reflected bit order.

# The least n > 0 with x^n = 1: the polynomial is (x + 1) times a primitive one.
_PERIOD = (1 << 31) - 1

_ONE, _X = 1 << 31, 1 << 30


def _times(a: int, b: int) -> int:
    """The product of two polynomials, modulo the polynomial of CRC32C."""
    product = 0
    while b:
        if b & _ONE:
            product ^= a
        b = b << 1 & 0xFFFFFFFF
        a = a >> 1 ^ (_POLYNOMIAL if a & 1 else 0)
    return product


def _power_of_x(n: int) -> int:
    """x^n modulo the polynomial of CRC32C, by repeated squaring."""
    result, square = _ONE, _X
    while n:
        if n & 1:
            result = _times(result, square)
        square = _times(square, square)
        n >>= 1
    return result


def crc_without_suffix(crc: int, suffix: bytes) -> int:
    """The CRC32C of a message, from that of the message followed by a suffix.

    Args:
        crc: The CRC32C of the message with its suffix.
        suffix: The bytes to take away.
    """
    back = -8 * len(suffix) % _PERIOD
    return _times(_power_of_x(back), crc ^ google_crc32c.value(suffix))


def combined_crc_of_rows(crcs: np.ndarray, length: int) -> int:
    """The CRC32C of the concatenation of messages that are all equally long.

    Args:
        crcs: uint32 [n], n >= 1; the CRC32C of each message.
        length: The length of every message, in bytes.
    """
    while len(crcs) > 1:
        if len(crcs) % 2:
            crcs = np.append(np.uint32(0), crcs)
        crcs = shifted(crcs[0::2], length) ^ crcs[1::2]
        length *= 2
    return int(crcs[0])


def combined_crc(crcs: np.ndarray, lengths: np.ndarray) -> int:
    """The CRC32C of the concatenation of messages.

    Args:
        crcs: uint32 [n], n >= 1; the CRC32C of each message.
        lengths: int64 [n], the length of each message, in bytes.
    """
    following = lengths.sum() - np.cumsum(lengths)
    return int(np.bitwise_xor.reduce(shifted_each(crcs, following)))


def shifted(crcs: np.ndarray, length: int) -> np.ndarray:
    """CRC32C values multiplied by x^8n: their share in the CRC once n more bytes follow.

    The CRC32C of the whole is this, XOR the CRC32C of the bytes that follow.

    Args:
        crcs: uint32 [k].
        length: n, how many bytes follow.
    """
    octets = np.ascontiguousarray(crcs, "<u4").view(np.uint8).reshape(-1, 4)
    table = _table(length)
    found = table[0, octets[:, 0]]
    for place in (1, 2, 3):
        found ^= table[place, octets[:, place]]
    return found


def shifted_each(crcs: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """The same as `shifted`, with its own number of bytes for each value.

    Args:
        crcs: uint32 [k].
        lengths: int64 [k], how many bytes follow each.
    """
    digit_place = 0
    while lengths.any():
        octets = np.ascontiguousarray(crcs, "<u4").view(np.uint8).reshape(-1, 4)
        table, digits = _tables(digit_place), lengths & 255
        crcs = table[digits, 0, octets[:, 0]]
        for place in (1, 2, 3):
            crcs ^= table[digits, place, octets[:, place]]
        lengths, digit_place = lengths >> 8, digit_place + 1
    return crcs


@functools.lru_cache(maxsize=8)
def _tables(digit_place: int) -> np.ndarray:
    """`_table` for each value of one base-256 digit of a length: uint32 [256, 4, 256], 1 MiB."""
    tables = np.empty((256, 4, 256), np.uint32)
    tables[0] = np.arange(256, dtype=np.uint32) << (8 * np.arange(4, dtype=np.uint32))[:, None]
    for digit in range(1, 256):
        before = tables[digit - 1].reshape(-1)
        tables[digit] = shifted(before, 256**digit_place).reshape(4, 256)
    return tables


@functools.lru_cache(maxsize=512)
def _table(length: int) -> np.ndarray:
    """The product of x^8n and each value of each of the four octets: uint32 [4, 256], 4 KiB."""
    power = _power_of_x(8 * length)
    bits = np.array([_times(power, 1 << bit) for bit in range(32)], np.uint32)
    of_octets = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1, bitorder="little")
    products = bits.reshape(4, 1, 8) * of_octets
    return np.bitwise_xor.reduce(products, axis=2).astype(np.uint32)
