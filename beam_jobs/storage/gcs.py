"""Google Cloud Storage, through Google's own library."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import google.auth
import requests
from google.api_core.exceptions import GoogleAPICallError, RetryError
from google.auth import impersonated_credentials
from google.auth.exceptions import DefaultCredentialsError, GoogleAuthError, TransportError
from google.cloud import storage
from google.cloud.storage.exceptions import DataCorruption, InvalidResponse
from google.cloud.storage.fileio import BlobWriter
from google.cloud.storage.retry import DEFAULT_RETRY

from beam_jobs.storage.object_store import (
    PART_BYTES,
    FileInfo,
    Page,
    Part,
    RangeListed,
    SignIn,
    Upload,
    bucket_and_key,
    crc32c_number,
    failing,
    no_bucket,
    no_credentials,
    one_line,
    refusal,
)
from beam_jobs.storage.options import storage_options
from readers.files import backoff

# The library limits the time of all tries, and not their number.
_SECONDS = 60.0

_DELETED_AT_ONCE = 16

# Connections that are kept, for as many requests at once.
_CONNECTIONS = 32

# What a listing says of each object.
_LISTED = "items(name,size,updated),nextPageToken"

_SCOPES = ["https://www.googleapis.com/auth/cloud-platform"]

_SIGN_IN = SignIn(
    "run gcloud auth application-default login, or set GOOGLE_APPLICATION_CREDENTIALS",
    "give the workers' machines a service account, or set GOOGLE_APPLICATION_CREDENTIALS where the "
    "engine starts them",
)


class GcsStore(RangeListed):
    """Buckets of Google Cloud Storage."""

    def __init__(self) -> None:
        self._client = _client(storage_options())
        for scheme in ("https://", "http://"):
            adapter = requests.adapters.HTTPAdapter(pool_maxsize=_CONNECTIONS)
            self._client._http.mount(scheme, adapter)
        self._retry = DEFAULT_RETRY.with_delay(*backoff.wait_limits(), 2).with_timeout(_SECONDS)

    def blob(self, path: str) -> Any:
        """The library's handle of an object, which may be missing."""
        bucket, key = bucket_and_key(path)
        return self._client.bucket(bucket).blob(key)

    def _blobs(self, prefix: str, **wanted: Any) -> Any:
        """The library's iterator of a listing."""
        bucket, key = bucket_and_key(prefix)
        return self._client.list_blobs(bucket, prefix=key, retry=self._retry, **wanted)

    def listed(self, prefix: str) -> Iterator[FileInfo]:
        with _job_errors(prefix):
            yield from map(_info, self._blobs(prefix, fields=_LISTED))

    def page(self, prefix: str, after: str) -> Page:
        start = bucket_and_key(after)[1] if after else None
        with _job_errors(prefix):
            found = self._blobs(prefix, start_offset=start, fields=_LISTED)
            for page in found.pages:
                # The store begins with the name itself.
                files = [info for info in map(_info, page) if info.path > after]
                if files:
                    return Page(files, bool(found.next_page_token))
        return Page([], False)

    def folders(self, prefix: str) -> Iterator[list[str]]:
        bucket, _ = bucket_and_key(prefix)
        seen: set[str] = set()
        with _job_errors(prefix):
            found = self._blobs(prefix, delimiter="/", fields="prefixes,nextPageToken")
            for _ in found.pages:
                yield sorted(f"gs://{bucket}/{folder}" for folder in found.prefixes - seen)
                seen |= found.prefixes

    def read(self, path: str, start: int, size: int | None, version: Any = None) -> Part:
        for _ in backoff.tries(backoff.TRIES):
            try:
                with _job_errors(path, reads=True):
                    return self._read(path, start, size, version)
            except DataCorruption as error:  # The body ended early; `_read` raises this as well.
                broken = error
        raise failing(path, broken)

    def _read(self, path: str, start: int, size: int | None, version: Any) -> Part:
        blob = self.blob(path)
        # Raw: whoever reads a compressed object decompresses it.
        how = {"raw_download": True, "retry": self._retry}
        if size is None and not start:
            data = blob.download_as_bytes(**how)
            return Part(data, len(data), (blob.generation, len(data)))
        if version is None:
            blob.reload(retry=self._retry)
            version = blob.generation, blob.size
        generation, total = version
        end = total if size is None else min(start + size, total)
        if start >= end:
            return Part(b"", total, version)
        how |= {"if_generation_match": generation, "checksum": None}
        data = blob.download_as_bytes(start=start, end=end - 1, **how)
        if len(data) != end - start:
            raise DataCorruption(None, f"the body ended after {len(data)} of {end - start} bytes")
        return Part(data, total, version)

    def checksum(self, path: str) -> tuple[int, int | None]:
        blob = self.blob(path)
        with _job_errors(path, reads=True):
            blob.reload(retry=self._retry)
        return blob.size, crc32c_number(blob.crc32c)

    def put(self, path: str, data: bytes, replace: bool) -> None:
        how = {"content_type": "application/octet-stream", "retry": self._retry}
        with _job_errors(path):
            self.blob(path).upload_from_string(data, **how, **_condition(replace))

    def upload(self, path: str, replace: bool) -> Upload:
        return _ResumableUpload(self.blob(path), path, self._retry, _condition(replace))

    def delete(self, paths: Sequence[str]) -> None:
        with ThreadPoolExecutor(_DELETED_AT_ONCE) as threads:
            list(threads.map(self._delete, paths))

    def _delete(self, path: str) -> None:
        with contextlib.suppress(FileNotFoundError), _job_errors(path, reads=True):
            self.blob(path).delete(retry=self._retry)

    def drop_uploads(self, prefix: str) -> None:
        """Does nothing: the store neither lists nor charges them, and drops them after a week."""


def _client(options: Mapping[str, Any]) -> Any:
    """A client with the user's credentials, or an anonymous one if there are none.

    Beam's own would try for 25 seconds to find credentials, and would import Beam into processes that
    load records, which takes a second and 90 MB in each.

    Args:
        options: Beam's options by name.

    Raises:
        UsageError: the credentials that the user named cannot be used.
    """
    if os.environ.get("STORAGE_EMULATOR_HOST"):
        return storage.Client.create_anonymous_client()
    impersonated = options.get("impersonate_service_account")
    scopes = options.get("gcp_oauth_scopes") or _SCOPES
    try:
        credentials, _ = google.auth.default(scopes=scopes)
    except DefaultCredentialsError as error:
        if impersonated or os.environ.get("GOOGLE_APPLICATION_CREDENTIALS"):
            raise no_credentials("gs://", error, _SIGN_IN) from None
        return storage.Client.create_anonymous_client()  # Public buckets can be read.
    if impersonated:
        *delegates, target = impersonated.split(",")
        credentials = impersonated_credentials.Credentials(
            source_credentials=credentials,
            target_principal=target,
            delegates=delegates,
            target_scopes=scopes,
        )
    audited = {"x-goog-custom-audit-job": options.get("job_name") or "UNKNOWN"}
    return storage.Client(
        project=options.get("project"),
        credentials=credentials,
        extra_headers=audited | (options.get("gcs_custom_audit_entries") or {}),
    )


def _info(blob: Any) -> FileInfo:
    modified = int(blob.updated.timestamp() * 1e9)
    return FileInfo(f"gs://{blob.bucket.name}/{blob.name}", int(blob.size), modified)


def _condition(replace: bool) -> dict[str, int]:
    """The arguments of a request that may replace an object, or not; none has generation 0."""
    return {} if replace else {"if_generation_match": 0}


class _ResumableUpload(BlobWriter):
    """An upload in parts, which becomes an object only when `finish` is called.

    The library's own writer does so when it is closed, and the garbage collector closes files.
    """

    def __init__(self, blob: Any, path: str, retry: Any, condition: Mapping[str, int]) -> None:
        super().__init__(blob, chunk_size=PART_BYTES, retry=retry, **condition)
        self._path = path

    def add(self, data: bytes) -> None:
        with _job_errors(self._path):
            self.write(data)

    def finish(self) -> None:
        with _job_errors(self._path):
            super().close()

    def give_up(self) -> None:
        with _job_errors(self._path):
            self.terminate()

    def close(self) -> None:
        """Does nothing."""


@contextlib.contextmanager
def _job_errors(path: str, reads: bool = False) -> Iterator[None]:
    """Raises errors of the library as what they mean to a job; arguments as for `refusal`."""
    try:
        yield
    except RetryError as error:
        raise failing(path, _answer(error.cause or error)) from None
    except TransportError as error:
        raise failing(path, error) from None
    except GoogleAuthError as error:
        raise no_credentials(path, error, _SIGN_IN) from None
    except GoogleAPICallError as error:
        raise _job_error(path, int(error.code or 0), error, reads) from None
    except InvalidResponse as error:
        raise _job_error(path, error.response.status_code, error, reads) from None
    except (requests.RequestException, ConnectionError) as error:
        raise failing(path, error) from None


def _answer(error: BaseException) -> str:
    if isinstance(error, InvalidResponse):
        return f"{error.response.status_code} {error.response.reason}"
    return one_line(error)


def _job_error(path: str, status: int, error: BaseException, reads: bool) -> Exception:
    answer = _answer(error)
    # The store answers 404 for a missing object and for a missing bucket.
    if status == 404 and (not reads or "bucket does not exist" in answer):
        return no_bucket(path)
    return refusal(path, status, answer, _SIGN_IN, reads)
