"""Shards of a split are balanced to the last record, or byte, whatever turns out to be bad."""

import json
import random

import apache_beam as beam
import numpy as np
import pytest
from PIL import Image

from beam_jobs import Feature, Schema, WriteShards
from beam_jobs.__main__ import main
from beam_jobs.dataset import moves, topup
from beam_jobs.pipeline import commit
from readers.format.decode.records import Decoder
from readers.format.manifest import Manifest
from tests.support.datasets import crc32c, npy, parse_tfrecord, write_recordings

IN_MEMORY = ["--direct_running_mode", "in_memory"]
FRAME = 16


def run(*arguments):
    return main([str(argument) for argument in arguments])


def rejects_of(directory):
    return [
        json.loads(line)["key"]
        for path in sorted((directory / "rejects").glob("*.jsonl"))
        for line in path.read_text().splitlines()
    ]


def checked(directory, checksums=True):
    """Split -> its shards, a list of records each, after comparing all files with the manifest."""
    manifest = Manifest.read(str(directory))
    decoder = Decoder(manifest.schema)
    found, files = (
        {},
        {"manifest.json", "vocabulary.txt"} if manifest.vocabulary else {"manifest.json"},
    )
    for name, split in manifest.splits.items():
        found[name] = []
        for shard in split.shards:
            data = (directory / shard.file).read_bytes()
            records = parse_tfrecord(data)
            ends = np.cumsum([len(record) + FRAME for record in records], dtype=int).tolist()
            index = "".join(
                f"{end - len(record) - FRAME} {len(record) + FRAME}\n"
                for end, record in zip(ends, records, strict=True)
            )
            assert (directory / f"{shard.file}.idx").read_text() == index
            assert (shard.records, shard.bytes) == (len(records), len(data))
            assert shard.crc32c == crc32c(data)
            files |= {shard.file, f"{shard.file}.idx"}
            found[name].append([decoder.decode(record) for record in records])
        everything = [record for records in found[name] for record in records]
        assert split.records == len(everything)
        statistics = split.statistics
        if everything and "signal" in manifest.schema:
            values = np.concatenate([record["signal"].ravel() for record in everything])
            figures = statistics["signal"]
            assert figures["count"] == values.size
            assert (figures["min"], figures["max"]) == (values.min(), values.max())
            np.testing.assert_allclose(figures["mean"], values.mean(dtype=float), rtol=1e-12)
            np.testing.assert_allclose(figures["std"], values.std(dtype=float), rtol=1e-9)
            lengths = [len(record["signal"]) for record in everything]
            assert figures["lengths"]["0"]["count"] == len(lengths)
            assert figures["lengths"]["0"]["max"] == max(lengths)
        if everything:
            assert statistics["key"]["lengths"]["bytes"]["count"] == len(everything)
    assert manifest.rejected == len(rejects_of(directory))
    assert manifest.rejected == sum(split.rejected for split in manifest.splits.values())
    names = {str(p.relative_to(directory)) for p in directory.rglob("*") if p.is_file()}
    assert {name for name in names if not name.startswith("rejects/")} == files
    return found


def keys_of(records):
    return [record["key"].item().decode() for record in records]


def assert_balanced_by_records(splits):
    for found in splits.values():
        counts = [len(records) for records in found]
        assert max(counts, default=0) - min(counts, default=0) <= 1, counts


def assert_balanced_by_bytes(directory):
    for split in Manifest.read(str(directory)).splits.values():
        sizes, largest = [shard.bytes for shard in split.shards], 0
        for shard in split.shards:
            records = parse_tfrecord((directory / shard.file).read_bytes())
            largest = max([largest, *(len(record) + FRAME for record in records)])
        assert max(sizes) - min(sizes) <= largest, (sizes, largest)


def order_of_keys(source, shards, tmp_path):
    """The keys of recordings shard by shard, where none is bad."""
    arguments = ["sensors", "--input", f"{source}/*/*.npy", "--num_shards", shards]
    assert run(*arguments, "--output", tmp_path / "order") == 0
    return [keys_of(records) for records in checked(tmp_path / "order")["train"]]


RECORDINGS = 150


def bad_recordings(which, tmp_path):
    """Numbers of the recordings to be broken."""
    if which.startswith("random"):
        return random.Random(which).sample(range(RECORDINGS), 40)
    if which == "all but one":
        return [
            n for n in range(RECORDINGS) if n != 12
        ]  # The schema is learned from the first 20 files.
    if which == "more than records":
        return random.Random(which).sample(range(RECORDINGS), 100)
    write_recordings(tmp_path / "in", [1 + n % 23 for n in range(RECORDINGS)])
    shards = order_of_keys(tmp_path / "in", 7, tmp_path)
    chosen = {
        "first shard": shards[0],
        "last shard": shards[-1],
        "heads": [keys[0] for keys in shards],
        "tails": [key for keys in shards[::2] for key in keys[-5:]],
        "two shards": shards[2] + shards[3][1:],
        "all but one shard": [key for keys in shards[:6] for key in keys],
    }[which]
    return [int(key.split("/")[1].removesuffix(".npy")) for key in chosen]


WHICH = [
    *("random 0", "random 1", "all but one", "more than records", "first shard", "last shard"),
    *("heads", "tails", "two shards", "all but one shard"),
]


@pytest.mark.slow(base=["7-random 0", "20-all but one"])
@pytest.mark.parametrize("which", WHICH)
@pytest.mark.parametrize("shards", [7, 20])
def test_recordings_that_turn_out_bad_leave_the_shards_balanced(tmp_path, which, shards):
    bad = set(bad_recordings(which, tmp_path))
    lengths = [1 + n % 23 for n in range(RECORDINGS)]
    write_recordings(tmp_path / "in", lengths, bad)
    arguments = ["sensors", "--input", f"{tmp_path}/in/*/*.npy", "--num_shards", shards]
    assert run(*arguments, "--output", tmp_path / "out") == 0
    found = checked(tmp_path / "out")
    assert len(found["train"]) == shards
    assert_balanced_by_records(found)
    keys = [key for records in found["train"] for key in keys_of(records)]
    every = [f"{'abc'[n % 3]}/{n:05d}.npy" for n in range(RECORDINGS)]
    assert sorted(keys) == [
        key for n, key in sorted(enumerate(every), key=lambda p: p[1]) if n not in bad
    ]
    assert sorted(rejects_of(tmp_path / "out")) == sorted(every[n] for n in bad)
    for record in (record for records in found["train"] for record in records):
        path = tmp_path / "in" / record["key"].item().decode()
        np.testing.assert_array_equal(record["signal"], np.load(path))


@pytest.mark.parametrize("count", [12, 90])
def test_pictures_that_turn_out_bad_leave_the_shards_of_every_split_balanced(tmp_path, count):
    (tmp_path / "in" / "x").mkdir(parents=True)
    bad = set(random.Random(count).sample(range(120), count))
    for n in range(120):
        path = tmp_path / "in" / "x" / f"{n}.png"
        if n in bad:
            path.write_bytes(b"\x89PNG\r\n\x1a\n broken")
        else:
            Image.new("RGB", (4 + n % 5, 3 + n % 4), (n, 255 - n, 7)).save(path)
    arguments = ["images", "--input", f"{tmp_path}/in/*/*.png", "--num_shards", 7]
    arguments += ["--splits", "train=0.7,val=0.3"]
    assert run(*arguments, "--output", tmp_path / "out") == 0
    found = checked(tmp_path / "out")
    assert_balanced_by_records(found)
    records = [record for shards in found.values() for shard in shards for record in shard]
    assert sorted(keys_of(records)) == sorted(f"x/{n}.png" for n in range(120) if n not in bad)
    assert sorted(rejects_of(tmp_path / "out")) == sorted(f"x/{n}.png" for n in bad)
    for record in records:
        n = int(record["key"].item().decode()[2:-4])
        assert record["image"].shape == (3 + n % 4, 4 + n % 5, 3)
        assert (record["image"] == np.array([n, 255 - n, 7])).all()


# Records of very different sizes.


def unequal(seed, count=160, largest=4000):
    draw = np.random.default_rng(seed)
    return np.minimum(1 + draw.pareto(0.8, count) * 8, largest).astype(int).tolist()


@pytest.mark.slow(base=["50-2"])
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("rejects", [0, 50])
def test_recordings_balanced_by_bytes_differ_by_the_largest_at_most(tmp_path, seed, rejects):
    lengths = unequal(seed)
    bad = random.Random(seed).sample(range(len(lengths)), rejects)
    write_recordings(tmp_path / "in", lengths, bad)
    arguments = ["sensors", "--input", f"{tmp_path}/in/*/*.npy", "--num_shards", 7, "--seed", seed]
    assert run(*arguments, "--output", tmp_path / "by_records") == 0
    assert run(*arguments, "--balance", "bytes", "--output", tmp_path / "out") == 0
    assert_balanced_by_bytes(tmp_path / "out")
    found = checked(tmp_path / "out")
    assert len(found["train"]) == 7
    keys = [key for records in found["train"] for key in keys_of(records)]
    assert len(set(keys)) == len(keys) == len(lengths) - rejects
    for record in (record for records in found["train"] for record in records):
        path = tmp_path / "in" / record["key"].item().decode()
        np.testing.assert_array_equal(record["signal"], np.load(path))


def test_one_recording_as_large_as_all_others_is_balanced_by_bytes(tmp_path):
    write_recordings(tmp_path / "in", [5] * 60 + [9000])
    arguments = ["sensors", "--input", f"{tmp_path}/in/*/*.npy", "--num_shards", 5]
    assert run(*arguments, "--balance", "bytes", "--output", tmp_path / "out") == 0
    assert_balanced_by_bytes(tmp_path / "out")
    assert sum(map(len, checked(tmp_path / "out")["train"])) == 61


@pytest.mark.slow
@pytest.mark.parametrize("tokens", ["none", "words"])
def test_texts_balanced_by_bytes_differ_by_the_largest_at_most(tmp_path, tokens):
    lines = [json.dumps({"text": "ab " * n}) for n in unequal(5, 300, 900)]
    lines[10] = lines[200] = "{"
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    arguments = ["text", "--input", tmp_path / "a.jsonl", "--tokens", tokens, "--num_shards", 7]
    arguments += ["--balance", "bytes", "--splits", "train=0.8,val=0.2"]
    assert run(*arguments, "--output", tmp_path / "out") == 0
    assert_balanced_by_bytes(tmp_path / "out")
    found = checked(tmp_path / "out")
    keys = [key for shards in found.values() for records in shards for key in keys_of(records)]
    assert sorted(keys) == sorted(f"a.jsonl#{n}" for n in range(1, 301) if n not in (11, 201))


SCHEMA = Schema({"x": Feature("uint8", (None,)), "key": Feature("string")})


def write_shards(out, records, **arguments):
    with beam.Pipeline() as pipeline:
        pipeline | beam.Create(records) | WriteShards(str(out), SCHEMA, **arguments)


@pytest.mark.slow(base=["0"])
@pytest.mark.parametrize("seed", range(3))
def test_write_shards_balanced_by_bytes_differs_by_the_largest_at_most(tmp_path, seed):
    lengths = unequal(seed, 200, 3000)
    records = [(f"r{n}", {"x": np.full(k, n % 256, np.uint8)}) for n, k in enumerate(lengths)]
    write_shards(tmp_path / "out", records, num_shards=6, balance="bytes", seed=seed)
    assert_balanced_by_bytes(tmp_path / "out")
    found = checked(tmp_path / "out")
    values = {
        record["key"].item().decode(): record["x"] for shard in found["train"] for record in shard
    }
    assert values.keys() == {key for key, _ in records}
    for key, record in records:
        np.testing.assert_array_equal(values[key], record["x"])


@pytest.mark.slow(base=["0"])
@pytest.mark.parametrize("seed", range(6))
def test_write_shards_is_balanced_wherever_its_rejects_fall(tmp_path, seed):
    # So many that one of them has its hash beside a boundary of shards.
    records = [(f"r{n}", {"x": np.full(n % 5, n % 256, np.uint8)}) for n in range(2000)]
    records += [(f"bad{n}", {"x": "no array"}) for n in range(1000)]
    write_shards(tmp_path / "out", records, num_shards=50, seed=seed)
    found = checked(tmp_path / "out")
    assert_balanced_by_records(found)
    assert sum(map(len, found["train"])) == 2000
    assert len(rejects_of(tmp_path / "out")) == 1000


@pytest.mark.slow(base=["13-1"])
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("wanted", [4, 13])
def test_the_number_of_shards_is_that_of_their_size(tmp_path, seed, wanted):
    # Recordings of 1 to 4,000 rows: the 32 that are measured say little about the mean.
    write_recordings(tmp_path / "in", unequal(seed, 400))
    arguments = ["sensors", "--input", f"{tmp_path}/in/*/*.npy", "--seed", seed]
    assert run(*arguments, "--num_shards", 1, "--output", tmp_path / "one") == 0
    total = Manifest.read(str(tmp_path / "one")).splits["train"].bytes
    arguments += ["--shard_size", total // wanted]
    assert run(*arguments, "--output", tmp_path / "out") == 0
    shards = len(Manifest.read(str(tmp_path / "out")).splits["train"].shards)
    assert abs(shards - total / (total // wanted)) <= max(1, 0.1 * wanted)


# What moving records costs.


class Counted:
    """A file that counts the bytes read from it."""

    def __init__(self, file, counts):
        self.file, self.counts = file, counts

    def read(self, size=-1):
        data = self.file.read(size)
        self.counts["read"] += len(data)
        return data

    def seek(self, *arguments):
        return self.file.seek(*arguments)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.file.close()


def cost_of_moving(monkeypatch, tmp_path, rejects):
    """Bytes read and written when as many recordings of one shard turn out bad."""
    source = tmp_path / f"in{rejects}"
    lengths = [200] * 405  # Which 8 shards cannot share evenly.
    write_recordings(source, lengths)
    shards = order_of_keys(source, 8, tmp_path / f"keys{rejects}")
    for key in shards[4][:rejects]:
        (source / key).write_bytes(b"broken")
    counts = {"read": 0, "written": 0}
    open_file, write_file, apply = topup.open_file, topup.write_file, topup.apply_change

    def counted_write(directory, name, data):
        counts["written"] += len(data)
        write_file(directory, name, data)

    def counted_apply(directory, prepared):
        shard = tmp_path / f"out{rejects}" / prepared.change.name
        inode = shard.stat().st_ino
        after = apply(directory, prepared)
        assert shard.stat().st_ino == inode, "written anew"
        counts["written"] += after.shard.bytes - prepared.kept_bytes
        return after

    with monkeypatch.context() as patch:
        for module in (topup, moves):
            patch.setattr(module, "open_file", lambda path: Counted(open_file(path), counts))
        patch.setattr(topup, "write_file", counted_write)
        patch.setattr(commit, "apply_change", counted_apply)
        arguments = ["sensors", "--input", f"{source}/*/*.npy", "--num_shards", 8, *IN_MEMORY]
        assert run(*arguments, "--output", tmp_path / f"out{rejects}") == 0
    assert_balanced_by_records(checked(tmp_path / f"out{rejects}"))
    return counts, Manifest.read(str(tmp_path / f"out{rejects}")).splits["train"]


@pytest.mark.slow
def test_moving_records_costs_what_the_rejects_do(monkeypatch, tmp_path):
    record = 1350
    none, _ = cost_of_moving(monkeypatch, tmp_path, 0)
    assert none == {"read": 0, "written": 0}
    for rejects in (2, 10):
        counts, split = cost_of_moving(monkeypatch, tmp_path, rejects)
        index = max(
            (tmp_path / f"out{rejects}" / f"{shard.file}.idx").stat().st_size
            for shard in split.shards
        )
        # A record is read as intake and as what its donor loses, and read back from the copy; it
        # is written to the copy and to the shard. Its donor's index is read three times at most.
        assert 0 < counts["read"] <= rejects * (3 * record + 3 * index) + index
        assert 0 < counts["written"] <= rejects * (2 * record + index) + index
        assert counts["read"] + counts["written"] < split.bytes / 2


@pytest.mark.slow
def test_moving_one_record_costs_the_same_in_a_larger_dataset(monkeypatch, tmp_path):
    counts = []
    for number in (80, 800):
        moved = {"read": 0}
        source, out = tmp_path / f"in{number}", tmp_path / f"out{number}"
        write_recordings(source, [1000] * number)
        shards = order_of_keys(source, 8, tmp_path / f"keys{number}")
        for key in shards[3][:2]:
            (source / key).write_bytes(npy("<i2", (1000, 3), b"short"))
        open_file = topup.open_file
        with monkeypatch.context() as patch:
            for module in (topup, moves):
                patch.setattr(module, "open_file", lambda path: Counted(open_file(path), moved))  # noqa: B023
            arguments = ["sensors", "--input", f"{source}/*/*.npy", "--num_shards", 8]
            assert run(*arguments, *IN_MEMORY, "--output", out) == 0
        assert [s.records for s in Manifest.read(str(out)).splits["train"].shards].count(
            number // 8
        ) == 6
        counts.append(moved["read"])
    # The indices that are read whole are ten times longer, the rest is not.
    assert counts[1] < counts[0] + 20_000
