"""Time and memory of readers, which grow with the number of records: 10^6 to 10^9 tiny ones.

    python benchmarks/scale_read.py --records 1000000 100000000 --workers 0 8

Each shard has a million records of one number (some 35 bytes each). `--linked` makes all shards names
of one file, so that a billion records fit on a small disk: their indexes are then read as many times
as there are shards, and only the pages of their data are shared.

The batches of `readers.torch_batches`, in global order, are read by a DataLoader with some worker
processes (0: by the process itself). *open* is the time until the dataset is open, *first* until the
first batch is there, *all* until each worker has read enough batches to have touched all shards. The
memory is the proportional set size of all processes by then, so shared pages count once: without
mapped files (*private*) and of the maps of indexes (*mapped*). It runs twice, because the second run
finds what the first one left on this machine.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import google_crc32c
import numpy as np

import readers
from readers.format.encode import Encoder
from readers.format.index import format_index
from readers.format.manifest import INDEX_SUFFIX, MANIFEST, Manifest
from readers.format.splits import Shard, Split, shard_name
from readers.format.tfrecord import frame_all

_SHARD, _BLOCK = 1_000_000, 100_000
_BATCH = 256
_SCHEMA = readers.Schema({"x": ("int64", ())})


def make(folder: Path, records: int, linked: bool) -> Path:
    """Writes a dataset whose record k has the value k modulo 100,000, unless it exists."""
    store = folder / f"{records}{'-linked' if linked else ''}"
    if (store / MANIFEST).exists():
        return store
    store.mkdir(parents=True)
    block = frame_all(Encoder(_SCHEMA).pack_all({"x": list(np.arange(_BLOCK))}))
    lengths = np.tile([len(frame) for frame in block], _SHARD // _BLOCK)
    data, index = b"".join(block) * (_SHARD // _BLOCK), format_index(lengths)
    count, crc = records // _SHARD, google_crc32c.value(data)
    names = [shard_name("train", number, count) for number in range(count)]
    for name in names:
        for file, content in (name, data), (name + INDEX_SUFFIX, index):
            first = store / file.replace(name, names[0])
            if linked and name != names[0]:
                (store / file).hardlink_to(first)
            else:
                (store / file).write_bytes(content)
    shards = tuple(Shard(name, _SHARD, len(data), crc) for name in names)
    (store / MANIFEST).write_bytes(Manifest(_SCHEMA, {"train": Split(shards)}).to_bytes())
    return store


def read(store: Path, workers: int, batches: int) -> dict[str, float]:
    """Reads some batches for each worker; returns seconds, and bytes of all processes together."""
    from torch.utils.data import DataLoader

    began = time.monotonic()
    dataset = readers.torch_batches(str(store), batch_size=_BATCH, shuffle=True, seed=0, prefetch=0)
    length = len(dataset)
    found = {"open": time.monotonic() - began}
    loader = iter(DataLoader(dataset, batch_size=None, num_workers=workers))
    for number in range(min(batches * max(workers, 1), length)):
        batch = next(loader)
        if not number:
            found["first"] = time.monotonic() - began
    found["all"] = time.monotonic() - began
    assert len(batch["x"]) == _BATCH
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    for pid in ["self", *children]:
        for kind, size in _memory(pid, store).items():
            found[kind] = found.get(kind, 0) + size
    return found


def _memory(pid: str, store: Path) -> dict[str, int]:
    """The proportional set size of a process in bytes: private, indexes, shards, other files."""
    sizes = dict.fromkeys(("private", "mapped", "shards", "files"), 0)
    kind = "private"
    for line in Path("/proc", pid, "smaps").read_text().splitlines():
        first, *rest = line.split()
        if not first.endswith(":"):
            path = rest[4] if len(rest) > 4 else ""
            if path.startswith(str(store)):
                kind = "shards"
            elif path.endswith(".offsets"):
                kind = "mapped"
            else:
                kind = "files" if path.startswith("/") and "(deleted)" not in path else "private"
        elif first == "Pss:":
            sizes[kind] += int(rest[0]) << 10
    return sizes


def main() -> None:
    """Makes the datasets, and prints a table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--data", type=Path, default=Path("benchmark_data/scale_read"))
    parser.add_argument("--records", type=int, nargs="+", default=[1_000_000, 10_000_000])
    parser.add_argument("--workers", type=int, nargs="+", default=[0, 8])
    parser.add_argument("--batches", type=int, default=40, help="for each worker")
    parser.add_argument("--linked", action="store_true", help="all shards are one file")
    parser.add_argument("--read", type=Path, help=argparse.SUPPRESS)
    flags = parser.parse_args()
    if flags.read:
        print(json.dumps(read(flags.read, flags.workers[0], flags.batches)))
        return
    columns = "open", "first", "all", "private", "mapped", "shards"
    print("| records | workers | run |", *(f"{name} |" for name in columns))
    for records in flags.records:
        store = make(flags.data.absolute(), records, flags.linked)
        for file in store.iterdir():
            file.read_bytes()  # so that it is in the page cache
        for workers in flags.workers:
            # Not below `--data`: PyTorch's workers pass tensors through sockets in TMPDIR, whose paths
            # have at most 107 characters, and a loader whose worker cannot open one waits without end.
            with tempfile.TemporaryDirectory() as folder:
                for run in ("first", "again"):
                    command = [sys.executable, __file__, "--read", str(store)]
                    command += ["--workers", str(workers), "--batches", str(flags.batches)]
                    env = {**os.environ, "TMPDIR": folder}
                    output = subprocess.run(command, env=env, stdout=subprocess.PIPE, check=True)
                    found = json.loads(output.stdout)
                    cells = [f"{found[name]:.2f} s" for name in columns[:3]]
                    cells += [f"{found[name] / 1e6:,.0f} MB" for name in columns[3:]]
                    print(
                        f"| {records:,} | {workers} | {run} |",
                        *(f"{c} |" for c in cells),
                        flush=True,
                    )


if __name__ == "__main__":
    main()
