"""S3, where an object is written with one request, or in parts that are then joined."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator, Mapping
from typing import Any

import boto3
import urllib3.exceptions
from botocore import UNSIGNED, exceptions
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from readers.files import backoff
from readers.files.files import FileInfo, Stat
from readers.files.stores.ahead import Part
from readers.files.stores.errors import Errors, one_line
from readers.files.stores.store import (
    CONNECTIONS,
    Page,
    RangeListed,
    Upload,
    bucket_and_key,
    crc32c_number,
    crc32c_text,
    is_set,
    nanoseconds,
    received,
)

_READING = ("get_object", "head_object")

# How to request the next page of a listing of objects.
_FOLLOWING = {"ContinuationToken": "NextContinuationToken"}

# Errors of reading a body when the connection breaks.
_BROKEN = (BotoCoreError, urllib3.exceptions.HTTPError, OSError)

_NO_CREDENTIALS = (
    exceptions.NoCredentialsError,
    exceptions.PartialCredentialsError,
    exceptions.CredentialRetrievalError,
    exceptions.ProfileNotFound,
)

# HTTP status -> error codes, separated by spaces, that mean the same; the status of their response differs between stores.
_CODES = {
    401: "AuthFailure ExpiredToken InvalidAccessKeyId InvalidToken SignatureDoesNotMatch TokenRefreshRequired",
    503: "BandwidthLimitExceeded ConditionalRequestConflict InternalError OperationAborted RequestLimitExceeded "
    "RequestTimeout ServiceUnavailable SlowDown Throttling ThrottlingException TooManyRequests",
}
_STATUSES = {code: status for status, codes in _CODES.items() for code in codes.split()}


class S3Store(RangeListed):
    """Buckets of S3, with the options of Beam whose names begin with `s3_`."""

    def __init__(self, options: Mapping[str, Any], errors: Errors) -> None:
        super().__init__(errors)
        # `call` retries: boto3 would not retry a 409, and would stop retrying sooner.
        config = Config(
            retries={"total_max_attempts": 1},
            max_pool_connections=CONNECTIONS,
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
        except _NO_CREDENTIALS as error:
            raise errors.no_credentials("s3://", error) from None
        except (BotoCoreError, ValueError) as error:
            raise errors.refused(f"s3://: {one_line(error)}; see the variables AWS_…") from None

    def call(self, method: str, path: str, **arguments: Any) -> Any:
        """Calls a method of boto3's client for an object, or for a prefix if the method lists."""
        bucket, key = bucket_and_key(path)
        where = {"Bucket": bucket, "Prefix" if method.startswith("list") else "Key": key}
        for number in backoff.tries(backoff.TRIES):
            try:
                return getattr(self._client, method)(**where, **arguments)
            except (BotoCoreError, ClientError) as error:
                if number == backoff.TRIES or not _may_pass(error):
                    raise _meaning(error, path, self.errors, method in _READING) from None

    def _pages(
        self, method: str, prefix: str, following: Mapping[str, str], **arguments: str
    ) -> Iterator[Any]:
        """Yields the pages of a listing; `following` are the arguments for the next page, and their names in a response."""
        more: dict[str, str] = {}
        while True:
            page = self.call(method, prefix, **arguments, **more)
            yield page
            if not page.get("IsTruncated"):
                return
            more = {argument: page[name] for argument, name in following.items()}

    def objects(self, prefix: str) -> Iterator[FileInfo]:
        for page in self._pages("list_objects_v2", prefix, _FOLLOWING):
            yield from _files_in(prefix, page)

    def page(self, prefix: str, after: str) -> Page:
        start = {"StartAfter": bucket_and_key(after)[1]} if after else {}
        page = self.call("list_objects_v2", prefix, **start)
        return Page(_files_in(prefix, page), page["IsTruncated"])

    def folders(self, prefix: str) -> Iterator[list[str]]:
        bucket, _ = bucket_and_key(prefix)
        for page in self._pages("list_objects_v2", prefix, _FOLLOWING, Delimiter="/"):
            found = page.get("CommonPrefixes", ())
            yield [f"s3://{bucket}/{folder['Prefix']}" for folder in found]

    def request(self, path: str, start: int, size: int | None, version: Any) -> Part:
        # Always a range, because only the response to a range states how many bytes to expect.
        matching = {"IfMatch": version} if version else {}
        span = f"bytes={start}-{'' if size is None else start + size - 1}"
        answer = self.call("get_object", path, Range=span, **matching)
        if "ContentRange" not in answer:
            raise self.errors.refused(f"{path}: the server does not support range requests")
        with contextlib.closing(answer["Body"]) as body:
            data = received(body.read, _BROKEN)
        return Part(data, int(answer["ContentRange"].rsplit("/", 1)[1]), answer.get("ETag"))

    def stat(self, path: str) -> Stat:
        there = self.call("head_object", path, ChecksumMode="ENABLED")
        crc32c = crc32c_number(there.get("ChecksumCRC32C"))
        return Stat(
            there["ContentLength"], there.get("ETag"), crc32c, nanoseconds(there["LastModified"])
        )

    def put(self, path: str, data: bytes, replace: bool) -> None:
        # The store compares the checksum with the bytes that arrived, and keeps it for `stat`.
        known = {"ChecksumAlgorithm": "CRC32C", "ChecksumCRC32C": crc32c_text(data)}
        self.call("put_object", path, Body=data, **known, **_condition(replace))

    def upload(self, path: str, replace: bool) -> Upload:
        return _MultipartUpload(self, path, replace)

    def delete_object(self, path: str) -> None:
        self.call("delete_object", path)

    def drop_uploads(self, prefix: str) -> None:
        bucket, _ = bucket_and_key(prefix)
        following = {"KeyMarker": "NextKeyMarker", "UploadIdMarker": "NextUploadIdMarker"}
        for page in self._pages("list_multipart_uploads", prefix, following):
            for found in page.get("Uploads", ()):
                path = f"s3://{bucket}/{found['Key']}"
                with contextlib.suppress(FileNotFoundError):
                    self.call("abort_multipart_upload", path, UploadId=found["UploadId"])


def _files_in(prefix: str, page: Mapping[str, Any]) -> list[FileInfo]:
    """The objects in a page of the listing of a prefix."""
    bucket, _ = bucket_and_key(prefix)
    return [
        FileInfo(f"s3://{bucket}/{found['Key']}", found["Size"], nanoseconds(found["LastModified"]))
        for found in page.get("Contents", ())
    ]


def _condition(replace: bool) -> dict[str, str]:
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
            # If the response to an earlier try was lost, the upload is complete, and the object has its mark.
            try:
                there = self._store.call("head_object", self._path)
            except FileNotFoundError:
                there = {}
            if there.get("Metadata", {}).get("upload") != self._mark:
                raise self._store.errors.aborted(self._path) from None

    def give_up(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            self._store.call("abort_multipart_upload", self._path, UploadId=self._id)


def _may_pass(error: BotoCoreError | ClientError) -> bool:
    """Whether the same request may succeed a moment later."""
    if isinstance(error, ClientError):
        return backoff.may_pass(_status(error))
    return isinstance(error, exceptions.HTTPClientError)  # The response is missing or incomplete.


def _status(error: ClientError) -> int:
    """The HTTP status of a response, or the one that its error code stands for."""
    answered = int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
    return _STATUSES.get(error.response.get("Error", {}).get("Code", ""), answered)


def _meaning(
    error: BotoCoreError | ClientError, path: str, errors: Errors, reads: bool
) -> Exception:
    """Converts an error of boto3; arguments as for `Errors.refusal`."""
    if isinstance(error, _NO_CREDENTIALS):
        return errors.no_credentials(path, error)
    if isinstance(error, exceptions.ParamValidationError):
        bucket = path.split("/")[2]
        is_name = "bucket name" not in str(error)
        what = one_line(error) if is_name else f"{bucket!r} is not a valid bucket name"
        return errors.refused(f"{path}: {what}")
    if not isinstance(error, ClientError):
        return errors.failing(path, error)
    status, details = _status(error), error.response.get("Error", {})
    code = str(details.get("Code", ""))
    if code == "NoSuchBucket":
        return errors.no_bucket(path)
    answered = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", "")
    words = dict.fromkeys([str(answered), code])  # Without a body, the code repeats the status.
    answer = one_line(f"{' '.join(words)}: {details.get('Message', '')}")
    return errors.refusal(path, status, answer, reads)
