"""A typed program that uses every public name; `test_typing` checks it without running it."""

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

Record = tuple[str, Mapping[str, Any]]
Arrays = dict[str, NDArray[Any]]

SCHEMA = readers.Schema({"signal": readers.Feature("float32", [None, 6]), "label": ("int64", ())})


def write(records: PCollection[Record], directory: str) -> PValue:
    label: beam_jobs.Feature = SCHEMA["label"]
    schema: beam_jobs.Schema = beam_jobs.Schema({**SCHEMA, "label": label})
    written: PValue = records | beam_jobs.WriteShards(
        directory,
        schema=schema,
        num_shards=2,
        shard_size="128MiB",
        splits={"train": 0.9, "val": 0.1},
        seed=1,
        on_reject="fail",
        overwrite=True,
        label_names=["rest", "walk"],
        options={"source": "lab 3"},
    )
    return written


def total(manifest: beam_jobs.Manifest) -> int:
    return sum(split.records for split in manifest.splits.values())


def read_ecg(data: bytes, options: beam_jobs.ReadOptions) -> beam_jobs.Recording:
    """Reads a format of recordings of one's own."""
    if options.arrays:
        raise beam_jobs.RejectError("it has one array without a name")
    signal = np.frombuffer(data, ">i2")
    columns = {name: beam_jobs.Column.of(name, signal) for name in options.inside}
    return beam_jobs.Recording({"signal": signal}, rate=100, columns=columns)


def exit_code(error: beam_jobs.JobError) -> int:
    print(error.message)
    expected = isinstance(error, (beam_jobs.UsageError, beam_jobs.DataError))
    return error.exit_code if expected else 1


def inspect(directory: Path) -> int:
    manifest: readers.Manifest = readers.Manifest.read(directory)
    split: readers.Split = manifest.split("train")
    shard: readers.Shard = split.shards[0]
    report: readers.Report = readers.verify(directory)
    problems: tuple[readers.Problem, ...] = report.problems
    print([f"{problem.file}: {problem.message} ({problem.record})" for problem in problems])
    compiled: bool = readers.is_compiled()
    print(compiled)
    print(readers.__version__ == beam_jobs.__version__, report.ok, f"{shard.crc32c:08x}")
    return manifest.schema["signal"].varying_rank + shard.records


def look(directory: Path) -> list[str]:
    dataset: readers.Dataset = readers.open(directory)
    label: readers.FeatureInfo = dataset.features["label"]
    weights: NDArray[np.float64] = dataset.class_weights("train")
    print(dataset, dataset.schema, dataset.splits, weights)
    return [label.int2str(number) for number in range(label.str2int("walk"))]


def problems_of(directory: Path) -> list[str]:
    report: readers.CheckReport = readers.check(directory, records=1_000, against=None, group_by="")
    page: Path = readers.report(directory, "page.html", records=1_000, against=None)
    assert page.exists()
    findings: tuple[readers.Finding, ...] = report.findings
    return [report.worst(), *(f"{found.check} {found.count}" for found in findings)]


def signals(directory: str | os.PathLike[str]) -> Iterator[NDArray[np.float32]]:
    batches = readers.as_numpy(
        directory,
        batch_size=[8, 4],
        split="train[:10%]",
        schema=None,
        columns=["signal"],
        batching="padded",
        mask=True,
        lengths=True,
        padding_values=0.0,
        max_length={"signal": 400},
        pad_to="max_length",
        bucket_boundaries=[100],
        weights=None,
        shuffle=True,
        order="global",
        shuffle_buffer=None,
        seed=1,
        repeat=None,
        remainder="drop",
        drop_remainder=True,
        shard="auto",
        start_step=10,
        state=None,
        on_corrupt="skip",
        cache_dir=Path("cache"),
        cache_size="1GiB",
        decoders={"scan": decoders.Function(lambda data, key: len(data), "int64", shape=())},
        map=None,
        map_schema={"signal": ("float32", [None])},
        transform=None,
        prefetch=2,
    )
    for batch in batches:
        signal: NDArray[np.float32] = batch["signal"]
        yield signal * batch["signal_mask"][..., None]


def resumed(directory: str, batches: readers.Batches[Arrays]) -> Arrays:
    state: readers.State = readers.State.from_json(batches.state().to_json())
    again = readers.as_numpy(directory, batch_size=2, state=state)
    print(again.skipped, state.epoch)
    return next(again)


def of_frameworks(directory: str) -> int:
    tensors = readers.torch_batches(
        directory,
        batch_size=2,
        as_supervised=None,
        shard="auto",
        transform=None,
        pin_memory=True,
        prefetch=0,
        shuffle=True,
    )
    arrays = readers.jax_batches(
        directory,
        batch_size=2,
        as_supervised=["signal"],
        sharding=None,
        shard=(0, 4),
        transform=None,
        prefetch=3,
        repeat=None,
    )
    with arrays:
        return len(tensors) + len(next(arrays)) + tensors.state(2).epoch


def mean(directory: str) -> float:
    pairs = readers.as_numpy(directory, batch_size=2, as_supervised=["signal", "label"])
    return sum(float(signal.mean()) * int(label[0]) for signal, label in pairs)


def is_random(decoder: decoders.Decoder) -> bool:
    return isinstance(decoder, decoders.RandomResizedCrop)


def random_access(files: list[Path]) -> int:
    try:
        source = readers.RecordSource(
            files,
            "train",
            ["signal"],
            True,
            schema=SCHEMA,
            cache_dir=None,
            cache_size=1 << 30,
            decoders={"mask": decoders.Skip(), "image": decoders.CenterCrop(224, fraction=1)},
            seed=1,
        )
        source.set_epoch(1)
        return len(source) + len(source[0]["signal"]) + len(source.__getitems__([0, 1]))
    except readers.DatasetError as error:
        print(error)
    except readers.CorruptRecordError as error:
        file: str | None = error.file
        return (error.record or 0) + (error.offset or 0) + len(file or "")
    except readers.StoreError as error:
        print(error)
    return 0


def export(directory: str) -> list[Path]:
    label: Path = readers.export_npy(directory, "label", "label.npy", split="train", schema=SCHEMA)
    return [label, *readers.export_npy(directory, ["label", "signal"], Path("columns"))]


def train(directory: str) -> int:
    moments = transforms.Moments.of(readers.Manifest.read(directory), "train", "signal")

    def augment(batch: dict[str, Any], keys: Any) -> dict[str, Any]:
        images = transforms.random_flip(batch["image"], keys, up_down=True)
        images = transforms.random_crop(images, keys, (192, 192), padding=4)
        images = transforms.random_brightness(images, keys, 0.1)
        return {
            "image": transforms.to_float(images),
            "signal": transforms.normalize(batch["signal"], moments, batch["signal_mask"]),
            "drawn": transforms.uniform(keys, "a") * transforms.below(keys, "b", 9),
        }

    dataset = readers.load(
        [directory, Path(directory)],
        batch_size=8,
        split="train",
        schema=None,
        columns=None,
        as_supervised=("image", "label"),
        batching="dense",
        mask=False,
        lengths=False,
        padding_values={"tokens": 0},
        max_length=400,
        pad_to="longest",
        bucket_boundaries={"signal": [100, 200]},
        weights=[0.5, 0.5],
        shuffle=True,
        order="interleave",
        shuffle_buffer=1000,
        seed=None,
        repeat=2,
        remainder="pad",
        drop_remainder=False,
        shard=(0, 1),
        start_step=0,
        state="{}",
        on_corrupt="raise",
        cache_dir="cache",
        cache_size=1 << 30,
        decoders={
            "image": decoders.RandomResizedCrop(
                224, scale=(0.3, 1), ratio=(1, 1), flip=True, salt="a", with_boxes=["boxes"]
            ),
            "large": decoders.Resize((240, 320), channels=1, box_order="xyxy", with_masks="mask"),
            "small": decoders.Decode(channels=3, dtype="uint8"),
        },
        map=lambda record, key: record | {"key": key},
        map_schema=None,
        transform=augment,
        reshuffle_each_iteration=False,
    )
    steps = 0
    for _ in dataset:
        steps += 1
    state: readers.State = readers.state_of(dataset, steps)
    return state.epoch
