"""What arrives of an object of Google's store is never taken for the whole of it."""

import base64
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import google_crc32c
import pytest

from readers.files import backoff
from readers.files.files import StoreError
from readers.files.of_path import files_of

WHOLE = b"0123456789"


class Google(BaseHTTPRequestHandler):
    """Sends bodies whose length is stated by their end alone, and may leave out the end, or change a byte."""

    protocol_version = "HTTP/1.1"
    sent, ends = WHOLE, True

    def do_GET(self):
        is_range = "Range" in self.headers
        self.send_response(206 if is_range else 200)
        if is_range:
            self.send_header("Content-Range", f"bytes 0-9/{len(WHOLE)}")
        if self.ends:
            crc = base64.b64encode(google_crc32c.value(WHOLE).to_bytes(4, "big")).decode()
            self.send_header("x-goog-hash", f"crc32c={crc}")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.wfile.write(b"%x\r\n%s\r\n" % (len(self.sent), self.sent))
        if self.ends:
            self.wfile.write(b"0\r\n\r\n")
        self.close_connection = True

    def log_message(self, *_):
        pass


@pytest.mark.parametrize(
    ("sent", "ends", "error"),
    [
        (WHOLE, True, ""),
        (WHOLE[:6], False, "the body ended after 0 of 10 bytes"),
        (b"0123456780", True, "the body does not have its checksum"),
    ],
)
def test_a_body_that_is_cut_or_changed_is_an_error(monkeypatch, sent, ends, error):
    monkeypatch.setattr(backoff, "TRIES", 2)
    monkeypatch.setattr(backoff, "LONGEST_WAIT", 0.01)
    monkeypatch.setattr(Google, "sent", sent)
    monkeypatch.setattr(Google, "ends", ends)
    with ThreadingHTTPServer(("127.0.0.1", 0), Google) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", f"http://127.0.0.1:{server.server_port}")
        try:
            if error:
                with pytest.raises(StoreError, match=error):
                    files_of("gs://b/x").read("gs://b/x")
            else:
                assert files_of("gs://b/x").read("gs://b/x") == WHOLE
        finally:
            server.shutdown()
