"""Listings in ranges of names: the same objects in the same order, in less time."""

from __future__ import annotations

import bisect
import random
import threading
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beam_jobs.errors import DataError
from beam_jobs.storage import ranges
from beam_jobs.storage.listing import match
from beam_jobs.storage.object_store import FileInfo, Page, RangeListed
from beam_jobs.storage.objects import store_of
from beam_jobs.storage.ranges import Span, cuts_after, listed_in_ranges, spans_of

TOP = "s3://b/k/"


@RangeListed.register
class Listed:
    """A store of names, with pages of some size."""

    def __init__(self, names, page=1000, seconds=0.0):
        self.names, self.size, self.seconds = sorted({TOP + name for name in names}), page, seconds
        self.requests = self.most = self._now = 0
        self._lock = threading.Lock()

    def page(self, prefix, after):
        with self._lock:
            self.requests += 1
            self._now += 1
            self.most = max(self.most, self._now)
        time.sleep(self.seconds)
        with self._lock:
            self._now -= 1
        first = max(bisect.bisect_right(self.names, after), bisect.bisect_left(self.names, prefix))
        found = [n for n in self.names[first : first + self.size + 1] if n.startswith(prefix)]
        if any("fails" in name for name in found):
            raise DataError("the store keeps failing")
        files = [FileInfo(name, 1, 1) for name in found[: self.size]]
        return Page(files, len(found) > self.size)

    def folders(self, prefix):
        self.requests += 1
        time.sleep(self.seconds)
        inside = [name[len(prefix) :] for name in self.names if name.startswith(prefix)]
        found = sorted({prefix + n.partition("/")[0] + "/" for n in inside if "/" in n})
        for first in range(0, max(len(found), 1), self.size):
            yield found[first : first + self.size]


def urls(found):
    return [file.path for file in found]


NAMES = st.sets(st.text("ab/0é\U0001f600", max_size=6), max_size=60)


@given(NAMES, st.integers(1, 9), st.sampled_from([1, 2, 16]), st.sampled_from([1, 3, 128]))
@settings(max_examples=300, deadline=None)
def test_ranges_hold_every_object_once_and_in_order(names, page, at_once, held):
    store = Listed(names, page)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ranges, "_AT_ONCE", at_once)
        patch.setattr(ranges, "_PAGES_HELD", held)
        assert urls(listed_in_ranges(store, TOP)) == store.names


@given(NAMES, st.integers(1, 9), st.sampled_from([2, 5, 1024]), st.sampled_from([1, 100]))
@settings(max_examples=300, deadline=None)
def test_spans_hold_every_object_once_and_in_order(names, page, most, pages):
    store = Listed(names, page)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ranges, "_SPANS", most)
        patch.setattr(ranges, "_FOLDER_PAGES", pages)
        spans = spans_of(store, TOP, lambda path: path.endswith("a"))
    found = [file for span in spans for file in listed_in_ranges(store, TOP, span)]
    assert urls(found) == store.names
    assert [span.after for span in spans[1:]] == [span.until for span in spans[:-1]]


LAYOUTS = {
    "flat": lambda n: f"img_{n:07d}.jpg",
    "classes": lambda n: f"class-{n % 10}/{n:07d}.jpg",
    "two folders": lambda n: f"{'train' if n % 5 else 'val'}/{n:07d}.jpg",
    "many folders": lambda n: f"train/n{n % 1000:08d}/{n}.JPEG",
    "hashes": lambda n: f"{random.Random(n).getrandbits(64):016x}.jpg",
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_many_pages_of_a_long_listing_are_requested_at_once(layout):
    store = Listed(map(LAYOUTS[layout], range(60_000)), seconds=0.02)
    assert urls(listed_in_ranges(store, TOP)) == store.names
    assert 12 <= store.most <= 17  # With one that was requested for the range before it was cut.
    assert store.requests < 60 + 90


def test_a_short_listing_is_one_request():
    store = Listed(["a", "b/c"])
    assert urls(listed_in_ranges(store, TOP)) == store.names
    assert store.requests == 1


def test_a_large_folder_is_cut_into_spans_of_less_than_a_percent():
    names = [f"{n:09d}.jpg" for n in range(0, 10**9, 20_000)]
    store = Listed(names)
    spans = spans_of(store, TOP, lambda path: False)
    sizes = [len(urls(listed_in_ranges(store, TOP, span))) for span in spans]
    assert sum(sizes) == len(names)
    assert sizes[0] <= 3000, "the first page, and two more up to the first cut"
    assert max(sizes[1:]) < 0.01 * len(names)


def test_archives_are_spans_of_their_own():
    store = Listed(["a.tar", "b.txt", "c.tar"])
    spans = spans_of(store, TOP, lambda path: path.endswith(".tar"))
    assert spans == [
        Span("", f"{TOP}a.tar"),
        Span(f"{TOP}a.tar", f"{TOP}c.tar"),
        Span(f"{TOP}c.tar", None),
    ]


def test_an_error_of_any_page_ends_the_listing():
    names = [f"{n:05d}" for n in range(5000)]
    store = Listed([*names, "02000fails"], page=100)
    found = []
    with pytest.raises(DataError):
        for file in listed_in_ranges(store, TOP):
            found.append(file.path)
    assert found == store.names[: len(found)]


def test_cuts_lie_after_the_page_and_in_order():
    names = [f"run-{n:06d}" for n in range(1000)]
    cuts = cuts_after(names, 15)
    assert cuts == sorted(cuts)
    assert min(cuts) > names[-1]
    assert sum(cut < "run-999999" for cut in cuts) >= 4
    assert 4 < len(cuts) <= 15
    assert cuts_after(["only"], 15) == []


def test_a_store_is_listed_in_ranges_as_it_is_page_by_page(store):
    names = ["a/x.txt", "b/é ü+%20&<>.txt", "b/y.txt", "c.txt", "c/d/e.txt", "c/d/f/"]
    for name in names:
        store.put(f"{store.url}/t/{name}", name.encode())
    url = f"{store.url}/t/"
    found = store_of(url)
    listed = list(found.listed(url))
    assert urls(listed) == [url + name for name in sorted(names)]
    assert all(file.modified > 1_600_000_000_000_000_000 for file in listed)
    assert list(listed_in_ranges(found, url)) == listed
    assert isinstance(found, RangeListed) != url.startswith("az://")
    if isinstance(found, RangeListed):
        assert found.page(url, listed[1].path).files == listed[2:]
        assert next(found.folders(url)) == [f"{url}a/", f"{url}b/", f"{url}c/"]
    assert urls(match(f"{url}**")) == [url + name for name in sorted(names)[:-1]]


def test_pages_of_s3_follow_each_other(s3):
    names = [f"x/{n:04d}" for n in range(2100)]
    for name in names:
        s3.put(f"{s3.url}/{name}", b"")
    found = store_of(s3.url)
    before = len(s3.proxy.seen("", None))
    assert urls(found.listed(f"{s3.url}/x/")) == [f"{s3.url}/{name}" for name in names]
    assert len(s3.proxy.seen("", None)) == before + 3
    assert urls(listed_in_ranges(found, f"{s3.url}/x/")) == [f"{s3.url}/{name}" for name in names]
    spans = spans_of(found, f"{s3.url}/x/", lambda path: False)
    assert len(spans) > 10


def test_s3_lists_times_as_boto3_does(s3):
    s3.put(f"{s3.url}/x", b"12345")
    client = store_of(s3.url)._client
    page = client.list_objects_v2(Bucket=s3.url[5:])
    head = client.head_object(Bucket=s3.url[5:], Key="x")
    assert "Contents" not in page
    ((key, size, modified),) = page["Files"]
    assert (key, size) == ("x", 5)
    assert modified // 10**9 == int(head["LastModified"].timestamp())
