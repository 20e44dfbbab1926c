import google_crc32c
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from readers.format.crc import appended_each, crc_of_all, crc_of_row, crc_without_suffix

# The polynomial of CRC32C (Castagnoli) with its bits in the usual order: x^32 + x^28 + ... + 1.
CASTAGNOLI = 0x11EDC6F41


def remainder(polynomial: int) -> int:
    """A polynomial over GF(2), its bits those of an integer, modulo Castagnoli's: by long division."""
    for bit in range(polynomial.bit_length() - 1, 31, -1):
        if polynomial >> bit & 1:
            polynomial ^= CASTAGNOLI << bit - 32
    return polynomial


def reversed_bits(value: int, width: int) -> int:
    return int(f"{value:0{width}b}"[::-1], 2)


def crc_by_division(data: bytes) -> int:
    """The CRC32C as its definition has it, from RFC 3720: no table, no shifting register."""
    bits = int.from_bytes(bytes(reversed_bits(octet, 8) for octet in data), "big")
    start = 0xFFFFFFFF << 8 * len(data)
    return reversed_bits(remainder(bits << 32 ^ start), 32) ^ 0xFFFFFFFF


@given(st.binary(max_size=60))
def test_the_oracle_is_the_checksum_by_its_definition(data):
    assert google_crc32c.value(data) == crc_by_division(data)


@given(st.binary(max_size=40), st.binary(max_size=40))
def test_the_checksum_of_a_beginning_follows_from_the_whole_and_the_end(beginning, end):
    whole = google_crc32c.value(beginning + end)
    assert crc_without_suffix(whole, end) == crc_by_division(beginning)


@given(st.binary(max_size=300), st.binary(max_size=300), st.binary(max_size=300))
def test_an_end_may_be_taken_away_in_pieces(beginning, middle, end):
    whole = google_crc32c.value(beginning + middle + end)
    at_once = crc_without_suffix(whole, middle + end)
    assert crc_without_suffix(crc_without_suffix(whole, end), middle) == at_once
    assert at_once == google_crc32c.value(beginning)


@given(st.binary(max_size=300), st.binary(max_size=300), st.binary(max_size=300))
def test_another_end_may_be_put_in_its_place(beginning, old, new):
    kept = crc_without_suffix(google_crc32c.value(beginning + old), old)
    assert google_crc32c.extend(kept, new) == google_crc32c.value(beginning + new)


@given(st.integers(0, 2**32 - 1))
def test_without_anything_taken_away_the_checksum_stays(crc):
    assert crc_without_suffix(crc, b"") == crc


@given(st.binary(max_size=100))
def test_without_everything_the_checksum_is_that_of_nothing(data):
    assert crc_without_suffix(google_crc32c.value(data), data) == 0


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
def test_megabytes_are_taken_away_like_single_bytes(kept, taken):
    data = np.random.default_rng(kept + taken).bytes(kept + taken)
    found = crc_without_suffix(google_crc32c.value(data), data[kept:])
    assert found == google_crc32c.value(data[:kept])


@pytest.mark.parametrize("fill", [b"\0", b"\xff"])
@pytest.mark.parametrize("taken", [1, 7, 8, 255, 256, 65_536])
def test_bytes_that_are_all_alike_count_by_their_number(fill, taken):
    whole = google_crc32c.value(b"record" + fill * taken)
    assert crc_without_suffix(whole, fill * taken) == google_crc32c.value(b"record")
    assert crc_without_suffix(whole, fill * (taken + 1)) != google_crc32c.value(b"record")


@given(st.integers(0, 9), st.lists(st.binary(min_size=9, max_size=9), min_size=1, max_size=20))
def test_the_checksum_of_a_row_follows_from_those_of_its_messages(length, messages):
    messages = [message[:length] for message in messages]
    crcs = np.array([google_crc32c.value(message) for message in messages], np.uint32)
    assert crc_of_row(crcs, length) == google_crc32c.value(b"".join(messages))


@given(st.lists(st.binary(max_size=700), min_size=1, max_size=30))
def test_a_row_of_messages_of_any_lengths_has_the_crc_that_follows_from_theirs(messages):
    crcs = np.array([google_crc32c.value(message) for message in messages], np.uint32)
    lengths = np.array([len(message) for message in messages], np.int64)
    assert crc_of_all(crcs, lengths) == google_crc32c.value(b"".join(messages))


def test_millions_of_bytes_may_follow():
    message, zeros = b"records", bytes(3 << 20)
    crc = np.array([google_crc32c.value(message)], np.uint32)
    expected = google_crc32c.value(message + zeros) ^ google_crc32c.value(zeros)
    assert appended_each(crc, np.array([len(zeros)])).tolist() == [expected]
