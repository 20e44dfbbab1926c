"""SPDL over the files: its pipeline of threads, with FFmpeg's decoder, crop and scaler.

It needs FFmpeg's shared libraries, libavdevice included.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
import spdl.io
from pictures.contender import Contender, Task
from pictures.crops import draw_crop
from pictures.kinds import BATCH, CROP, HEIGHT, WIDTH
from pictures.truth import files_of
from spdl.pipeline import PipelineBuilder


def _filter(task: Task, rng: np.random.Generator) -> str:
    """Returns what FFmpeg does with a decoded picture."""
    if not task.kind.is_cropped:
        return "format=pix_fmts=rgb24"
    top, left, height, width = draw_crop(rng, HEIGHT, WIDTH)
    mirror = "hflip," if rng.random() < 0.5 else ""
    crop = f"crop={width}:{height}:{left}:{top}:exact=1"
    return f"{crop},scale={CROP}:{CROP}:flags=bilinear,{mirror}format=pix_fmts=rgb24"


def _open(task: Task) -> Iterator[np.ndarray]:
    rng = np.random.default_rng(0)
    files = np.array(files_of(task.store))

    def source() -> Iterator[list[tuple[str, str]]]:
        for _ in itertools.count() if task.epochs is None else range(task.epochs):
            order = rng.permutation(files).tolist()
            for first in range(0, len(order), BATCH):
                yield [(path, _filter(task, rng)) for path in order[first : first + BATCH]]

    def read(batch: list[tuple[str, str]]) -> np.ndarray:
        frames = [
            spdl.io.decode_packets(spdl.io.demux_image(path), filter_desc=steps)
            for path, steps in batch
        ]
        images = spdl.io.to_numpy(spdl.io.convert_frames(frames))
        return images * np.float32(1 / 255) if task.dtype == "float32" else images

    pipeline = (
        PipelineBuilder()
        .add_source(source())
        .pipe(read, concurrency=task.cores)
        .add_sink(4)
        .build(num_threads=task.cores)
    )
    with pipeline.auto_stop():
        yield from pipeline.get_iterator()


CONTENDER = Contender(modes={"SPDL": _open})
