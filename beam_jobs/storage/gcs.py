"""Google Cloud Storage, by its own library."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import requests
from google.api_core.exceptions import GoogleAPICallError, RetryError
from google.auth.exceptions import GoogleAuthError, TransportError
from google.cloud import storage
from google.cloud.storage.exceptions import DataCorruption, InvalidResponse
from google.cloud.storage.fileio import BlobWriter
from google.cloud.storage.retry import DEFAULT_RETRY

from beam_jobs.errors import UsageError
from beam_jobs.storage.object_store import (
    ATTEMPTS,
    PART_BYTES,
    SECONDS_BETWEEN,
    Listed,
    Part,
    Store,
    Upload,
    bucket_and_key,
    crc32c_number,
    failing,
    shown,
    wait,
)
from beam_jobs.storage.options import storage_options, tell_beam

# After which the library gives up.
_SECONDS = 60.0

_DELETED_AT_ONCE = 16

_WAYS_IN = "run gcloud auth application-default login, or set GOOGLE_APPLICATION_CREDENTIALS"


class GcsStore(Store):
    """Buckets of Google Cloud Storage."""

    def __init__(self) -> None:
        if os.environ.get("STORAGE_EMULATOR_HOST"):
            self._client = storage.Client.create_anonymous_client()
        else:
            # Beam's credentials: impersonation, a project, none at all.
            from apache_beam.io.gcp.gcsio import create_storage_client
            from apache_beam.options.pipeline_options import PipelineOptions

            tell_beam()
            given = PipelineOptions.from_dictionary(dict(storage_options()))
            self._client = create_storage_client(given)
        self._retry = DEFAULT_RETRY.with_delay(0.5, SECONDS_BETWEEN, 2).with_timeout(_SECONDS)

    def blob(self, path: str) -> Any:
        """The object of a path, whether it is there or not."""
        bucket, key = bucket_and_key(path)
        return self._client.bucket(bucket).blob(key)

    def listed(self, prefix: str) -> Iterator[Listed]:
        bucket, key = bucket_and_key(prefix)
        with _told(prefix):
            for found in self._client.list_blobs(bucket, prefix=key, retry=self._retry):
                modified = int(found.updated.timestamp() * 1e9)
                yield Listed(f"gs://{bucket}/{found.name}", int(found.size), modified)

    def read(self, path: str, start: int, size: int | None, version: Any = None) -> Part:
        for attempt in range(1, ATTEMPTS + 1):
            try:
                with _told(path, reads=True):
                    return self._read(path, start, size, version)
            except (
                DataCorruption
            ) as error:  # A body that ended early, which its library may not see.
                broken = error
            if attempt < ATTEMPTS:
                wait(attempt)
        raise failing(path, broken)

    def _read(self, path: str, start: int, size: int | None, version: Any) -> Part:
        blob = self.blob(path)
        # As it is stored: a reader unpacks what is packed.
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
        with _told(path, reads=True):
            blob.reload(retry=self._retry)
        return blob.size, crc32c_number(blob.crc32c)

    def put(self, path: str, data: bytes) -> None:
        with _told(path):
            self.blob(path).upload_from_string(
                data, content_type="application/octet-stream", retry=self._retry
            )

    def upload(self, path: str) -> Upload:
        return _Resumable(self.blob(path), path, self._retry)

    def delete(self, paths: Sequence[str]) -> None:
        with ThreadPoolExecutor(_DELETED_AT_ONCE) as threads:
            list(threads.map(self._delete, paths))

    def _delete(self, path: str) -> None:
        with contextlib.suppress(FileNotFoundError), _told(path, reads=True):
            self.blob(path).delete(retry=self._retry)

    def drop_uploads(self, prefix: str) -> None:
        """There is nothing to drop: the store lists none, charges none, and forgets them in a week."""


class _Resumable:
    """An upload in parts."""

    def __init__(self, blob: Any, path: str, retry: Any) -> None:
        self._path = path
        self._writer = _Writer(blob, chunk_size=PART_BYTES, retry=retry)

    def add(self, data: bytes) -> None:
        with _told(self._path):
            self._writer.write(data)

    def finish(self) -> None:
        with _told(self._path):
            self._writer.finish()

    def give_up(self) -> None:
        with _told(self._path):
            self._writer.terminate()


class _Writer(BlobWriter):
    """A writer that makes an object of what it was given when it is told to, never as it is closed.

    Files are closed by the garbage collector as well.
    """

    def finish(self) -> None:
        """Makes the object."""
        super().close()

    def close(self) -> None:
        """Does nothing."""


@contextlib.contextmanager
def _told(path: str, reads: bool = False) -> Iterator[None]:
    """Says what errors of the library mean to a job."""
    try:
        yield
    except RetryError as error:
        raise failing(path, _said(error.cause or error)) from None
    except TransportError as error:
        raise failing(path, error) from None
    except GoogleAuthError as error:
        raise UsageError(f"{path}: no credentials ({shown(error)}): {_WAYS_IN}") from None
    except GoogleAPICallError as error:
        raise _meaning(path, int(error.code or 0), shown(error), reads) from None
    except InvalidResponse as error:
        raise _meaning(path, error.response.status_code, _said(error), reads) from None
    except (requests.RequestException, ConnectionError) as error:
        raise failing(path, error) from None


def _said(error: BaseException) -> str:
    if isinstance(error, InvalidResponse):
        return f"{error.response.status_code} {error.response.reason}"
    return shown(error)


def _meaning(path: str, status: int, said: str, reads: bool) -> Exception:
    bucket, _ = bucket_and_key(path)
    if status == 404:
        if reads and "bucket does not exist" not in said:
            return FileNotFoundError(f"{path}: there is no such object")
        return UsageError(f"{path}: there is no bucket {bucket!r}: create it, or name another")
    if status == 401:
        return UsageError(f"{path}: the store refuses the credentials ({said}): {_WAYS_IN}")
    if status == 403:
        if reads:
            return PermissionError(f"{path}: it may not be read ({said})")
        return UsageError(f"{path}: the store refuses ({said}): {_WAYS_IN}")
    if status == 412:
        return OSError(f"{path}: it was replaced while it was read")
    if status >= 500 or status in (408, 429):
        return failing(path, said)
    return UsageError(f"{path}: the store refuses ({status}: {said})")
