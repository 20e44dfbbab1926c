import pickle

import pytest

from beam_jobs.errors import DataError, JobError, UsageError, find_job_error

KINDS = [(DataError, 1), (UsageError, 2)]
MESSAGE = 'a.npy: signal float32 [None, 3], but b.npy has int16 [None, 6]; it\'s "odd" <here>'


@pytest.mark.parametrize(("kind", "code"), KINDS)
def test_a_job_error_survives_pickling(kind, code):
    error = pickle.loads(pickle.dumps(kind(MESSAGE)))
    assert type(error) is kind
    assert error.message == MESSAGE
    assert error.exit_code == code
    assert str(error) == str(kind(MESSAGE))


@pytest.mark.parametrize(("kind", "code"), KINDS)
def test_a_job_error_is_found_in_the_text_of_a_runners_exception(kind, code):
    text = (
        f"Traceback:\n  File x, line 3\nbeam_jobs.errors.X: {kind(MESSAGE)} [while running 'W']\n"
    )
    found = find_job_error(RuntimeError(f"bundle failed: {text}{text}"))
    assert type(found) is kind
    assert found.message == MESSAGE
    assert found.exit_code == code


def test_a_message_of_several_lines_is_found_whole():
    found = find_job_error(ValueError("noise " + str(DataError("one\ntwo")) + " noise"))
    assert found is not None
    assert found.message == "one\ntwo"


def test_the_first_of_two_errors_is_found():
    found = find_job_error(RuntimeError(f"{UsageError('first')} {DataError('second')}"))
    assert isinstance(found, UsageError)
    assert found.message == "first"


def test_a_job_error_is_found_as_itself():
    error = DataError("x")
    assert find_job_error(error) is error


@pytest.mark.parametrize("text", ["", "boom", "<job error 1>cut off", "<job error>x</job error>"])
def test_a_foreign_exception_holds_no_job_error(text):
    assert find_job_error(RuntimeError(text)) is None


def test_both_kinds_are_caught_as_job_errors():
    assert issubclass(DataError, JobError)
    assert issubclass(UsageError, JobError)
