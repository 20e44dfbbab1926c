"""Conditions of writes that real stores hold and the emulators ignore: a proxy holds them instead.

moto ignores `If-Match` where an upload in parts is completed, and the emulator of Google Cloud Storage ignores
`ifGenerationMatch`. Google's store holds it where an upload ends, S3 where it is completed.
"""

from __future__ import annotations

import http.client
import json
import re
import urllib.parse
from collections.abc import Mapping
from email.message import Message

# The name of an object in the metadata that precede its bytes.
_NAME = re.compile(rb'"name": ?("(?:[^"\\]|\\.)*")')

# Without such a header, the S3 server shows no object; it does not verify the signature.
SIGNED = (
    "AWS4-HMAC-SHA256 Credential=testing/20260101/us-east-1/s3/aws4_request, "
    "SignedHeaders=host, Signature=0"
)


class Preconditions:
    """The conditions of requests to one emulator.

    Args:
        port: The emulator's port.
    """

    def __init__(self, port: int) -> None:
        self._port = port
        # Id of a resumable upload -> (path of its object, the generation that it may replace).
        self._uploads: dict[str, tuple[str, str]] = {}

    def refusal(self, method: str, url: str, headers: Message, body: bytes) -> tuple[int, str]:
        """The status and the error code with which a store refuses a request; 0 if it does not."""
        path, query = _parsed(url)
        if "uploadId" in query and method == "POST" and headers.get("If-Match"):
            found = self._asked("HEAD", path)
            if found.status == 404:
                return 404, "NoSuchKey"
            same = found.getheader("ETag") == headers["If-Match"]
            return (0, "") if same else (412, "PreconditionFailed")
        wanted = self._wanted(path, query, headers, body)
        if wanted and self._generation(wanted[0]) != wanted[1]:
            return 412, "conditionNotMet"
        return 0, ""

    def began(self, url: str, body: bytes, location: str | None) -> None:
        """Notes the condition of an upload that begins, given the address for its parts."""
        path, query = _parsed(url)
        if location and "ifGenerationMatch" in query:
            id_ = _parsed(location)[1]["upload_id"]
            self._uploads[id_] = _object_of(path, body), query["ifGenerationMatch"]

    def _wanted(
        self, path: str, query: Mapping[str, str], headers: Message, body: bytes
    ) -> tuple[str, str] | None:
        """The object that a request writes, and the generation that it may replace; None for any."""
        if query.get("uploadType") == "multipart" and "ifGenerationMatch" in query:
            return _object_of(path, body), query["ifGenerationMatch"]
        ends = not headers.get("Content-Range", "/*").endswith("/*")
        return self._uploads.get(query.get("upload_id", "")) if ends else None

    def _generation(self, path: str) -> str:
        found = self._asked("GET", path)
        return json.loads(found.read())["generation"] if found.status == 200 else "0"

    def _asked(self, method: str, path: str) -> http.client.HTTPResponse:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=60)
        connection.request(method, path, headers={"Authorization": SIGNED})
        return connection.getresponse()


def _parsed(url: str) -> tuple[str, dict[str, str]]:
    found = urllib.parse.urlsplit(url)
    return found.path, dict(urllib.parse.parse_qsl(found.query, keep_blank_values=True))


def _object_of(path: str, body: bytes) -> str:
    """The path of the object whose metadata a request has."""
    found = _NAME.search(body)
    assert found, body[:500]
    name = urllib.parse.quote(json.loads(found[1]), safe="")
    return f"{path.removeprefix('/upload')}/{name}"
