"""Listings in ranges of names: the same objects in the same order, in less time."""

from __future__ import annotations

import bisect
import threading
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beam_jobs.errors import DataError, UsageError
from beam_jobs.storage import files, listing
from beam_jobs.storage.files import store_of
from beam_jobs.storage.listing import Span, listed_in_ranges, match, spans_of
from readers.files.files import FileInfo, Stat
from readers.files.stores.store import Page, RangeListed

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

    def stat(self, path):
        with self._lock:
            self.stats = getattr(self, "stats", 0) + 1
        if path not in self.names:
            raise FileNotFoundError(path)
        return Stat(1, "", modified=1_999_999_999)


class Unlisted(Listed):
    """A store whose user may not list it."""

    def page(self, prefix, after):
        raise UsageError("the store refuses to list")


def urls(found):
    return [file.path for file in found]


NAMES = st.sets(st.text("ab/0é\U0001f600", max_size=6), max_size=60)


@given(NAMES, st.integers(1, 9), st.sampled_from([1, 2, 16]), st.sampled_from([1, 3, 128]))
@settings(max_examples=40, deadline=None)
def test_ranges_hold_every_object_once_and_in_order(names, page, at_once, held):
    store = Listed(names, page)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(listing, "_AT_ONCE", at_once)
        patch.setattr(listing, "_PAGES_HELD", held)
        assert urls(listed_in_ranges(store, TOP)) == store.names


@given(NAMES, st.integers(1, 9), st.sampled_from([2, 5, 1024]), st.sampled_from([1, 100]))
@settings(max_examples=40, deadline=None)
def test_spans_hold_every_object_once_and_in_order(names, page, most, pages):
    store = Listed(names, page)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(listing, "_SPANS", most)
        patch.setattr(listing, "_FOLDER_PAGES", pages)
        spans = spans_of(store, TOP, lambda path: path.endswith("a"))
    found = [file for span in spans for file in listed_in_ranges(store, TOP, span)]
    assert urls(found) == store.names
    assert [span.after for span in spans[1:]] == [span.until for span in spans[:-1]]


@pytest.mark.parametrize(
    "name", [lambda n: f"class-{n % 20:02}/{n:07d}.jpg", lambda n: f"t/n{n % 1000:08d}/{n}.JPEG"]
)
def test_many_pages_of_folders_are_requested_at_once(name):
    store = Listed(map(name, range(10_000)), page=100, seconds=0.01)
    assert urls(listed_in_ranges(store, TOP)) == store.names
    assert 4 <= store.most <= 16


def test_objects_of_one_folder_are_listed_page_by_page():
    store = Listed([f"{n:05}" for n in range(950)], page=100)
    assert urls(listed_in_ranges(store, TOP)) == store.names
    assert store.requests == 11, "one to look for folders"
    assert spans_of(store, TOP, lambda path: False) == [listing.ALL]


def test_a_short_listing_is_one_request():
    store = Listed(["a", "b/c"])
    assert urls(listed_in_ranges(store, TOP)) == store.names
    assert store.requests == 1


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


def test_a_store_is_listed_in_ranges_as_it_is_page_by_page(store):
    names = ["a/x.txt", "b/é ü+%20&<>.txt", "b/y.txt", "c.txt", "c/d/e.txt", "c/d/f/"]
    for name in names:
        store.put(f"{store.url}/t/{name}", name.encode())
    url = f"{store.url}/t/"
    found = store_of(url)
    listed = list(found.objects(url))
    assert urls(listed) == [url + name for name in sorted(names)]
    assert all(file.modified > 1_600_000_000_000_000_000 for file in listed)
    assert list(listed_in_ranges(found, url)) == listed
    assert isinstance(found, RangeListed) != url.startswith("az://")
    if isinstance(found, RangeListed):
        assert found.page(url, listed[1].path).files == listed[2:]
        assert next(found.folders(url)) == [f"{url}a/", f"{url}b/", f"{url}c/"]
    assert urls(match(f"{url}**")) == [url + name for name in sorted(names)[:-1]]


def infos(monkeypatch, store, *names):
    monkeypatch.setattr(files, "files_of", lambda _: store)
    found = files.file_infos([TOP + name for name in names])
    return [info if isinstance(info, FileInfo) else type(info) for info in found]


def test_objects_in_one_folder_are_looked_up_by_pages_and_others_one_by_one(monkeypatch):
    names = [f"{n:05}" for n in range(10_000)]
    near, gone, far = names[2000:2060], ["02030x", "99999"], names[5000::500]
    for asked, pages, stats in ((near + gone, 2, 0), (far, 1, 8), ([*near, *far], 2, 8)):
        store = Listed(names)
        found = infos(monkeypatch, store, *reversed(asked))
        expected = [FileNotFoundError if n in gone else TOP + n for n in reversed(asked)]
        assert [info if isinstance(info, type) else info.path for info in found] == expected
        assert (store.requests, getattr(store, "stats", 0)) == (pages, stats)


def test_times_are_those_of_whole_seconds_however_an_object_is_looked_up(monkeypatch):
    assert infos(monkeypatch, Unlisted(["a"]), "a") == [FileInfo(TOP + "a", 1, 10**9)]
    assert infos(monkeypatch, Listed(["a"]), "a") == [FileInfo(TOP + "a", 1, 0)]


def test_a_user_who_may_not_list_may_still_read(monkeypatch):
    assert infos(monkeypatch, Unlisted(["a"]), "c", "a")[0] is FileNotFoundError
    with pytest.raises(UsageError, match="refuses to list"):
        infos(monkeypatch, Unlisted(["a"]), "c", "d")


def test_a_listing_begins_right_before_a_name():
    for name in (
        "s3://b/a",
        "s3://b/img_0001.jpg",
        "s3://b/ä",
        "s3://b/\ue000",
        "s3://b/\U0001f600",
    ):
        before = files._name_before(name)
        assert before.encode() < name.encode()
        assert before < name
