"""Google Cloud Storage, using Google's library."""

from __future__ import annotations

import contextlib
import functools
import os
import re
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import quote

import google.auth
import google_crc32c
import requests
import urllib3.exceptions
from google.api_core.exceptions import GoogleAPICallError, RetryError, from_http_response
from google.auth import impersonated_credentials
from google.auth.exceptions import DefaultCredentialsError, GoogleAuthError, TransportError
from google.cloud import storage
from google.cloud.storage.exceptions import InvalidResponse
from google.cloud.storage.fileio import BlobWriter
from google.cloud.storage.retry import DEFAULT_RETRY

from readers.files import backoff
from readers.files.files import FileInfo, Stat
from readers.files.stores.ahead import Part
from readers.files.stores.errors import BodyError, Errors, one_line
from readers.files.stores.store import (
    CONNECTIONS,
    PART_BYTES,
    Page,
    RangeListed,
    Upload,
    bucket_and_key,
    crc32c_number,
    nanoseconds,
    received,
)

# The library limits the total time of retries, not their number.
_SECONDS = 60.0

# The fields of each object in a listing.
_LISTED = "items(name,size,updated),nextPageToken"

_CRC32C = re.compile("crc32c=([A-Za-z0-9+/=]+)")

# Recent releases ask for the metadata of each bucket in a thread, for traces that are off by default.
os.environ.setdefault("DISABLE_GCS_PYTHON_CLIENT_OTEL_BUCKET_METADATA", "true")

_SCOPES = ["https://www.googleapis.com/auth/cloud-platform"]


class GcsStore(RangeListed):
    """Buckets of Google Cloud Storage, configured with Beam's options by name."""

    def __init__(self, options: Mapping[str, Any], errors: Errors) -> None:
        super().__init__(errors)
        self._client = new_client(options, errors)
        for scheme in ("https://", "http://"):
            adapter = requests.adapters.HTTPAdapter(pool_maxsize=CONNECTIONS)
            self._client._http.mount(scheme, adapter)
        retry = DEFAULT_RETRY.with_predicate(_may_pass).with_timeout(_SECONDS)
        self._retry = retry.with_delay(backoff.FIRST_WAIT, backoff.LONGEST_WAIT, 2)

    def blob(self, path: str) -> Any:
        """The library's handle for an object, which may be missing."""
        bucket, key = bucket_and_key(path)
        return self._client.bucket(bucket).blob(key)

    def _blobs(self, prefix: str, **wanted: Any) -> Any:
        bucket, key = bucket_and_key(prefix)
        return self._client.list_blobs(bucket, prefix=key, retry=self._retry, **wanted)

    def objects(self, prefix: str) -> Iterator[FileInfo]:
        with self.meaning(prefix):
            yield from map(_info, self._blobs(prefix, fields=_LISTED))

    def page(self, prefix: str, after: str) -> Page:
        start = bucket_and_key(after)[1] if after else None
        with self.meaning(prefix):
            found = self._blobs(prefix, start_offset=start, fields=_LISTED)
            for page in found.pages:
                # The listing starts with `after` itself.
                files = [info for info in map(_info, page) if info.path > after]
                if files:
                    return Page(files, bool(found.next_page_token))
        return Page([], False)

    def folders(self, prefix: str) -> Iterator[list[str]]:
        bucket, _ = bucket_and_key(prefix)
        seen: set[str] = set()
        with self.meaning(prefix):
            found = self._blobs(prefix, delimiter="/", fields="prefixes,nextPageToken")
            for _ in found.pages:
                yield sorted(f"gs://{bucket}/{folder}" for folder in found.prefixes - seen)
                seen |= found.prefixes

    def request(self, path: str, start: int, size: int | None, version: Any) -> Part:
        with self.meaning(path, reads=True):
            return self._retry(self._answer_to)(path, start, size, version)

    def _answer_to(self, path: str, start: int, size: int | None, version: Any) -> Part:
        # The library's downloads do not report the object's size, which would take another request.
        bucket, key = bucket_and_key(path)
        url = f"{self._client.api_endpoint}/download/storage/v1/b/{bucket}/o/{quote(key, '')}"
        asked = {"alt": "media"} | ({"ifGenerationMatch": version} if version else {})
        # Compressed objects arrive as stored; the caller decompresses them.
        common = self._client._connection
        headers = {
            **common.extra_headers,
            "User-Agent": common.user_agent,
            "Accept-Encoding": "gzip",
            # Always a range, because only the response to a range states how many bytes to expect.
            "Range": f"bytes={start}-{'' if size is None else start + size - 1}",
        }
        how = {"headers": headers, "timeout": _SECONDS, "stream": True}
        with self._client._http.get(url, params=asked, **how) as answer:
            if answer.status_code >= 400:
                raise from_http_response(answer)
            read = functools.partial(answer.raw.read, decode_content=False)
            data = received(read, (urllib3.exceptions.HTTPError,))
            found = answer.headers
        if "Content-Range" not in found:
            raise self.errors.refused(f"{path}: the server does not support range requests")
        total = int(found["Content-Range"].rpartition("/")[2])
        known = _CRC32C.search(found.get("x-goog-hash", "")) if len(data) == total else None
        if known and crc32c_number(known[1]) != google_crc32c.value(data):
            raise BodyError("the body fails its checksum")
        return Part(data, total, found.get("x-goog-generation"))

    def stat(self, path: str) -> Stat:
        blob = self.blob(path)
        with self.meaning(path, reads=True):
            blob.reload(retry=self._retry)
        info = _info(blob)
        return Stat(info.size, blob.generation, crc32c_number(blob.crc32c), info.modified)

    def put(self, path: str, data: bytes, replace: bool) -> None:
        how = {"content_type": "application/octet-stream", "retry": self._retry}
        with self.meaning(path):
            self.blob(path).upload_from_string(data, **how, **_condition(replace))

    def upload(self, path: str, replace: bool) -> Upload:
        return _ResumableUpload(self, path, self._retry, _condition(replace))

    def delete_object(self, path: str) -> None:
        with contextlib.suppress(FileNotFoundError), self.meaning(path, reads=True):
            self.blob(path).delete(retry=self._retry)

    @contextlib.contextmanager
    def meaning(self, path: str, reads: bool = False) -> Iterator[None]:
        """Converts errors of the library; arguments as for `Errors.refusal`."""
        try:
            yield
        except requests.exceptions.InvalidSchema as error:
            host = os.environ.get("STORAGE_EMULATOR_HOST")
            raise self.errors.refused(
                f"{path}: {one_line(error)}: STORAGE_EMULATOR_HOST={host!r}, expected http://HOST:PORT"
            ) from None
        except (TransportError, requests.RequestException, ConnectionError) as error:
            raise self.errors.failing(path, error) from None
        except RetryError as error:
            raise self.errors.failing(path, _answer(error.cause or error)) from None
        except GoogleAuthError as error:
            raise self.errors.no_credentials(path, error) from None
        except GoogleAPICallError as error:
            raise self._refusal(path, int(error.code or 0), error, reads) from None
        except InvalidResponse as error:
            raise self._refusal(path, error.response.status_code, error, reads) from None
        except ValueError as error:  # An invalid bucket name, for example.
            raise self.errors.refused(f"{path}: {one_line(error)}") from None

    def _refusal(self, path: str, status: int, error: BaseException, reads: bool) -> Exception:
        answer = _answer(error)
        # The store answers 404 for a missing object and for a missing bucket.
        if status == 404 and (not reads or "bucket does not exist" in answer):
            return self.errors.no_bucket(path)
        return self.errors.refusal(path, status, answer, reads)


def new_client(options: Mapping[str, Any], errors: Errors) -> Any:
    """A client with the user's credentials, or an anonymous one without any; raises RefusedError.

    Beam's client would look for credentials for 25 seconds, and would import Beam into processes that
    load records, which takes a second and 90 MB in each.
    """
    if os.environ.get("STORAGE_EMULATOR_HOST"):
        return storage.Client.create_anonymous_client()
    impersonated = options.get("impersonate_service_account")
    scopes = options.get("gcp_oauth_scopes") or _SCOPES
    try:
        credentials, _ = google.auth.default(scopes=scopes)
    except DefaultCredentialsError as error:
        if impersonated or os.environ.get("GOOGLE_APPLICATION_CREDENTIALS"):
            raise errors.no_credentials("gs://", error) from None
        return storage.Client.create_anonymous_client()  # For public buckets.
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


def _may_pass(error: BaseException) -> bool:
    """Whether a request may succeed a moment later, including one with an incomplete response."""
    cut = isinstance(error, requests.exceptions.JSONDecodeError)
    return cut or bool(DEFAULT_RETRY._predicate(error))


def _info(blob: Any) -> FileInfo:
    path = f"gs://{blob.bucket.name}/{blob.name}"
    return FileInfo(path, int(blob.size), nanoseconds(blob.updated))


def _condition(replace: bool) -> dict[str, int]:
    """The arguments of a request that may or may not replace an object; a missing object has generation 0."""
    return {} if replace else {"if_generation_match": 0}


class _ResumableUpload(BlobWriter):
    """An upload in parts, which becomes an object only when `finish` is called.

    The library's writer finishes the object when it is closed, and the garbage collector closes files.
    """

    def __init__(
        self, store: GcsStore, path: str, retry: Any, condition: Mapping[str, int]
    ) -> None:
        super().__init__(store.blob(path), chunk_size=PART_BYTES, retry=retry, **condition)
        self._meaning, self._path = store.meaning, path

    def add(self, data: bytes) -> None:
        with self._meaning(self._path):
            self.write(data)

    def finish(self) -> None:
        with self._meaning(self._path):
            super().close()

    def give_up(self) -> None:
        with self._meaning(self._path):
            self.terminate()

    def close(self) -> None:
        """Does nothing."""


def _answer(error: BaseException) -> str:
    if isinstance(error, InvalidResponse):
        return f"{error.response.status_code} {error.response.reason}"
    return one_line(error)
