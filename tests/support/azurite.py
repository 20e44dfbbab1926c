"""The command, the account and the signature of Azurite, Microsoft's emulator of Azure Blob Storage."""

from __future__ import annotations

import datetime

from tests.engines.packages import azurite, needed_by

ACCOUNT = "devstoreaccount1"

# The key of this account in all of Azurite's servers; Microsoft's documentation has it.
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="


def command() -> list[str]:
    """The command that serves blobs from memory; `{port}` stands for the port."""
    options = ["--inMemoryPersistence", "--silent", "--skipApiVersionCheck", "--disableTelemetry"]
    program = [needed_by("node", "Azurite"), str(azurite())]
    return [*program, "--blobHost", "127.0.0.1", "--blobPort", "{port}", *options]


def connection_string(endpoint: str) -> str:
    """The connection string of the account behind an address."""
    return (
        f"DefaultEndpointsProtocol=http;AccountName={ACCOUNT};AccountKey={KEY};"
        f"BlobEndpoint={endpoint}/{ACCOUNT};"
    )


def signature() -> str:
    """A query that permits everything in the account for a day."""
    from azure.storage.blob import AccountSasPermissions, ResourceTypes, generate_account_sas

    token: str = generate_account_sas(
        ACCOUNT,
        KEY,
        resource_types=ResourceTypes(service=True, container=True, object=True),
        permission=AccountSasPermissions.from_string("rwdlac"),
        expiry=datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(days=1),
    )
    return token
