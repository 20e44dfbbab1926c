"""A tour: generates sample inputs, runs three jobs on this machine, and reads the results.

Usage: python examples/tour.py DIRECTORY
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
from collections.abc import Iterator
from pathlib import Path

# Before Beam is imported: it warns about missing Google Cloud packages.
logging.basicConfig(level=logging.ERROR)

from samples import make_samples

from beam_jobs.__main__ import main as beam_shards


def jobs(inputs: Path, outputs: Path) -> dict[str, list[str]]:
    """Returns the command line of each job."""
    common = ["--splits", "train=0.8,val=0.2", "--exact_splits", "--overwrite"]
    common += ["--num_shards", "train=8,val=2"]
    flags = {
        "images": ["--input", f"{inputs}/images/*/*", "--image_size", "224x224"],
        "text": ["--input", f"{inputs}/text/*.jsonl", "--label_field=label", "--tokens=words"],
        "sensors": ["--input", f"{inputs}/sensors/*/*.npy"],
    }
    return {
        name: [name, *own, "--output", str(outputs / name), *common] for name, own in flags.items()
    }


@contextlib.contextmanager
def silenced() -> Iterator[None]:
    """Discards standard error, including output of C++; exceptions still propagate."""
    sys.stderr.flush()
    stderr = os.dup(2)
    with Path(os.devnull).open("w") as null:
        os.dup2(null.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(stderr, 2)
        os.close(stderr)


def main(directory: Path) -> None:
    """Runs the tour in a directory."""
    inputs, outputs = directory / "inputs", directory / "shards"
    make_samples(inputs)
    print(f"inputs in {inputs}, datasets in {outputs}")
    for name, arguments in jobs(inputs, outputs).items():
        print(f"\n{name}", flush=True)
        if code := beam_shards(arguments):
            sys.exit(code)

    with silenced():  # TensorFlow logs notes about CPUs, GPUs and buffers
        import tensorflow as tf

        import readers

        tf.constant(0)
    images = readers.load(str(outputs / "images"), split="train", batch_size=32, shuffle=True)
    texts = readers.load(
        str(outputs / "text"), split="train", batch_size=32, batching=readers.Padded(mask=True)
    )
    sensors = readers.load(
        str(outputs / "sensors"), split="train", batch_size=32, batching="ragged"
    )
    for title, dataset in (
        ("a dense batch of images", images),
        ("a padded batch of texts, with its mask", texts),
        ("a ragged batch of recordings", sensors),
    ):
        with silenced():
            batch = next(iter(dataset))
        print(f"\n{title}")
        for name, tensor in batch.items():
            kind = type(tensor).__name__ if "Ragged" in type(tensor).__name__ else "Tensor"
            print(f"  {name:12} {tensor.dtype.name:8} {tensor.shape!s:20} {kind}")
    print("\nnext: beam-shards info DIRECTORY, and the README for your own files")


if __name__ == "__main__":
    main(Path(sys.argv[1]).absolute())
