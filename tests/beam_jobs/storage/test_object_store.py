import pytest

from beam_jobs.errors import DataError, UsageError
from beam_jobs.storage.object_store import (
    ChangedError,
    ExistsError,
    SignIn,
    bucket_and_key,
    crc32c_number,
    one_line,
    refusal,
)

PATH = "s3://photos/a.jpg"
SIGN_IN = SignIn("run aws configure", "give the workers a role")


@pytest.mark.parametrize(
    ("status", "reads", "kind", "message"),
    [
        (404, True, FileNotFoundError, "no such object"),
        (412, True, ChangedError, "it was replaced while it was read"),
        (412, False, ExistsError, "an object of this name exists"),
        (401, True, UsageError, "the store refuses the credentials (why): run aws configure"),
        (403, True, PermissionError, "it may not be read (why)"),
        (403, False, UsageError, "the store refuses (why): run aws configure"),
        (503, True, DataError, "the store keeps failing (why); run the same command again"),
        (400, False, UsageError, "the store refuses (why)"),
    ],
)
def test_each_answer_of_a_store_is_an_error_that_says_what_to_do(
    status, reads, kind, message, monkeypatch
):
    monkeypatch.delenv("WORKER_ID", raising=False)
    error = refusal(PATH, status, "why", SIGN_IN, reads)
    assert type(error) is kind
    assert str(error).startswith(f"{PATH}: {message}")


def test_workers_of_an_engine_are_signed_in_elsewhere(monkeypatch):
    monkeypatch.setenv("WORKER_ID", "3")
    text = str(refusal(PATH, 401, "why", SIGN_IN, True))
    assert "this is a worker of the engine" in text
    assert text.endswith("give the workers a role")


def test_a_url_without_a_bucket_is_refused():
    assert bucket_and_key("gs://photos/a/b.jpg") == ("photos", "a/b.jpg")
    assert bucket_and_key("gs://photos") == ("photos", "")
    with pytest.raises(UsageError, match=r"s3:///a\.jpg: expected s3://BUCKET/"):
        bucket_and_key("s3:///a.jpg")


def test_the_message_of_a_library_is_one_line_without_passwords():
    assert one_line("a\n  b https://me:secret@host/x") == "a b https://host/x"
    assert len(one_line("x" * 999)) == 300


@pytest.mark.parametrize(
    ("text", "number"), [("AAAAAQ==", 1), ("", None), (None, None), ("AAAAAQ==-7", None)]
)
def test_a_checksum_of_parts_is_no_checksum_of_the_object(text, number):
    assert crc32c_number(text) == number
