"""The lists of rejects that people read and search."""

import pytest

from beam_jobs.errors import UsageError
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
        ("29%", 100, 29),
        ("0.5%", 100, 0),
        ("1.0%", 100, 1),
        ("0.7%", 11_000, 77),  # 76 in floating-point numbers
        ("1" * 18, 10**18, int("1" * 18)),
    ],
)
def test_a_number_or_a_share_of_the_inputs_may_be_rejected(text, found, most):
    limit = MaxRejects.parse(text)
    assert limit.excess(most, found) == ""
    message = f"{most + 1:,} of {found:,} inputs are rejected, more than --max_rejects {text}"
    assert limit.excess(most + 1, found) == message


@pytest.mark.parametrize("text", ["", "100%"])
def test_all_inputs_may_be_rejected(text):
    assert MaxRejects.parse(text).excess(100, 100) == ""


@pytest.mark.parametrize(
    "text",
    ["-1", "1.5", "%", "few", "100.1%", "9" * 5000, "9" * 5000 + "%"],
    ids=lambda text: text[:9],
)
def test_other_limits_are_refused(text):
    expected = f"--max_rejects {text[:80]}: expected a number such as 20, or"
    with pytest.raises(UsageError, match=expected):
        MaxRejects.parse(text)
