import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beam_jobs.columns import Ragged
from beam_jobs.records.blocks import Block
from readers.format.lookup.keys import hash64, hashes64

records = st.lists(
    st.tuples(st.integers(0, 2**64 - 1), st.integers(0, 255), st.binary(max_size=20)), max_size=40
)
# Existing datasets depend on these, so they may never change.
GOLDEN_HASHES = [
    (0, b"order", "", 0xF0206C71E2E84812),
    (0, b"order", "a.jpg", 0x709CB7EE7FEF0962),
    (0, b"split", "a.jpg", 0x95325FEB096FB647),
    (1, b"order", "a.jpg", 0x984575A9C03FFA8D),
    (-1, b"order", "a.jpg", 0xF37EAF404022A4C8),
    (2**63 - 1, b"order", "a.jpg", 0x7579B68FDCA008CA),
    (0, b"order", "caf\u00e9/\udcff#12", 0x0383B985E92816EB),
]


def block_of(rows) -> Block:
    return Block(
        np.array([row[0] for row in rows], np.uint64),
        np.array([row[1] for row in rows], np.uint8),
        Ragged.of([row[2] for row in rows]),
    )


def rows_of(block: Block) -> list[tuple[int, int, bytes]]:
    columns = block.hashes.tolist(), block.splits.tolist(), block.payloads
    return list(zip(*columns, strict=True))


@pytest.mark.parametrize(("seed", "purpose", "text", "expected"), GOLDEN_HASHES)
def test_hashes_never_change(seed, purpose, text, expected):
    assert hash64(seed, purpose, text) == expected
    texts = [text.encode("utf-8", "surrogateescape")] * 2
    assert hashes64(seed, purpose, texts).tolist() == [expected] * 2


@given(records)
@settings(max_examples=50, deadline=None)
def test_unpack_gives_back_what_was_packed(rows):
    for compress in (False, True):
        assert rows_of(Block.unpack(block_of(rows).pack(compress))) == rows


def test_the_layout_of_a_block_is_the_same_on_every_machine():
    block = block_of([(1, 0, b"ab"), (2**64 - 1, 3, b"")])
    assert block.pack().hex() == (
        b"0;<u8 2;|u1 2;ragged 2\n".hex()  # not compressed
        + "0100000000000000ffffffffffffffff"  # hashes
        + "0003"  # splits
        + "0200000000000000"  # lengths
        + "6162"
    )


@given(records, st.data(), st.sampled_from([np.uint8, np.int64, np.int32]))
@settings(max_examples=50, deadline=None)
def test_by_parts_the_rows_into_their_groups_and_keeps_their_order(rows, data, dtype):
    groups = data.draw(st.lists(st.integers(0, 5), min_size=len(rows), max_size=len(rows)))
    found = [(g, rows_of(b)) for g, b in block_of(rows).by(np.array(groups, dtype))]
    assert found == [
        (group, [row for row, g in zip(rows, groups, strict=True) if g == group])
        for group in sorted(set(groups))
    ]


@given(st.lists(st.lists(st.binary(max_size=9), min_size=1), min_size=1, max_size=5))
def test_joined_blocks_have_the_records_of_all_and_pieces_have_them_in_order(parts):
    blocks = [
        Block(
            np.arange(len(part), dtype=np.uint64) + np.uint64(100 * number),
            np.full(len(part), number, np.uint8),
            Ragged.of(part),
        )
        for number, part in enumerate(parts)
    ]
    whole = Block.join(blocks)
    assert whole.hashes.tolist() == [n for block in blocks for n in block.hashes.tolist()]
    assert whole.splits.tolist() == [n for block in blocks for n in block.splits.tolist()]
    assert list(whole.payloads) == [payload for part in parts for payload in part]
    for size in (1, 8, 1000):
        pieces = list(whole.pieces(size))
        assert [p for piece in pieces for p in piece.payloads] == list(whole.payloads)
        assert [h for piece in pieces for h in piece.hashes.tolist()] == whole.hashes.tolist()
        for piece in pieces:
            assert len(b"".join(list(piece.payloads)[:-1])) < size


@given(values=st.lists(st.binary(max_size=9), max_size=12), data=st.data())
def test_byte_strings_are_taken_some_at_a_time(values, data):
    ragged = Ragged.of(values)
    rows = data.draw(
        st.lists(st.integers(0, len(values) - 1), max_size=20) if values else st.just([])
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("beam_jobs.columns._AT_ONCE", 3)
        taken = ragged.take(np.array(rows, np.int64))
    assert list(taken) == [values[row] for row in rows]
