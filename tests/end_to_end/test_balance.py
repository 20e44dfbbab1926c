"""The shards of a split differ by at most one record, or by the bytes of the largest one."""

import random

import apache_beam as beam
import numpy as np
import pytest
from PIL import Image

from beam_jobs import Feature, Schema, WriteShards
from beam_jobs.dataset import topup
from beam_jobs.pipeline import commit
from readers.format.decode.records import Decoder
from readers.format.manifest import CARD, Manifest
from tests.support.commands import IN_MEMORY, run
from tests.support.datasets import crc32c, parse_tfrecord, rejects_of, write_recordings

FRAME = 16


def checked(directory):
    """The records of each shard of each split, after comparing all files with the manifest."""
    manifest = Manifest.read(str(directory))
    decoder = Decoder(manifest.schema)
    found, files = {}, {"manifest.json", *CARD}
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


def keys_of(shards):
    return [record["key"].item().decode() for records in shards for record in records]


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


def assert_recordings(source, out, rejects):
    """Asserts that the records are the recordings of a folder, except the rejected ones."""
    found = checked(out)
    every = {str(path.relative_to(source)) for path in source.rglob("*.npy")}
    keys = keys_of(found["train"])
    assert len(keys) == len(set(keys))
    assert rejects_of(out).keys() == every - {*keys}
    assert len(keys) == len(every) - rejects
    for record in (record for records in found["train"] for record in records):
        np.testing.assert_array_equal(
            record["signal"], np.load(source / record["key"].item().decode())
        )
    return found


RECORDINGS = 150


@pytest.mark.slow
@pytest.mark.parametrize(
    ("bad", "shards"),
    [
        (random.Random(0).sample(range(RECORDINGS), 40), 7),
        # The schema is learned from the first 20 files.
        ([n for n in range(RECORDINGS) if n != 12], 20),
        (range(20, RECORDINGS), 7),
    ],
    ids=["a quarter", "all but one", "all but twenty"],
)
def test_damaged_recordings_leave_the_shards_balanced(tmp_path, bad, shards):
    write_recordings(tmp_path / "in", [1 + n % 23 for n in range(RECORDINGS)], bad)
    arguments = ["sensors", "--input", f"{tmp_path}/in/*/*.npy", "--num_shards", shards]
    assert run(*arguments, "--output", tmp_path / "out") == 0
    found = assert_recordings(tmp_path / "in", tmp_path / "out", len(bad))
    assert len(found["train"]) == shards
    assert_balanced_by_records(found)


def test_damaged_images_leave_the_shards_of_every_split_balanced(tmp_path):
    (tmp_path / "in" / "x").mkdir(parents=True)
    bad = set(random.Random(90).sample(range(120), 90))
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
    shards = [shard for split in found.values() for shard in split]
    assert sorted(keys_of(shards)) == sorted(f"x/{n}.png" for n in range(120) if n not in bad)
    assert sorted(rejects_of(tmp_path / "out")) == sorted(f"x/{n}.png" for n in bad)
    for record in (record for shard in shards for record in shard):
        n = int(record["key"].item().decode()[2:-4])
        assert record["image"].shape == (3 + n % 4, 4 + n % 5, 3)
        assert (record["image"] == np.array([n, 255 - n, 7])).all()


# Records of very different sizes.


def unequal(seed, count=160, largest=4000):
    draw = np.random.default_rng(seed)
    return np.minimum(1 + draw.pareto(0.8, count) * 8, largest).astype(int).tolist()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("lengths", "rejects"),
    [(unequal(0), 0), (unequal(2), 50), ([5] * 60 + [9000], 0)],
    ids=["whole", "damaged", "one as large as all others"],
)
def test_recordings_balanced_by_bytes_differ_by_the_largest_at_most(tmp_path, lengths, rejects):
    bad = random.Random(2).sample(range(len(lengths)), rejects)
    write_recordings(tmp_path / "in", lengths, bad)
    arguments = ["sensors", "--input", f"{tmp_path}/in/*/*.npy", "--num_shards", 7]
    assert run(*arguments, "--balance", "bytes", "--output", tmp_path / "out") == 0
    assert_balanced_by_bytes(tmp_path / "out")
    found = assert_recordings(tmp_path / "in", tmp_path / "out", rejects)
    assert len(found["train"]) == 7


SCHEMA = Schema({"x": Feature("uint8", (None,)), "key": Feature("string")})


def write_shards(out, records, **arguments):
    with beam.Pipeline() as pipeline:
        pipeline | beam.Create(records) | WriteShards(str(out), SCHEMA, **arguments)


@pytest.mark.slow
def test_write_shards_balanced_by_bytes_differs_by_the_largest_at_most(tmp_path):
    lengths = unequal(0, 200, 3000)
    records = {f"r{n}": np.full(k, n % 256, np.uint8) for n, k in enumerate(lengths)}
    elements = [(key, {"x": x}) for key, x in records.items()]
    write_shards(tmp_path / "out", elements, num_shards=6, balance="bytes")
    assert_balanced_by_bytes(tmp_path / "out")
    found = checked(tmp_path / "out")["train"]
    assert sorted(keys_of(found)) == sorted(records)
    for record in (record for shard in found for record in shard):
        np.testing.assert_array_equal(record["x"], records[record["key"].item().decode()])


@pytest.mark.slow(base=["0"])
@pytest.mark.parametrize("seed", range(3))
def test_write_shards_with_rejects_is_balanced(tmp_path, seed):
    # Enough rejects for one to have its hash next to a boundary of shards.
    records = [(f"r{n}", {"x": np.full(n % 5, n % 256, np.uint8)}) for n in range(2000)]
    records += [(f"bad{n}", {"x": "no array"}) for n in range(1000)]
    write_shards(tmp_path / "out", records, num_shards=50, seed=seed, on_reject="skip")
    found = checked(tmp_path / "out")
    assert_balanced_by_records(found)
    assert sum(map(len, found["train"])) == 2000
    assert len(rejects_of(tmp_path / "out")) == 1000


@pytest.mark.slow
def test_moved_records_are_appended_without_rewriting_the_shard(monkeypatch, tmp_path):
    write_recordings(tmp_path / "in", [200] * 405, bad=range(10, 400, 40))
    apply, written = topup.apply_change, []

    def watched(directory, prepared):
        shard = tmp_path / "out" / prepared.change.name
        inode = shard.stat().st_ino
        after = apply(directory, prepared)
        assert shard.stat().st_ino == inode
        written.append(after.shard.bytes - prepared.kept_bytes)
        return after

    monkeypatch.setattr(commit, "apply_change", watched)
    arguments = ["sensors", "--input", f"{tmp_path}/in/*/*.npy", "--num_shards", 8, *IN_MEMORY]
    assert run(*arguments, "--output", tmp_path / "out") == 0
    assert_balanced_by_records(checked(tmp_path / "out"))
    record = 1350
    assert 0 < sum(written) <= 10 * record
