"""How many pictures a second reach a training step, and how decoding grows with the cores.

    python benchmarks/training_step.py --json results.json

It needs PyTorch with torchvision, scikit-learn and simplejpeg, for the last table a GPU, and neither
Beam nor TensorFlow. Photographs of 500x375 are read in a random order from TFRecord files, and by
PyTorch's DataLoader from one file each, with a warm page cache:

- `decode` and `crop`: pictures a second of a process on 1, 2, 4 ... cores, decoded whole, or as random
  resized crops of 224x224. The limit is the codec alone: one thread a core decodes bytes in memory.
- `train`: pictures a second through steps of a ResNet-50 in bfloat16 on all cores. Its limit is the
  step alone, with a batch that is on the GPU already; the rest of the GPU's time is idle.
"""

from __future__ import annotations

import argparse
import itertools
import json
import multiprocessing
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from command import run_command, save
from measure import HERE, BenchmarkError, run
from pictures.kinds import AREA, ASPECT, CROP, HEIGHT, WIDTH
from pictures.photographs import QUALITY, draw_photograph, originals

sys.path.insert(0, str(HERE.parent))

import readers
from readers import decoders
from readers.format.encode import Encoder
from readers.format.tfrecord import frame

BATCH, TRAINING_BATCH = 64, 256

_SHARDS = 32

# Before a loader is timed: its workers start and fill their queues.
_WARM_SECONDS = 2.0

_SCHEMA = readers.Schema({"image": readers.Feature("uint8", (HEIGHT, WIDTH, 3), "source")})

_CROPS = {"image": decoders.RandomResizedCrop(CROP, AREA, ASPECT, flip=True)}


def _make_shard(task: tuple[Path, int, int]) -> None:
    """Writes every 32nd photograph, to a TFRecord file and to a file each."""
    folder, shard, count = task
    encoder, found = Encoder(_SCHEMA), originals()
    with (folder / f"{shard:02d}.tfrecord").open("wb") as file:
        for number in range(shard, count, _SHARDS):
            path = folder / f"{number:07d}.jpg"
            draw_photograph(number, found).save(path, quality=QUALITY)
            file.write(frame(encoder.encode({"image": path.read_bytes()})))


def make(folder: Path, count: int) -> None:
    """Makes the photographs of a folder, unless they are there."""
    if (folder / "done").exists():
        return
    folder.mkdir(parents=True, exist_ok=True)
    print(f"making {count:,} photographs in {folder}", flush=True)
    with multiprocessing.get_context("spawn").Pool() as pool:
        pool.map(_make_shard, [(folder, shard, count) for shard in range(_SHARDS)], 1)
    (folder / "done").touch()


# Ways of reading: batches without end.


def _as_numpy(folder: Path, kind: str, prefetch: int = 0) -> Iterator[Any]:
    return iter(
        readers.as_numpy(
            f"{folder}/*.tfrecord",
            schema=_SCHEMA,
            batch_size=BATCH,
            shuffle=True,
            repeat=None,
            prefetch=prefetch,
            decoders=_CROPS if kind == "crop" else {},
        )
    )


def _torch_batches(folder: Path, batch_size: int, workers: int = 0) -> Iterator[Any]:
    from torch.utils.data import DataLoader

    batches = readers.torch_batches(
        f"{folder}/*.tfrecord",
        schema=_SCHEMA,
        batch_size=batch_size,
        shuffle=True,
        repeat=None,
        decoders=_CROPS,
        as_supervised=["image"],
        pin_memory=not workers,
        prefetch=4,
    )
    if not workers:
        return (image for (image,) in batches)
    loader = DataLoader(batches, batch_size=None, num_workers=workers, pin_memory=True)
    return (image for (image,) in loader)


def _files(folder: Path, kind: str, batch_size: int, cores: int) -> Iterator[Any]:
    """PyTorch's DataLoader over the files, decoded and cropped by torchvision."""
    import torch
    from torch.utils.data import DataLoader, Dataset, RandomSampler
    from torchvision.io import ImageReadMode, decode_image, read_file
    from torchvision.transforms import v2

    crop = v2.Compose([v2.RandomResizedCrop(CROP, AREA, ASPECT), v2.RandomHorizontalFlip()])
    names = sorted(str(path) for path in folder.glob("*.jpg"))

    class Files(Dataset):
        def __len__(self) -> int:
            return len(names)

        def __getitem__(self, number: int) -> Any:
            image = decode_image(read_file(names[number]), ImageReadMode.RGB)
            return crop(image) if kind == "crop" else image

    torch.set_num_threads(1)
    data = Files()
    # Drawn with replacement, so that no epoch ends and empties the queues.
    sampler = RandomSampler(data, replacement=True, num_samples=1 << 40)
    loader = DataLoader(
        data, batch_size, sampler=sampler, num_workers=cores, pin_memory=torch.cuda.is_available()
    )
    return iter(loader)


def _codec(folder: Path, cores: int) -> Iterator[np.ndarray]:
    """The codec alone, on bytes in memory: no batches are made."""
    import simplejpeg

    data = [path.read_bytes() for path in sorted(folder.glob("*.jpg"))[:512]]
    with ThreadPoolExecutor(cores) as pool:
        while True:
            yield np.empty(sum(len(image[:1]) for image in pool.map(simplejpeg.decode_jpeg, data)))


def opened(way: str, folder: Path, cores: int) -> Iterator[Any]:
    """Yields the batches of a way of reading."""
    kind = way.split()[0]
    return {
        "codec": lambda: _codec(folder, cores),
        "as_numpy": lambda: _as_numpy(folder, kind),
        "as_numpy, prefetch=2": lambda: _as_numpy(folder, kind, prefetch=2),
        "torch_batches": lambda: _torch_batches(folder, BATCH),
        "torch_batches, 4 workers": lambda: _torch_batches(folder, BATCH, workers=4),
        "DataLoader over files": lambda: _files(folder, kind, BATCH, cores),
    }[way.partition(" ")[2]]()


WAYS = [
    "decode codec",
    "decode as_numpy",
    "decode as_numpy, prefetch=2",
    "decode DataLoader over files",
    "crop as_numpy",
    "crop as_numpy, prefetch=2",
    "crop torch_batches",
    "crop torch_batches, 4 workers",
    "crop DataLoader over files",
]


def rate_of(batches: Iterator[Any], seconds: float, use: Callable[[Any], None]) -> float:
    """Pictures per second, after some seconds to warm up."""
    until = time.perf_counter() + _WARM_SECONDS
    use(next(batches))
    while time.perf_counter() < until:
        use(next(batches))
    count, began = 0, time.perf_counter()
    while (now := time.perf_counter()) < began + seconds:
        batch = next(batches)
        count += len(batch["image"] if isinstance(batch, dict) else batch)
        use(batch)
    return count / (now - began)


class Training:
    """A training step of a ResNet-50, on a GPU."""

    def __init__(self) -> None:
        import torch
        import torchvision

        self._torch = torch
        torch.backends.cudnn.benchmark = True
        model = torchvision.models.resnet50().cuda().to(memory_format=torch.channels_last)
        self._model = model
        self._optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
        self._labels = torch.randint(1000, (TRAINING_BATCH,), device="cuda")
        self._in_flight: list[Any] = []

    def step(self, images: Any) -> None:
        """Starts a step for uint8 [B, 224, 224, 3] or [B, 3, 224, 224] images; waits for the last but one."""
        torch = self._torch
        images = images.cuda(non_blocking=True)
        if images.shape[1] != 3:
            images = images.permute(0, 3, 1, 2)
        images = images.to(torch.bfloat16, memory_format=torch.channels_last).div_(255)
        with torch.autocast("cuda", torch.bfloat16):
            loss = torch.nn.functional.cross_entropy(self._model(images), self._labels)
        self._optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self._optimizer.step()
        done = torch.cuda.Event()
        done.record()
        self._in_flight.append(done)
        if len(self._in_flight) > 2:
            self._in_flight.pop(0).synchronize()


def train(way: str, folder: Path, seconds: float) -> float:
    """Pictures per second of training with one way of reading."""
    import torch

    training, cores = Training(), len(os.sched_getaffinity(0))
    batches: Iterator[Any]
    if way == "the step alone":
        shape = (TRAINING_BATCH, CROP, CROP, 3)
        batches = itertools.repeat(torch.randint(256, shape, dtype=torch.uint8, device="cuda"))
    elif way == "torch_batches":
        batches = _torch_batches(folder, TRAINING_BATCH)
    elif way == "torch_batches in a DataLoader":
        batches = _torch_batches(folder, TRAINING_BATCH, workers=4)
    else:
        batches = _files(folder, "crop", TRAINING_BATCH, cores)
    return rate_of(batches, seconds, training.step)


TRAINING = [
    "the step alone",
    "torch_batches",
    "torch_batches in a DataLoader",
    "DataLoader over files",
]


def measured(flags: argparse.Namespace, way: str, cores: int, action: str) -> float | str:
    """The median rate of a way over its runs, each in a new process, or the error of one that failed."""
    found = flags.data / "training-step.json"
    rates = []
    for _ in range(flags.runs):
        command = [sys.executable, __file__, action, way, str(cores), "--data", str(flags.data)]
        command += ["--pictures", str(flags.pictures), "--seconds", str(flags.seconds)]
        label = f"{way}, cores: {cores}"
        try:
            run(label, command, flags.data / "training-step.log", cores=cores, limit=120)
        except BenchmarkError as error:
            print(f"    {error}", flush=True)
            return str(error)
        rates.append(json.loads(found.read_text()))
    print(f"    {statistics.median(rates):,.0f} pictures a second", flush=True)
    return statistics.median(rates)


def table_of(found: dict[str, dict[int, Any]], cores: list[int]) -> list[str]:
    """The rows of a Markdown table of pictures a second."""
    rows = [
        "| | " + " | ".join(f"{count} cores" for count in cores) + " |",
        "|---" * (len(cores) + 1) + "|",
    ]
    for way, rates in found.items():
        shown = [f"{rate:,.0f}" if isinstance(rate, float) else "failed" for rate in rates.values()]
        rows.append(f"| {way} | " + " | ".join(shown) + " |")
    return rows


def main() -> None:
    """Measures in processes of their own, and prints tables.

    Raises:
        BenchmarkError: A flag is wrong.
    """
    available = len(os.sched_getaffinity(0))
    powers = [1 << power for power in range(available.bit_length())]
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("action", nargs="?", choices=["all", "read", "train"], default="all")
    parser.add_argument("way", nargs="?")
    parser.add_argument("on", nargs="?", type=int)
    parser.add_argument("--data", type=Path, default=Path("benchmark_data"))
    parser.add_argument("--pictures", type=int, default=12_032)
    parser.add_argument("--cores", type=int, nargs="+", default=powers)
    parser.add_argument("--ways", nargs="+", default=WAYS, choices=WAYS, metavar="WAY")
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--json", metavar="FILE")
    flags = parser.parse_args()
    flags.data = flags.data.resolve()
    folder = flags.data / f"training-{flags.pictures}"
    if flags.way:
        if flags.action == "train":
            rate = train(flags.way, folder, flags.seconds)
        else:
            batches = opened(flags.way, folder, flags.on)
            rate = rate_of(batches, flags.seconds, lambda batch: None)
        (flags.data / "training-step.json").write_text(json.dumps(rate))
        os._exit(0)  # without waiting for workers that would read on; the caller ends them
    make(folder, flags.pictures)
    figures: dict[str, Any] = {"read": {}, "train": {}}
    if flags.action in ("all", "train"):
        for way in TRAINING:
            figures["train"][way] = {available: measured(flags, way, available, "train")}
            save(flags.json, figures)
    if flags.action in ("all", "read"):
        for way in flags.ways:
            figures["read"][way] = {
                count: measured(flags, way, count, "read") for count in flags.cores
            }
            save(flags.json, figures)
    print(*table_of(figures["read"], flags.cores), "", sep="\n")
    print(*table_of(figures["train"], [available]), sep="\n")


if __name__ == "__main__":
    run_command(main)
