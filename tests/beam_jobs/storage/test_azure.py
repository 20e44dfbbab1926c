"""What only Azure Blob Storage has: blocks that all attempts share, and no request that drops them."""

import os

import pytest
from azure.storage.blob import BlobServiceClient

import readers
from beam_jobs.errors import DataError
from beam_jobs.storage.atomic import drop_uploads, list_files, write_file
from beam_jobs.storage.objects import NewObject
from readers.files import backoff
from tests.support import azurite
from tests.support.arrays import ids
from tests.support.datasets import write_numbers

pytestmark = pytest.mark.azurite

# Several blocks, all different.
LARGE = os.urandom(1 << 20) * 37


@pytest.fixture(autouse=True)
def short_waits(monkeypatch):
    monkeypatch.setattr(backoff, "LONGEST_WAIT", 0.01)


@pytest.fixture
def container(azure):
    """The container past the proxy."""
    account = azurite.connection_string(f"http://127.0.0.1:{azure.server.port}")
    client = BlobServiceClient.from_connection_string(account)
    return client.get_container_client(azure.url.removeprefix("az://"))


def blocks(container, name):
    """The blocks of an object that are no part of it, which the store charges for."""
    return container.get_blob_client(name).get_block_list("all")[1]


def begun(path, data=LARGE):
    """An object whose parts are sent, but for the last one."""
    file = NewObject(path)
    file.write(data)
    return file


def test_an_attempt_never_takes_other_bytes_for_its_own(azure):
    first, second = begun(f"{azure.url}/x"), begun(f"{azure.url}/x", LARGE[::-1])
    first.publish()
    with pytest.raises(DataError, match=rf"{azure.url}/x: its upload was aborted"):
        second.publish()
    assert azure.get(f"{azure.url}/x") == LARGE


def test_the_next_run_drops_the_blocks_of_a_killed_run(azure, container):
    file, other = begun(f"{azure.url}/data/shard"), begun(f"{azure.url}/other/shard")
    write_file(azure.url, "data/empty", b"")
    write_file(azure.url, "data/again", b"old")
    again = begun(f"{azure.url}/data/again")
    assert [len(blocks(container, f"{name}/shard")) for name in ("data", "other")] == [2, 2]
    drop_uploads(f"{azure.url}/data")
    found = container.list_blobs(include=["uncommittedblobs"])
    assert [blob.name for blob in found] == ["data/again", "data/empty", "other/shard"]
    with pytest.raises(DataError, match=rf"{azure.url}/data/shard: its upload was aborted"):
        file.publish()
    other.publish()
    again.publish()
    assert azure.get(f"{azure.url}/data/again") == azure.get(f"{azure.url}/other/shard") == LARGE


def test_folders_of_a_hierarchical_namespace_are_no_files(azure, container):
    container.upload_blob("data/folder", b"", metadata={"Hdi_isfolder": "true"})
    write_file(azure.url, "data/folder/x", b"x")
    assert [file.path for file in list_files(azure.url)] == [f"{azure.url}/data/folder/x"]


def test_errors_do_not_reveal_a_signature(azure, monkeypatch):
    endpoint = f"{azure.proxy.url}/{azurite.ACCOUNT}"
    account = f"BlobEndpoint={endpoint};SharedAccessSignature={azurite.signature()}"
    monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", account)
    monkeypatch.setattr("readers.files.backoff.TRIES", 1)
    write_file(azure.url, "x", b"x")
    secret = azurite.signature().split("sig=")[1].split("&")[0]
    for kind in ("refuse", 403, 503):
        azure.proxy.forget()
        azure.proxy.fault(kind, methods=None)
        with pytest.raises(Exception, match="the store") as caught:
            write_file(azure.url, "x", b"x")
        assert secret not in str(caught.value) and "\n" not in str(caught.value)
    monkeypatch.setenv(
        "AZURE_STORAGE_CONNECTION_STRING", account.replace(azure.proxy.url, "http://127.0.0.1:9")
    )
    with pytest.raises(DataError, match=r"the store keeps failing .*sig=…") as caught:
        write_file(azure.url, "x", b"x")
    assert secret not in str(caught.value)


def test_a_url_may_name_its_account(azure, tmp_path):
    name = azure.url.removeprefix("az://")
    root = f"abfs://{name}@{azurite.ACCOUNT}.dfs.core.windows.net"
    local = write_numbers(tmp_path / "numbers", (20, 30))
    for file in local.iterdir():
        write_file(root, f"numbers/{file.name}", file.read_bytes())
    assert {file.path for file in list_files(root)} == {
        f"{root}/numbers/{file.name}" for file in local.iterdir()
    }
    for url in (f"{root}/numbers", f"{azure.url}/numbers", f"abfss://{name}/numbers"):
        assert ids(readers.as_numpy(url, split="train", batch_size=10)) == list(range(50))
