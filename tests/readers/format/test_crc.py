import google_crc32c
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from readers.format.crc import combined_crc, crc_without_suffix

# The polynomial of CRC32C (Castagnoli) with its bits in normal order: x^32 + x^28 + ... + 1.
CASTAGNOLI = 0x11EDC6F41


def remainder(polynomial: int) -> int:
    """A polynomial over GF(2), given as the bits of an integer, modulo Castagnoli's: long division."""
    for bit in range(polynomial.bit_length() - 1, 31, -1):
        if polynomial >> bit & 1:
            polynomial ^= CASTAGNOLI << bit - 32
    return polynomial


def reversed_bits(value: int, width: int) -> int:
    return int(f"{value:0{width}b}"[::-1], 2)


def crc_by_division(data: bytes) -> int:
    """The CRC32C by its definition in RFC 3720, without a table or a shift register."""
    bits = int.from_bytes(bytes(reversed_bits(octet, 8) for octet in data), "big")
    start = 0xFFFFFFFF << 8 * len(data)
    return reversed_bits(remainder(bits << 32 ^ start), 32) ^ 0xFFFFFFFF


@given(st.binary(max_size=60))
def test_the_reference_implementation_matches_the_library(data):
    assert google_crc32c.value(data) == crc_by_division(data)


@given(st.binary(max_size=40), st.binary(max_size=40))
def test_the_crc_of_a_prefix_follows_from_the_whole_and_the_suffix(beginning, end):
    whole = google_crc32c.value(beginning + end)
    assert crc_without_suffix(whole, end) == crc_by_division(beginning)


@pytest.mark.parametrize(
    ("kept", "taken"),
    [
        (0, 1),
        (1, 0),
        (1, 1 << 20),
        (3 << 20, 1),
        (5, (1 << 22) - 1),
        (1 << 22, 1 << 22),
        (12_345_678, 7_654_321),
    ],
)
def test_suffixes_of_megabytes_can_be_removed(kept, taken):
    data = np.random.default_rng(kept + taken).bytes(kept + taken)
    found = crc_without_suffix(google_crc32c.value(data), data[kept:])
    assert found == google_crc32c.value(data[:kept])


@pytest.mark.parametrize("fill", [b"\0", b"\xff"])
@pytest.mark.parametrize("taken", [1, 7, 8, 255, 256, 65_536])
def test_the_length_of_a_suffix_of_equal_bytes_matters(fill, taken):
    whole = google_crc32c.value(b"record" + fill * taken)
    assert crc_without_suffix(whole, fill * taken) == google_crc32c.value(b"record")
    assert crc_without_suffix(whole, fill * (taken + 1)) != google_crc32c.value(b"record")


@given(st.binary(max_size=700), st.binary(max_size=700))
def test_the_crc_of_two_messages_follows_from_theirs(first, second):
    crcs = google_crc32c.value(first), google_crc32c.value(second)
    assert combined_crc(*crcs, len(second)) == google_crc32c.value(first + second)
