"""CRC32C values of bytes, from those of other bytes that they are part of or made of.

A CRC is the remainder of a polynomial over GF(2): appending n bytes multiplies it by x^8n before
the CRC of what is appended is added. Undoing that is multiplying by x^-8n, and the powers of x
repeat every 2^31 - 1.

Source: Mark Adler's crc32_combine in zlib, whose reflected order of bits is used here.
"""

from __future__ import annotations

import functools

import google_crc32c
import numpy as np

_POLYNOMIAL = 0x82F63B78  # CRC32C, reflected

_ORDER = (1 << 31) - 1  # the least n > 0 with x^n = 1; the polynomial is (x + 1) times a primitive

_ONE, _X = 1 << 31, 1 << 30


def _times(a: int, b: int) -> int:
    """The product of two polynomials modulo CRC32C's."""
    product = 0
    while b:
        if b & _ONE:
            product ^= a
        b = b << 1 & 0xFFFFFFFF
        a = a >> 1 ^ (_POLYNOMIAL if a & 1 else 0)
    return product


def _power_of_x(n: int) -> int:
    result, square = _ONE, _X
    while n:
        if n & 1:
            result = _times(result, square)
        square = _times(square, square)
        n >>= 1
    return result


def crc_without_suffix(crc: int, suffix: bytes) -> int:
    """The CRC32C of some bytes, from that of the bytes followed by a suffix."""
    back = -8 * len(suffix) % _ORDER
    return _times(_power_of_x(back), crc ^ google_crc32c.value(suffix))


def crc_of_row(crcs: np.ndarray, length: int) -> int:
    """The CRC32C of messages of one length that stand in a row, from those of each.

    Args:
        crcs: uint32 [n], n >= 1.
        length: Of each message, in bytes.
    """
    while len(crcs) > 1:
        if len(crcs) % 2:
            crcs = np.append(np.uint32(0), crcs)
        crcs = appended(crcs[0::2], length) ^ crcs[1::2]
        length *= 2
    return int(crcs[0])


def crc_of_all(crcs: np.ndarray, lengths: np.ndarray) -> int:
    """The CRC32C of messages that stand in a row, from those of each.

    Args:
        crcs: uint32 [n], n >= 1.
        lengths: int64 [n], of each message, in bytes.
    """
    behind = lengths.sum() - np.cumsum(lengths)
    return int(np.bitwise_xor.reduce(appended_each(crcs, behind)))


def appended(crcs: np.ndarray, length: int) -> np.ndarray:
    """What CRC32C values, uint32 [n], become when so many bytes follow, but for those bytes' own."""
    octets = np.ascontiguousarray(crcs, "<u4").view(np.uint8).reshape(-1, 4)
    table = _table(length)
    found = table[0, octets[:, 0]]
    for place in (1, 2, 3):
        found ^= table[place, octets[:, place]]
    return found


def appended_each(crcs: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """The same where another number of bytes, int64 [n], follows each."""
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
    """What `_table` gives for every digit of a length in base 256: uint32 [256, 4, 256], 1 MiB."""
    tables = np.empty((256, 4, 256), np.uint32)
    tables[0] = np.arange(256, dtype=np.uint32) << (8 * np.arange(4, dtype=np.uint32))[:, None]
    for digit in range(1, 256):
        before = tables[digit - 1].reshape(-1)
        tables[digit] = appended(before, 256**digit_place).reshape(4, 256)
    return tables


@functools.lru_cache(maxsize=512)
def _table(length: int) -> np.ndarray:
    """The products of x^8n and every value of each of the four octets: uint32 [4, 256], 4 KiB."""
    power = _power_of_x(8 * length)
    bits = np.array([_times(power, 1 << bit) for bit in range(32)], np.uint32)
    of_octets = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1, bitorder="little")
    products = bits.reshape(4, 1, 8) * of_octets
    return np.bitwise_xor.reduce(products, axis=2).astype(np.uint32)
