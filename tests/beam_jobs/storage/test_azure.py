"""What only Azure Blob Storage has: blocks that all attempts share, and no request that drops them."""

import os

import pytest
from azure.storage.blob import BlobServiceClient

import readers
from beam_jobs.errors import DataError
from beam_jobs.storage.atomic import list_files, write_file
from beam_jobs.storage.files import store_of
from readers.files import backoff
from readers.files.files import ExistsError
from tests.support import azurite
from tests.support.arrays import ids
from tests.support.datasets import write_numbers

pytestmark = pytest.mark.azurite

# Several blocks, all different.
LARGE = os.urandom(1 << 20) * 37

STAGING = ""  # Stores need none.


@pytest.fixture(autouse=True)
def short_waits(monkeypatch):
    monkeypatch.setattr(backoff, "LONGEST_WAIT", 0.01)


@pytest.fixture
def container(azure):
    """The container past the proxy."""
    account = azurite.connection_string(f"http://127.0.0.1:{azure.server.port}")
    client = BlobServiceClient.from_connection_string(account)
    return client.get_container_client(azure.url.removeprefix("az://"))


def begun(path, data=LARGE, replace=False):
    """An object whose parts are sent, but for the last one."""
    file = store_of(path).create(path, STAGING, replace)
    file.write(data)
    return file


def test_an_attempt_never_takes_other_bytes_for_its_own(azure):
    path = f"{azure.url}/x"
    first, second = begun(path), begun(path, LARGE[::-1])
    replacing = begun(path, LARGE[::-1], replace=True)
    first.publish()
    with pytest.raises(ExistsError, match=f"{path}: an object with this name exists"):
        second.publish()
    with pytest.raises(DataError, match=f"{path}: its upload was aborted"):
        replacing.publish()
    assert azure.get(path) == LARGE


def test_an_object_without_its_checksum_is_compared_byte_by_byte(azure):
    path = f"{azure.url}/x"
    azure.put(path, b"same")
    write_file(path, b"same", STAGING)
    with pytest.raises(DataError, match=f"{path} has other bytes"):
        write_file(path, b"else", STAGING)
    assert azure.get(path) == b"same"


def test_folders_of_a_hierarchical_namespace_are_no_files(azure, container):
    container.upload_blob("data/folder", b"", metadata={"Hdi_isfolder": "true"})
    write_file(f"{azure.url}/data/folder/x", b"x", STAGING)
    assert [file.path for file in list_files(azure.url)] == [f"{azure.url}/data/folder/x"]


def test_errors_do_not_reveal_a_signature(azure, monkeypatch):
    endpoint = f"{azure.proxy.url}/{azurite.ACCOUNT}"
    account = f"BlobEndpoint={endpoint};SharedAccessSignature={azurite.signature()}"
    monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", account)
    monkeypatch.setattr("readers.files.backoff.TRIES", 1)
    write_file(f"{azure.url}/x", b"x", STAGING)
    secret = azurite.signature().split("sig=")[1].split("&")[0]
    for kind in ("refuse", 403, 503):
        azure.proxy.forget()
        azure.proxy.fault(kind, methods=None)
        with pytest.raises(Exception, match="the store") as caught:
            write_file(f"{azure.url}/x", b"x", STAGING)
        assert secret not in str(caught.value) and "\n" not in str(caught.value)
    monkeypatch.setenv(
        "AZURE_STORAGE_CONNECTION_STRING", account.replace(azure.proxy.url, "http://127.0.0.1:9")
    )
    with pytest.raises(DataError, match=r"the store keeps failing .*sig=…") as caught:
        write_file(f"{azure.url}/x", b"x", STAGING)
    assert secret not in str(caught.value)


def test_a_url_may_name_its_account(azure, tmp_path):
    name = azure.url.removeprefix("az://")
    root = f"abfs://{name}@{azurite.ACCOUNT}.dfs.core.windows.net"
    local = write_numbers(tmp_path / "numbers", (20, 30))
    for file in local.iterdir():
        write_file(f"{root}/numbers/{file.name}", file.read_bytes(), STAGING)
    assert {file.path for file in list_files(root)} == {
        f"{root}/numbers/{file.name}" for file in local.iterdir()
    }
    for url in (f"{root}/numbers", f"{azure.url}/numbers", f"abfss://{name}/numbers"):
        assert ids(readers.as_numpy(url, split="train", batch_size=10)) == list(range(50))
