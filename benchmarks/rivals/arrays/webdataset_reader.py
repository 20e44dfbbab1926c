"""WebDataset: tar files with `.npy` members, read as streams.

It reads in this process. WebLoader's worker processes, which are PyTorch's, would multiply the rate by
the number of cores at most.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import webdataset
from reading import Reader, Task
from records import BATCH, NUM_SHARDS, SHUFFLE_BUFFER, Kind, Records, pad


def write(kind: Kind, records: Records, store: Path) -> None:
    """Writes `.npy` members, the array format that WebDataset itself encodes and decodes."""
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
        # Before decoding, as its documentation advises, so that the buffer holds bytes.
        records = records.shuffle(SHUFFLE_BUFFER, seed=0)
    records = records.decode().to_tuple("npy")
    batches = records.batched(BATCH) if task.batching == "dense" else records.batched(BATCH, _pad)
    return batches if task.epochs else batches.repeat()


def _rows(batch: Any) -> Iterable[np.ndarray]:
    return batch[0] if isinstance(batch, (tuple, list)) else batch


READER = Reader(modes={"WebDataset": _open}, write=write, rows=_rows)
