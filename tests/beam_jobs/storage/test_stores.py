"""Objects of real stores, behind a network that fails when it is told to."""

import gc
import os
import re

import boto3
import google_crc32c
import pytest

from beam_jobs.errors import DataError, UsageError
from beam_jobs.storage import object_store
from beam_jobs.storage import objects as stores
from beam_jobs.storage.atomic import NewFile, delete_files, drop_halves, list_files, write_file
from beam_jobs.storage.files import open_file, open_seekable, read_bytes
from beam_jobs.storage.listing import match
from beam_jobs.storage.objects import NewObject
from beam_jobs.storage.paths import absolute

# Of several parts, each different.
LARGE = os.urandom(1 << 20) * 37


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    monkeypatch.setattr(object_store, "SECONDS_BETWEEN", 0.01)


def past_the_proxy(bucket):
    return boto3.client("s3", endpoint_url=f"http://127.0.0.1:{bucket.server.port}")


def stored(bucket, name):
    if bucket.url.startswith("gs"):
        return bucket.get(f"{bucket.url}/{name}")
    return past_the_proxy(bucket).get_object(Bucket=bucket.url[5:], Key=name)["Body"].read()


def uploads(bucket):
    """The uploads that somebody pays for."""
    return past_the_proxy(bucket).list_multipart_uploads(Bucket=bucket.url[5:]).get("Uploads", [])


@pytest.mark.parametrize("data", [b"", b"a\r\nb", LARGE])
def test_an_object_has_the_bytes_that_were_written(store, data):
    with NewFile(store.url, "a/b") as file:
        for start in range(0, len(data), 5_000_000):
            file.write(data[start : start + 5_000_000])
        file.publish()
    assert stored(store, "a/b") == data
    assert read_bytes(f"{store.url}/a/b") == data


@pytest.mark.parametrize("data", [b"", b"some", LARGE])
def test_a_store_knows_the_checksum_of_what_was_written(store, data):
    with NewFile(store.url, "x") as file:
        file.write(data)
        file.publish()
    known = stores.store_of(store.url).checksum(f"{store.url}/x")
    assert known == (len(data), google_crc32c.value(data))


def test_a_small_object_is_uploaded_by_one_request(store):
    write_file(store.url, "rejects/x.jsonl", b"a\n")
    seen = store.proxy.seen("", None)
    # Google's library looks at a bucket once, before it is written to.
    first = [request for request in seen if re.fullmatch("/storage/v1/b/[^/]+", request.path)]
    assert len(first) <= 1
    (upload,) = [request for request in seen if request not in first]
    assert upload.method in ("PUT", "POST")


@pytest.mark.slow(base=["s3"])
def test_an_attempt_that_fails_leaves_a_good_object_and_nothing_else(store):
    write_file(store.url, "shard", b"good")
    for size in (10, len(LARGE)):
        with pytest.raises(ZeroDivisionError), NewFile(store.url, "shard") as file:
            file.write(LARGE[:size])
            raise ZeroDivisionError
        del file
        gc.collect()
    assert stored(store, "shard") == b"good"
    assert [path for path, _ in list_files(store.url)] == [f"{store.url}/shard"]
    if store.url.startswith("s3"):
        assert uploads(store) == []


@pytest.mark.slow(base=["gcs"])
def test_an_attempt_that_is_forgotten_completes_nothing(store):
    """What the garbage collector closes is not complete."""
    write_file(store.url, "shard", b"good")
    file = NewObject(f"{store.url}/shard")
    file.write(LARGE)
    del file
    gc.collect()
    assert stored(store, "shard") == b"good"


def test_the_parts_of_a_killed_run_are_dropped_by_the_next(s3):
    file = NewObject(f"{s3.url}/data/shard")
    file.write(LARGE)
    other = NewObject(f"{s3.url}/other/shard")
    other.write(LARGE)
    assert len(uploads(s3)) == 2
    drop_halves(f"{s3.url}/data")
    assert [upload["Key"] for upload in uploads(s3)] == ["other/shard"]
    other.publish()
    with pytest.raises(DataError, match=rf"{s3.url}/data/shard: "):
        file.publish()


@pytest.mark.slow(base=["s3-503", "gcs-refuse"])
@pytest.mark.parametrize("kind", [503, 500, 429, "refuse"])
def test_every_second_request_may_fail(store, kind):
    store.proxy.fault(kind, methods=None, every=2)
    with NewFile(store.url, "data/x") as file:
        file.write(LARGE)
        file.publish()
    write_file(store.url, "data/y", b"small")
    assert read_bytes(f"{store.url}/data/x") == LARGE
    assert {size for _, size in list_files(f"{store.url}/data")} == {5, len(LARGE)}
    delete_files([f"{store.url}/data/x", f"{store.url}/data/z"])
    assert [path for path, _ in list_files(store.url)] == [f"{store.url}/data/y"]
    assert len([r for r in store.proxy.seen("", None) if r.fault]) > 3


def test_a_lost_answer_to_the_last_request_of_an_upload_is_no_failure(s3):
    with NewFile(s3.url, "x") as file:
        file.write(LARGE)
        s3.proxy.fault(500, methods=("POST",), first=1, after=True)
        file.publish()
    assert stored(s3, "x") == LARGE
    assert uploads(s3) == []


@pytest.mark.parametrize("kind", ["cut", "short"])
def test_a_body_that_breaks_off_is_read_on(store, kind):
    store.put(f"{store.url}/x", LARGE)
    store.proxy.fault(kind, "/x$", first=2, keep=9_000_000)
    assert read_bytes(f"{store.url}/x") == LARGE
    with open_file(f"{store.url}/x") as file:
        assert file.read() == LARGE


@pytest.mark.parametrize("opened", [open_file, open_seekable])
def test_an_object_is_read_from_anywhere(store, opened):
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


def test_an_empty_object_is_read(store):
    write_file(store.url, "x", b"")
    for opened in (open_file, open_seekable):
        with opened(f"{store.url}/x") as file:
            assert file.read() == b""


def test_a_little_of_a_large_object_is_a_little(store):
    store.put(f"{store.url}/x", LARGE)
    with open_file(f"{store.url}/x") as file:
        file.seek(20_000_000)
        file.read(100)
    assert sum(request.sent for request in store.proxy.seen()) < 300_000


def test_a_missing_object_is_no_matter_of_the_store(store):
    with pytest.raises(FileNotFoundError, match="there is no such object"):
        read_bytes(f"{store.url}/none")
    with pytest.raises(OSError, match="there is no such object"):
        open_seekable(f"{store.url}/none")


def test_an_object_that_is_replaced_while_it_is_read_is_not_mixed(s3):
    s3.put(f"{s3.url}/x", LARGE)
    with open_file(f"{s3.url}/x") as file:
        file.read(10)
        s3.put(f"{s3.url}/x", LARGE[::-1])
        with pytest.raises(OSError, match="it was replaced while it was read"):
            file.read()


def test_a_store_that_keeps_failing_is_no_fault_of_an_input(store, monkeypatch):
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "2")
    monkeypatch.setattr("beam_jobs.storage.gcs._SECONDS", 0.5)
    store.put(f"{store.url}/x", b"x")
    store.proxy.fault(503, methods=None)
    stores._made.cache_clear()
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
    stores._made.cache_clear()


def test_a_bucket_that_is_not_there_is_the_users_mistake(store):
    missing = f"{store.url}-none"
    for call in (
        lambda: list_files(f"{missing}/a"),
        lambda: write_file(missing, "x", b""),
        lambda: NewObject(f"{missing}/x").write(LARGE),
        lambda: absolute(f"{missing}/x"),
    ):
        with pytest.raises(UsageError, match=rf"{missing}/.*there is no bucket '{missing[5:]}'"):
            call()


def test_without_credentials_there_is_one_line_and_no_wait(s3, monkeypatch):
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/none")
    with pytest.raises(UsageError, match=r"no credentials .* give --s3_access_key_id"):
        list_files(s3.url)


def test_a_pattern_matches_what_it_would_on_a_disk(store, tmp_path):
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
