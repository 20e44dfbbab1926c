"""NVIDIA DALI without a GPU, over the files: its threads decode only the window of a crop."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from nvidia.dali import fn, pipeline_def, types
from pictures import AREA, ASPECT, BATCH, CROP, files_of
from reading import Reader, Task


@pipeline_def
def _pipeline(task: Task) -> Any:
    encoded, _ = fn.readers.file(
        files=files_of(task.store), random_shuffle=True, initial_fill=1024, name="files"
    )
    if not task.kind.is_cropped:
        return fn.decoders.image(encoded, device="cpu", adjust_orientation=False)
    images = fn.decoders.image_random_crop(
        encoded,
        device="cpu",
        random_area=list(AREA),
        random_aspect_ratio=list(ASPECT),
        adjust_orientation=False,
    )
    images = fn.resize(images, size=(CROP, CROP), interp_type=types.INTERP_LINEAR)
    images = fn.flip(images, horizontal=fn.random.coin_flip())
    if task.dtype == "float32":
        images = fn.cast(images, dtype=types.FLOAT) / 255
    return images


def _open(task: Task) -> Iterator[np.ndarray]:
    pipeline = _pipeline(
        task, batch_size=BATCH, num_threads=task.cores, device_id=None, prefetch_queue_depth=2
    )
    pipeline.build()
    # Its epochs have no partial batch: the last is filled from the next epoch.
    batches = pipeline.epoch_size("files") // BATCH * (task.epochs or 1)
    while True:
        for _ in range(batches):
            (images,) = pipeline.run()
            yield images.as_array()
        if task.epochs:
            return


READER = Reader(modes={"DALI on the CPU": _open})
