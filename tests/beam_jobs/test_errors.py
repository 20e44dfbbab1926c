import pickle
import traceback

import pytest

from beam_jobs.errors import DataError, UsageError, find_job_error

KINDS = [(DataError, 1), (UsageError, 2)]
MESSAGE = 'a.npy: signal float32 [None, 3], but b.npy has int16 [None, 6]; it\'s "odd" <here>'
QUOTING = "c.txt: text 'step [while running 'x'] failed [while running 'now"


@pytest.mark.parametrize(("kind", "code"), KINDS)
def test_a_job_error_survives_pickling(kind, code):
    error = pickle.loads(pickle.dumps(kind(MESSAGE)))
    assert type(error) is kind
    assert error.message == MESSAGE
    assert error.exit_code == code
    assert str(error) == MESSAGE


# What runners put behind the text of an exception.
ENDS = [
    "\n",
    " [while running 'W-ptransform-30']passed through:\n==>\n    proc/p.cc:237",
    "\n\n\tat a.b",
]


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("message", [MESSAGE, QUOTING])
@pytest.mark.parametrize(("kind", "code"), KINDS)
def test_a_job_error_is_found_in_the_text_of_a_runners_exception(kind, code, message, end):
    trace = "".join(traceback.format_exception_only(kind, kind(message))).rstrip("\n")
    text = f"Traceback (most recent call last):\n  File x, line 3\n{trace}{end}"
    found = find_job_error(RuntimeError(f"bundle failed: {text}\n{text}"))
    assert type(found) is kind
    assert found.message == message
    assert found.exit_code == code


def test_a_message_of_several_lines_becomes_one():
    assert str(DataError("one\ntwo\r\nthree")) == "one two three"


def test_the_first_of_two_errors_is_found():
    text = "beam_jobs.errors.UsageError: first\n\nbeam_jobs.errors.DataError: second"
    found = find_job_error(RuntimeError(text))
    assert isinstance(found, UsageError)
    assert found.message == "first"


@pytest.mark.parametrize("kind", ["UsageError", "DataError"])
def test_the_name_of_a_file_is_not_taken_for_a_job_error(kind):
    named = f"No such file: 'in/beam_jobs.errors.{kind}: all is well'"
    before = f"Traceback (most recent call last):\nFileNotFoundError: {named}"
    assert find_job_error(RuntimeError(before)) is None
    after = "Traceback (most recent call last):\nbeam_jobs.errors.UsageError: it is gone"
    found = find_job_error(RuntimeError(f"{before}\n\nDuring handling\n\n{after}"))
    assert found is not None and found.message == "it is gone"


def test_a_job_error_is_found_as_itself():
    error = DataError("x")
    assert find_job_error(error) is error


@pytest.mark.parametrize("text", ["", "boom", "ValueError: x", "beam_jobs.errors.RejectError: x"])
def test_a_foreign_exception_holds_no_job_error(text):
    assert find_job_error(RuntimeError(text)) is None
