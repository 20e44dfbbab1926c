"""The bytes of an index: those of docs/internals/format.md, and an error for any others."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from readers.format.index import Index, head_crc32c, parse_head
from tests.support.indexes import LONGEST, index_bytes, parsed

# Three records of 16, 21 and 5,016 bytes; their hashes, labels and lengths.
SMALL = Index(
    np.array([16, 21, 5016]),
    {
        "hash": np.array([7, 0x80000000, 0xFFFFFFFF], np.uint32),
        "value/label": np.array([-1, 0, 300], np.int16),
        "length/ton": np.array([0, 9, 1 << 31], np.uint32),
    },
)

# The format on disk never changes.
GOLDEN = bytes.fromhex(
    "5446494e4445580a01000000524bcfe50300000000000000bd13000000000000c000000004000000c000000000000000"
    "75340000060000006f666673657400010000000000007534000004000000686173684001000000000000693200000b00"
    "000076616c75652f6c6162656c8001000000000000753400000a0000006c656e6774682f746f6e90c4db750000000000"
    "000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000"
    "000000001000000025000000bd1300000000000000000000000000000000000000000000000000000000000000000000"
    "000000000000000000000000000000000700000000000080ffffffff0000000000000000000000000000000000000000"
    "0000000000000000000000000000000000000000000000000000000000000000ffff00002c0100000000000000000000"
    "000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000"
    "000000000900000000000080000000000000000000000000000000000000000000000000000000000000000000000000"
    "00000000000000000000000000000000"
)


def test_golden_bytes_are_written_and_read():
    assert SMALL.to_bytes() == GOLDEN
    offsets, hashes = "000000001000000025000000bd130000", "0700000000000080ffffffff"
    labels, lengths = "ffff00002c01", "000000000900000000000080"
    sections = [("offset", "u4", offsets), ("hash", "u4", hashes)]
    sections += [("value/label", "i2", labels), ("length/ton", "u4", lengths)]
    made = [(name, dtype, bytes.fromhex(data)) for name, dtype, data in sections]
    assert index_bytes(3, 5053, made) == GOLDEN
    found = Index.of_bytes(GOLDEN, "a.index")
    assert found.lengths.tolist() == [16, 21, 5016]
    assert {name: array.tolist() for name, array in found.sections.items()} == {
        "hash": [7, 0x80000000, 0xFFFFFFFF],
        "value/label": [-1, 0, 300],
        "length/ton": [0, 9, 1 << 31],
    }
    assert head_crc32c(GOLDEN) == int.from_bytes(GOLDEN[12:16], "little")


def test_every_byte_matters_and_the_error_names_the_file():
    cut = (GOLDEN[:size] for size in range(len(GOLDEN)))
    longer = (GOLDEN + more for more in (b"\0", bytes(64), GOLDEN, bytes(1 << 16)))
    changed = (
        GOLDEN[:at] + bytes([GOLDEN[at] ^ bits]) + GOLDEN[at + 1 :]
        for at in range(len(GOLDEN))
        for bits in (1 << at % 8, 0xFF)
    )
    for wrong in (*cut, *longer, *changed):
        with pytest.raises(ValueError, match=r"^a\.index: (not an index|damaged at byte)"):
            Index.of_bytes(wrong, "a.index")


ARRAYS = st.sampled_from(["b1", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f2", "f4", "f8"])


@given(
    st.lists(st.integers(16, LONGEST), max_size=40),
    st.dictionaries(st.text(max_size=5).map("value/{}".format), ARRAYS, max_size=4),
    st.randoms(use_true_random=False),
)
def test_any_numbers_round_trip(lengths, dtypes, randomness):
    sections = {}
    for name, dtype in dtypes.items():
        octets = randomness.randbytes(len(lengths) * int(dtype[1:]))
        octets = bytes(byte & 1 for byte in octets) if dtype == "b1" else octets
        sections[name] = np.frombuffer(octets, f"<{dtype}")
    written = Index(np.array(lengths, np.int64), sections).to_bytes()
    known = parsed(written)
    ends = [sum(lengths[:n]) for n in range(len(lengths) + 1)]
    assert (known.size, known.offsets) == (sum(lengths), tuple(ends))
    expected = {name: (dtypes[name], array.tobytes()) for name, array in sections.items()}
    assert known.sections == expected
    found = Index.of_bytes(written, "")
    assert found.lengths.tolist() == lengths
    assert {n: (a.dtype.str[1:], a.tobytes()) for n, a in found.sections.items()} == expected
    cut = randomness.randint(0, len(lengths))
    halves = found.slice(0, cut), found.slice(cut, len(lengths))
    assert Index.join(halves).to_bytes() == written


@pytest.mark.parametrize(("more", "dtype"), [(-1, "u4"), (0, "u8"), (1 << 40, "u8")])
def test_offsets_take_four_bytes_in_files_below_four_gigabytes(more, dtype):
    size = (1 << 32) + more
    lengths = [LONGEST] * (size // LONGEST - 1) if more < LONGEST else []
    lengths = np.array([*lengths, 1 << 30, 16], np.int64)
    lengths = np.append(lengths, np.full(-(-(size - lengths.sum()) // LONGEST), 0))
    lengths[2:] = np.diff(np.linspace(0, size - lengths[:2].sum(), len(lengths) - 1).astype(int))
    written = Index(lengths, {}).to_bytes()
    assert parse_head(written, "").sections["offset"].dtype.str == f"<{dtype}"
    assert Index.of_bytes(written, "").lengths.tolist() == lengths.tolist()
    assert parsed(written).offsets[-1] == size


def test_the_first_damaged_block_of_many_is_named():
    written = Index(np.full(40_000, 20), {"value/x": np.zeros(40_000)}).to_bytes()
    head = parse_head(written, "")
    assert len(head.checksums) == -(-(len(written) - head.start) // 65536) == 8
    wrong = bytearray(written)
    for at in (head.start + 65536, head.start + 3 * 65536 - 1, len(wrong) - 1):
        wrong[at] ^= 1
    assert head.damaged(bytes(wrong)) == head.start + 65536
    with pytest.raises(ValueError, match=rf"^a\.index: damaged at byte {head.start + 65536}$"):
        Index.of_bytes(bytes(wrong), "a.index")


def u4(*numbers):
    return "offset", "u4", np.array(numbers, "<u4").tobytes()


def u8(*numbers):
    return "offset", "u8", np.array(numbers, "<u8").tobytes()


ONE = u4(0, 16)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (index_bytes(1, 16, [ONE], version=2), "version 2; this package reads version 1"),
        (index_bytes(1, 16, []), "lacks the offsets of the records"),
        (index_bytes(1, 16, [("offset", "u2", b"\0\0\x10\0")]), "lacks the offsets of the records"),
        (index_bytes(1, 16, [("offset", "f8", bytes(16))]), "lacks the offsets of the records"),
        (index_bytes(1, 16, [("offset", "O8", bytes(16))]), "lacks the offsets of the records"),
        (index_bytes(1, 16, [ONE, ONE]), "two sections 'offset'"),
        (index_bytes(1, 16, [ONE, (b"\xff", "u1", b"\0")]), "utf-8"),
        (index_bytes(1, 16, [ONE], count=6), "not an index"),
        (index_bytes(1, 16, [ONE], count=2**32 - 1), "not an index"),
        (index_bytes(1, 16, [ONE], start=72), "its blocks start at byte 72"),
        (index_bytes(1, 16, [ONE], begin=0), "section 'offset' at byte 0 exceeds"),
        (index_bytes(1, 16, [ONE], begin=132), "section 'offset' at byte 132 exceeds"),
        (
            index_bytes(1, 16, [ONE], begin=2**64 - 64),
            "section 'offset' at byte 18446744073709551552",
        ),
        (index_bytes(2**64 - 1, 16, [ONE]), "section 'offset' at byte"),
        (index_bytes(16, 16, [ONE]), "section 'offset' at byte"),
        (index_bytes(1, 1 << 63, [u8(0, 1 << 63)]), "for a file of 9223372036854775808 bytes"),
        (index_bytes(1, 17, [ONE]), "do not fill a file of 17 bytes"),
        (index_bytes(1, 20, [u4(4, 20)]), "do not fill a file of 20 bytes"),
        (index_bytes(1, 15, [u4(0, 15)]), "do not fill a file of 15 bytes"),
        (index_bytes(2, 64, [u4(0, 80, 64)]), "do not fill a file of 64 bytes"),
        (index_bytes(1, LONGEST + 1, [u8(0, LONGEST + 1)]), "do not fill a file of"),
        # The differences are right in 64 bits, of which the sum wraps around.
        (
            index_bytes(5, 500, [u8(0, *(1 << 62, 1 << 63, 3 << 62, 2**64 - 16), 500)]),
            "do not fill a file of",
        ),
        (index_bytes(2, 500, [u8(0, 2**64 - 600, 500)]), "do not fill a file of"),
    ],
)
def test_a_lying_index_with_right_checksums_is_refused(data, message):
    assert parsed(data) is None or parsed(data).rows is None
    with pytest.raises(ValueError, match=rf"^a\.index: .*{message}"):
        Index.of_bytes(data, "a.index")


def test_sections_of_later_versions_are_skipped():
    more = [("value/é", "b1", b"\1"), ("later", "c8", bytes(8)), ("", "zzzz", b"")]
    data = index_bytes(1, 16, [*more, ONE])
    assert set(parsed(data).sections) == {"value/é"}
    assert Index.of_bytes(data, "").sections["value/é"].tolist() == [True]
