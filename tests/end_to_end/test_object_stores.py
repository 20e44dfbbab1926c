"""The object stores of other tests, and the proxy in front of them that fails on request."""

import http.client
import urllib.error
import urllib.request

import fsspec
import pytest

from tests.support.object_stores import Bucket


def read(url: str) -> bytes:
    with fsspec.open(url, "rb") as file:
        data: bytes = file.read()
    return data


def direct(bucket: Bucket, name: str, **headers: str) -> bytes:
    """The body of the response to one plain request, without retries."""
    with urllib.request.urlopen(bucket.request(name, **headers), timeout=60) as answer:
        data: bytes = answer.read()
    return data


def test_an_object_is_read_as_it_was_put(store: Bucket) -> None:
    data = bytes(range(256)) * 40
    store.put(f"{store.url}/a folder/x\u00e9", data)
    assert read(f"{store.url}/a folder/x\u00e9") == data
    assert store.get(f"{store.url}/a folder/x\u00e9") == data


def test_a_client_writes_through_the_proxy(store: Bucket) -> None:
    with fsspec.open(f"{store.url}/written", "wb") as file:
        file.write(b"some\r\nbytes\n" * 1000)
    assert store.get(f"{store.url}/written") == b"some\r\nbytes\n" * 1000
    assert store.proxy.seen(method=None)


def test_requests_are_recorded_with_their_ranges(store: Bucket) -> None:
    store.put(f"{store.url}/x", bytes(1000))
    assert len(direct(store, "x", Range="bytes=10-19")) == 10
    (seen,) = store.proxy.seen("/x$")
    assert (seen.range, seen.status, seen.sent) == ("bytes=10-19", 206, 10)


def test_selected_requests_fail_with_an_error(store: Bucket) -> None:
    store.put(f"{store.url}/x", b"x")
    store.proxy.fault(503, "/x$", first=2)
    for _ in range(2):
        with pytest.raises(urllib.error.HTTPError, match="503"):
            direct(store, "x")
    assert direct(store, "x") == b"x"


def test_every_nth_request_fails(store: Bucket) -> None:
    store.put(f"{store.url}/x", b"x")
    store.proxy.fault(500, every=3)
    failed = []
    for _ in range(6):
        try:
            direct(store, "x")
            failed.append(False)
        except urllib.error.HTTPError:
            failed.append(True)
    assert failed == [False, False, True] * 2


def test_a_body_is_truncated(store: Bucket) -> None:
    store.put(f"{store.url}/x", bytes(1000))
    store.proxy.fault("cut", first=1, keep=10)
    with pytest.raises(http.client.IncompleteRead):
        direct(store, "x")
    store.proxy.fault("short", first=1, keep=10)
    assert len(direct(store, "x")) == 10


def test_a_connection_is_closed_before_any_response(store: Bucket) -> None:
    store.put(f"{store.url}/x", b"x")
    store.proxy.fault("refuse", first=1)
    with pytest.raises((http.client.RemoteDisconnected, ConnectionError)):
        direct(store, "x")
    assert direct(store, "x") == b"x"
