"""References: sources packed into a few bytes."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beam_jobs.errors import RejectError
from beam_jobs.jobs.record import SourceValues, complete
from beam_jobs.records.encode import Record
from beam_jobs.sources.archives.member import MemberLocation
from beam_jobs.sources.labels import ClassIds
from beam_jobs.sources.source import (
    Source,
    column_of,
    names_in,
    pack_reference,
    reference_key,
    unpack_reference,
    value_at,
)

# File names as Python decodes them: bytes that are not UTF-8 become lone surrogates.
NAMES = st.binary(min_size=1, max_size=12).map(
    lambda data: data.replace(b"\0", b"/").decode("utf-8", "surrogateescape")
)
SIZES = st.integers(0, 2**64 - 1)
TIMES = st.integers(-(2**63), 2**63 - 1)
PLACES = st.builds(
    MemberLocation, SIZES, SIZES, SIZES, st.sampled_from([0, 8, -1]), st.integers(0, 2**32 - 1)
)
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=5,
)
JOINED = st.lists(st.tuples(st.text(max_size=4), NAMES, SIZES, TIMES), max_size=3).map(tuple)
SOURCES = st.builds(
    Source,
    NAMES,
    SIZES,
    TIMES,
    st.just("") | NAMES,
    st.none() | PLACES,
    st.dictionaries(st.text(max_size=6), VALUES, max_size=3),
    JOINED,
    st.just("") | NAMES,
    st.just("") | st.text(max_size=20),
    st.none() | st.tuples(SIZES, SIZES, SIZES),
    st.none() | st.text(max_size=4) | st.lists(st.text(max_size=4)).map(tuple),
)


@settings(max_examples=40)
@given(SOURCES)
def test_a_reference_holds_the_whole_source(source):
    reference = pack_reference(source)
    assert unpack_reference(reference) == source
    assert reference_key(reference) == source.key.encode("utf-8", "surrogatepass")


@settings(max_examples=40)
@given(NAMES, SIZES, TIMES)
def test_the_reference_of_a_plain_file_is_16_bytes_and_its_key(key, size, modified):
    reference = pack_reference(Source(key, size, modified))
    assert len(reference) == 16 + len(key.encode("utf-8", "surrogatepass"))


@pytest.mark.parametrize(
    ("source", "packed"),
    [
        (Source("a/b.tar.gz"), True),
        (Source("B.TGZ"), True),
        (Source("a.tar"), False),
        (Source("a.zip/b.tar.gz", archive="a.zip"), False),
        (Source("named.tar.gz", path="a.jpg"), False),
    ],
)
def test_a_packed_archive_is_recognised_by_the_name_of_its_file(source, packed):
    assert source.packed == packed


ROW = {"a": {"b": 1, "c.d": {"e": 2}, "none": None}, "a.b": 3, "f": [{"g": 4}], "h": {}}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("a.b", 3),
        ("a.c.d.e", 2),
        ("a.c.d", {"e": 2}),
        ("a.none", None),
        ("a.none.any", None),
        ("h", {}),
        *((name, KeyError) for name in ("a.", ".a", "a.b.c", "a.c", "f.g", "f.0", "h.x", "", ".")),
    ],
)
def test_a_name_with_dots_is_a_column_or_a_field_of_an_object(name, value):
    if value is not KeyError:
        assert value_at(ROW, name) == value
        return
    with pytest.raises(KeyError):
        value_at(ROW, name)


def test_names_of_fields_follow_their_column():
    names = ["a", "a.b", "a.c.d", "a.c.d.e", "a.none", "a.b", "f", "h"]
    assert list(names_in(ROW)) == names
    deep: dict = {}
    for _ in range(1000):
        deep = {"x": deep}
    assert len(list(names_in(deep))) == 1000


def test_a_missing_column_is_a_reject_that_lists_the_others():
    assert column_of({"a": None}, "a") is None
    with pytest.raises(RejectError, match=r"^no column 'c'; it has a, b$"):
        column_of({"a": 1, "b": 2}, "c")
    with pytest.raises(RejectError, match=r"^no column 'c'; it has none$"):
        column_of({}, "c")


def test_a_remark_about_a_source_is_one_about_its_records():
    source = unpack_reference(pack_reference(Source("a.zip/1.jpg", 3, remark="a guess")))
    values = SourceValues(None, {}, source.remark)
    assert complete(Record({}), source.key, values, ClassIds({})).remarks == ("a guess",)
