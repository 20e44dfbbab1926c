"""The store of a URL: one client per kind of store and process."""

from __future__ import annotations

import os
import pkgutil
import re
from collections.abc import Mapping
from typing import Any

from readers.files.stores.errors import Errors, SignIn
from readers.files.stores.per_process import PerProcess
from readers.files.stores.store import Store, bucket_and_key

# Scheme -> the extra that installs its library.
_EXTRAS = {"s3": "s3", "gs": "gcs", "az": "azure", "abfs": "azure", "abfss": "azure"}

_STORE = re.compile(rf"({'|'.join(_EXTRAS)})://")

# The class of each store; importing it imports its library.
_CLASSES = {
    "s3": "readers.files.stores.s3:S3Store",
    "gcs": "readers.files.stores.gcs:GcsStore",
    "azure": "readers.files.stores.azure:AzureStore",
}

# The prefixes of each store's options, and of the environment variables of all stores.
_OPTIONS = {"s3": ("s3_",), "gcs": ("",), "azure": ("azure_", "blob_service_endpoint")}

_NO_OPTIONS: Mapping[str, Any] = {}

_VARIABLES = ("AWS_", "AZURE_", "STORAGE_EMULATOR_", "GOOGLE_")

_SIGN_INS = {
    "s3": SignIn(
        "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE",
        "set --s3_access_key_id and --s3_secret_access_key, or ",
        "add --s3_access_key_id=... --s3_secret_access_key=... (and --s3_session_token=...) to the "
        "command, or give the workers' machines a role",
    ),
    "gcs": SignIn(
        "run gcloud auth application-default login, or set GOOGLE_APPLICATION_CREDENTIALS",
        "",
        "give the workers' machines a service account, or set GOOGLE_APPLICATION_CREDENTIALS where the "
        "engine starts them",
    ),
    "azure": SignIn(
        "set AZURE_STORAGE_CONNECTION_STRING; or AZURE_STORAGE_ACCOUNT_NAME, and one of AZURE_STORAGE_ACCOUNT_KEY, "
        "AZURE_STORAGE_SAS_TOKEN, AZURE_STORAGE_ANON=true or a login (az login, a managed identity)",
        "set --azure_connection_string, or ",
        "add --azure_connection_string, or give the workers a managed identity",
    ),
}

# Creating a client takes 60 ms of processor time.
_stores = PerProcess[Store](8)


def is_store(path: str) -> bool:
    """Whether a path is the URL of an object in one of these stores."""
    return bool(_STORE.match(path))


def store_of(
    path: str, options: Mapping[str, Any] = _NO_OPTIONS, errors: type[Errors] = Errors
) -> Store:
    """The store of a URL, with Beam's options; raises RefusedError."""
    scheme = path.split("://")[0]
    extra = _EXTRAS[scheme]
    found = {name: value for name, value in options.items() if name.startswith(_OPTIONS[extra])}
    meaning = errors(_SIGN_INS[extra])
    if not bucket_and_key(path)[0]:
        raise meaning.refused(f"{path}: expected {scheme}://BUCKET/…")
    # Keyed by the environment variables that its library reads, because they may change.
    variables = [(name, os.environ[name]) for name in os.environ if name.startswith(_VARIABLES)]
    key = extra, errors, str(sorted(found.items())), str(variables)
    try:
        return _stores.get(key, lambda: _new_store(extra, found, meaning))
    except ImportError as error:
        raise meaning.missing_package(
            f"{scheme}:// paths need a package ({error}): pip install 'beam-shards[{extra}]'"
        ) from None


def _new_store(extra: str, options: Mapping[str, Any], errors: Errors) -> Store:
    store: Store = pkgutil.resolve_name(_CLASSES[extra])(options, errors)
    return store
