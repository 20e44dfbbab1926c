"""A body of Google's store that was cut or changed is an error, also if no header states its length."""

import base64
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import google_crc32c
import pytest

from readers.files import backoff
from readers.files.files import StoreError
from readers.files.of_path import files_of

WHOLE = b"0123456789"
CRC32C = base64.b64encode(google_crc32c.value(WHOLE).to_bytes(4, "big")).decode()


class Google(BaseHTTPRequestHandler):
    """Sends the chunks of a body; without a last one, the body has no end."""

    protocol_version = "HTTP/1.1"
    chunks = ()

    def do_GET(self):
        self.send_response(206 if "Range" in self.headers else 200)
        if "Range" in self.headers:
            self.send_header("Content-Range", f"bytes 0-9/{len(WHOLE)}")
        if self.chunks[-1] == b"":
            self.send_header("x-goog-hash", f"crc32c={CRC32C}")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.wfile.write(b"".join(b"%x\r\n%s\r\n" % (len(c), c) for c in self.chunks))
        self.close_connection = True


@pytest.mark.parametrize(
    ("chunks", "error"),
    [((WHOLE[:6],), "ended after 0 of 10 bytes"), ((WHOLE[::-1], b""), "fails its checksum")],
)
def test_a_body_that_is_cut_or_changed_is_an_error(monkeypatch, chunks, error):
    monkeypatch.setattr(backoff, "TRIES", 1)
    monkeypatch.setattr(Google, "chunks", chunks)
    with ThreadingHTTPServer(("127.0.0.1", 0), Google) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", f"http://127.0.0.1:{server.server_port}")
        with pytest.raises(StoreError, match=error):
            files_of("gs://b/x").read("gs://b/x")
        server.shutdown()
