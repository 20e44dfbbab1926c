import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beam_jobs.records.encode import RecordEncoder
from beam_jobs.records.statistics import Statistics
from readers.format.encode.records import Encoder
from readers.format.schema import Feature, Schema
from readers.format.tfrecord import frame

SCHEMA = Schema(
    {
        "key": Feature("string"),
        "label": Feature("int64"),
        "words": Feature("string", (None,)),
        "x": Feature("float32", (None, 2)),
    }
)


def record(number: int, length: int) -> dict:
    rng = np.random.default_rng(number)
    return {
        "key": f"k{number}",
        "label": number % 3,
        "words": ["w"] * (number % 4),
        "x": rng.normal(size=(length, 2)).astype(np.float32),
    }


def row_of(item: dict) -> bytes:
    """The row of the index: the label, and how many words and steps there are."""
    return struct.pack("<qII", item["label"], len(item["words"]), len(item["x"]))


def expected(placed: list[tuple[int, dict]]) -> dict[int, dict]:
    """The statistics of each split, record by record."""
    encoder = Encoder(SCHEMA)
    found: dict[int, Statistics] = {}
    for split, item in placed:
        found.setdefault(split, Statistics(SCHEMA)).add([encoder.check(item)])
    return {split: statistics.state() for split, statistics in found.items()}


def states(encoder: RecordEncoder) -> dict[int, dict]:
    found = [(split, statistics.state()) for split, statistics in encoder.statistics()]
    assert len(dict(found)) == len(found)
    return dict(found)


placements = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 30)), max_size=400)


@given(placements)
@settings(max_examples=10)
def test_records_are_framed_and_counted_as_one_by_one(drawn):
    placed = [(split, record(n, length)) for n, (split, length) in enumerate(drawn)]
    encoder = RecordEncoder(Encoder(SCHEMA))
    plain = Encoder(SCHEMA)
    for split, item in placed:
        assert encoder.encode(split, item) == (frame(plain.encode(item)), row_of(item))
    assert states(encoder) == expected(placed)


@given(placements)
@settings(max_examples=10)
def test_columns_give_the_bytes_and_statistics_of_their_rows(drawn):
    placed = [(split, record(n, length)) for n, (split, length) in enumerate(drawn)]
    plain = Encoder(SCHEMA)
    checked = [plain.check(item) for _, item in placed]
    columns = {name: [values[name] for values in checked] for name in SCHEMA}
    encoder = RecordEncoder(plain)
    splits = np.array([split for split, _ in placed], np.uint8)
    frames, rows = encoder.encode_all(splits, columns)
    assert frames == [frame(Encoder(SCHEMA).encode(item)) for _, item in placed]
    assert rows == [row_of(item) for _, item in placed]
    assert states(encoder) == expected(placed)


def test_columns_of_more_layouts_than_are_kept_give_the_same_bytes():
    schema = Schema({"text": Feature("string"), "label": Feature("int64")})
    encoder, rows = Encoder(schema), [{"text": b"x" * n, "label": n} for n in range(9_000)]
    columns = {name: [row[name] for row in rows] for name in schema}
    for found in (encoder.pack_all(columns), encoder.pack_all(columns)):
        assert found == list(map(Encoder(schema).pack, rows))


def test_statistics_are_of_the_records_since_the_last_call():
    encoder = RecordEncoder(Encoder(SCHEMA))
    assert states(encoder) == {}
    first, second = [(0, record(1, 3)), (2, record(2, 3))], [(2, record(3, 1))]
    for placed in (first, second):
        for split, item in placed:
            encoder.encode(split, item)
        assert states(encoder) == expected(placed)
    assert states(encoder) == {}


BAD = [
    {"key": "k"},
    {**record(1, 1), "x": np.ones(3)},
    {**record(1, 1), "label": "cat"},
    {**record(1, 1), "words": ["fine", 5]},  # Noticed when it is packed, not when it is checked.
]


@pytest.mark.parametrize("bad", BAD, ids=range(len(BAD)))
def test_a_rejected_record_is_not_counted(bad):
    encoder = RecordEncoder(Encoder(SCHEMA))
    encoder.encode(0, record(1, 2))
    for split in (0, 1):
        with pytest.raises(ValueError):
            encoder.encode(split, bad)
    encoder.encode(0, record(2, 2))
    assert states(encoder) == expected([(0, record(1, 2)), (0, record(2, 2))])
