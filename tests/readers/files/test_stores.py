"""Datasets in object stores: real servers, behind a network that throttles, truncates and drops."""

import os
import shutil
import subprocess
import sys
import types
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

import readers
from readers.files import backoff
from readers.files.of_path import LOCAL, files_of
from readers.files.stores import clients
from readers.files.stores.per_process import PerProcess
from readers.head import shown_records_as_json
from readers.order.orders import GlobalOrder
from tests.support.arrays import ids
from tests.support.datasets import NUMBERS, damage, write_dataset, write_numbers
from tests.support.object_stores import Bucket, uninstall

LARGE = readers.Schema({"id": ("int64", ()), "data": ("uint8", (None,))})


@pytest.fixture(scope="module")
def numbered(tmp_path_factory) -> Path:
    return write_numbers(tmp_path_factory.mktemp("numbers") / "numbers", (50, 40, 70, 40), 3)


@pytest.fixture(scope="module")
def large(tmp_path_factory) -> Path:
    """Two shards of 5 MiB with records of 64 KiB."""
    rng = np.random.default_rng(0)
    rows = [{"id": i, "data": rng.integers(0, 256, 1 << 16, np.uint8)} for i in range(160)]
    return write_dataset(
        tmp_path_factory.mktemp("large") / "large", LARGE, {"train": [rows[:80], rows[80:]]}
    )


@pytest.fixture
def hasty(monkeypatch):
    """Readers that try six times, and do not wait long."""
    monkeypatch.setattr(backoff, "LONGEST_WAIT", 0.01)
    monkeypatch.setattr(backoff, "TRIES", 6)
    monkeypatch.setattr("readers.files.stores.gcs._SECONDS", 0.5)
    monkeypatch.setattr(clients, "_stores", PerProcess(8))
    # Azure's library reads a broken body again, after a second each time.
    monkeypatch.setattr("azure.storage.blob._download.time", types.SimpleNamespace(sleep=id))


def test_all_readers_read_from_a_store(store: Bucket, numbered: Path, tmp_path: Path) -> None:
    url = store.upload(numbered)
    assert readers.Manifest.read(url).splits["train"].records == 200
    assert ids(readers.as_numpy(url, split="train", batch_size=30)) == list(range(200))
    found = ids(
        readers.as_numpy(
            url, split="train", batch_size=30, shuffle=readers.Order(by="global"), seed=3
        )
    )
    assert found == GlobalOrder(200, 3)(0, np.arange(200)).tolist()
    source = readers.RecordSource(url, split="train")
    assert [int(row["id"]) for row in source.__getitems__([199, 0, 70])] == [199, 0, 70]
    assert int(source[-1]["id"]) == 199
    assert readers.verify(url).ok
    found = readers.as_numpy(f"{url}/val*.tfrecord", schema=NUMBERS, batch_size=8)
    assert ids(found) == [1000, 1001, 1002]


def test_a_few_records_are_fetched_by_range_requests(s3: Bucket, large: Path) -> None:
    url = s3.upload(large)
    source = readers.RecordSource(url)
    assert [int(row["id"]) for row in source.__getitems__([3, 4, 90])] == [3, 4, 90]
    assert int(source[150]["id"]) == 150
    seen = s3.proxy.seen(r"\.tfrecord$")
    assert all(request.range for request in seen)
    # Records 3 and 4 are adjacent, so they share a request.
    assert len(seen) == 3
    assert sum(request.sent for request in seen) < 5 * (1 << 16)


def test_iterating_over_records_and_showing_the_first_take_a_request_a_window(
    s3: Bucket, large: Path
) -> None:
    url = s3.upload(large)
    assert [int(row["id"]) for row in readers.RecordSource(url)] == list(range(160))
    assert len(s3.proxy.seen(r"\.tfrecord$")) <= 8
    s3.proxy.forget()
    assert len(list(shown_records_as_json(url, "train", 50))) == 50
    assert len(s3.proxy.seen(r"\.tfrecord$")) <= 4


@pytest.mark.parametrize("how", [{}, {"shuffle": readers.Order(by="interleave")}])
def test_a_pass_takes_few_requests_and_fetches_each_byte_once(
    s3: Bucket, large: Path, how: dict
) -> None:
    url = s3.upload(large)
    assert sorted(ids(readers.as_numpy(url, batch_size=4, batching="padded", **how))) == list(
        range(160)
    )
    seen = s3.proxy.seen(r"\.tfrecord$")
    assert len(seen) <= 4
    assert sum(request.sent for request in seen) < 1.05 * sum(
        path.stat().st_size for path in large.glob("*.tfrecord")
    )


def traffic(bucket: Bucket, batches) -> tuple[list[int], int, int]:
    """The ids in some batches, and how many requests and bytes of shards it took to read them."""
    bucket.proxy.forget()
    found = ids(batches)
    seen = bucket.proxy.seen(r"\.tfrecord$")
    return found, len(seen), sum(request.sent for request in seen)


def test_skipping_damaged_records_takes_no_more_requests_than_raising(
    s3: Bucket, large: Path, monkeypatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("readers.batches.read_sizes._AHEAD_BYTES", 1 << 20)
    monkeypatch.setattr("readers.shards.opened.fetch._GAP_BYTES", 0)
    intact, cut = s3.upload(large), shutil.copytree(large, tmp_path / "cut")
    damage(cut / "train-00001-of-00002.tfrecord", 7)
    damaged = s3.upload(cut)
    how = {
        "batching": "padded",
        "batch_size": 4,
        "shuffle": readers.Order(by="interleave", buffer=40),
    }
    for read in (readers.load, readers.as_numpy):
        raised = traffic(s3, read(intact, **how))
        assert raised[1] < 40
        assert traffic(s3, read(intact, **how, on_corrupt="skip")) == raised
        found, requests, _ = traffic(s3, read(damaged, **how, on_corrupt="skip"))
        expected = [*raised[0], raised[0][0]]
        expected[expected.index(87)] = expected[expected.index(87) + 1]
        assert found == expected[:160]
        assert requests <= raised[1] + 4


def test_an_index_takes_a_request_and_a_missing_one_no_more(s3: Bucket, tmp_path: Path) -> None:
    url = s3.upload(write_numbers(tmp_path / "numbers", (2_000,)))
    for _ in range(2):  # The second reader finds the copy of the first.
        assert len(ids(readers.as_numpy(url, split="train", batch_size=100))) == 2_000
        assert len(s3.proxy.seen(r"\.index$")) == 1
    file = next((tmp_path / "numbers").glob("train*.tfrecord"))
    s3.proxy.forget()
    readers.as_numpy([s3.upload(file, "bare.tfrecord")], schema=NUMBERS, batch_size=100)
    assert len(s3.proxy.seen(r"\.index$", method=None)) == 1
    # Its size, its version, and the headers of its records.
    assert len(s3.proxy.seen(r"bare\.tfrecord$", method=None)) == 3


def test_two_iterators_do_not_fetch_records_again_that_either_of_them_has(
    s3: Bucket, large: Path, monkeypatch
) -> None:
    monkeypatch.setattr("readers.batches.read_sizes._AHEAD_BYTES", 1 << 20)
    monkeypatch.setattr("readers.shards.opened.fetch._GAP_BYTES", 0)
    how = {
        "batching": "padded",
        "batch_size": 2,
        "shuffle": readers.Order(by="interleave", buffer=16),
    }
    dataset = readers.load(s3.upload(large), **how)

    # To the end of the epoch, beyond which nobody reads ahead.
    _, requests, sent = traffic(s3, dataset)
    pairs = tf.data.Dataset.zip((dataset, dataset.skip(30)))
    _, requests_of_both, sent_of_both = traffic(s3, pairs.map(lambda first, _: first))
    assert requests_of_both <= 2 * requests
    assert sent_of_both <= 2 * sent


@pytest.mark.slow(base=["s3-503", "gcs-short", "s3-cut"])
@pytest.mark.parametrize("kind", [503, 500, 429, "cut", "short", "refuse"])
def test_failed_requests_are_retried(store, numbered, hasty, kind) -> None:
    url = store.upload(numbered)
    fault = store.proxy.fault(kind, "numbers/", every=3, methods=None)
    assert ids(readers.as_numpy(url, split="train", batch_size=64)) == list(range(200))
    assert fault.done > 3


@pytest.mark.slow(base=["s3-503", "gcs-short"])
@pytest.mark.parametrize("kind", [503, 500, 429, "refuse", "cut", "short"])
def test_a_store_that_does_not_recover_raises_a_one_line_error(
    store, numbered, hasty, kind
) -> None:
    url = store.upload(numbered)
    fault = store.proxy.fault(kind, r"\.tfrecord$")
    with pytest.raises(OSError) as error:  # A body that ends early is no damaged record.
        next(readers.as_numpy(url, split="train", batch_size=64, on_corrupt="skip"))
    text = str(error.value)
    assert "\n" not in text
    assert f"{url}/train-00000-of-00004.tfrecord: " in text
    assert "the store keeps failing" in text and "try again later" in text
    if isinstance(kind, int):
        assert str(kind) in text
    assert fault.done >= 2
    # Google's library limits the time of retries, so a fast machine makes more of them.
    assert url.startswith("gs://") or fault.done <= 300


def test_a_file_truncated_in_the_store_loses_only_its_end(store, numbered, hasty) -> None:
    url = store.upload(numbered)
    name = "train-00003-of-00004.tfrecord"
    data = (numbered / name).read_bytes()
    store.put(f"{url}/{name}", data[: len(data) // 2])
    how = {"split": "train", "batch_size": 64, "on_corrupt": "skip"}
    batches = readers.as_numpy(url, **how)
    found, left = ids(batches), 200 - batches.skipped
    assert found == [*range(left), *[0] * (200 - left)] and 160 < left < 200
    assert not readers.verify(url).ok


def test_missing_files_and_denied_access_are_not_retried(s3: Bucket, numbered: Path, hasty) -> None:
    url = s3.upload(numbered)
    with pytest.raises(readers.DatasetError, match=r"no manifest\.json here"):
        readers.as_numpy(f"{url}x", batch_size=1)
    s3.proxy.fault(403, r"\.tfrecord$")
    with pytest.raises(PermissionError, match=r"tfrecord: it may not be read .* credentials"):
        next(readers.as_numpy(url, split="train", batch_size=64))
    asked = [request.path for request in s3.proxy.seen(r"\.tfrecord$")]
    assert 1 <= len(asked) == len(set(asked))


def test_missing_credentials_raise_a_one_line_error(s3, numbered, monkeypatch, tmp_path) -> None:
    url = s3.upload(numbered)
    for variable in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(variable)
    monkeypatch.setenv("HOME", str(tmp_path))
    code = f"import readers; readers.Manifest.read({url!r})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert f"{url}/manifest.json: no credentials" in done.stderr.splitlines()[-1]


@pytest.mark.parametrize(
    ("protocol", "extra", "module"),
    [
        ("s3", "s3", "boto3"),
        ("gs", "gcs", "google.cloud.storage"),
        ("az", "azure", "azure.storage.blob"),
    ],
)
def test_the_error_for_a_missing_library_has_the_pip_command(
    protocol, extra, module, monkeypatch
) -> None:
    uninstall(module, monkeypatch)
    with pytest.raises(ImportError, match=rf"pip install 'beam-shards\[{extra}\]'"):
        files_of(f"{protocol}://bucket/x")


def test_a_driver_s_cached_listing_does_not_hide_new_files(store, numbered) -> None:
    for number, file in enumerate(sorted(numbered.glob("train*.tfrecord"))):
        store.upload(file, f"grows/{number}.tfrecord")
        plan = readers.as_numpy(f"{store.url}/grows/*.tfrecord", schema=NUMBERS, batch_size=300)
        assert len(next(plan)["id"]) == [50, 90, 160, 200][number]


def test_waits_grow_and_are_randomised(monkeypatch) -> None:
    waits: list[float] = []
    monkeypatch.setattr(backoff, "time", types.SimpleNamespace(sleep=waits.append))
    assert [*backoff.tries(6), *backoff.tries(6)] == [*range(1, 7)] * 2
    first, second = waits[:5], waits[5:]
    assert all(0.5 * 2**i * 0.5 <= wait <= 0.5 * 2**i * 1.5 for i, wait in enumerate(first))
    assert len(second) == 5 and first != second


@pytest.mark.parametrize("read", [LOCAL.read, LOCAL.open, lambda path: LOCAL.read(path, 0, 9)])
def test_a_pipe_and_a_device_are_not_read(tmp_path, read):
    os.mkfifo(tmp_path / "pipe")
    for path in (str(tmp_path / "pipe"), "/dev/zero"):
        with pytest.raises(OSError, match="expected a regular file, found a pipe or a device"):
            read(path)


def test_a_user_who_may_not_list_reads_datasets_and_files(s3, numbered, tmp_path) -> None:
    # Without the right to list, a store forbids what is not there.
    url = s3.upload(numbered)
    s3.proxy.fault(403, r"generations/", methods=None)
    assert len(ids(readers.as_numpy(url, split="train", batch_size=64))) == 200
    file = s3.upload(numbered / "val-00000-of-00001.tfrecord", "bare.tfrecord")
    s3.proxy.fault(403, r"bare\.tfrecord/manifest\.json$", methods=None)
    assert ids(readers.as_numpy([file], schema=NUMBERS, batch_size=8)) == [1000, 1001, 1002]


def test_other_names_of_a_scheme_are_the_same_store(s3, numbered) -> None:
    url = s3.upload(numbered).replace("s3://", "s3a://")
    assert len(ids(readers.as_numpy(url, split="train", batch_size=64))) == 200


def test_an_object_that_is_replaced_while_it_is_read_is_named(store: Bucket) -> None:
    url = f"{store.url}/x"
    store.put(url, bytes(3 << 20))
    with (
        pytest.raises(OSError, match="it was replaced while it was read"),
        files_of(url).open(url) as file,
    ):
        file.read(10)
        store.put(url, bytes(2 << 20))
        while file.read(1 << 18):
            pass


def test_a_bucket_is_no_file(store: Bucket) -> None:
    scheme = store.url.split("://")[0]
    for url, words in ((f"{scheme}://", "expected"), (f"{scheme}:///x", "expected")):
        with pytest.raises((PermissionError, ValueError), match=words):
            readers.Manifest.read(url)
