"""Measures how many pictures per second reach a training step on a GPU.

    python benchmarks/training_step.py --json results.json

It needs PyTorch with torchvision, scikit-learn, simplejpeg and a GPU, and neither Beam nor TensorFlow.
Photographs of 500x375 are read in a random order from TFRecord files, and by PyTorch's DataLoader from one file
each, with a warm page cache, as random resized crops of 224x224 through steps of a ResNet-50 in bfloat16. The limit
is the step without reading, with a batch that is already on the GPU; the rest of the GPU's time is idle.
`read_shards.py --datasets jpeg,jpeg_train` measures how reading scales with the cores.
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
from pathlib import Path
from typing import Any

from command import run_command, save
from harness import format_markdown
from measure import HERE, run
from pictures import AREA, ASPECT, CROP, HEIGHT, QUALITY, WIDTH, draw_photograph, originals

sys.path.insert(0, str(HERE.parent))

import readers
from readers import decoders
from readers.format.encode.records import Encoder
from readers.format.tfrecord import frame

BATCH = 256

_SHARDS = 32

# Before a loader is timed: its workers start and fill their queues.
_WARM_SECONDS = 2.0

_SCHEMA = readers.Schema({"image": readers.Feature("uint8", (HEIGHT, WIDTH, 3), "source")})

_CROPS = {"image": decoders.RandomResizedCrop(CROP, AREA, ASPECT, flip=True)}


def _make_shard(task: tuple[Path, int, int]) -> None:
    """Writes every 32nd photograph to a TFRecord file and to a separate file."""
    folder, shard, count = task
    encoder, found = Encoder(_SCHEMA), originals()
    with (folder / f"{shard:02d}.tfrecord").open("wb") as file:
        for number in range(shard, count, _SHARDS):
            path = folder / f"{number:07d}.jpg"
            draw_photograph(number, found).save(path, quality=QUALITY)
            file.write(frame(encoder.encode({"image": path.read_bytes()})))


def make(folder: Path, count: int) -> None:
    """Makes the photographs of a folder, unless they exist."""
    if (folder / "done").exists():
        return
    folder.mkdir(parents=True, exist_ok=True)
    print(f"making {count:,} photographs in {folder}", flush=True)
    with multiprocessing.get_context("spawn").Pool() as pool:
        pool.map(_make_shard, [(folder, shard, count) for shard in range(_SHARDS)], 1)
    (folder / "done").touch()


def _torch_batches(folder: Path, workers: int = 0) -> Iterator[Any]:
    from torch.utils.data import DataLoader

    batches = readers.torch_batches(
        f"{folder}/*.tfrecord",
        schema=_SCHEMA,
        batch_size=BATCH,
        shuffle=True,
        repeat=None,
        decoders=_CROPS,
        as_supervised=["image"],
        prefetch=4,
    )
    loader = DataLoader(batches, batch_size=None, num_workers=workers, pin_memory=True)
    return (image for (image,) in loader)


def _files(folder: Path, cores: int) -> Iterator[Any]:
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
            return crop(image)

    torch.set_num_threads(1)
    data = Files()
    # Drawn with replacement, so that no epoch ends and empties the queues.
    sampler = RandomSampler(data, replacement=True, num_samples=1 << 40)
    loader = DataLoader(data, BATCH, sampler=sampler, num_workers=cores, pin_memory=True)
    return iter(loader)


def rate_of(batches: Iterator[Any], seconds: float, use: Callable[[Any], None]) -> float:
    """Pictures per second, after some seconds to warm up."""
    until = time.perf_counter() + _WARM_SECONDS
    use(next(batches))
    while time.perf_counter() < until:
        use(next(batches))
    count, began = 0, time.perf_counter()
    while (now := time.perf_counter()) < began + seconds:
        batch = next(batches)
        count += len(batch)
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
        self._labels = torch.randint(1000, (BATCH,), device="cuda")
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
        shape = (BATCH, CROP, CROP, 3)
        batches = itertools.repeat(torch.randint(256, shape, dtype=torch.uint8, device="cuda"))
    elif way == "torch_batches":
        batches = _torch_batches(folder)
    elif way == "torch_batches in a DataLoader":
        batches = _torch_batches(folder, workers=4)
    else:
        batches = _files(folder, cores)
    return rate_of(batches, seconds, training.step)


TRAINING = [
    "the step alone",
    "torch_batches",
    "torch_batches in a DataLoader",
    "DataLoader over files",
]


def main() -> None:
    """Measures each way in a separate process, and prints a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    default = "(default: %(default)s)"
    parser.add_argument("way", nargs="?", help=argparse.SUPPRESS)
    parser.add_argument("--data", type=Path, default=Path("benchmark_data"), help=default)
    parser.add_argument("--pictures", type=int, default=12_032, help=default)
    parser.add_argument("--seconds", type=float, default=4.0, help=default)
    parser.add_argument("--runs", type=int, default=1, help=default)
    parser.add_argument("--json", metavar="FILE", help="write the rates of all runs to this file")
    flags = parser.parse_args()
    flags.data = flags.data.resolve()
    folder, found = flags.data / f"training-{flags.pictures}", flags.data / "training-step.json"
    if flags.way:
        found.write_text(json.dumps(train(flags.way, folder, flags.seconds)))
        os._exit(0)  # without waiting for workers that would go on reading; the caller ends them
    make(folder, flags.pictures)
    rates: dict[str, list[float]] = {}
    for way in TRAINING:
        rates[way] = []
        for _ in range(flags.runs):
            command = [sys.executable, __file__, way, "--data", str(flags.data)]
            command += ["--pictures", str(flags.pictures), "--seconds", str(flags.seconds)]
            run(way, command, flags.data / "training-step.log", limit=120)
            rates[way].append(json.loads(found.read_text()))
        save(flags.json, rates)
    rows = [[way, f"{statistics.median(found):,.0f}"] for way, found in rates.items()]
    print(format_markdown([["", "pictures/s"], *rows]))


if __name__ == "__main__":
    run_command(main)
