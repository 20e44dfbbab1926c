"""The shards of a split differ by at most one record."""

import random

import apache_beam as beam
import numpy as np
from PIL import Image

from beam_jobs import Feature, Schema, WriteShards
from readers.format.decode.records import Decoder
from readers.format.manifest import Manifest
from tests.support.commands import run
from tests.support.datasets import crc32c, parse_tfrecord, rejects_of

FRAME = 16


def checked(directory):
    """The records of each shard of each split, after comparing all files with the manifest."""
    manifest = Manifest.read(str(directory))
    decoder = Decoder(manifest.schema)
    found, files = {}, {"manifest.json"}
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


SCHEMA = Schema({"x": Feature("uint8", (None,)), "key": Feature("string")})


def write_shards(out, records, **arguments):
    with beam.Pipeline() as pipeline:
        pipeline | beam.Create(records) | WriteShards(str(out), SCHEMA, **arguments)


def test_write_shards_with_rejects_is_balanced(tmp_path):
    # Enough rejects for one to have its hash next to a boundary of shards.
    records = [(f"r{n}", {"x": np.full(n % 5, n % 256, np.uint8)}) for n in range(2000)]
    records += [(f"bad{n}", {"x": "no array"}) for n in range(1000)]
    write_shards(tmp_path / "out", records, num_shards=50, on_reject="skip")
    found = checked(tmp_path / "out")
    assert_balanced_by_records(found)
    assert sum(map(len, found["train"])) == 2000
    assert len(rejects_of(tmp_path / "out")) == 1000
