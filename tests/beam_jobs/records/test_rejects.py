"""The lists of rejects that people read and search."""

from beam_jobs.records.rejects import Reject, format_rejects


def test_a_list_of_rejects_is_sorted_and_readable_in_utf_8():
    rejects = [Reject("größe.jpg", "decode", "кот"), Reject("a\udcff.jpg", "read", "no")]
    data = format_rejects(rejects)
    first, second = data.splitlines()
    assert first == b'{"key": "a\xff.jpg", "stage": "read", "error": "no"}'
    assert second.decode() == '{"key": "größe.jpg", "stage": "decode", "error": "кот"}'
    assert [Reject.from_json(line) for line in (first, second)] == sorted(rejects)
