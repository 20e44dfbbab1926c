"""The contenders that read pictures, and the interface that each implements."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pictures.kinds import PictureKind

FILES = "files"  # the store of contenders that read the photographs themselves


@dataclass(frozen=True)
class Entry:
    """A contender's place in the benchmark, known without importing it.

    Attributes:
        module: Its module.
        environment: The name of its environment.
        store: The contender whose store it reads, or `FILES`.
        modes: The names of its modes in the tables.
    """

    module: str
    environment: str
    store: str
    modes: tuple[str, ...]


ENTRIES = {
    "ours": Entry(
        "pictures.ours",
        "ours",
        "ours",
        ("load", "load, interleave", "as_numpy", "RecordSource"),
    ),
    "tf_data": Entry("rivals.pictures.tf_data", "ours", "ours", ("tf.data",)),
    "pytorch": Entry("rivals.pictures.pytorch", "torch", FILES, ("PyTorch, torchvision",)),
    "litdata": Entry("rivals.pictures.litdata_reader", "litdata", "litdata", ("LitData",)),
    "mds": Entry("rivals.pictures.mds", "mds", "mds", ("MosaicML Streaming",)),
    "datasets": Entry("rivals.pictures.hugging_face", "datasets", "datasets", ("HF datasets",)),
    "spdl": Entry("rivals.pictures.spdl_reader", "spdl", FILES, ("SPDL",)),
    "webdataset": Entry(
        "rivals.pictures.webdataset_reader", "torch", "webdataset", ("WebDataset",)
    ),
    "grain": Entry(
        "rivals.pictures.grain_reader",
        "rivals",
        "array_record",
        ("Grain, threads", "Grain, processes"),
    ),
    "array_record": Entry(
        "rivals.pictures.array_record_reader",
        "rivals",
        "array_record",
        ("ArrayRecord, batch call",),
    ),
    "ffcv": Entry("rivals.pictures.ffcv_reader", "ffcv", "ffcv", ("FFCV",)),
    "dali": Entry("rivals.pictures.dali", "dali", FILES, ("DALI on the CPU",)),
}


@dataclass(frozen=True)
class Task:
    """The pictures that a contender reads in a random order, and how.

    Attributes:
        kind: The work that is done with each picture.
        dtype: The dtype of the results.
        store: The folder that the contender wrote, or the folder of `files/`.
        epochs: Number of epochs; None repeats without end.
        cores: The cores that the process may use, and so the workers that a contender starts.
    """

    kind: PictureKind
    dtype: str
    store: Path
    epochs: int | None
    cores: int


def images_of(batch: Any) -> Any:
    """Returns the array or tensor of a batch, alone or under the name `image`."""
    return batch["image"] if isinstance(batch, dict) else batch


def _nothing_to_import(mode: str) -> None:
    pass


@dataclass(frozen=True)
class Contender:
    """A library that reads batches of at most `BATCH` pictures.

    Attributes:
        modes: Name of a mode -> function that opens an iterable of batches.
        write: Writes the store, a new folder, from a folder of photographs; None without one.
        prepare: Imports the modules of a mode, so that the time of imports is not measured.
        images: Returns the array or tensor of a batch, [B, height, width, 3] or [B, 3, height, width].
    """

    modes: dict[str, Callable[[Task], Iterable[Any]]]
    write: Callable[[Path, Path], None] | None = None
    prepare: Callable[[str], None] = _nothing_to_import
    images: Callable[[Any], Any] = images_of
