"""What each answer of a store means to a reader, and to a job."""

import pytest

from beam_jobs.errors import DataError, UsageError
from beam_jobs.storage.files import JobErrors, store_of
from readers.files.files import ChangedError, ExistsError, RefusedError, StoreError
from readers.files.of_path import files_of
from readers.files.stores.errors import Errors, SignIn, one_line
from readers.files.stores.store import bucket_and_key, crc32c_number

PATH = "s3://photos/a.jpg"
SIGN_IN = SignIn("set AWS_X", "give --x, or ", "give the workers a role")


@pytest.mark.parametrize(
    ("status", "reads", "reader", "job", "message"),
    [
        (404, True, FileNotFoundError, FileNotFoundError, "no such object"),
        (412, True, ChangedError, ChangedError, "it was replaced while it was read"),
        (412, False, ExistsError, ExistsError, "an object with this name exists"),
        (401, True, RefusedError, UsageError, "the store rejects the credentials (why): SIGN IN"),
        (403, True, PermissionError, PermissionError, "it may not be read (why)"),
        (403, False, RefusedError, UsageError, "the store denies access (why): SIGN IN"),
        (503, True, StoreError, DataError, "the store keeps failing (why); "),
        (400, False, RefusedError, UsageError, "the store rejects the request (why)"),
    ],
)
def test_each_answer_of_a_store_is_an_error_that_says_what_to_do(
    status, reads, reader, job, message, monkeypatch
):
    monkeypatch.delenv("WORKER_ID", raising=False)
    for errors, kind, how in (
        (Errors(SIGN_IN), reader, "set AWS_X"),
        (JobErrors(SIGN_IN), job, "give --x, or set AWS_X"),
    ):
        error = errors.refusal(PATH, status, "why", reads)
        assert type(error) is kind
        assert str(error).startswith(f"{PATH}: {message}".replace("SIGN IN", how))


def test_workers_of_an_engine_are_signed_in_elsewhere(monkeypatch):
    monkeypatch.setenv("WORKER_ID", "3")
    text = str(JobErrors(SIGN_IN).refusal(PATH, 401, "why", True))
    assert "this is a worker of the engine" in text
    assert text.endswith("give the workers a role")


def test_a_url_without_a_bucket_is_refused():
    assert bucket_and_key("gs://photos/a/b.jpg") == ("photos", "a/b.jpg")
    assert bucket_and_key("gs://photos") == ("photos", "")
    for opened, kind in ((files_of, RefusedError), (store_of, UsageError)):
        with pytest.raises(kind, match=r"s3:///a\.jpg: expected s3://BUCKET/"):
            opened("s3:///a.jpg")


def test_the_message_of_a_library_is_one_line_without_passwords():
    assert one_line("a\n  b https://me:se@cret@host/x@y") == "a b https://host/x@y"
    assert len(one_line("x" * 999)) == 300


@pytest.mark.parametrize(
    ("text", "number"), [("AAAAAQ==", 1), ("", None), (None, None), ("AAAAAQ==-7", None)]
)
def test_a_checksum_of_parts_is_no_checksum_of_the_object(text, number):
    assert crc32c_number(text) == number
