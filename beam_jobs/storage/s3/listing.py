"""Listings of S3."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any
from xml.etree import ElementTree

from botocore.compat import unquote_str
from botocore.utils import parse_timestamp

from beam_jobs.storage.object_store import FileInfo, bucket_and_key

# Where `parse_listing` puts the objects of a page: (key, size in bytes, nanoseconds since the epoch).
_FILES = "Files"


def parse_listing(
    response_dict: dict[str, Any], customized_response_dict: dict[str, Any], **_: Any
) -> None:
    """Parses the objects of a listing before botocore does, for which a thousand take 60 ms instead of 4."""
    if response_dict["status_code"] != 200:
        return
    root = ElementTree.fromstring(response_dict["body"])
    space = root.tag.removesuffix("ListBucketResult")
    is_quoted = root.findtext(f"{space}EncodingType") == "url"
    files = customized_response_dict[_FILES] = []
    for found in root.findall(f"{space}Contents"):
        values = {child.tag: child.text or "" for child in found}
        key = values[f"{space}Key"]
        size, modified = int(values[f"{space}Size"]), _nanoseconds(values[f"{space}LastModified"])
        files.append((unquote_str(key) if is_quoted else key, size, modified))
        root.remove(found)
    response_dict["body"] = ElementTree.tostring(root)


def _nanoseconds(time: str) -> int:
    """A time of a listing, in nanoseconds since the epoch."""
    try:
        when = datetime.fromisoformat(time.replace("Z", "+00:00"))
    except ValueError:  # Other stores may write it in another way that S3 allows.
        when = parse_timestamp(time)
    return int(when.timestamp() * 1e9)


def files_in(prefix: str, page: Mapping[str, Any]) -> list[FileInfo]:
    """The objects of a page, given the URL that its listing is for."""
    bucket, _ = bucket_and_key(prefix)
    return [FileInfo(f"s3://{bucket}/{key}", size, at) for key, size, at in page.get(_FILES, ())]
