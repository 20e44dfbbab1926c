"""Measures the time to the first batch, and the memory of each process, with a dataset of a billion records.

    python benchmarks/first_batch.py --data /tmp/billion [--records 10000000] [--shards 100] [--processes 8]

The script makes the dataset: all shards are hard links to one file, and each has its own index. The folder is kept.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import time
from pathlib import Path

import google_crc32c
import numpy as np

import readers
from readers.format.encode.records import Encoder
from readers.format.index import HASH, Index, head_crc32c
from readers.format.splits import shard_name
from readers.format.tfrecord import frame

_SCHEMA = readers.Schema({"number": ("int64", ())})

# Records that are written together.
_TOGETHER = 100_000


def write(folder: Path, records: int, shards: int) -> None:
    """Writes a dataset of shards with the same number of records each."""
    folder.mkdir(parents=True)
    record = frame(Encoder(_SCHEMA).encode({"number": 7}))
    file, crc = folder / "every", 0
    with file.open("wb") as out:
        for _ in range(records // _TOGETHER):
            out.write(block := record * _TOGETHER)
            crc = google_crc32c.extend(crc, block)
    lengths, listed = np.full(records, len(record), np.int64), []
    for number in range(shards):
        name = shard_name("train", number, shards)
        os.link(file, folder / name)
        hashes = (np.arange(records) + number).astype(np.uint32)
        index = Index(lengths, {HASH: hashes}).to_bytes()
        (folder / f"{name}.index").write_bytes(index)
        sizes = file.stat().st_size, crc, len(index), head_crc32c(index)
        listed.append(readers.Shard(name, records, *sizes, number))
    file.unlink()
    manifest = readers.Manifest(_SCHEMA, {"train": readers.Split(tuple(listed))})
    (folder / "manifest.json").write_bytes(manifest.to_bytes())


def read(folder: Path, seed: int) -> None:
    """Reads the first batches of a shuffle, and prints the time and the memory of this process."""
    began = time.perf_counter()
    batches = readers.as_numpy(folder, batch_size=128, shuffle=True, seed=seed)
    next(batches)
    first = time.perf_counter() - began
    for _ in range(200):
        next(batches)
    later = time.perf_counter() - began - first
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()[1:]
    memory = {line.split(":")[0]: int(line.split()[1]) >> 10 for line in lines}
    print(
        f"first batch {first:.2f} s, 200 more {later:.1f} s, {memory['Anonymous']} MB private, "
        f"{memory['Rss']} MB with maps, {memory['Pss']} MB where shared pages count once",
        flush=True,
    )


def main() -> None:
    """Makes the dataset if it is missing, and reads it in several processes at once."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", type=Path, required=True, help="a folder, created if missing")
    parser.add_argument("--records", type=int, default=10_000_000, help="of each shard")
    parser.add_argument("--shards", type=int, default=100)
    parser.add_argument("--processes", type=int, default=1)
    flags = parser.parse_args()
    if not flags.data.exists():
        write(flags.data, flags.records, flags.shards)
    spawn, seed = multiprocessing.get_context("spawn"), time.time_ns() % 1_000_000
    started = [spawn.Process(target=read, args=(flags.data, seed)) for _ in range(flags.processes)]
    for process in started:
        process.start()
    for process in started:
        process.join()


if __name__ == "__main__":
    main()
