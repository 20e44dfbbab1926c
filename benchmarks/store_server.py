"""A store with the reading part of S3's protocol, which answers each request after a latency.

    python store_server.py FOLDER --latency MILLISECONDS

It prints its port. `GET /BUCKET/KEY` returns the file FOLDER/BUCKET/KEY, or a range of it;
`GET /BUCKET?list-type=2` lists the files in FOLDER/BUCKET, which must not change;
`GET /` returns the number of requests and of bytes of bodies since the last `DELETE /`. Signatures are not checked.
"""

from __future__ import annotations

import argparse
import asyncio
import mmap
import os
import socket
from collections.abc import Mapping
from pathlib import Path
from xml.sax.saxutils import escape

from aiohttp import web

_WRITE_BYTES = 1 << 20

_MISSING = "<Error><Code>NoSuchKey</Code></Error>"

_OBJECT = (
    "<Contents><Key>{}</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified>"
    "<ETag>&quot;9b2cf535f27731c974343645a3985328&quot;</ETag><Size>{}</Size>"
    "<StorageClass>STANDARD</StorageClass></Contents>"
)


class Store:
    """The requests of clients.

    Args:
        folder: The folder of the buckets.
        latency: The seconds before each answer.
    """

    def __init__(self, folder: Path, latency: float) -> None:
        self._folder, self._latency = folder, latency
        self._requests = self._bytes = 0
        self._listed: dict[str, list[tuple[str, int]]] = {}

    async def counts(self, request: web.Request) -> web.Response:
        """Returns the numbers of requests and of bytes, or resets them."""
        if request.method == "DELETE":
            self._requests = self._bytes = 0
        return web.json_response({"requests": self._requests, "bytes": self._bytes})

    def _objects(self, bucket: str) -> list[tuple[str, int]]:
        """Returns (key, size) of all objects in a bucket, in order."""
        if bucket not in self._listed:
            top = self._folder / bucket
            found = [
                (os.path.relpath(path, top), os.path.getsize(path))
                for folder, _, names in os.walk(top)
                for path in (os.path.join(folder, name) for name in names)
            ]
            self._listed[bucket] = sorted(found)
        return self._listed[bucket]

    def _listing(self, bucket: str, query: Mapping[str, str]) -> str:
        """Returns all objects and folders with a prefix, on one page."""
        prefix, delimiter = query.get("prefix", ""), query.get("delimiter", "")
        lines: dict[str, str] = {}
        for key, size in self._objects(bucket):
            if key.startswith(prefix):
                inside, slash, _ = key[len(prefix) :].partition(delimiter or "\0")
                folder = escape(prefix + inside + slash)
                lines[folder] = _OBJECT.format(escape(key), size)
                if slash:
                    lines[folder] = f"<CommonPrefixes><Prefix>{folder}</Prefix></CommonPrefixes>"
        return (
            f"<ListBucketResult><KeyCount>{len(lines)}</KeyCount><IsTruncated>false</IsTruncated>"
            f"{''.join(lines.values())}</ListBucketResult>"
        )

    async def object(self, request: web.Request) -> web.StreamResponse:
        """Returns an object, a range of it, or a listing."""
        self._requests += 1
        await asyncio.sleep(self._latency)
        if "list-type" in request.query:
            bucket = request.match_info["key"].rstrip("/")
            return web.Response(
                text=self._listing(bucket, request.query), content_type="application/xml"
            )
        path = self._folder / request.match_info["key"]
        if not path.is_file():
            return web.Response(status=404, text=_MISSING, content_type="application/xml")
        size, modified = path.stat().st_size, path.stat().st_mtime
        wanted = request.http_range
        start, stop = wanted.start or 0, size if wanted.stop is None else min(wanted.stop, size)
        answer = web.StreamResponse(status=200 if wanted == slice(None, None, 1) else 206)
        answer.headers.update({"Accept-Ranges": "bytes", "ETag": f'"{size}"'})
        answer.last_modified = modified
        if answer.status == 206:
            answer.headers["Content-Range"] = f"bytes {start}-{stop - 1}/{size}"
        answer.content_length = stop - start
        await answer.prepare(request)
        if request.method == "GET":
            with path.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as data:
                for first in range(start, stop, _WRITE_BYTES):
                    part = data[first : min(first + _WRITE_BYTES, stop)]
                    self._bytes += len(part)
                    await answer.write(part)
        await answer.write_eof()
        return answer


def main() -> None:
    """Serves until the process is ended."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--latency", type=float, default=0)
    flags = parser.parse_args()
    store = Store(flags.folder, flags.latency / 1000)
    app = web.Application()
    app.router.add_get("/", store.counts)
    app.router.add_delete("/", store.counts)
    app.router.add_get("/{key:.+}", store.object)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        print(listening.getsockname()[1], flush=True)
        web.run_app(app, sock=listening, print=None, access_log=None)


if __name__ == "__main__":
    main()
