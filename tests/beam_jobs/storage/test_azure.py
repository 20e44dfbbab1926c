"""What only Azure Blob Storage has: blocks that all attempts share, and no request that drops them."""

import os

import pytest
from azure.storage.blob import BlobServiceClient, ContainerClient

import readers
from beam_jobs.errors import DataError
from beam_jobs.storage.atomic import NewFile, drop_uploads, list_files, write_file
from beam_jobs.storage.files import open_file, read_bytes
from beam_jobs.storage.objects import NewObject, store_of
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


def test_an_upload_is_complete_even_if_the_answer_to_its_commit_is_lost(azure):
    with NewFile(azure.url, "x") as file:
        file.write(LARGE)
        # The last block, and the list of blocks.
        azure.proxy.fault(500, "/x$", methods=("PUT",), first=1, every=2, after=True)
        file.publish()
    assert len([r for r in azure.proxy.seen("/x$", "PUT") if r.fault]) == 1
    assert azure.get(f"{azure.url}/x") == LARGE


def test_of_two_attempts_at_one_object_both_succeed(azure, container):
    first, second = begun(f"{azure.url}/x"), begun(f"{azure.url}/x")
    first.publish()
    second.publish()
    assert azure.get(f"{azure.url}/x") == LARGE
    # The last one of the second attempt, which the store drops after a week.
    assert len(blocks(container, "x")) == 1


def test_an_attempt_never_takes_other_bytes_for_its_own(azure):
    first, second = begun(f"{azure.url}/x"), begun(f"{azure.url}/x", LARGE[::-1])
    first.publish()
    with pytest.raises(DataError, match=rf"{azure.url}/x: its upload was aborted"):
        second.publish()
    assert azure.get(f"{azure.url}/x") == LARGE


def test_an_attempt_that_fails_leaves_the_blocks_of_another_alone(azure, container):
    lives = begun(f"{azure.url}/x")
    with pytest.raises(ZeroDivisionError), NewFile(azure.url, "x") as file:
        file.write(LARGE)
        raise ZeroDivisionError
    lives.publish()
    assert azure.get(f"{azure.url}/x") == LARGE
    assert blocks(container, "x") == []


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


def test_the_blocks_of_a_run_that_ended_meanwhile_are_left_alone(azure, monkeypatch):
    file = begun(f"{azure.url}/data/shard")
    found = store_of(azure.url)
    drop = type(found)._drop_blocks

    def ended_before(store, path):
        file.publish()
        drop(store, path)

    monkeypatch.setattr(type(found), "_drop_blocks", ended_before)
    drop_uploads(f"{azure.url}/data")
    assert azure.get(f"{azure.url}/data/shard") == LARGE


def test_two_versions_of_an_object_are_never_mixed(azure):
    azure.put(f"{azure.url}/x", LARGE)
    with open_file(f"{azure.url}/x") as file:
        file.read(10)
        azure.put(f"{azure.url}/x", LARGE[::-1])
        with pytest.raises(OSError, match="it was replaced while it was read"):
            file.read()


def test_an_object_of_another_writer_has_no_checksum(azure):
    azure.put(f"{azure.url}/x", b"some")
    assert store_of(azure.url).checksum(f"{azure.url}/x") == (4, None)


def test_folders_of_a_hierarchical_namespace_are_no_files(azure, container):
    container.upload_blob("data/folder", b"", metadata={"Hdi_isfolder": "true"})
    write_file(azure.url, "data/folder/x", b"x")
    assert [file.path for file in list_files(azure.url)] == [f"{azure.url}/data/folder/x"]


def test_a_listing_of_several_pages_survives_failures(azure, monkeypatch):
    for number in range(5):
        write_file(azure.url, f"data/{number}", b"x" * number)
    listed = ContainerClient.list_blobs
    monkeypatch.setattr(
        ContainerClient, "list_blobs", lambda *a, **k: listed(*a, results_per_page=2, **k)
    )
    azure.proxy.forget()
    azure.proxy.fault(503, every=2)
    assert [file.size for file in list_files(f"{azure.url}/data")] == [0, 1, 2, 3, 4]
    assert [r.status for r in azure.proxy.seen()] == [200, 503, 200, 503, 200]


def test_compressed_objects_are_read_as_they_are_stored(azure, container):
    from azure.storage.blob import ContentSettings

    encoded = ContentSettings(content_encoding="gzip")
    container.upload_blob("x.gz", b"no gzip at all", content_settings=encoded)
    assert read_bytes(f"{azure.url}/x.gz") == b"no gzip at all"


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
