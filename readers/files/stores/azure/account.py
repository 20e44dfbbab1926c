"""The account of a container: its address, and the credentials for it."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from typing import Any

import requests
from azure.core.pipeline.transport import RequestsTransport
from azure.storage.blob import BlobServiceClient

from readers.files.stores.environment import is_set
from readers.files.stores.errors import Errors, one_line

# The library fetches so much with one request.
REQUEST_BYTES = 32 << 20

_CONNECTIONS = 64


def new_client(options: Mapping[str, Any], host: str, errors: Errors) -> BlobServiceClient:
    """A client of one account.

    Args:
        options: Beam's options for Azure by name.
        host: The account's host in a URL; empty for the account of the options and the environment.
        errors: What the answers of the store mean.

    Raises:
        RefusedError: no account is named, or two of them, or the credentials have a wrong form.
    """
    # It would log each request, and each kind of credentials that a machine does not have.
    logging.getLogger("azure").setLevel(logging.ERROR)
    session = requests.Session()
    for scheme in ("http://", "https://"):
        session.mount(scheme, requests.adapters.HTTPAdapter(pool_maxsize=_CONNECTIONS))
    how = {
        "transport": RequestsTransport(session=session, session_owner=False),
        "retry_total": 0,  # `call` retries; the library waits for 15 seconds before its first retry.
        "max_single_get_size": REQUEST_BYTES,
    }
    endpoint, name = options.get("blob_service_endpoint"), host.partition(".")[0]
    name = name or _variable("AZURE_STORAGE_ACCOUNT_NAME", "AZURE_STORAGE_ACCOUNT")
    text = options.get("azure_connection_string")
    if not text and not endpoint:
        text = _variable("AZURE_STORAGE_CONNECTION_STRING")
    if not text and not endpoint and not name:
        raise errors.refused(f"az://: no account is named: {errors.how_to_sign_in()}")
    url = (
        endpoint
        or f"https://{(host or f'{name}.blob.core.windows.net').replace('.dfs.', '.blob.')}"
    )
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
    """What signs the requests to an account; None for public containers."""
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
