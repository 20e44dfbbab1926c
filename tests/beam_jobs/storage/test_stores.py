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
from beam_jobs.storage.atomic import (
    NewFile,
    delete_files,
    drop_uploads,
    list_files,
    write_file,
)
from beam_jobs.storage.files import JobErrors, open_file, open_seekable, read_bytes, store_of
from beam_jobs.storage.listing import match
from beam_jobs.storage.paths import absolute
from readers.files import backoff
from readers.files.files import ExistsError
from readers.files.stores import clients, gcs
from readers.files.stores import store as stores
from readers.files.stores.errors import SignIn
from readers.files.stores.per_process import PerProcess
from tests.support.checkout import ROOT

# Several parts.
LARGE = os.urandom(1 << 20) * 13

ERRORS = JobErrors(SignIn("run gcloud auth", "", ""))

STAGING = ""  # Stores need none.


@pytest.fixture(autouse=True)
def short_waits(monkeypatch):
    for module in (stores, gcs):
        monkeypatch.setattr(module, "PART_BYTES", 5 << 20)  # The least that S3 accepts.
    monkeypatch.setattr(backoff, "LONGEST_WAIT", 0.01)


def begun(path, replace=False):
    """An object that is being written."""
    return store_of(path).create(path, STAGING, replace)


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
    with NewFile(f"{store.url}/a/b", STAGING) as file:
        for start in range(0, len(data), 5_000_000):
            file.write(data[start : start + 5_000_000])
        file.publish()
    assert stored(store, "a/b") == data
    assert read_bytes(f"{store.url}/a/b") == data
    known = store_of(store.url).stat(f"{store.url}/a/b")
    assert (known.size, known.crc32c) == (len(data), google_crc32c.value(data))


@pytest.mark.parametrize("data", [b"some", LARGE])
def test_an_object_is_created_and_never_replaced(store, data):
    path = f"{store.url}/x"
    with NewFile(path, STAGING) as slow:
        slow.write(data[::-1])  # The parts are sent before the name is taken.
        write_file(path, data, STAGING)
        write_file(path, data, STAGING)  # Another attempt has written the same.
        with pytest.raises(DataError, match=f"{path} has other bytes than this job writes"):
            slow.publish()
    with pytest.raises(DataError, match="has other bytes"):
        write_file(path, b"other", STAGING)
    assert stored(store, "x") == data
    if store.url.startswith("s3"):
        assert uploads(store) == []


@pytest.mark.parametrize("data", [b"some", LARGE])
def test_an_object_is_replaced_where_that_is_asked_for(store, data):
    write_file(f"{store.url}/x", b"old", STAGING)
    write_file(f"{store.url}/x", data, STAGING, replace=True)
    assert stored(store, "x") == data


@pytest.mark.parametrize("replace", [False, True])
@pytest.mark.parametrize("data", [b"some", LARGE])
def test_a_file_whose_answer_was_lost_is_recognized(store, data, replace):
    if store.url.startswith("gs://") and data == LARGE:
        pytest.skip("the emulator forgets an upload that is complete")
    requests = 1 if data == b"some" else 2  # The last part, and the request that completes.
    with NewFile(f"{store.url}/x", STAGING, replace) as file:
        file.write(data)
        fault = store.proxy.fault(503, methods=("PUT", "POST"), after=True, first=1, every=requests)
        file.publish()
    assert fault.done == 1
    assert stored(store, "x") == data


@pytest.mark.slow(base=["gcs"])
def test_half_an_object_never_appears(store):
    write_file(f"{store.url}/good", b"good", STAGING)
    for name in ("good", "none"):
        abandoned = begun(f"{store.url}/{name}", replace=True)
        abandoned.write(LARGE)
        del abandoned
        gc.collect()
        with pytest.raises(KeyError), NewFile(f"{store.url}/{name}", STAGING, replace=True) as file:
            file.write(LARGE)
            raise KeyError
    assert [file.path for file in list_files(store.url)] == [f"{store.url}/good"]
    assert stored(store, "good") == b"good"
    if store.url.startswith("s3"):
        assert len(uploads(store)) == 2  # Those of the attempts that did not end, as if killed.


def test_the_next_run_drops_the_parts_of_a_killed_run(s3):
    file = begun(f"{s3.url}/data/shard")
    file.write(LARGE)
    other = begun(f"{s3.url}/other/shard")
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
    with NewFile(f"{store.url}/data/x", STAGING) as file:
        file.write(LARGE)
        file.publish()
    write_file(f"{store.url}/data/y", b"small", STAGING)
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
    monkeypatch.setattr("readers.files.stores.gcs._SECONDS", 0.5)
    monkeypatch.setattr("readers.files.backoff.TRIES", 2)
    store.put(f"{store.url}/x", b"x")
    store.proxy.fault(503, methods=None)
    monkeypatch.setattr(clients, "_stores", PerProcess(8))
    for call in (
        lambda: read_bytes(f"{store.url}/x"),
        lambda: write_file(f"{store.url}/y", b"y", STAGING),
        lambda: list_files(store.url),
        lambda: delete_files([f"{store.url}/x"]),
    ):
        with pytest.raises(
            DataError, match=rf"{store.url}/.*: the store keeps failing \(.*(reduce|503)"
        ):
            call()


def test_a_missing_bucket_is_a_usage_error(store):
    missing = f"{store.url}-none"
    for call in (
        lambda: list_files(f"{missing}/a"),
        lambda: write_file(f"{missing}/x", b"", STAGING),
        lambda: begun(f"{missing}/x").write(LARGE),
        lambda: absolute(f"{missing}/x"),
    ):
        words = rf"{missing}/.*there is no (bucket|container) '{missing[5:]}'"
        with pytest.raises(UsageError, match=words):
            call()


def test_missing_credentials_of_s3_are_reported_at_once(s3, monkeypatch):
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/none")
    with pytest.raises(UsageError, match=r"no credentials .* set --s3_access_key_id"):
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
    monkeypatch.setattr("beam_jobs.storage.files.storage_options", lambda: options)
    for name, data in (("small", b"small"), ("large", LARGE)):
        with NewFile(f"{s3.url}/data/{name}", STAGING) as file:
            file.write(data)
            file.publish()
        assert read_bytes(f"{s3.url}/data/{name}") == data
        known = store_of(s3.url).stat(f"{s3.url}/data/{name}")
        assert (known.size, known.crc32c) == (len(data), google_crc32c.value(data))
    with pytest.raises(ExistsError):
        store_of(s3.url).put(f"{s3.url}/data/small", b"other", replace=False)
    drop_uploads(f"{s3.url}/data")
    assert len(list_files(f"{s3.url}/data")) == 2
    # The bucket is in the path, since hosts of such stores have no names for buckets.
    assert all(r.path.startswith(f"/{s3.url[5:]}") for r in s3.proxy.seen("", None))


def test_an_unsupported_request_is_not_retried(s3):
    s3.proxy.fault(501, methods=("PUT",))
    with pytest.raises(UsageError, match=r"the store rejects the request \(501 "):
        write_file(f"{s3.url}/x", b"x", STAGING)
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
        "from beam_jobs.storage.files import store_of\n"
        "from beam_jobs.storage.files import adopt\n"
        "adopt({}, {})\n"
        "print(type(store_of('gs://bucket/x')._client._credentials).__name__)\n"
        "assert 'apache_beam' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("AnonymousCredentials\n", "")


def test_credentials_of_google_that_cannot_be_used_are_reported_at_once(
    no_google_credentials, monkeypatch, tmp_path
):
    with pytest.raises(UsageError, match=r"gs://: no credentials .* gcloud auth"):
        gcs.new_client({"impersonate_service_account": "other@project"}, ERRORS)
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "none.json"))
    with pytest.raises(UsageError, match=r"gs://: no credentials .*none\.json.* gcloud auth"):
        gcs.new_client({}, ERRORS)


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
    client = gcs.new_client(options, ERRORS)
    assert client._credentials.service_account_email == "last@project"
    assert client._credentials._delegates == ["first@project"]
    assert client.project == "p"
    assert client._connection.extra_headers == {
        "x-goog-custom-audit-job": "j",
        "x-goog-custom-audit-user": "u",
    }
    assert gcs.new_client({}, ERRORS)._credentials.refresh_token == "r"


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
    write_file(f"{store.url}/p/folder/", b"", STAGING)
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
