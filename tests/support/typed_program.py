"""A typed program that uses the public names; `test_typing` checks it without running it."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from apache_beam.pvalue import PCollection, PValue
from numpy.typing import NDArray

import beam_jobs
import readers
from readers import decoders, transforms

SCHEMA = readers.Schema({"signal": readers.Feature("float32", [None, 6]), "label": ("int64", ())})


def write(records: PCollection[tuple[str, Mapping[str, Any]]], directory: str) -> PValue:
    schema: beam_jobs.Schema = beam_jobs.Schema({**SCHEMA})
    written: PValue = records | beam_jobs.WriteShards(
        directory, schema=schema, shard_size="128MiB", splits={"train": 0.9, "val": 0.1}
    )
    return written


def read(directory: Path) -> beam_jobs.ReadShards:
    return beam_jobs.ReadShards(directory, "train", columns=["signal"])


def read_ecg(data: bytes, options: beam_jobs.ReadOptions) -> beam_jobs.Recording:
    """Reads a format of recordings of one's own."""
    if options.arrays:
        raise beam_jobs.RejectError("it has one array without a name")
    return beam_jobs.Recording({"signal": np.frombuffer(data, ">i2")}, rate=100)


def inspect(directory: Path) -> list[str]:
    shard: readers.Shard = readers.Manifest.read(directory).split("train").shards[0]
    weights: NDArray[np.float64] = readers.open(directory).class_weights("train")
    findings = readers.check(directory, records=1_000, against=None).findings
    print(shard.crc32c, weights, [found.count for found in findings])
    return [f"{problem.file}: {problem.record}" for problem in readers.verify(directory).problems]


def signals(directory: Path) -> Iterator[NDArray[np.float32]]:
    batches = readers.as_numpy(
        directory,
        batch_size=[8, 4],
        batching=readers.Padded(max_length={"signal": 400}, mask=True),
        decoders={"scan": decoders.Skip()},
    )
    for batch in batches:
        signal: NDArray[np.float32] = batch["signal"]
        yield signal * batch["signal_mask"][..., None]
    state: readers.State = readers.State.from_json(batches.state().to_json())
    print(next(readers.as_numpy(directory, batch_size=2, as_supervised=["signal"], state=state))[0])


def of_frameworks(directory: str) -> int:
    tensors = readers.torch_batches(directory, batch_size=2, shard="auto")
    with readers.jax_batches(directory, batch_size=2, shard=(0, 4), repeat=None) as arrays:
        return len(tensors) + len(next(arrays)) + tensors.state(2).epoch


def train(directory: str) -> int:
    moments = transforms.Moments.of(readers.Manifest.read(directory), "train", "signal")

    def augment(batch: dict[str, Any], keys: Any) -> dict[str, Any]:
        images = transforms.random_flip(batch["image"], keys, up_down=True)
        signal = transforms.normalize(batch["signal"], moments, batch["signal_mask"])
        return {"image": transforms.to_float(images), "signal": signal}

    dataset = readers.load(
        [directory, Path(directory)],
        batch_size=8,
        batching=readers.Ragged(buckets={"signal": [100, 200]}),
        shuffle=readers.Order(False, by="interleave"),
        decoders={"image": decoders.RandomResizedCrop(224, ratio=(1, 1), with_boxes=["boxes"])},
        map=readers.Map(lambda record, key: record | {"key": key}, {"key": "int64", **SCHEMA}),
        transform=augment,
    )
    return readers.state_of(dataset, len(list(dataset))).epoch
