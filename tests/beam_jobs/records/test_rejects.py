"""The lists of rejects that people read and search."""

import pytest

from beam_jobs.errors import DataError, UsageError
from beam_jobs.records.rejects import MaxRejects, Reject, format_rejects


def test_a_list_of_rejects_is_sorted_and_readable_in_utf_8():
    rejects = [Reject("größe.jpg", "decode", "кот"), Reject("a\udcff.jpg", "read", "no")]
    data = format_rejects(rejects)
    first, second = data.splitlines()
    assert first == b'{"key": "a\\udcff.jpg", "stage": "read", "error": "no"}'
    assert second.decode() == '{"key": "größe.jpg", "stage": "decode", "error": "кот"}'
    assert [Reject.from_json(line) for line in (first, second)] == sorted(rejects)


@pytest.mark.parametrize(
    ("text", "found", "most"),
    [
        ("0", 100, 0),
        ("7", 100, 7),
        ("0.29", 100, 29),
        ("0.005", 100, 0),
        (".01", 100, 1),
        ("0.07", 1_100, 77),  # 77.00000000000001 in floating-point numbers
        ("1" * 18, 10**18, int("1" * 18)),
    ],
)
def test_a_number_or_a_share_of_the_inputs_may_be_rejected(text, found, most):
    limit = MaxRejects.parse(text)
    limit.check(most, found, [])
    message = (
        f"^{most + 1:,} of {found:,} inputs are rejected, more than --max_rejects {text}: no data"
    )
    with pytest.raises(DataError, match=message):
        limit.check(most + 1, found, [])


def test_without_a_limit_one_in_twenty_of_ten_inputs_may_be_rejected():
    limit = MaxRejects.parse("")
    for rejected, found in ((5, 100), (8, 9), (0, 10)):
        limit.check(rejected, found, [])
    for rejected, found in ((6, 100), (1, 10)):
        with pytest.raises(DataError, match=f"^{rejected} of {found} inputs are .* more than 5%: "):
            limit.check(rejected, found, [])


def test_too_many_rejects_are_told_with_their_reasons_and_the_cure():
    rejects = [Reject(f"{n}.jpg", "decode", f"byte {n}: cut off") for n in range(3)]
    with pytest.raises(DataError) as caught:
        MaxRejects.parse("").check(3, 11, [*rejects, Reject("x", "read", "not UTF-8")])
    assert caught.value.message == (
        "3 of 11 inputs are rejected, more than 5%: no dataset was written; byte …: cut off, such as 0.jpg; not "
        "UTF-8, such as x. Fix them, or add --max_rejects 0.28 (or all) to the same command, which keeps the shards "
        "that are done"
    )
    MaxRejects.parse("0.28").check(3, 11, rejects)


@pytest.mark.parametrize(
    ("rejected", "cure"), [(999, ", or add --max_rejects all to the same command"), (1000, "")]
)
def test_a_limit_that_would_not_help_is_not_proposed(rejected, cure):
    with pytest.raises(DataError) as caught:
        MaxRejects.parse("").check(rejected, 1000, [Reject("a", "read", "empty")])
    assert caught.value.message.partition("Fix them")[2].startswith(cure)
    assert bool(cure) == ("--max_rejects" in caught.value.message)


@pytest.mark.parametrize("text", ["all", "1.0"])
def test_all_inputs_may_be_rejected(text):
    MaxRejects.parse(text).check(100, 100, [])


@pytest.mark.parametrize(
    "text",
    ["-1", "1.5", "1%", "%", "few", "1.", "9" * 5000, "0." + "9" * 5000],
    ids=lambda text: text[:9],
)
def test_other_limits_are_refused(text):
    expected = f"--max_rejects {text[:80]}: expected a number such as 20, a share of all inputs"
    with pytest.raises(UsageError, match=expected):
        MaxRejects.parse(text)
