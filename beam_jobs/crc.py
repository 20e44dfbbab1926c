"""The CRC32C of the beginning of a file, from those of the whole and of its end.

A CRC is the remainder of a polynomial over GF(2): appending n bytes multiplies it by x^8n before
the CRC of what is appended is added. Undoing that is multiplying by x^-8n, and the powers of x
repeat every 2^31 - 1, so nothing but a small number of bytes at the end has to be read.

Source: Mark Adler's crc32_combine in zlib, whose reflected order of bits is used here.
"""

from __future__ import annotations

import google_crc32c

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
