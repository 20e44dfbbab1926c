"""WebDataset: tar files of `.npy` members, read as streams.

In this process: the worker processes of its WebLoader are PyTorch's, and multiply the rate by the
number of cores at most.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import webdataset
from contender import Contender, Task
from records import BATCH, NUM_SHARDS, Kind, Records, pad

_BUFFER = 10_000


def write(kind: Kind, records: Records, store: Path) -> None:
    """Writes `.npy` members, the form of an array that WebDataset encodes and decodes by itself."""
    store.mkdir()
    for number, shard in enumerate(records.shards()):
        with webdataset.TarWriter(str(store / f"{number:05d}.tar")) as writer:
            for place, record in enumerate(shard):
                writer.write({"__key__": f"{number:05d}{place:07d}", "npy": record})


def _pad(samples: list[tuple[np.ndarray]]) -> np.ndarray:
    return pad([sample[0] for sample in samples])


def _open(task: Task) -> Iterable[Any]:
    paths = sorted(str(path) for path in task.store.iterdir())
    records = webdataset.WebDataset(
        paths, shardshuffle=NUM_SHARDS if task.shuffle else False, seed=0
    )
    if task.shuffle:
        # Before they are decoded, as its documentation has it: the buffer holds bytes.
        records = records.shuffle(_BUFFER, seed=0)
    records = records.decode().to_tuple("npy")
    batches = records.batched(BATCH) if task.batching == "dense" else records.batched(BATCH, _pad)
    return batches if task.epochs else batches.repeat()


def _rows(batch: Any) -> Iterable[np.ndarray]:
    return batch[0] if isinstance(batch, (tuple, list)) else batch


CONTENDER = Contender(ways={"WebDataset": _open}, write=write, rows=_rows)
