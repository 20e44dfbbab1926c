"""The condition of Google Cloud Storage that an object is created, which its emulator ignores: a proxy holds it.

Google's store holds it where an upload ends.
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

# Of a request whose object must not exist.
_CREATES = ("ifGenerationMatch", "0")

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
        # Id of a resumable upload -> the path of the object that it must create.
        self._uploads: dict[str, str] = {}

    def refused(self, url: str, headers: Message, body: bytes) -> bool:
        """Whether the store refuses a request, since its object exists."""
        created = self._created(*_parsed(url), headers, body)
        return created is not None and self._exists(created)

    def began(self, url: str, body: bytes, location: str | None) -> None:
        """Notes the condition of an upload that begins, given the address for its parts."""
        path, query = _parsed(url)
        if location and _CREATES in query.items():
            self._uploads[_parsed(location)[1]["upload_id"]] = _object_of(path, body)

    def _created(
        self, path: str, query: Mapping[str, str], headers: Message, body: bytes
    ) -> str | None:
        """The path of the object that a request must create; None if it need not."""
        if query.get("uploadType") == "multipart" and _CREATES in query.items():
            return _object_of(path, body)
        ends = not headers.get("Content-Range", "/*").endswith("/*")
        return self._uploads.get(query.get("upload_id", "")) if ends else None

    def _exists(self, path: str) -> bool:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=60)
        connection.request("GET", path, headers={"Authorization": SIGNED})
        return connection.getresponse().status == 200


def _parsed(url: str) -> tuple[str, dict[str, str]]:
    found = urllib.parse.urlsplit(url)
    return found.path, dict(urllib.parse.parse_qsl(found.query, keep_blank_values=True))


def _object_of(path: str, body: bytes) -> str:
    """The path of the object whose metadata a request has."""
    found = _NAME.search(body)
    assert found, body[:500]
    name = urllib.parse.quote(json.loads(found[1]), safe="")
    return f"{path.removeprefix('/upload')}/{name}"
