"""Amazon S3 and what speaks its protocol, by boto3."""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import boto3
import urllib3.exceptions
from botocore.config import Config
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    CredentialRetrievalError,
    HTTPClientError,
    NoCredentialsError,
    ParamValidationError,
    PartialCredentialsError,
    ProfileNotFound,
)

from beam_jobs.errors import DataError, UsageError
from beam_jobs.storage.object_store import (
    ATTEMPTS,
    Listed,
    Part,
    Store,
    Upload,
    bucket_and_key,
    crc32c_number,
    crc32c_text,
    failing,
    shown,
    wait,
)

_DELETED_AT_ONCE = 1000

# A body that breaks off.
_BROKEN = (BotoCoreError, urllib3.exceptions.HTTPError, OSError)

_NO_CREDENTIALS = (
    NoCredentialsError,
    PartialCredentialsError,
    CredentialRetrievalError,
    ProfileNotFound,
)

_WRONG_CREDENTIALS = {
    "InvalidAccessKeyId",
    "SignatureDoesNotMatch",
    "ExpiredToken",
    "InvalidToken",
    "TokenRefreshRequired",
    "AuthFailure",
}

_PASSING = {
    "SlowDown",
    "Throttling",
    "ThrottlingException",
    "RequestLimitExceeded",
    "BandwidthLimitExceeded",
    "RequestTimeout",
    "OperationAborted",
    "TooManyRequests",
}

_WAYS_IN = (
    "give --s3_access_key_id and --s3_secret_access_key, or AWS_ACCESS_KEY_ID and "
    "AWS_SECRET_ACCESS_KEY, or a profile"
)


class S3Store(Store):
    """Buckets of S3.

    Args:
        options: Beam's, `s3_…` by name.
    """

    def __init__(self, options: Mapping[str, str]) -> None:
        self._attempts = int(os.environ.get("AWS_MAX_ATTEMPTS", ATTEMPTS))
        # All that may be tried again is tried again in `call`: boto3 knows no 429, and has bounds of
        # its own for how often.
        config = Config(retries={"total_max_attempts": 1}, max_pool_connections=32)
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
        except (BotoCoreError, ValueError) as error:
            raise UsageError(f"s3://: {shown(error)}; see --s3_endpoint_url and AWS_*") from None

    def call(self, method: str, path: str, **arguments: Any) -> Any:
        """A request about an object or, where `path` ends with /, about those below it."""
        bucket, key = bucket_and_key(path)
        where = {"Bucket": bucket} | ({} if method.startswith("list") else {"Key": key})
        if method == "delete_objects":
            del where["Key"]
        for attempt in range(1, self._attempts + 1):
            try:
                return getattr(self._client, method)(**where, **arguments)
            except (BotoCoreError, ClientError) as error:
                if attempt == self._attempts or not _is_passing(error):
                    raise _meaning(error, path, reads=method == "get_object") from None
            wait(attempt)

    def listed(self, prefix: str) -> Iterator[Listed]:
        bucket, key = bucket_and_key(prefix)
        more: dict[str, str] = {}
        while True:
            page = self.call("list_objects_v2", prefix, Prefix=key, **more)
            for found in page.get("Contents", ()):
                modified = int(found["LastModified"].timestamp() * 1e9)
                yield Listed(f"s3://{bucket}/{found['Key']}", found["Size"], modified)
            if not page.get("IsTruncated"):
                return
            more = {"ContinuationToken": page["NextContinuationToken"]}

    def read(self, path: str, start: int, size: int | None, version: Any = None) -> Part:
        parts: list[bytes] = []
        at, total = start, 0
        stop = None if size is None else start + size
        for attempt in range(1, self._attempts + 1):
            # Always of a range, as only that tells how much should come.
            matching = {"IfMatch": version} if version else {}
            span = f"bytes={at}-{'' if stop is None else stop - 1}"
            try:
                answer = self.call("get_object", path, Range=span, **matching)
            except _Beyond:
                return Part(b"".join(parts), at, version)
            version = answer.get("ETag")
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
            if attempt < self._attempts:
                wait(attempt)
        raise failing(path, broken)

    def checksum(self, path: str) -> tuple[int, int | None]:
        there = self.call("head_object", path, ChecksumMode="ENABLED")
        return there["ContentLength"], crc32c_number(there.get("ChecksumCRC32C"))

    def put(self, path: str, data: bytes) -> None:
        # The store compares it with what arrived, and keeps it for `checksum`.
        known = {"ChecksumAlgorithm": "CRC32C", "ChecksumCRC32C": crc32c_text(data)}
        self.call("put_object", path, Body=data, **known)

    def upload(self, path: str) -> Upload:
        return _Multipart(self, path)

    def delete(self, paths: Sequence[str]) -> None:
        buckets: dict[str, list[str]] = {}
        for path in paths:
            buckets.setdefault(path.split("/", 3)[2], []).append(path)
        for named in buckets.values():
            for start in range(0, len(named), _DELETED_AT_ONCE):
                some = named[start : start + _DELETED_AT_ONCE]
                keys = [{"Key": bucket_and_key(path)[1]} for path in some]
                answer = self.call(
                    "delete_objects", some[0], Delete={"Objects": keys, "Quiet": True}
                )
                for error in answer.get("Errors", ()):
                    raise UsageError(f"{some[0]}: cannot be deleted: {shown(error.get('Message'))}")

    def drop_uploads(self, prefix: str) -> None:
        bucket, key = bucket_and_key(prefix)
        more: dict[str, str] = {}
        while True:
            page = self.call("list_multipart_uploads", prefix, Prefix=key, **more)
            for found in page.get("Uploads", ()):
                path = f"s3://{bucket}/{found['Key']}"
                with contextlib.suppress(FileNotFoundError):
                    self.call("abort_multipart_upload", path, UploadId=found["UploadId"])
            if not page.get("IsTruncated"):
                return
            more = {
                "KeyMarker": page["NextKeyMarker"],
                "UploadIdMarker": page["NextUploadIdMarker"],
            }


class _Multipart:
    """An upload in parts."""

    def __init__(self, store: S3Store, path: str) -> None:
        self._store, self._path = store, path
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
            raise self._dropped() from None
        self._parts.append({**part, "ETag": answer["ETag"]})

    def finish(self) -> None:
        try:
            self._store.call(
                "complete_multipart_upload",
                self._path,
                UploadId=self._id,
                ChecksumType="FULL_OBJECT",
                MultipartUpload={"Parts": self._parts},
            )
        except FileNotFoundError:
            # No such upload: it is done if the answer to an earlier try was lost on its way.
            there = self._store.call("head_object", self._path)
            if there.get("Metadata", {}).get("upload") != self._mark:
                raise self._dropped() from None

    def _dropped(self) -> DataError:
        return DataError(
            f"{self._path}: somebody dropped the parts of its upload: does another job write to this "
            "directory? Run the same command again"
        )

    def give_up(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            self._store.call("abort_multipart_upload", self._path, UploadId=self._id)


class _Beyond(OSError):
    """A range that begins at or behind the end of its object."""


def _is_passing(error: BotoCoreError | ClientError) -> bool:
    """Whether the same request may do better a little later."""
    if not isinstance(error, ClientError):
        return isinstance(error, HTTPClientError)  # No answer, or none that is one.
    code, status = _code_of(error)
    return status >= 500 or status in (408, 429) or code in _PASSING


def _code_of(error: ClientError) -> tuple[str, int]:
    status = int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
    return str(error.response.get("Error", {}).get("Code", status)), status


def _meaning(error: BotoCoreError | ClientError, path: str, reads: bool) -> Exception:
    """What an error of boto3 means to a job."""
    bucket, _ = bucket_and_key(path)
    if isinstance(error, _NO_CREDENTIALS):
        return UsageError(f"{path}: no credentials ({shown(error)}): {_WAYS_IN}")
    if isinstance(error, ParamValidationError):
        return UsageError(f"{path}: {shown(error)}")
    if not isinstance(error, ClientError):
        return failing(path, error)
    code, status = _code_of(error)
    said = shown(error.response.get("Error", {}).get("Message", ""))
    if code == "NoSuchBucket":
        return UsageError(f"{path}: there is no bucket {bucket!r}: create it, or name another")
    if code in _WRONG_CREDENTIALS:
        return UsageError(f"{path}: the store refuses the credentials ({code}): {_WAYS_IN}")
    if status == 404:
        return FileNotFoundError(f"{path}: there is no such object")
    if status == 416:
        return _Beyond(f"{path}: it ends before")
    if status == 412:
        return OSError(f"{path}: it was replaced while it was read")
    if status == 403:
        if reads:
            return PermissionError(f"{path}: it may not be read ({code}: {said})")
        return UsageError(f"{path}: the store refuses ({code}: {said}): {_WAYS_IN}")
    if _is_passing(error):
        return failing(path, f"{status} {code}: {said}")
    return UsageError(f"{path}: the store refuses ({status} {code}: {said})")
