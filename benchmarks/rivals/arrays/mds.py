"""MosaicML Streaming: MDS shards, read through PyTorch's loader."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import streaming
from reading import Reader, Task, epochs_of
from records import BATCH, Kind, Records
from rivals.arrays.torch_loader import Collate
from torch.utils.data import DataLoader

_COLUMNS = "columns.json"


def _encoding(dtype: str, shape: list[int | None]) -> str:
    if dtype == "string":
        return "bytes"
    if not shape:
        return "int"
    sizes = "" if None in shape else f":{','.join(map(str, shape))}"
    return f"ndarray:{dtype}{sizes}"


def write(kind: Kind, records: Records, store: Path) -> None:
    """Writes shards of MDS's default size, 64 MB."""
    columns = {name: _encoding(*column) for name, column in records.columns.items()}
    with streaming.MDSWriter(out=str(store), columns=columns) as writer:
        for row in records:
            writer.write(row)
    (store / _COLUMNS).write_text(json.dumps(list(columns)))


def _open(task: Task) -> Iterator[Any]:
    streaming.base.util.clean_stale_shared_memory()
    columns = json.loads((task.store / _COLUMNS).read_text())
    dataset = streaming.StreamingDataset(local=str(task.store), shuffle=True, batch_size=BATCH)
    loader = DataLoader(
        dataset,
        BATCH,
        num_workers=task.cores,
        persistent_workers=True,
        collate_fn=Collate(task, columns),
    )
    return epochs_of(loader, task)


READER = Reader(modes={"MosaicML Streaming": _open}, write=write)
