"""The lists of rejects that people read and search."""

import pytest

from beam_jobs.errors import UsageError
from beam_jobs.records.rejects import MaxRejects, Reject, format_rejects


def test_a_list_of_rejects_is_sorted_and_readable_in_utf_8():
    rejects = [Reject("größe.jpg", "decode", "кот"), Reject("a\udcff.jpg", "read", "no")]
    data = format_rejects(rejects)
    first, second = data.splitlines()
    assert first == b'{"key": "a\xff.jpg", "stage": "read", "error": "no"}'
    assert second.decode() == '{"key": "größe.jpg", "stage": "decode", "error": "кот"}'
    assert [Reject.from_json(line) for line in (first, second)] == sorted(rejects)


@pytest.mark.parametrize(
    ("text", "most"), [("", 100), ("0", 0), ("7", 7), ("29%", 29), ("0.5%", 0), ("1.0%", 1)]
)
def test_a_number_or_a_share_of_a_hundred_inputs_may_be_rejected(text, most):
    limit = MaxRejects(text)
    limit.check()
    assert limit.excess(most, 100) == ""
    if most < 100:
        message = f"{most + 1} of 100 inputs are rejected, more than --max_rejects {text}"
        assert limit.excess(most + 1, 100) == message


@pytest.mark.parametrize("text", ["-1", "1.5", "1/3", "%", "1 %", "few", "inf"])
def test_other_limits_are_refused(text):
    with pytest.raises(UsageError, match=f"--max_rejects {text}: expected a number such as 20, or"):
        MaxRejects(text).check()
