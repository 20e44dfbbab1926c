"""Objects of real stores, behind a network that fails on request."""

import gc
import json
import os
import subprocess
import sys

import boto3
import google_crc32c
import pytest

from beam_jobs.errors import DataError, UsageError
from beam_jobs.storage import gcs, objects
from beam_jobs.storage.atomic import (
    NewFile,
    delete_files,
    drop_uploads,
    list_files,
    look,
    move_files,
    write_file,
)
from beam_jobs.storage.files import open_file, open_seekable, read_bytes
from beam_jobs.storage.listing import match
from beam_jobs.storage.objects import NewObject, store_of
from beam_jobs.storage.paths import absolute
from readers.files import backoff
from tests.support.checkout import ROOT

# Several parts.
LARGE = os.urandom(1 << 20) * 13


@pytest.fixture(autouse=True)
def short_waits(monkeypatch):
    for module in (objects, gcs):
        monkeypatch.setattr(module, "PART_BYTES", 5 << 20)  # The least that S3 accepts.
    monkeypatch.setattr(backoff, "LONGEST_WAIT", 0.01)


def past_the_proxy(bucket):
    return boto3.client("s3", endpoint_url=f"http://127.0.0.1:{bucket.server.port}")


def stored(bucket, name):
    if not bucket.url.startswith("s3"):
        return bucket.get(f"{bucket.url}/{name}")
    return past_the_proxy(bucket).get_object(Bucket=bucket.url[5:], Key=name)["Body"].read()


def uploads(bucket):
    """The unfinished uploads that the store charges for."""
    return past_the_proxy(bucket).list_multipart_uploads(Bucket=bucket.url[5:]).get("Uploads", [])


@pytest.mark.parametrize("data", [b"", b"a\r\nb", LARGE])
def test_an_object_has_the_bytes_that_were_written(store, data):
    with NewFile(store.url, "a/b") as file:
        for start in range(0, len(data), 5_000_000):
            file.write(data[start : start + 5_000_000])
        file.publish()
    assert stored(store, "a/b") == data
    assert read_bytes(f"{store.url}/a/b") == data


@pytest.mark.parametrize("data", [b"", LARGE])
def test_files_are_moved_in_place_of_others(store, data):
    write_file(store.url, "next/a/b", data)
    write_file(store.url, "next/c", b"c")
    write_file(store.url, "a/b", b"old")
    names = ["a/b", "c"]
    move_files([(f"{store.url}/next/{name}", f"{store.url}/{name}") for name in names])
    assert [file.path for file in list_files(store.url)] == [f"{store.url}/{n}" for n in names]
    assert stored(store, "a/b") == data
    assert store_of(store.url).checksum(f"{store.url}/a/b")[1] == google_crc32c.value(data)
    with pytest.raises(FileNotFoundError):
        move_files([(f"{store.url}/next/c", f"{store.url}/c")])


@pytest.mark.parametrize("data", [b"some", LARGE])
def test_a_file_replaces_only_what_was_seen(store, data):
    before = look(store.url, "x")
    assert before.version is None
    write_file(store.url, "x", data, before)
    seen = look(store.url, "x")
    assert seen == look(store.url, "x") != before
    write_file(store.url, "x", b"other", seen)
    for older in (before, seen):
        with pytest.raises(DataError, match=f"{store.url}/x was changed by another worker or job"):
            write_file(store.url, "x", data, older)
    assert stored(store, "x") == b"other"
    write_file(store.url, "x", b"other", before)  # Another attempt has written the same.
    if store.url.startswith("s3"):
        assert uploads(store) == []


@pytest.mark.parametrize("data", [b"some", LARGE])
def test_a_file_whose_answer_was_lost_is_recognized(store, data):
    if store.url.startswith("gs://") and data == LARGE:
        pytest.skip("the emulator forgets an upload that is complete")
    methods = ("PUT",) if data == b"some" else ("PUT", "POST")
    seen = look(store.url, "x")
    with NewFile(store.url, "x", seen) as file:
        file.write(data)
        store.proxy.fault(
            503, methods=methods if store.url.startswith("s3") else None, after=True, first=1
        )
        file.publish()
    assert stored(store, "x") == data


@pytest.mark.slow(base=["gcs"])
def test_an_attempt_that_is_garbage_collected_completes_nothing(store):
    write_file(store.url, "shard", b"good")
    file = NewObject(f"{store.url}/shard")
    file.write(LARGE)
    del file
    gc.collect()
    assert stored(store, "shard") == b"good"


def test_the_next_run_drops_the_parts_of_a_killed_run(s3):
    file = NewObject(f"{s3.url}/data/shard")
    file.write(LARGE)
    other = NewObject(f"{s3.url}/other/shard")
    other.write(LARGE)
    assert len(uploads(s3)) == 2
    drop_uploads(f"{s3.url}/data")
    assert [upload["Key"] for upload in uploads(s3)] == ["other/shard"]
    other.publish()
    with pytest.raises(DataError, match=rf"{s3.url}/data/shard: "):
        file.publish()


@pytest.mark.slow(base=["s3-503", "gcs-refuse"])
@pytest.mark.parametrize("kind", [503, 500, 429, "refuse"])
def test_every_second_request_can_fail(store, kind):
    store.proxy.fault(kind, methods=None, every=2)
    with NewFile(store.url, "data/x") as file:
        file.write(LARGE)
        file.publish()
    write_file(store.url, "data/y", b"small")
    assert read_bytes(f"{store.url}/data/x") == LARGE
    assert {file.size for file in list_files(f"{store.url}/data")} == {5, len(LARGE)}
    delete_files([f"{store.url}/data/x", f"{store.url}/data/z"])
    assert [file.path for file in list_files(store.url)] == [f"{store.url}/data/y"]
    assert len([r for r in store.proxy.seen("", None) if r.fault]) > 3


@pytest.mark.parametrize("kind", ["cut", "short"])
def test_a_truncated_body_is_read_to_its_end(store, kind):
    store.put(f"{store.url}/x", LARGE)
    store.proxy.fault(kind, "/x$", first=2, keep=9_000_000)
    assert read_bytes(f"{store.url}/x") == LARGE
    with open_file(f"{store.url}/x") as file:
        assert file.read() == LARGE


@pytest.mark.parametrize("opened", [open_file, open_seekable])
def test_an_object_is_read_at_any_position(store, opened):
    store.put(f"{store.url}/x", LARGE)
    with opened(f"{store.url}/x") as file:
        assert file.seek(-5, 2) == len(LARGE) - 5
        assert file.read() == LARGE[-5:]
        for start, size in [
            (0, 7),
            (9_999_999, 300_000),
            (3, 1),
            (len(LARGE) - 2, 9),
            (1 << 20, 0),
        ]:
            file.seek(start)
            assert file.read(size) == LARGE[start : start + size]
        file.seek(len(LARGE) + 7)
        assert file.read(4) == b""


def test_a_few_bytes_of_a_large_object_cost_one_window(store):
    store.put(f"{store.url}/x", LARGE)
    with open_file(f"{store.url}/x") as file:
        file.seek(20_000_000)
        file.read(100)
    assert sum(request.sent for request in store.proxy.seen()) < 300_000


def test_a_missing_object_is_an_error_of_only_that_object(store):
    with pytest.raises(FileNotFoundError, match="no such object"):
        read_bytes(f"{store.url}/none")
    with pytest.raises(OSError, match="no such object"):
        open_seekable(f"{store.url}/none")


def test_two_versions_of_an_object_are_never_mixed(s3):
    s3.put(f"{s3.url}/x", LARGE)
    with open_file(f"{s3.url}/x") as file:
        file.read(10)
        s3.put(f"{s3.url}/x", LARGE[::-1])
        with pytest.raises(OSError, match="it was replaced while it was read"):
            file.read()


def test_a_store_that_keeps_failing_is_not_blamed_on_an_input(store, monkeypatch):
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "2")
    monkeypatch.setattr("beam_jobs.storage.gcs._SECONDS", 0.5)
    monkeypatch.setattr("readers.files.backoff.TRIES", 2)
    store.put(f"{store.url}/x", b"x")
    store.proxy.fault(503, methods=None)
    objects._new_store.cache_clear()
    for call in (
        lambda: read_bytes(f"{store.url}/x"),
        lambda: write_file(store.url, "y", b"y"),
        lambda: list_files(store.url),
        lambda: delete_files([f"{store.url}/x"]),
    ):
        with pytest.raises(
            DataError, match=rf"{store.url}/.*: the store keeps failing \(.*(reduce|503)"
        ):
            call()
    objects._new_store.cache_clear()


def test_a_missing_bucket_is_a_usage_error(store):
    missing = f"{store.url}-none"
    for call in (
        lambda: list_files(f"{missing}/a"),
        lambda: write_file(missing, "x", b""),
        lambda: NewObject(f"{missing}/x").write(LARGE),
        lambda: absolute(f"{missing}/x"),
    ):
        words = rf"{missing}/.*there is no (bucket|container) '{missing[5:]}'"
        with pytest.raises(UsageError, match=words):
            call()


def test_missing_credentials_of_s3_are_reported_at_once(s3, monkeypatch):
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/none")
    with pytest.raises(UsageError, match=r"no credentials .* give --s3_access_key_id"):
        list_files(s3.url)
    monkeypatch.setenv("WORKER_ID", "1-1")
    on_a_worker = (
        r"variables .* of your shell do not reach: add --s3_access_key_id=\.\.\. --s3_secret"
    )
    with pytest.raises(UsageError, match=on_a_worker):
        list_files(s3.url)


# Cloudflare R2 knows no other region than "auto"; MinIO is reached by the name of a host in a cluster.
def test_a_compatible_store_is_reached_by_its_endpoint(s3, monkeypatch):
    for variable in ("AWS_ENDPOINT_URL", "AWS_DEFAULT_REGION", "AWS_ACCESS_KEY_ID"):
        monkeypatch.delenv(variable)
    options = {
        "s3_endpoint_url": s3.proxy.url.replace("127.0.0.1", "localhost"),
        "s3_region_name": "auto",
        "s3_access_key_id": "key",
        "s3_secret_access_key": "secret",
    }
    monkeypatch.setattr("beam_jobs.storage.objects.storage_options", lambda: options)
    for name, data in (("small", b"small"), ("large", LARGE)):
        with NewFile(s3.url, f"data/{name}") as file:
            file.write(data)
            file.publish()
        assert read_bytes(f"{s3.url}/data/{name}") == data
        known = store_of(s3.url).checksum(f"{s3.url}/data/{name}")
        assert known == (len(data), google_crc32c.value(data))
    assert store_of(s3.url).create(f"{s3.url}/data/small", b"other") is False
    drop_uploads(f"{s3.url}/data")
    assert len(list_files(f"{s3.url}/data")) == 2
    # The bucket is in the path, since hosts of such stores have no names for buckets.
    assert all(r.path.startswith(f"/{s3.url[5:]}") for r in s3.proxy.seen("", None))


def test_an_unsupported_request_is_not_retried(s3):
    s3.proxy.fault(501, methods=("PUT",))
    with pytest.raises(UsageError, match=r"the store refuses \(501 "):
        write_file(s3.url, "x", b"x")
    assert len(s3.proxy.seen("/x$", "PUT")) == 1


@pytest.fixture
def no_google_credentials(monkeypatch, tmp_path):
    """An environment without credentials for Google, and without its emulator."""
    for variable in ("STORAGE_EMULATOR_HOST", "GOOGLE_APPLICATION_CREDENTIALS"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path))
    monkeypatch.setenv("NO_GCE_CHECK", "true")


def test_a_process_that_loads_from_google_imports_no_beam(no_google_credentials):
    code = (
        "import sys\n"
        "from beam_jobs.storage.objects import store_of\n"
        "from beam_jobs.storage.options import ProcessContext, adopt\n"
        "adopt(ProcessContext({}, {}))\n"
        "print(type(store_of('gs://bucket/x')._client._credentials).__name__)\n"
        "assert 'apache_beam' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("AnonymousCredentials\n", "")


def test_credentials_of_google_that_cannot_be_used_are_reported_at_once(
    no_google_credentials, monkeypatch, tmp_path
):
    with pytest.raises(UsageError, match=r"gs://: no credentials .* gcloud auth"):
        gcs._client({"impersonate_service_account": "other@project"})
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "none.json"))
    with pytest.raises(UsageError, match=r"gs://: no credentials .*none\.json.* gcloud auth"):
        gcs._client({})


def test_beams_options_decide_who_asks_google(no_google_credentials, monkeypatch, tmp_path):
    user = {"type": "authorized_user", "client_id": "i", "client_secret": "s", "refresh_token": "r"}
    (tmp_path / "user.json").write_text(json.dumps(user))
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "user.json"))
    options = {
        "impersonate_service_account": "first@project,last@project",
        "project": "p",
        "job_name": "j",
        "gcs_custom_audit_entries": {"x-goog-custom-audit-user": "u"},
    }
    client = gcs._client(options)
    assert client._credentials.service_account_email == "last@project"
    assert client._credentials._delegates == ["first@project"]
    assert client.project == "p"
    assert client._connection.extra_headers == {
        "x-goog-custom-audit-job": "j",
        "x-goog-custom-audit-user": "u",
    }
    assert gcs._client({})._credentials.refresh_token == "r"


def test_a_pattern_matches_the_same_names_as_on_a_disk(store, tmp_path):
    names = [
        "p/a/1.jpg",
        "p/a/2.png",
        "p/b/c/3.jpg",
        "p/.hidden",
        "p/.d/4.jpg",
        "pa/5.jpg",
        "p/b[1].jpg",
    ]
    for name in names:
        store.put(f"{store.url}/{name}", b"x")
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"x")
    write_file(store.url, "p/folder/", b"")
    for pattern in (
        "p/*/*.jpg",
        "p/**",
        "p",
        "p/",
        "p/a",
        "p/a/1.jpg",
        "p/b[[]1].jpg",
        "p*/*.jpg",
        "p/.d/*",
    ):
        found, expected = (
            sorted(file.path.removeprefix(str(top)) for file in match(absolute(f"{top}/{pattern}")))
            for top in (store.url, tmp_path)
        )
        assert found == expected, pattern
        assert found
