"""Files of other protocols, through fsspec's drivers: here a server of the web that may fail."""

import itertools
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

import readers
from readers.files import backoff
from readers.files.files import Range, StoreError
from readers.files.of_path import files_of
from tests.support.arrays import ids
from tests.support.datasets import write_numbers


class Web(SimpleHTTPRequestHandler):
    """Serves a folder; a request for which `fails` draws a status has an answer of that status."""

    protocol_version = "HTTP/1.1"
    fails, has_ranges = iter(()), True

    def do_GET(self):
        if status := next(self.fails, 0):
            self.send_error(status)
            return
        first, _, last = self.headers.get("Range", "").removeprefix("bytes=").partition("-")
        try:
            data = Path(self.translate_path(self.path)).read_bytes()
        except OSError:
            self.send_error(404)
            return
        is_range = bool(first) and self.has_ranges
        part = data[int(first) : int(last) + 1 if last else None] if is_range else data
        self.send_response(206 if is_range else 200)
        if is_range:
            self.send_header("Content-Range", f"bytes {first}-{last}/{len(data)}")
        self.send_header("Content-Length", str(len(part)))
        self.end_headers()
        self.wfile.write(part)

    def do_HEAD(self):
        if status := next(self.fails, 0):
            self.send_error(status)
        else:
            super().do_HEAD()

    def log_message(self, *_):
        pass


@pytest.fixture
def web(tmp_path, monkeypatch):
    """The address of a server of a dataset in a folder."""
    monkeypatch.setattr(backoff, "LONGEST_WAIT", 0.01)
    monkeypatch.setattr(Web, "fails", iter(()))
    write_numbers(tmp_path / "numbers", (30, 40))
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Web, directory=str(tmp_path))) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/numbers"
        server.shutdown()


def test_a_dataset_is_read_from_a_server_that_fails_now_and_then(web, monkeypatch):
    monkeypatch.setattr(Web, "fails", itertools.cycle([500, 0, 0]))
    found = ids(readers.as_numpy(web, split="train", batch_size=16, shuffle=True))
    assert sorted(found) == list(range(70))
    assert readers.verify(web).ok


def test_a_range_is_shorter_only_at_the_end_of_its_file(web, tmp_path):
    path = f"{web}/train-00000-of-00002.tfrecord"
    data = (tmp_path / "numbers/train-00000-of-00002.tfrecord").read_bytes()
    size = len(data)
    wanted = [Range(path, 5, 90), Range(path, size - 3, size + 50), Range(path, 0, size)]
    assert files_of(path).read_ranges(wanted) == [data[5:90], data[-3:], data]


def test_what_a_server_lacks_is_said(web, monkeypatch):
    with pytest.raises(readers.DatasetError, match=r"no manifest\.json here"):
        readers.Manifest.read(f"{web}x")
    monkeypatch.setattr(Web, "has_ranges", False)
    path = f"{web}/train-00000-of-00002.tfrecord"
    with pytest.raises(ValueError, match="the server does not support range requests"):
        files_of(path).read(path, 5, 10)
    monkeypatch.setattr(Web, "fails", itertools.repeat(500))
    for ask in (files_of(path).read, files_of(path).stat, files_of(path).exists):
        with pytest.raises(StoreError, match=rf"{path}: the transfer failed .*500.*; try again"):
            ask(path)


def test_a_file_is_asked_for_again_unless_it_is_missing_or_forbidden(web, monkeypatch):
    path = f"{web}/manifest.json"
    # Both requests of the driver fail, and then one succeeds.
    monkeypatch.setattr(Web, "fails", iter([503, 503]))
    assert files_of(path).exists(path)
    for status, expected in ((404, FileNotFoundError), (403, PermissionError)):
        monkeypatch.setattr(Web, "fails", answers := iter([status] * 4))
        for ask in (files_of(path).stat, files_of(path).read):  # Two requests, and one.
            with pytest.raises(expected, match=path):
                ask(path)
        assert len(list(answers)) == 1
