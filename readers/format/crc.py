"""CRC32C arithmetic: the checksum of a concatenation from the checksums of its parts, and the reverse.

A CRC is the remainder of a polynomial over GF(2). Appending n bytes multiplies it by x^8n and then
adds the CRC of the appended bytes. Removing them multiplies by x^-8n; the powers of x repeat with
period 2^31 - 1.

Source: Mark Adler's crc32_combine in zlib, whose reflected bit order is used here.
"""

from __future__ import annotations

import google_crc32c

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
    """The CRC32C of a message, computed from the CRC32C of the message followed by a suffix."""
    back = -8 * len(suffix) % _PERIOD
    return _times(_power_of_x(back), crc ^ google_crc32c.value(suffix))


def combined_crc(first: int, second: int, length: int) -> int:
    """The CRC32C of the concatenation of two messages, from their CRC32Cs and the length of the second in bytes."""
    return _times(_power_of_x(8 * length), first) ^ second
