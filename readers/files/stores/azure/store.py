"""Objects of Azure Blob Storage, which are written once a list of their blocks is committed."""

from __future__ import annotations

import contextlib
import functools
import re
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import google_crc32c
from azure.core import MatchConditions
from azure.core.exceptions import AzureError, ClientAuthenticationError, IncompleteReadError
from azure.storage.blob import BlobBlock

from readers.files import backoff
from readers.files.files import ChangedError, ExistsError, FileInfo, Stat
from readers.files.stores.ahead import Part
from readers.files.stores.azure.account import REQUEST_BYTES, new_client
from readers.files.stores.errors import Errors, one_line
from readers.files.stores.store import Store, Upload, bucket_and_key

# Where the store keeps the CRC32C of an object: Azure itself computes MD5, and only of small ones.
_CRC32C = "beam_shards_crc32c"

_DELETED_AT_ONCE = 16

_SIGNATURE = re.compile(r"(?<=[?&]sig=)[^&\s'\"]+")

# Error codes that mean the same as another HTTP status than that of their answer.
_STATUSES = {
    "AuthenticationFailed": 401,
    "BlobAlreadyExists": 412,
    "InvalidAuthenticationInfo": 401,
    "NoAuthenticationInformation": 401,
    "PublicAccessNotPermitted": 401,
}


class AzureStore(Store):
    """Containers of Azure Blob Storage, of any number of accounts.

    `az://CONTAINER/…` and `abfs://CONTAINER/…` are in the account of the options and the environment;
    `abfs://CONTAINER@ACCOUNT.dfs.core.windows.net/…` names its own.

    Args:
        options: Beam's options for Azure by name.
        errors: What its answers mean.
    """

    def __init__(self, options: Mapping[str, Any], errors: Errors) -> None:
        super().__init__(errors)
        self._options = options
        self._clients: dict[str, Any] = {}

    def _container(self, path: str) -> Any:
        """The library's handle of a path's container."""
        container, _, host = bucket_and_key(path)[0].partition("@")
        if host not in self._clients:
            self._clients[host] = new_client(self._options, host, self.errors)
        return self._clients[host].get_container_client(container)

    def blob(self, path: str) -> Any:
        """The library's handle of an object, which may be missing."""
        return self._container(path).get_blob_client(bucket_and_key(path)[1])

    def call(self, path: str, ask: Callable[[], Any], reads: bool = False) -> Any:
        """What `ask` returns, called again after errors that may pass; arguments as for `Errors.refusal`."""
        for number in backoff.tries(backoff.TRIES):
            try:
                return ask()
            except AzureError as error:
                if number == backoff.TRIES or not _may_pass(error):
                    raise _meaning(error, path, self.errors, reads) from None

    def _found(self, prefix: str, include: str) -> Iterator[Any]:
        """Yields the library's entries of a listing; arguments as for its `list_blobs`."""
        container, key = self._container(prefix), bucket_and_key(prefix)[1]
        token: str | None = None

        def page() -> tuple[list[Any], str | None]:
            found = container.list_blobs(name_starts_with=key, include=[include])
            pages = found.by_page(token)
            return list(next(pages)), pages.continuation_token

        while True:
            entries, token = self.call(prefix, page)
            yield from entries
            if not token:
                return

    def objects(self, prefix: str) -> Iterator[FileInfo]:
        top = _top(prefix)
        for found in self._found(prefix, "metadata"):
            if not _is_folder(found):
                modified = int(found.last_modified.timestamp() * 1e9)
                yield FileInfo(f"{top}{found.name}", found.size, modified)

    def get(self, path: str, start: int, size: int | None, version: Any = None) -> Part:
        parts: list[bytes] = []
        at, stop = start, None if size is None else start + size
        while True:
            wanted = REQUEST_BYTES if stop is None else min(REQUEST_BYTES, stop - at)
            try:
                ask = functools.partial(self._get, path, at, wanted, version)
                part = self.call(path, ask, reads=True)
            except _BeyondEnd:
                if parts:
                    return Part(b"".join(parts), at, version)
                return self.past_end(path, at, version)
            parts.append(part.data)
            at, version = at + len(part.data), part.version
            if at in (stop, part.total):
                return Part(b"".join(parts), part.total, version)

    def _get(self, path: str, start: int, size: int, version: Any) -> Part:
        how: dict[str, Any] = {"decompress": False}  # Whoever reads a compressed object does that.
        if version:
            how |= {"etag": version, "match_condition": MatchConditions.IfNotModified}
        stream = self.blob(path).download_blob(start, size, **how)
        data = stream.readall()
        total = int(stream.properties.content_range.rpartition("/")[2])
        # The library takes a body that ends early for whole if its headers say so.
        if len(data) != (expected := min(start + size, total) - start):
            raise IncompleteReadError(f"the body ended after {len(data)} of {expected} bytes")
        return Part(data, total, stream.properties.etag)

    def stat(self, path: str) -> Stat:
        there = self.call(path, self.blob(path).get_blob_properties, reads=True)
        known = there.metadata.get(_CRC32C)
        modified = int(there.last_modified.timestamp() * 1e9)
        return Stat(there.size, there.etag, int(known, 16) if known else None, modified)

    def put(self, path: str, data: bytes, replace: bool) -> None:
        # The store compares an MD5 with the bytes that arrived.
        how = {"length": len(data), "overwrite": replace, "validate_content": True}
        known = {_CRC32C: f"{google_crc32c.value(data):08x}"}
        self.call(path, lambda: self.blob(path).upload_blob(data, metadata=known, **how))

    def upload(self, path: str, replace: bool) -> Upload:
        return _BlockUpload(self, path, replace)

    def delete(self, paths: Sequence[str]) -> None:
        with ThreadPoolExecutor(_DELETED_AT_ONCE) as threads:
            list(threads.map(self._delete, paths))

    def _delete(self, path: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            self.call(path, self.blob(path).delete_blob, reads=True)

    def drop_uploads(self, prefix: str) -> None:
        # Blocks alone have no size. Where there is an object too, the next one written drops them.
        objects = {found.name for found in self._found(prefix, "metadata") if not found.size}
        for found in self._found(prefix, "uncommittedblobs"):
            if not found.size and found.name not in objects:
                self._drop_blocks(f"{_top(prefix)}{found.name}")

    def _drop_blocks(self, path: str) -> None:
        """Drops the blocks of an object that does not exist. The store has no request for that.

        An empty object drops them, and is deleted.
        """
        blob = self.blob(path)
        try:
            new = {"match_condition": MatchConditions.IfMissing}
            etag = self.call(path, lambda: blob.commit_block_list([], **new))["etag"]
            same = {"etag": etag, "match_condition": MatchConditions.IfNotModified}
            self.call(path, lambda: blob.delete_blob(**same), reads=True)
        except (ChangedError, ExistsError, FileNotFoundError):
            return  # Somebody has written the object, or deleted it.


class _BlockUpload:
    """An upload in blocks, which are the object's only once a list of them is committed.

    The blocks of all attempts to write an object are together. Committing those of one drops the
    others, so that an attempt need not drop its own, and must not drop those of another.
    """

    def __init__(self, store: AzureStore, path: str, replace: bool) -> None:
        self._store, self._path, self._blob = store, path, store.blob(path)
        self._condition = {} if replace else {"match_condition": MatchConditions.IfMissing}
        self._attempt = uuid.uuid4().hex
        self._blocks: list[str] = []
        self._size = self._crc32c = 0

    def add(self, data: bytes) -> None:
        # The names of all blocks must be of one length. An object has at most 50,000.
        name = f"{self._attempt}{len(self._blocks):05}"
        how = {"length": len(data), "validate_content": True}
        self._store.call(self._path, lambda: self._blob.stage_block(name, data, **how))
        self._blocks.append(name)
        self._size += len(data)
        self._crc32c = google_crc32c.extend(self._crc32c, data)

    def finish(self) -> None:
        blocks = [BlobBlock(name) for name in self._blocks]
        how = {"metadata": {_CRC32C: f"{self._crc32c:08x}"}, **self._condition}
        try:
            self._store.call(self._path, lambda: self._blob.commit_block_list(blocks, **how))
        except _BlocksAreGone:
            # Another attempt has written the object. Its bytes are the same, unless it was of another job.
            try:
                there = self._store.stat(self._path)
            except FileNotFoundError:
                raise self._store.errors.aborted(self._path) from None
            if (there.size, there.crc32c) != (self._size, self._crc32c):
                raise self._store.errors.aborted(self._path) from None

    def give_up(self) -> None:
        """Does nothing: the next attempt drops the blocks, or the next run, or the store after a week."""


class _BeyondEnd(OSError):
    """A range that begins at or after the end of its object."""


class _BlocksAreGone(OSError):
    """A list of blocks that the store no longer has."""


def _top(path: str) -> str:
    """The URL of a path's container, with a final slash."""
    return f"{path.split('://')[0]}://{bucket_and_key(path)[0]}/"


def _is_folder(found: Any) -> bool:
    """Whether an entry is a folder of an account with a hierarchical namespace."""
    return any(name.lower() == "hdi_isfolder" for name in found.metadata or ())


def _may_pass(error: AzureError) -> bool:
    """Whether the same request may succeed a moment later."""
    if isinstance(error, ClientAuthenticationError):
        return False
    status = getattr(error, "status_code", None) or 0
    return status < 300 or backoff.may_pass(status)  # No answer arrived, or only a part of one.


def _meaning(error: AzureError, path: str, errors: Errors, reads: bool) -> Exception:
    """What one of the library's errors means; arguments as for `Errors.refusal`."""
    code = getattr(error, "error_code", None) or ""
    code, answered = str(getattr(code, "value", code)), getattr(error, "status_code", None) or 0
    text = _SIGNATURE.sub("…", str(error.message).strip().partition("\n")[0])
    if answered < 300:
        if isinstance(error, ClientAuthenticationError):
            return errors.no_credentials(path, text)
        return errors.failing(path, text)
    if code == "ContainerNotFound":
        return errors.no_bucket(path, "container")
    if code == "InvalidBlockList":
        return _BlocksAreGone(f"{path}: its blocks were dropped")
    if answered == 416:
        return _BeyondEnd(f"{path}: it ends before")
    answer = one_line(f"{answered} {code}: {text}")
    return errors.refusal(path, _STATUSES.get(code, answered), answer, reads)
