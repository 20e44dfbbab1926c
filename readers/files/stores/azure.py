"""Azure Blob Storage, where an object is written by committing a list of its blocks."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import uuid
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import google_crc32c
import requests
from azure.core import MatchConditions
from azure.core.exceptions import AzureError, ClientAuthenticationError
from azure.core.pipeline.transport import RequestsTransport
from azure.storage.blob import BlobBlock, BlobServiceClient

from readers.files import backoff
from readers.files.files import FileInfo, Stat
from readers.files.stores.ahead import Part
from readers.files.stores.errors import Errors, one_line
from readers.files.stores.store import (
    CONNECTIONS,
    Store,
    Upload,
    bucket_and_key,
    is_set,
    nanoseconds,
)

# Where the CRC32C of an object is stored: Azure computes only MD5, and only of small objects.
_CRC32C = "beam_shards_crc32c"

_SIGNATURE = re.compile(r"(?<=[?&]sig=)[^&\s'\"]+")

# Error codes that mean another HTTP status than that of their response.
_STATUSES = {
    "AuthenticationFailed": 401,
    "BlobAlreadyExists": 412,
    "InvalidAuthenticationInfo": 401,
    "NoAuthenticationInformation": 401,
    "PublicAccessNotPermitted": 401,
}

# The library divides larger requests into requests of 4 MiB, one after another.
_REQUEST_BYTES = 1 << 32


class AzureStore(Store):
    """Containers of Azure Blob Storage; an `abfs` URL with a host names its account, others use the environment's."""

    def __init__(self, options: Mapping[str, Any], errors: Errors) -> None:
        super().__init__(errors)
        self._options = options
        self._clients: dict[str, Any] = {}

    def _container(self, path: str) -> Any:
        container, _, host = bucket_and_key(path)[0].partition("@")
        if host not in self._clients:
            self._clients[host] = new_client(self._options, host, self.errors)
        return self._clients[host].get_container_client(container)

    def blob(self, path: str) -> Any:
        """The library's handle for an object, which may be missing."""
        return self._container(path).get_blob_client(bucket_and_key(path)[1])

    def call(self, path: str, ask: Callable[[], Any], reads: bool = False) -> Any:
        """Calls `ask`, again after errors that may be temporary; arguments as for `Errors.refusal`."""
        for number in backoff.tries(backoff.TRIES):
            try:
                return ask()
            except AzureError as error:
                if number == backoff.TRIES or not _may_pass(error):
                    raise _meaning(error, path, self.errors, reads) from None

    def objects(self, prefix: str) -> Iterator[FileInfo]:
        container, (bucket, key) = self._container(prefix), bucket_and_key(prefix)
        top = f"{prefix.split('://')[0]}://{bucket}/"
        token: str | None = None

        def page() -> tuple[list[Any], str | None]:
            found = container.list_blobs(name_starts_with=key, include=["metadata"])
            pages = found.by_page(token)
            return list(next(pages)), pages.continuation_token

        while True:
            entries, token = self.call(prefix, page)
            for entry in entries:
                if not _is_folder(entry):
                    modified = nanoseconds(entry.last_modified)
                    yield FileInfo(f"{top}{entry.name}", entry.size, modified)
            if not token:
                return

    def request(self, path: str, start: int, size: int | None, version: Any) -> Part:
        how: dict[str, Any] = {"decompress": False}  # The caller decompresses compressed objects.
        if version:
            how |= {"etag": version, "match_condition": MatchConditions.IfNotModified}

        def ask() -> Part:
            stream = self.blob(path).download_blob(start, size, **how)
            data, about = stream.readall(), stream.properties
            return Part(data, int(about.content_range.rpartition("/")[2]), about.etag)

        part: Part = self.call(path, ask, reads=True)
        return part

    def stat(self, path: str) -> Stat:
        there = self.call(path, self.blob(path).get_blob_properties, reads=True)
        known = there.metadata.get(_CRC32C)
        crc32c = int(known, 16) if known else None
        return Stat(there.size, there.etag, crc32c, nanoseconds(there.last_modified))

    def put(self, path: str, data: bytes, replace: bool) -> None:
        # The store compares an MD5 with the bytes that arrived.
        how = {"length": len(data), "overwrite": replace, "validate_content": True}
        known = {_CRC32C: f"{google_crc32c.value(data):08x}"}
        self.call(path, lambda: self.blob(path).upload_blob(data, metadata=known, **how))

    def upload(self, path: str, replace: bool) -> Upload:
        return _BlockUpload(self, path, replace)

    def delete_object(self, path: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            self.call(path, self.blob(path).delete_blob, reads=True)


class _BlockUpload:
    """An upload in blocks, which become part of the object only when a list of them is committed.

    The blocks of all attempts to write an object are stored together. Committing those of one attempt drops the
    others, so an attempt need not drop its blocks, and must not drop those of another.
    """

    def __init__(self, store: AzureStore, path: str, replace: bool) -> None:
        self._store, self._path, self._blob = store, path, store.blob(path)
        self._condition = {} if replace else {"match_condition": MatchConditions.IfMissing}
        self._attempt = uuid.uuid4().hex
        self._blocks: list[str] = []
        self._size = self._crc32c = 0

    def add(self, data: bytes) -> None:
        # The names of all blocks must have the same length. An object has at most 50,000.
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
            # Another attempt has written the object, with the same bytes unless it was of another job.
            try:
                there = self._store.stat(self._path)
            except FileNotFoundError:
                raise self._store.errors.aborted(self._path) from None
            if (there.size, there.crc32c) != (self._size, self._crc32c):
                raise self._store.errors.aborted(self._path) from None

    def give_up(self) -> None:
        """Does nothing: the next attempt, or the store after a week, drops the blocks."""


class _BlocksAreGone(OSError):
    """The store no longer has some listed blocks."""


def _is_folder(found: Any) -> bool:
    """Whether an entry is a folder of an account with a hierarchical namespace."""
    return any(name.lower() == "hdi_isfolder" for name in found.metadata or ())


def _may_pass(error: AzureError) -> bool:
    """Whether the same request may succeed a moment later."""
    if isinstance(error, ClientAuthenticationError):
        return False
    status = getattr(error, "status_code", None) or 0
    return status < 300 or backoff.may_pass(status)  # The response is missing or incomplete.


def _meaning(error: AzureError, path: str, errors: Errors, reads: bool) -> Exception:
    """Converts an error of the library; arguments as for `Errors.refusal`."""
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
    answer = one_line(f"{answered} {code}: {text}")
    return errors.refusal(path, _STATUSES.get(code, answered), answer, reads)


def new_client(options: Mapping[str, Any], host: str, errors: Errors) -> BlobServiceClient:
    """A client for the account of a URL's host, or of Beam's options and the environment; raises RefusedError."""
    # It would log each request, and each kind of credentials that this machine lacks.
    logging.getLogger("azure").setLevel(logging.ERROR)
    session = requests.Session()
    for scheme in ("http://", "https://"):
        session.mount(scheme, requests.adapters.HTTPAdapter(pool_maxsize=CONNECTIONS))
    how = {
        "transport": RequestsTransport(session=session, session_owner=False),
        "retry_total": 0,  # `call` retries; the library waits for 15 seconds before its first retry.
        "max_single_get_size": _REQUEST_BYTES,
    }
    endpoint, name = options.get("blob_service_endpoint"), host.partition(".")[0]
    name = name or _variable("AZURE_STORAGE_ACCOUNT_NAME", "AZURE_STORAGE_ACCOUNT")
    text = options.get("azure_connection_string")
    if not text and not endpoint:
        text = _variable("AZURE_STORAGE_CONNECTION_STRING")
    if not text and not endpoint and not name:
        raise errors.refused(f"az://: no account is named: {errors.how_to_sign_in()}")
    address = host.replace(".dfs.", ".blob.") or f"{name}.blob.core.windows.net"
    url = endpoint or f"https://{address}"
    try:
        if text:
            client = BlobServiceClient.from_connection_string(text, **how)
        else:
            client = BlobServiceClient(url, _credential(options, url, name, errors), **how)
    except ValueError as error:
        text = one_line(error).rstrip(".")
        raise errors.refused(f"az://: {text}: {errors.how_to_sign_in()}") from None
    if host and client.account_name != name:
        raise errors.refused(
            f"abfs://…@{host}: the credentials are those of account {client.account_name!r}; give those of "
            f"account {name!r}, or write az://CONTAINER/…"
        )
    return client


def _credential(options: Mapping[str, Any], url: str, account: str, errors: Errors) -> Any:
    """The credential for an account; None for public containers."""
    if key := _variable("AZURE_STORAGE_ACCOUNT_KEY", "AZURE_STORAGE_KEY"):
        return {"account_name": account, "account_key": key} if account else key
    if "sig=" in url:
        return None
    if token := _variable("AZURE_STORAGE_SAS_TOKEN"):
        return token.lstrip("?")
    if is_set("AZURE_STORAGE_ANON"):
        return None
    try:
        from azure.identity import DefaultAzureCredential
    except ImportError as error:
        raise errors.missing_package(
            f"az:// with a login needs azure-identity ({error}): pip install 'beam-shards[azure]'"
        ) from None
    identity = options.get("azure_managed_identity_client_id")
    chosen = {"managed_identity_client_id": identity} if identity else {}
    return DefaultAzureCredential(**chosen)


def _variable(*names: str) -> str:
    """The first of these environment variables that is not empty."""
    return next(filter(None, map(os.environ.get, names)), "") or ""
