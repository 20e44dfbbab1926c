"""This project: shards written by `WriteShards`, read by `load`, `as_numpy` and `RecordSource`."""

from __future__ import annotations

import importlib
import itertools
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from reading import Reader, Task
from records import BATCH, NUM_SHARDS, Kind, Records, pad

import readers


def _schema(kind: Kind) -> readers.Schema:
    return readers.Schema({"x": readers.Feature(kind.dtype, kind.shape)})


def _keyed(records: Records, number: int) -> tuple[str, dict[str, np.ndarray]]:
    return f"{number:07d}", {"x": records[number]}


def write(kind: Kind, records: Records, store: Path, num_shards: int = NUM_SHARDS) -> None:
    """Writes shards from a pipeline, as users do."""
    import apache_beam as beam
    from apache_beam.options.pipeline_options import PipelineOptions

    from beam_jobs import WriteShards
    from beam_jobs.engines.direct import prepare_direct_runner

    options = PipelineOptions([])
    prepare_direct_runner(options)
    with beam.Pipeline(options=options) as pipeline:
        _ = (
            pipeline
            | beam.Create(range(len(records)))
            | beam.Map(partial(_keyed, records))
            | WriteShards(str(store), schema=_schema(kind), num_shards=num_shards)
        )


def _prepare(mode: str) -> None:
    if mode.startswith("load"):
        importlib.import_module("readers.tfdata.dataset")  # imports TensorFlow


def _options(task: Task) -> dict[str, Any]:
    return {
        "batch_size": BATCH,
        "batching": task.batching,
        "shuffle": task.shuffle,
        "repeat": task.epochs,
    }


def _load(task: Task) -> Any:
    return readers.load(task.store, **_options(task))


def _as_numpy(task: Task) -> Any:
    return readers.as_numpy(task.store, **_options(task))


def _from_source(task: Task) -> Iterator[np.ndarray]:
    """Yields batches like PyTorch's DataLoader: fetches the records of a list of indices, stacks them."""
    source = readers.RecordSource(task.store)
    rng = np.random.default_rng(0)
    collate = np.stack if task.batching == "dense" else pad
    for _ in itertools.count() if task.epochs is None else range(task.epochs):
        order = rng.permutation(len(source)) if task.shuffle else np.arange(len(source))
        for first in range(0, len(order), BATCH):
            records = source.__getitems__(order[first : first + BATCH].tolist())
            yield collate([record["x"] for record in records])


READER = Reader(
    modes={
        "load": _load,
        "as_numpy": _as_numpy,
        "RecordSource": _from_source,
    },
    write=write,
    prepare=_prepare,
)
