"""A typed program that uses the public names; `test_typing` checks it without running it."""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from apache_beam.pvalue import PCollection, PValue
from numpy.typing import NDArray

import beam_jobs
import readers
from readers import decoders, transforms

Arrays = dict[str, NDArray[Any]]

SCHEMA = readers.Schema({"signal": readers.Feature("float32", [None, 6]), "label": ("int64", ())})


def write(records: PCollection[tuple[str, Mapping[str, Any]]], directory: str) -> PValue:
    label: beam_jobs.Feature = SCHEMA["label"]
    schema: beam_jobs.Schema = beam_jobs.Schema({**SCHEMA, "label": label})
    written: PValue = records | beam_jobs.WriteShards(
        directory, schema=schema, shard_size="128MiB", splits={"train": 0.9, "val": 0.1}
    )
    return written


def read_ecg(data: bytes, options: beam_jobs.ReadOptions) -> beam_jobs.Recording:
    """Reads a format of recordings of one's own."""
    if options.arrays:
        raise beam_jobs.RejectError("it has one array without a name")
    signal = np.frombuffer(data, ">i2")
    columns = {name: beam_jobs.Column.of(name, signal) for name in options.inside}
    return beam_jobs.Recording({"signal": signal}, rate=100, columns=columns)


def inspect(directory: Path) -> list[str]:
    manifest: readers.Manifest = readers.Manifest.read(directory)
    shard: readers.Shard = manifest.split("train").shards[0]
    dataset: readers.Dataset = readers.open(directory)
    weights: NDArray[np.float64] = dataset.class_weights("train")
    report: readers.CheckReport = readers.check(directory, records=1_000, against=None)
    print(shard.crc32c, weights, [found.count for found in report.findings])
    return [f"{problem.file}: {problem.record}" for problem in readers.verify(directory).problems]


def signals(directory: str | os.PathLike[str]) -> Iterator[NDArray[np.float32]]:
    batches = readers.as_numpy(
        directory,
        batch_size=[8, 4],
        columns=["signal"],
        batching="padded",
        mask=True,
        pad_to="max_length",
        max_length={"signal": 400},
        cache_dir=Path("cache"),
        decoders={"scan": decoders.Function(lambda data, key: len(data), "int64", shape=())},
        map_schema={"signal": ("float32", [None])},
    )
    for batch in batches:
        signal: NDArray[np.float32] = batch["signal"]
        yield signal * batch["signal_mask"][..., None]


def resumed(directory: str, batches: readers.Batches[Arrays]) -> Arrays:
    state: readers.State = readers.State.from_json(batches.state().to_json())
    return next(readers.as_numpy(directory, batch_size=2, state=state))


def mean(directory: str) -> float:
    pairs = readers.as_numpy(directory, batch_size=2, as_supervised=["signal", "label"])
    return sum(float(signal.mean()) * int(label[0]) for signal, label in pairs)


def of_frameworks(directory: str) -> int:
    tensors = readers.torch_batches(directory, batch_size=2, shard="auto", pin_memory=True)
    with readers.jax_batches(directory, batch_size=2, shard=(0, 4), repeat=None) as arrays:
        return len(tensors) + len(next(arrays)) + tensors.state(2).epoch


def random_access(files: list[Path]) -> int:
    try:
        source = readers.RecordSource(files, "train", ["signal"], True, schema=SCHEMA, seed=1)
        return len(source) + len(source[0]["signal"]) + len(source.__getitems__([0, 1]))
    except readers.CorruptRecordError as error:
        file: str | None = error.file
        return (error.record or 0) + (error.offset or 0) + len(file or "")


def train(directory: str) -> int:
    moments = transforms.Moments.of(readers.Manifest.read(directory), "train", "signal")

    def augment(batch: dict[str, Any], keys: Any) -> dict[str, Any]:
        images = transforms.random_flip(batch["image"], keys, up_down=True)
        signal = transforms.normalize(batch["signal"], moments, batch["signal_mask"])
        return {"image": transforms.to_float(images), "signal": signal}

    dataset = readers.load(
        [directory, Path(directory)],
        batch_size=8,
        as_supervised=("image", "label"),
        padding_values={"tokens": 0},
        bucket_boundaries={"signal": [100, 200]},
        weights=[0.5, 0.5],
        order="interleave",
        decoders={"image": decoders.RandomResizedCrop(224, ratio=(1, 1), with_boxes=["boxes"])},
        map=lambda record, key: record | {"key": key},
        transform=augment,
    )
    state: readers.State = readers.state_of(dataset, len(list(dataset)))
    return state.epoch
