"""WebDataset: tar files with the photographs, decoded by Pillow in the workers of a WebLoader."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import webdataset
from pictures import BATCH, NUM_SHARDS, SHUFFLE_BUFFER, files_of
from reading import Reader, Task, epochs_of
from rivals.pictures.torch_pictures import transform_of


def write(folder: Path, store: Path) -> None:
    """Writes the files' own bytes."""
    store.mkdir()
    files = files_of(folder)
    for number in range(NUM_SHARDS):
        with webdataset.TarWriter(str(store / f"{number:05d}.tar")) as writer:
            for path in files[number::NUM_SHARDS]:
                writer.write({"__key__": Path(path).stem, "jpg": Path(path).read_bytes()})


def _images(batch: Any) -> Any:
    return batch[0]


def _open(task: Task) -> Iterator[Any]:
    pictures = (
        webdataset.WebDataset(
            sorted(str(path) for path in task.store.iterdir()), shardshuffle=NUM_SHARDS, seed=0
        )
        .shuffle(SHUFFLE_BUFFER // task.cores, seed=0)
        .decode("pil")
        .to_tuple("jpg")
        .map_tuple(transform_of(task))
        .batched(BATCH)
    )
    loader = webdataset.WebLoader(
        pictures, batch_size=None, num_workers=task.cores, persistent_workers=True
    )
    return epochs_of(loader, task)


READER = Reader(modes={"WebDataset": _open}, write=write, rows=_images)
