import pytest
from hypothesis import given
from hypothesis import strategies as st

from beam_jobs.errors import DataError, RejectError, UsageError
from beam_jobs.jobs.split_rules import SplitRules
from beam_jobs.plan.placement import MAX_SPLITS, Groups, Placement, Splits

THREE = Splits(("train", "val", "test"), (0.6, 0.3, 0.1))

names = st.text(st.characters(exclude_categories=["Cs"]))


def rejected(groups: Groups, key: str, row=None) -> str:
    with pytest.raises(RejectError) as caught:
        groups.of(key, row or {})
    return str(caught.value)


@given(names)
def test_by_default_each_record_is_its_own_group(key):
    groups = Groups.parse("")
    assert not groups
    assert groups.of(key, {}) == key


@pytest.mark.parametrize(
    ("pattern", "group"),
    [
        (r"s\d+", "s07"),
        (r"s(\d+)", "07"),
        (r"(s)(\d+)", "s"),
        (r"(?P<day>\d{4})-", "2024"),
    ],
)
def test_the_group_is_the_first_group_of_the_expression_or_its_whole_match(pattern, group):
    groups = Groups.parse(pattern)
    assert groups
    assert groups.of("site/s07/2024-03.wav", {}) == group


@pytest.mark.parametrize("pattern", ["x", r"\d*", r"(x)?s07"])
def test_a_key_without_a_match_is_rejected(pattern):
    found = rejected(Groups.parse(pattern), "site/s07.wav")
    assert found == f"--group_by {pattern} finds nothing in the key"


@pytest.mark.parametrize("pattern", ["(", r"\1"])
def test_wrong_expressions_are_refused(pattern):
    with pytest.raises(UsageError) as caught:
        Groups.parse(pattern)
    assert caught.value.message.startswith(f"--group_by {pattern}: not a regular expression (")
    assert caught.value.message.endswith("); expected one, or column:NAME")


@pytest.mark.parametrize(
    ("value", "group"), [("a", "a"), (7, "7"), (7.0, "7"), (True, "true"), (" b ", " b ")]
)
def test_a_column_holds_the_group(value, group):
    groups = Groups.parse("column:subject")
    assert groups.column == "subject"
    assert groups.of("any", {"subject": value}) == group


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({}, "no column 'subject'; it has none"),
        ({"subject": None}, "column 'subject' is None, expected text or a whole number"),
    ],
)
def test_a_row_without_a_group_is_rejected(row, reason):
    found = rejected(Groups.parse("column:subject"), "key", row)
    assert found == f"--group_by column:subject: {reason}"


@given(st.lists(st.tuples(st.integers(0, 9), names), max_size=30), st.integers(-9, 9))
def test_all_records_of_a_group_share_its_split(members, seed):
    placement = Placement(seed, THREE, Groups.parse(r"^\d"))
    splits = {}
    for group, rest in members:
        split = placement.split_of(f"{group}{rest}", {})
        assert splits.setdefault(group, split) == split
        assert split == placement.split(str(group))


@given(st.lists(names, max_size=20), st.integers(-(2**63), 2**63 - 1))
def test_records_one_by_one_and_in_bulk_get_the_same_splits(keys, seed):
    placement = Placement(seed, THREE)
    one_by_one = [placement.split_of(key, {}) for key in keys]
    encoded = [key.encode() for key in keys]
    assert placement.splits_of(encoded).tolist() == one_by_one
    assert THREE.of(placement.group_hashes(encoded)).tolist() == one_by_one
    splits, errors = SplitRules(placement).splits_of(encoded, [], [])
    assert (splits.tolist(), errors) == (one_by_one, {})


@pytest.mark.parametrize(("value", "split"), [("val", 1), ("0", 2), (0, 2)])
def test_a_column_names_the_split(value, split):
    placement = Placement(0, Splits.named(["train", "val", "0"], "s"), split_column="s")
    assert placement.split_of("any", {"s": value}) == split


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"s": "Val"}, "column 's' is 'Val', expected one of train, val"),
        ({"s": 3}, "column 's' is '3', expected one of train, val"),
        ({"s": None}, "column 's' is None, expected text or a whole number"),
        ({"t": 1}, "no column 's'; it has t"),
    ],
)
def test_a_row_without_a_split_is_rejected(row, reason):
    placement = Placement(0, Splits.named(["train", "val"], "s"), split_column="s")
    with pytest.raises(RejectError) as caught:
        placement.split_of("any", row)
    assert str(caught.value) == reason


def test_rows_name_splits_and_wrong_ones_are_errors():
    placement = Placement(0, Splits.named(["train", "val"], "s"), split_column="s")
    rows = [{"s": "val"}, {"s": "x"}, {"s": "train"}, {}]
    splits, errors = SplitRules(placement).splits_of([b"a", b"b", b"c", b"d"], rows, [])
    assert splits.tolist() == [1, 0, 0, 0]
    assert errors == {
        1: "column 's' is 'x', expected one of train, val",
        3: "no column 's'; it has none",
    }


@pytest.mark.parametrize("name", ["", "a b", "a-b", "a/b", ".a", "a,b", "a\n"])
def test_a_split_name_that_cannot_begin_a_file_name_is_refused(name):
    with pytest.raises(UsageError) as caught:
        Splits.named(["train", name], "fold")
    assert caught.value.message == (
        f"--split_column fold: split name {name!r}: expected letters, digits, _ and ."
    )


def test_a_record_of_a_shard_keeps_the_split_that_the_shard_is_named_after():
    placement = Placement(3, Splits.of_shards(["train", "val.2"]))
    keys = ["train-00000-of-00002.tfrecord#7", "val-a/train-1/val.2-00001-of-00002.tfrecord"]
    assert [placement.split(key) for key in keys] == [0, 1]
    assert placement.splits_of([key.encode() for key in keys]).tolist() == [0, 1]
    assert placement.splits_of([]).tolist() == []
    for wrong in ("train.tfrecord#1", "train/test-00000-of-00001.tfrecord#1"):
        with pytest.raises(DataError, match=f"{wrong}: expected a shard of train, val.2; the inp"):
            placement.split(wrong)


def test_too_many_splits_of_shards_are_refused():
    Splits.of_shards([f"s{n}" for n in range(MAX_SPLITS)])
    with pytest.raises(UsageError, match=f"{MAX_SPLITS + 1} splits, expected at most {MAX_SPLITS}"):
        Splits.of_shards([f"s{n}" for n in range(MAX_SPLITS + 1)])
