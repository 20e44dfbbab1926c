"""LitData: chunks that `optimize` writes, read by its own loader."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import litdata
from reading import Reader, Task, epochs_of
from records import BATCH, Kind, Records, Row
from rivals.arrays.torch_loader import Collate

_COLUMNS = "columns.json"


def _row(records: Records, number: int) -> Row:
    return records[number]


def write(kind: Kind, records: Records, store: Path) -> None:
    """Writes chunks of 64 MB, the size that LitData's documentation uses."""
    numbers = list(range(len(records)))
    litdata.optimize(
        partial(_row, records),
        numbers,
        str(store),
        chunk_bytes="64MB",
        num_workers=2,
        verbose=False,
    )
    (store / _COLUMNS).write_text(json.dumps(list(records.columns)))


def _open(task: Task) -> Iterator[Any]:
    columns = json.loads((task.store / _COLUMNS).read_text())
    loader = litdata.StreamingDataLoader(
        litdata.StreamingDataset(str(task.store), shuffle=True),
        batch_size=BATCH,
        num_workers=task.cores,
        persistent_workers=True,
        collate_fn=Collate(task, columns),
    )
    return epochs_of(loader, task)


READER = Reader(modes={"LitData": _open}, write=write)
