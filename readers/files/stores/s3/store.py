"""Objects of S3, which are written with one request, or in parts that are then put together."""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import boto3
import urllib3.exceptions
from botocore import UNSIGNED
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from readers.files import backoff
from readers.files.files import FileInfo, Stat
from readers.files.stores.ahead import Part
from readers.files.stores.environment import is_set
from readers.files.stores.errors import Errors, one_line
from readers.files.stores.s3.errors import (
    NO_CREDENTIALS,
    BeyondEnd,
    code_may_pass,
    may_pass,
    meaning,
)
from readers.files.stores.store import (
    Page,
    RangeListed,
    Upload,
    bucket_and_key,
    crc32c_number,
    crc32c_text,
)

_DELETED_AT_ONCE = 1000

# Connections that are kept, for as many requests at once.
_CONNECTIONS = 64

_READING = ("get_object", "head_object")

_READ_HEADERS = ("ETag", "Content-Range")

# How the next page of a listing of objects is asked for.
_FOLLOWING = {"ContinuationToken": "NextContinuationToken"}

# boto3 puts a name of its own together twice a request, which takes a tenth of a request's processor time.
_USER_AGENT = f"beam-shards boto3/{boto3.__version__}"

# What reading a body raises if the connection breaks.
_BROKEN = (BotoCoreError, urllib3.exceptions.HTTPError, OSError)


class S3Store(RangeListed):
    """Buckets of S3.

    Args:
        options: Beam's options whose names begin with `s3_`.
        errors: What its answers mean.
    """

    def __init__(self, options: Mapping[str, Any], errors: Errors) -> None:
        super().__init__(errors)
        self._tries = _most_tries(errors)
        # `call` retries; boto3 would not retry a 429, and has limits of its own.
        config = Config(
            retries={"total_max_attempts": 1},
            max_pool_connections=_CONNECTIONS,
            user_agent=_USER_AGENT,
            signature_version=UNSIGNED if is_set("AWS_NO_SIGN_REQUEST") else None,
        )
        try:
            self._client = boto3.session.Session().client(
                "s3",
                config=config,
                region_name=options.get("s3_region_name"),
                api_version=options.get("s3_api_version"),
                use_ssl="s3_disable_ssl" not in options,
                verify=options.get("s3_verify"),
                endpoint_url=options.get("s3_endpoint_url"),
                aws_access_key_id=options.get("s3_access_key_id"),
                aws_secret_access_key=options.get("s3_secret_access_key"),
                aws_session_token=options.get("s3_session_token"),
            )
        except NO_CREDENTIALS as error:
            raise errors.no_credentials("s3://", error) from None
        except (BotoCoreError, ValueError) as error:
            raise errors.refused(f"s3://: {one_line(error)}; see the variables AWS_…") from None
        events = self._client.meta.events
        events.register("before-parse.s3.GetObject", _keep_read_headers)

    def call(self, method: str, path: str, **arguments: Any) -> Any:
        """Calls a method of boto3's client for an object, or for a prefix if the method lists."""
        bucket, key = bucket_and_key(path)
        where = {"Bucket": bucket}
        if not method.startswith("list") and method != "delete_objects":
            where["Key"] = key
        for number in backoff.tries(self._tries):
            try:
                return getattr(self._client, method)(**where, **arguments)
            except (BotoCoreError, ClientError) as error:
                if number == self._tries or not may_pass(error):
                    raise meaning(error, path, self.errors, method in _READING) from None

    def _pages(
        self, method: str, prefix: str, following: Mapping[str, str], **arguments: str
    ) -> Iterator[Any]:
        """Yields the pages of a listing.

        Args:
            following: The arguments that ask for the next page, and their names in an answer.
            arguments: Further arguments of the method.
        """
        more: dict[str, str] = {}
        while True:
            key = bucket_and_key(prefix)[1]
            page = self.call(method, prefix, Prefix=key, **arguments, **more)
            yield page
            if not page.get("IsTruncated"):
                return
            more = {argument: page[name] for argument, name in following.items()}

    def objects(self, prefix: str) -> Iterator[FileInfo]:
        for page in self._pages("list_objects_v2", prefix, _FOLLOWING):
            yield from _files_in(prefix, page)

    def page(self, prefix: str, after: str) -> Page:
        start = {"StartAfter": bucket_and_key(after)[1]} if after else {}
        key = bucket_and_key(prefix)[1]
        page = self.call("list_objects_v2", prefix, Prefix=key, **start)
        return Page(_files_in(prefix, page), page["IsTruncated"])

    def folders(self, prefix: str) -> Iterator[list[str]]:
        bucket, _ = bucket_and_key(prefix)
        for page in self._pages("list_objects_v2", prefix, _FOLLOWING, Delimiter="/"):
            found = page.get("CommonPrefixes", ())
            yield [f"s3://{bucket}/{folder['Prefix']}" for folder in found]

    def get(self, path: str, start: int, size: int | None, version: Any = None) -> Part:
        parts: list[bytes] = []
        at, total = start, 0
        stop = None if size is None else start + size
        for _ in backoff.tries(self._tries):
            # Always a range, because only the answer to a range states how many bytes to expect.
            matching = {"IfMatch": version} if version else {}
            span = f"bytes={at}-{'' if stop is None else stop - 1}"
            try:
                answer = self.call("get_object", path, Range=span, **matching)
            except BeyondEnd:
                if parts:
                    return Part(b"".join(parts), at, version)
                return self.past_end(path, at, version)
            version = answer.get("ETag")
            if "ContentRange" not in answer:
                raise self.errors.refused(f"{path}: the server does not support requests of ranges")
            total = int(answer["ContentRange"].rsplit("/", 1)[1])
            end = total if stop is None else min(stop, total)
            try:
                with contextlib.closing(answer["Body"]) as body:
                    while data := body.read(1 << 20):
                        parts.append(data)
                        at += len(data)
                if at == end:
                    return Part(b"".join(parts), total, version)
                broken: object = f"the body ended after {at - start} of {end - start} bytes"
            except _BROKEN as error:
                broken = error
        raise self.errors.failing(path, broken)

    def stat(self, path: str) -> Stat:
        there = self.call("head_object", path, ChecksumMode="ENABLED")
        crc32c = crc32c_number(there.get("ChecksumCRC32C"))
        return Stat(there["ContentLength"], there.get("ETag"), crc32c, _time_of(there))

    def put(self, path: str, data: bytes, replace: bool) -> None:
        # The store compares the checksum with the bytes that arrived, and keeps it for `stat`.
        known = {"ChecksumAlgorithm": "CRC32C", "ChecksumCRC32C": crc32c_text(data)}
        self.call("put_object", path, Body=data, **known, **_condition(replace))

    def upload(self, path: str, replace: bool) -> Upload:
        return _MultipartUpload(self, path, replace)

    def delete(self, paths: Sequence[str]) -> None:
        buckets: dict[str, list[str]] = {}
        for path in paths:
            buckets.setdefault(path.split("/", 3)[2], []).append(path)
        for named in buckets.values():
            for start in range(0, len(named), _DELETED_AT_ONCE):
                self._delete(named[start : start + _DELETED_AT_ONCE])

    def _delete(self, paths: Sequence[str]) -> None:
        """Deletes objects of one bucket, with one request for all."""
        bucket = paths[0].split("/", 3)[2]
        keys = [bucket_and_key(path)[1] for path in paths]
        for _ in backoff.tries(self._tries):
            objects = [{"Key": key} for key in keys]
            answer = self.call(
                "delete_objects", paths[0], Delete={"Objects": objects, "Quiet": True}
            )
            # The answer for each object may be an error of its own.
            failed = answer.get("Errors", ())
            for error in failed:
                path, code = f"s3://{bucket}/{error['Key']}", error.get("Code", "")
                why = one_line(f"{code}: {error.get('Message')}")
                if not code_may_pass(code):
                    raise self.errors.refused(f"{path}: cannot be deleted ({why})")
            if not (keys := [error["Key"] for error in failed]):
                return
        raise self.errors.failing(path, f"cannot be deleted: {why}")

    def drop_uploads(self, prefix: str) -> None:
        bucket, _ = bucket_and_key(prefix)
        following = {"KeyMarker": "NextKeyMarker", "UploadIdMarker": "NextUploadIdMarker"}
        for page in self._pages("list_multipart_uploads", prefix, following):
            for found in page.get("Uploads", ()):
                path = f"s3://{bucket}/{found['Key']}"
                with contextlib.suppress(FileNotFoundError):
                    self.call("abort_multipart_upload", path, UploadId=found["UploadId"])


def _most_tries(errors: Errors) -> int:
    """How often a request is made at most."""
    text = os.environ.get("AWS_MAX_ATTEMPTS") or str(backoff.TRIES)
    if not text.isdecimal() or not int(text):
        raise errors.refused(f"s3://: AWS_MAX_ATTEMPTS={text!r}: expected a whole number from 1")
    return int(text)


def _files_in(prefix: str, page: Mapping[str, Any]) -> list[FileInfo]:
    """The objects of a page, given the URL that its listing is for."""
    bucket, _ = bucket_and_key(prefix)
    return [
        FileInfo(
            f"s3://{bucket}/{found['Key']}",
            found["Size"],
            _time_of(found),
        )
        for found in page.get("Contents", ())
    ]


def _time_of(found: Mapping[str, Any]) -> int:
    """When an object was modified, in nanoseconds since the epoch."""
    return int(found["LastModified"].timestamp() * 1e9)


def _keep_read_headers(response_dict: dict[str, Any], **_: Any) -> None:
    """Drops the headers that `S3Store.get` does not read: to parse them takes a fifth of a request."""
    if response_dict["status_code"] == 206:
        there = response_dict["headers"]
        response_dict["headers"] = {name: there[name] for name in _READ_HEADERS if name in there}


def _condition(replace: bool) -> dict[str, str]:
    """The arguments of a request that may replace an object, or not."""
    return {} if replace else {"IfNoneMatch": "*"}


class _MultipartUpload:
    """An upload in parts."""

    def __init__(self, store: S3Store, path: str, replace: bool) -> None:
        self._store, self._path, self._condition = store, path, _condition(replace)
        self._mark = uuid.uuid4().hex
        begun = store.call(
            "create_multipart_upload",
            path,
            Metadata={"upload": self._mark},
            ChecksumAlgorithm="CRC32C",
            ChecksumType="FULL_OBJECT",
        )
        self._id = begun["UploadId"]
        self._parts: list[dict[str, Any]] = []

    def add(self, data: bytes) -> None:
        part = {"PartNumber": len(self._parts) + 1, "ChecksumCRC32C": crc32c_text(data)}
        try:
            answer = self._store.call(
                "upload_part", self._path, UploadId=self._id, Body=data, **part
            )
        except FileNotFoundError:
            raise self._store.errors.aborted(self._path) from None
        self._parts.append({**part, "ETag": answer["ETag"]})

    def finish(self) -> None:
        try:
            self._store.call(
                "complete_multipart_upload",
                self._path,
                UploadId=self._id,
                ChecksumType="FULL_OBJECT",
                MultipartUpload={"Parts": self._parts},
                **self._condition,
            )
        except FileNotFoundError:
            # If the answer to an earlier try was lost, the upload is complete, and the object has its mark.
            try:
                there = self._store.call("head_object", self._path)
            except FileNotFoundError:
                there = {}
            if there.get("Metadata", {}).get("upload") != self._mark:
                raise self._store.errors.aborted(self._path) from None

    def give_up(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            self._store.call("abort_multipart_upload", self._path, UploadId=self._id)
