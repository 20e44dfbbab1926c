"""Measures how fast a dataset is read of which some records are gone, relative to the same dataset with all of them.

    python benchmarks/living.py --data /tmp/living [--records 1000000] [--shards 10] [--batches 2000] [--turns 5]
    python benchmarks/living.py --data /tmp/copies --copies
    python benchmarks/living.py --data /tmp/living --pictures 20000

With `--pictures`, it compares pictures with an embedding in files next to them with a dataset that was written with both. Each
turn reads the first batches of a global shuffle of each dataset, one after another; a ratio is of one turn. The
folder is kept.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np
from first_batch import write

import beam_jobs
import readers
from beam_jobs import write as write_records
from beam_jobs.changes.command import change
from beam_jobs.changes.compact import compact
from beam_jobs.jobs.images.pixels import compressed
from readers.format.lookup.rows import RowList, pack_rows


def delete(base: Path, folder: Path, count: int) -> None:
    """Writes a dataset in the files of another one, of which some records, drawn at random, are gone."""
    folder.mkdir()
    manifest = readers.Manifest.read(base)
    (split,) = manifest.splits.values()
    rows = np.sort(np.random.default_rng(7).choice(split.stored, count, replace=False))
    data = pack_rows(rows, split.stored)
    (folder / "train.gone").write_bytes(data)
    gone = RowList("train.gone", count, google_crc32c.value(data))
    shards = tuple(replace(s, path=f"../{base.name}/{s.path}") for s in split.shards)
    splits = {"train": replace(split, shards=shards, gone=gone)}
    text = replace(manifest, splits=splits, base=(f"../{base.name}",)).to_bytes()
    (folder / "manifest.json").write_bytes(text)


def rate(folder: Path, batches: int, seed: int, size: int = 1024) -> float:
    """Records per second of a number of batches, after the first one."""
    read = readers.as_numpy(folder, batch_size=size, shuffle=True, seed=seed, repeat=None)
    next(read)
    began = time.perf_counter()
    for _ in range(batches):
        next(read)
    return batches * size / (time.perf_counter() - began)


def embedding(record: dict[str, Any], _: object = None) -> dict[str, np.ndarray]:
    """The embedding of a record, as a function for `beam-shards columns`."""
    return {"clip": np.random.default_rng(record["number"]).random(512, np.float32)}


def families(data: Path, pictures: int, turns: int) -> None:
    """Writes pictures with embeddings in the same files, and in other ones, reads them in turns, and prints the ratio."""
    random, features = np.random.default_rng(3), dict[str, Any](number="int64", key="string")
    features["image"] = "uint8", (64, 64, 3), "jpeg"
    noise = random.integers(0, 255, (100, 64, 64, 3), np.uint8)
    images = [compressed(picture, "jpeg") for picture in noise]
    records = [(f"{n}", {"image": images[n % 100], "number": n}) for n in range(pictures)]
    if not (data / "both").exists():
        both = ((key, {**record, **embedding(record)}) for key, record in records)
        write_records(both, data / "both", readers.Schema(features | {"clip": ("float32", (512,))}))
        write_records(records, data / "apart", readers.Schema(features))
        began, flags = time.perf_counter(), ["--map_schema", "clip=float32[512]", "--name", "clip"]
        change(["columns", str(data / "apart"), "--map", "living:embedding", *flags])
        print(f"columns: {pictures / (time.perf_counter() - began):,.0f} records/s")
    batches, found = pictures // 128 - 1, list[tuple[float, float]]()
    for turn in range(turns + 1):
        found.append(
            (rate(data / "apart", batches, turn, 128), rate(data / "both", batches, turn, 128))
        )
    ratio = statistics.median(apart / both for apart, both in found[1:])
    apart, both = (statistics.median(rates) for rates in zip(*found[1:], strict=True))
    print(f"apart {apart:,.0f}/s, together {both:,.0f}/s, ratio {ratio:.3f}")


def copied(folder: Path, records: int, size: int) -> str:
    """Megabytes per second of a write, of `compact` after an append of a fifth, and of a copy of the same files."""
    schema = readers.Schema(
        {"key": readers.Feature("string"), "x": readers.Feature("uint8", (size,))}
    )
    values = np.random.default_rng(7).integers(0, 256, size, np.uint8)

    def some(first: int, last: int) -> Iterator[tuple[str, dict[str, np.ndarray]]]:
        return ((str(number), {"x": values}) for number in range(first, last))

    def write_all(first: int, last: int, name: str, append: bool = False) -> None:
        beam_jobs.write(some(first, last), folder / name, schema, num_shards=8, append=append)

    write_all(0, records * 4 // 5, "living")
    write_all(records * 4 // 5, records, "living", append=True)
    steps = {
        "cp": lambda: shutil.copytree(folder / "living", folder / "copy"),
        "write": lambda: write_all(0, records, "whole"),
        "compact": lambda: compact(str(folder / "living"), 8),
    }
    found = []
    for name, step in steps.items():
        began = time.perf_counter()
        step()
        os.sync()
        rate = records * size / (time.perf_counter() - began) / 1e6
        found.append(f"{name} {rate:,.0f} MB/s")
    return f"{records:,} records of {size:,} bytes: {', '.join(found)}"


def main() -> None:
    """Makes the datasets that are missing, reads them in turns, and prints the medians."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", type=Path, required=True, help="a folder, created if missing")
    parser.add_argument("--records", type=int, default=1_000_000, help="of each shard")
    parser.add_argument("--shards", type=int, default=10)
    parser.add_argument("--batches", type=int, default=2000)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--copies", action="store_true", help="measure compact instead")
    parser.add_argument("--pictures", type=int, default=0, help="compare a family of features")
    flags = parser.parse_args()
    if flags.copies:
        for records, size in ((2_000, 100_000), (100_000, 1_000)):
            print(copied(flags.data / str(size), records, size))
        return
    if flags.pictures:
        families(flags.data, flags.pictures, flags.turns)
        return
    every = flags.records * flags.shards
    counts = {"all": 0, "few": every // 10_000, "tenth": every // 10}
    for name, count in counts.items():
        if name == "all" and not (flags.data / name).exists():
            write(flags.data / name, flags.records, flags.shards)
        elif not (flags.data / name).exists():
            delete(flags.data / "all", flags.data / name, count)
    rates: dict[str, list[float]] = {name: [] for name in counts}
    for turn in range(flags.turns + 1):
        for name in counts:
            once = rate(flags.data / name, flags.batches, turn)
            if turn:  # The first turn warms the pages of the files.
                rates[name].append(once)
    print("| gone | records/s | of all |\n|---|---|---|")
    for name, found in rates.items():
        ratio = statistics.median(a / b for a, b in zip(found, rates["all"], strict=True))
        print(f"| {counts[name]:,} of {every:,} | {statistics.median(found):,.0f} | {ratio:.3f} |")


if __name__ == "__main__":
    main()
