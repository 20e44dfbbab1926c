"""The cache of shards on a local disk: shared by processes, limited in size, and never stale."""

import fcntl
import os
import pickle
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import readers
from readers.files import kept_files
from readers.shards.cache import check_cache
from readers.shards.resolve import resolve
from tests.support.arrays import ids
from tests.support.datasets import NUMBERS, numbers, write_dataset, write_numbers
from tests.support.object_stores import Bucket

RECORDS = 200


def shards(bucket: Bucket):
    """The requests for the content of shards."""
    seen = bucket.proxy.seen(r"\.tfrecord$")
    return [request for request in seen if request.range and request.range != "bytes=0-11"]


@pytest.fixture(scope="module")
def numbered(tmp_path_factory) -> Path:
    return write_numbers(tmp_path_factory.mktemp("numbers") / "numbers", (50, 40, 70, 40), 3)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def held(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.glob("*.*") if path.suffix != ".lock")


@pytest.mark.slow(base=["s3"])
def test_each_shard_is_fetched_once_for_all_readers(store: Bucket, numbered, directory) -> None:
    url = store.upload(numbered)
    how = {"split": "train", "cache": readers.Cache(directory)}
    assert ids(readers.as_numpy(url, batch_size=30, shuffle=True, **how)) != list(range(RECORDS))
    assert len(shards(store)) == 4
    assert held(directory) == sum(f.stat().st_size for f in numbered.glob("train*.tfrecord"))
    assert ids(readers.as_numpy(url, batch_size=30, **how)) == list(range(RECORDS))
    source = readers.RecordSource(url, **how)
    assert int(source[77]["id"]) == 77
    assert int(pickle.loads(pickle.dumps(source))[78]["id"]) == 78
    local = ids(readers.load(numbered, split="train", batch_size=30, shuffle=True, seed=2))
    assert ids(readers.load(url, batch_size=30, shuffle=True, seed=2, **how)) == local
    how["shuffle"] = readers.Order(False, by="interleave")
    local = ids(readers.load(numbered, 30, split="train", shuffle=how["shuffle"]))
    assert ids(readers.load(url, 30, **how)) == local
    assert len(shards(store)) == 4


def test_a_rewritten_dataset_is_fetched_again(s3: Bucket, numbered, directory, tmp_path) -> None:
    url = s3.upload(numbered)
    how = {"split": "train", "batch_size": 64, "cache": readers.Cache(directory)}
    assert ids(readers.as_numpy(url, **how)) == list(range(RECORDS))
    # The same names and sizes, but different content.
    rows = [numbers(i + 1, n) for i, n in [(10, 50), (60, 40), (200, 70), (300, 40)]]
    other = write_dataset(tmp_path / "other", NUMBERS, {"train": rows, "val": [numbers(1, 2)]})
    s3.upload(other, "numbers")
    assert ids(readers.as_numpy(url, **how)) == [
        int(row["id"]) for several in rows for row in several
    ]


def test_the_least_recently_opened_shards_make_room(s3, numbered, directory) -> None:
    parts = resolve(s3.upload(numbered), "train", None, None).parts
    sizes = [part.bytes or 0 for part in parts]
    kept = readers.Cache(directory, sum(sizes) - 1)
    check_cache(kept)
    for part in parts[:3]:
        kept.open(part).close()
    time.sleep(0.02)
    kept.open(parts[0]).close()
    reading = kept.open(parts[1])
    os.utime(directory / Path(reading.name).name, ns=(1, 1))
    kept.open(parts[3]).close()
    assert held(directory) == sum(sizes) - sizes[1]
    # A deleted shard can still be read by those who have opened it.
    assert len(reading.read()) == sizes[1]
    reading.close()
    assert len(shards(s3)) == 4
    kept.open(parts[0]).close()
    assert len(shards(s3)) == 4
    kept.open(parts[1]).close()
    assert len(shards(s3)) == 5


def test_a_dataset_that_does_not_fit_is_cached_in_part_and_otherwise_read_from_the_store(
    s3, numbered, directory
) -> None:
    url = s3.upload(numbered)
    sizes = [part.bytes or 0 for part in resolve(url, "train", None, None).parts]
    how = {"cache": readers.Cache(directory, sizes[0] + sizes[1] + 5)}
    for _ in range(3):
        batches = readers.as_numpy(url, split="train", batch_size=32, shuffle=True, **how)
        assert sorted(ids(batches)) == list(range(RECORDS))
        assert held(directory) == sizes[0] + sizes[1]
    whole = [request for request in shards(s3) if "-00000-" in request.path]
    assert len(whole) == 1


def test_a_shard_that_does_not_match_the_manifest_is_not_cached(
    s3, numbered, directory, caplog
) -> None:
    url = s3.upload(numbered)
    name = "train-00001-of-00004.tfrecord"
    data = bytearray((numbered / name).read_bytes())
    data[1000] ^= 1
    s3.put(f"{url}/{name}", bytes(data))
    how = {"split": "train", "batch_size": 64, "cache": readers.Cache(directory)}
    with pytest.raises(ValueError, match=f"{name}: record "):
        ids(readers.as_numpy(url, **how))
    assert f"{name}: not kept in readers.Cache(" in caplog.text
    batches = readers.as_numpy(url, **how, on_corrupt="skip")
    found = ids(batches)
    assert len(found) == RECORDS and len(set(found)) == RECORDS - 1 and batches.skipped == 1
    assert len(list(directory.glob("*.shard"))) == 3 and not list(directory.glob("*.partial"))


_READ = """
import readers, sys
url, directory, seed = sys.argv[1:]
found = [int(i) for batch in readers.as_numpy(url, split="train", batch_size=16, shuffle=True,
    seed=int(seed), repeat=2, cache=readers.Cache(directory)) for i in batch["id"]]
assert sorted(found) == sorted(list(range(200)) * 2), sorted(found)
"""


def test_a_process_killed_while_fetching_leaves_no_shard_that_looks_complete(
    s3, numbered, directory
) -> None:
    url = s3.upload(numbered)
    code = (
        "import sys, time\nfrom readers.shards import cache\nwrite = cache.write\n"
        "def half(file, data):\n    write(file, data[: len(data) // 2])\n"
        "    print('half\\n', end='', flush=True)\n    time.sleep(60)\ncache.write = half\n" + _READ
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, url, str(directory), "1"], stdout=subprocess.PIPE
    )
    assert process.stdout is not None and process.stdout.readline() == b"half\n"
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    assert list(directory.glob("*.partial")) and not list(directory.glob("*.shard"))
    batches = readers.as_numpy(url, split="train", batch_size=16, cache=readers.Cache(directory))
    assert ids(batches) == list(range(RECORDS))
    assert len(list(directory.glob("*.shard"))) == 4 and not list(directory.glob("*.partial"))


def test_partial_files_are_deleted_for_room_only_if_no_process_fills_them(
    s3, numbered, directory
) -> None:
    part = resolve(s3.upload(numbered), "train", None, None).parts[0]
    kept = readers.Cache(directory, part.bytes or 0)
    check_cache(kept)
    left = directory / f"{'0' * 40}.partial"
    left.write_bytes(b"x")
    with left.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert kept.open(part) is None
        assert left.exists() and held(directory) == 1
    opened = kept.open(part)
    assert opened is not None and not left.exists()
    opened.close()


def test_files_that_are_not_the_cache_s_own_are_left_alone(s3, numbered, directory) -> None:
    directory.mkdir()
    for name in ("mine.shard", "note.txt", f"{'a' * 39}.shard"):
        (directory / name).write_bytes(bytes(1000))
    parts = resolve(s3.upload(numbered), "train", None, None).parts
    kept = readers.Cache(directory, max(part.bytes or 0 for part in parts))
    for part in parts:
        kept.open(part).close()
    assert len(list(directory.glob("*"))) == 3 + 1 + 1


def test_a_full_disk_disables_only_the_cache(s3, numbered, directory, monkeypatch, caplog) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(kept_files, "reserve", full)
    url = s3.upload(numbered)
    batches = readers.as_numpy(url, split="train", batch_size=16, cache=readers.Cache(directory))
    assert ids(batches) == list(range(RECORDS))
    assert "No space left on device" in caplog.text and "read from the store" in caplog.text
    assert not held(directory)


def test_a_directory_that_cannot_be_written_raises_a_one_line_error(tmp_path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(OSError, match=r"^Cache\(.*\) cannot be written \(Not a directory\)"):
        readers.as_numpy(tmp_path, 1, cache=readers.Cache(tmp_path / "file" / "cache"))


def test_what_is_no_cache_is_refused() -> None:
    with pytest.raises(ValueError, match=r"Cache\('s3://b/x'\): expected a local directory"):
        readers.Cache("s3://b/x")
    for size in ("much", "", "-1", "10XiB", 0, -5, True, "0"):
        with pytest.raises(ValueError, match="expected a size such as"):
            readers.Cache("x", size)
    sizes = {"10GiB": 10 << 30, "1.5 GB": 1_500_000_000, "500k": 500_000, "7": 7, 9: 9}
    assert {size: readers.Cache("x", size).size for size in sizes} == sizes


def test_a_cached_shard_that_was_cut_off_is_fetched_again(s3, numbered, directory) -> None:
    url, how = (
        s3.upload(numbered),
        {"split": "train", "cache": readers.Cache(directory), "batch_size": 30},
    )
    ids(readers.as_numpy(url, **how))
    cut = sorted(directory.glob("*.shard"))[0]
    os.truncate(cut, cut.stat().st_size // 2)
    before = len(shards(s3))
    assert ids(readers.as_numpy(url, **how)) == list(range(RECORDS))
    assert len(shards(s3)) == before + 1
    assert held(directory) == sum(f.stat().st_size for f in numbered.glob("train*.tfrecord"))


def test_nothing_is_written_through_a_link(s3, numbered, directory, tmp_path) -> None:
    url, how = (
        s3.upload(numbered),
        {"split": "train", "cache": readers.Cache(directory), "batch_size": 30},
    )
    ids(readers.as_numpy(url, **how))
    victim = tmp_path / "victim"
    victim.write_text("precious")
    for path in directory.glob("*.shard"):
        path.unlink()
        path.with_suffix(".partial").symlink_to(victim)
    with pytest.raises(OSError, match="symbolic links"):
        ids(readers.as_numpy(url, **how))
    assert victim.read_text() == "precious"


def damaged_copy(
    bucket: Bucket, numbered: Path, directory: Path, flips: int = 1
) -> tuple[str, dict]:
    """Caches a dataset, flips bits of the copy of its second shard, and returns how to read it."""
    url, how = bucket.upload(numbered), {"split": "train", "cache": readers.Cache(directory)}
    ids(readers.as_numpy(url, batch_size=30, **how))
    original = (numbered / "train-00001-of-00004.tfrecord").read_bytes()
    (copy,) = [path for path in directory.glob("*.shard") if path.read_bytes() == original]
    data = bytearray(original)
    for at in range(flips):
        data[-1000 - 200 * at] ^= 1
    with copy.open("r+b") as file:
        file.write(data)
    return url, how


@pytest.mark.parametrize("how", [{"on_corrupt": "skip"}, {"shuffle": True, "repeat": 2}])
def test_a_damaged_copy_is_deleted_and_its_shard_read_from_the_store(
    s3, numbered, directory, caplog, how
) -> None:
    url, read = damaged_copy(s3, numbered, directory, flips=5)
    batches = readers.as_numpy(url, **read, batch_size=30, **how)
    assert sorted(ids(batches)) == sorted([*range(RECORDS)] * how.get("repeat", 1))
    assert batches.skipped == 0
    assert caplog.text.count("its copy") == 1
    assert "train-00001-of-00004.tfrecord: its copy" in caplog.text
    assert len(list(directory.glob("*.shard"))) == 3
    # The next reader fetches it again.
    assert ids(readers.as_numpy(url, **read, batch_size=30)) == list(range(RECORDS))
    originals = {path.read_bytes() for path in numbered.glob("train*.tfrecord")}
    assert {path.read_bytes() for path in directory.glob("*.shard")} == originals


def test_only_their_user_may_read_the_cache_and_its_files(s3, numbered, directory) -> None:
    url = s3.upload(numbered)
    ids(readers.as_numpy(url, split="train", batch_size=30, cache=readers.Cache(directory)))
    assert directory.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in directory.iterdir()} == {0o600}


@pytest.mark.parametrize("kind", ["link", "pipe", "foreign"])
def test_what_the_cache_has_not_written_is_replaced(
    s3, numbered, directory, tmp_path, monkeypatch, kind
) -> None:
    url, read = damaged_copy(s3, numbered, directory, flips=0)
    for copy in directory.glob("*.shard"):
        if kind == "link":
            copy.rename(tmp_path / copy.name)
            copy.symlink_to(tmp_path / copy.name)
        elif kind == "pipe":
            copy.unlink()
            os.mkfifo(copy)
    if kind == "foreign":
        own = directory.stat().st_uid
        monkeypatch.setattr(kept_files, "_owners", lambda folder: {own + 1})
    before = len(shards(s3))
    assert ids(readers.as_numpy(url, **read, batch_size=30)) == list(range(RECORDS))
    assert len(shards(s3)) == before + 4
    assert all(copy.is_file() and not copy.is_symlink() for copy in directory.glob("*.shard"))
