"""MLPerf Storage's question: how many emulated H100s do one or more cores feed at 90 % utilisation?

    python benchmarks/mlperf_storage.py --workloads resnet50,cosmoflow --cores 1 2

The sizes of records and batches and the time of a step are those of the configurations for H100 of
https://github.com/mlcommons/storage (of 2025-06-13). Each emulated accelerator is a process with a
reader of its share of the records. It reads a batch, and sleeps as long as the step takes. The
utilisation is the time that its steps should take by the time that passed, in the mean of all
processes. Their number is doubled until this falls below the target, then halved in between.

They begin together, but do not wait for each other in each step, as DLIO's do: that is not work of the
cores that feed accelerators, and with more processes than cores it measures when each gets a turn.

All files are in the page cache: the figures are those of the readers, not of a disk. `--cold` drops them
from there before each run. Nothing is decoded: features are arrays of uint8.
"""

from __future__ import annotations

import argparse
import importlib
import multiprocessing
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np

import readers
from readers.format.encode import Encoder
from readers.format.index import format_index
from readers.format.manifest import INDEX_SUFFIX, MANIFEST, Manifest
from readers.format.splits import Shard, Split, shard_name
from readers.format.tfrecord import frame_all

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

_SHARDS = 32
_DATASET_BYTES = 2 << 30

# More processes than this are not started.
_MOST = 32


@dataclass(frozen=True)
class Workload:
    """What an accelerator does.

    Attributes:
        record_bytes: The size of a record.
        batch: The number of records in a step.
        seconds: The time of a step.
        steps: The number of steps that are measured.
    """

    record_bytes: int
    batch: int
    seconds: float
    steps: int


WORKLOADS = {
    "resnet50": Workload(114_660, 400, 0.224, 20),
    "cosmoflow": Workload(2_828_486, 1, 0.0035, 600),
}


def _schema(workload: Workload) -> readers.Schema:
    return readers.Schema({"x": readers.Feature("uint8", (workload.record_bytes,))})


def make(folder: Path, name: str) -> Path:
    """Writes 2 GiB of random records, unless they exist."""
    store, workload = folder / name, WORKLOADS[name]
    if (store / MANIFEST).exists():
        return store
    store.mkdir(parents=True)
    count = max(_DATASET_BYTES // _SHARDS // workload.record_bytes, 1)
    shards = []
    for number in range(_SHARDS):
        values = np.random.default_rng(number).integers(
            0, 256, (count, workload.record_bytes), np.uint8
        )
        frames = frame_all(Encoder(_schema(workload)).pack_all({"x": list(values)}))
        file, data = shard_name("train", number, _SHARDS), b"".join(frames)
        (store / file).write_bytes(data)
        index = format_index(np.array([len(frame) for frame in frames]))
        (store / f"{file}{INDEX_SUFFIX}").write_bytes(index)
        shards.append(Shard(file, count, len(data), google_crc32c.value(data)))
    manifest = Manifest(_schema(workload), {"train": Split(tuple(shards))})
    (store / MANIFEST).write_bytes(manifest.to_bytes())
    return store


def tf_data(store: Path, workload: Workload, rank: int, ranks: int) -> Iterator[Any]:
    """A pipeline of tf.data: files in parallel, batches parsed and decoded in parallel."""
    import tensorflow as tf

    files = sorted(map(str, store.glob("*.tfrecord")))

    def parse(records: Any) -> Any:
        found = tf.io.parse_example(records, {"x": tf.io.FixedLenFeature([], tf.string)})
        x = tf.io.decode_raw(found["x"], tf.uint8, fixed_length=workload.record_bytes)
        return tf.ensure_shape(x, (workload.batch, workload.record_bytes))

    own = [files[number % len(files)] for number in range(rank, max(len(files), ranks), ranks)]
    dataset = tf.data.TFRecordDataset(own, num_parallel_reads=tf.data.AUTOTUNE)
    dataset = dataset.repeat().batch(workload.batch, drop_remainder=True)
    return iter(dataset.map(parse, tf.data.AUTOTUNE).prefetch(tf.data.AUTOTUNE))


def as_numpy(store: Path, workload: Workload, rank: int, ranks: int) -> Iterator[Any]:
    """Our batches of NumPy arrays, in a random order of all records, one read ahead by a thread."""
    return iter(
        readers.as_numpy(
            store,
            batch_size=workload.batch,
            shuffle=True,
            seed=0,
            repeat=None,
            remainder="drop",
            shard=(rank, ranks),
            prefetch=2,
        )
    )


def load(store: Path, workload: Workload, rank: int, ranks: int) -> Iterator[Any]:
    """Our `tf.data.Dataset`, in a random order of all records."""
    return iter(
        readers.load(
            store,
            batch_size=workload.batch,
            shuffle=True,
            seed=0,
            repeat=None,
            remainder="drop",
            shard=(rank, ranks),
        )
    )


READERS: dict[str, Callable[..., Iterator[Any]]] = {
    "as_numpy": as_numpy,
    "load": load,
    "tf.data": tf_data,
}


def _cache(store: Path, cold: bool) -> None:
    """Reads the files of a dataset into the page cache, or drops them from there."""
    for file in store.iterdir():
        with file.open("rb") as opened:
            if cold:
                os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            else:
                opened.read()


def _train(
    reader: Callable[..., Iterator[Any]],
    store: Path,
    workload: Workload,
    rank: int,
    ranks: int,
    barrier: Any,
    seconds: Any,
) -> None:
    """The process of one accelerator; `seconds[rank]` becomes the time of its measured steps."""
    batches = reader(store, workload, rank, ranks)
    warm = max(workload.steps // 5, 6)
    for step in range(warm + workload.steps):
        if step == warm:
            barrier.wait()
            began = time.perf_counter()
        batch = next(batches)
        time.sleep(workload.seconds)
        del batch
    seconds[rank] = time.perf_counter() - began
    barrier.wait()
    os._exit(0)  # without waiting for threads that read ahead


def utilisation(name: str, store: Path, workload: Workload, cold: bool, ranks: int) -> float:
    """The mean share of time that accelerators spend in steps."""
    _cache(store, cold)
    context = multiprocessing.get_context("fork")
    barrier, seconds = context.Barrier(ranks, timeout=60), context.Array("d", ranks, lock=False)
    arguments = READERS[name], store, workload
    processes = [
        context.Process(target=_train, args=(*arguments, rank, ranks, barrier, seconds))
        for rank in range(ranks)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    if not all(seconds):
        raise SystemExit(f"{name}: a process of {ranks} ended early")
    return workload.steps * workload.seconds / (sum(seconds) / ranks)


def most_accelerators(measure: Callable[[int], float], target: float) -> tuple[int, float]:
    """The largest number of accelerators that reach the target, and their utilisation."""
    number, reached = 1, {0: 0.0}
    while number <= _MOST and (found := measure(number)) >= target:
        reached[number] = found
        number *= 2
    low, high = number // 2, number
    # To an eighth: the figures vary from run to run.
    while high - low > max(low // 8, 1) and high <= _MOST:
        number = (low + high) // 2
        found = measure(number)
        if found >= target:
            low, reached[number] = number, found
        else:
            high = number
    return low, reached[low]


def main() -> None:
    """Prints a row for each workload, number of cores and reader."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--data", type=Path, default=Path("benchmark_data/mlperf_storage"))
    parser.add_argument("--workloads", default=",".join(WORKLOADS))
    parser.add_argument("--readers", default=",".join(READERS))
    parser.add_argument("--cores", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--target", type=float, default=0.9, help="share of time in steps")
    parser.add_argument("--cold", action="store_true", help="drop files from the page cache first")
    flags = parser.parse_args()
    # Imported before the processes fork, or each would import it for seconds. It starts no thread yet.
    importlib.import_module("readers.tfdata.dataset")
    print("| workload | cores | reader | accelerators | utilisation | MB/s |", flush=True)
    allowed = sorted(os.sched_getaffinity(0))
    for name in flags.workloads.split(","):
        workload, store = WORKLOADS[name], make(flags.data, name)
        for cores in flags.cores:
            os.sched_setaffinity(0, allowed[:cores])
            for reader in flags.readers.split(","):
                measure = partial(utilisation, reader, store, workload, flags.cold)
                count, found = most_accelerators(measure, flags.target)
                rate = count * found * workload.batch * workload.record_bytes / workload.seconds
                cells = name, cores, reader, count, f"{found:.2f}", f"{rate / 1e6:,.0f}"
                print("|", *(f"{cell} |" for cell in cells), flush=True)


if __name__ == "__main__":
    main()
