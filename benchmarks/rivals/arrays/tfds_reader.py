"""TensorFlow Datasets: a builder's TFRecord files, read by `as_dataset`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_datasets as tfds
from reading import Reader, Task
from records import NUM_SHARDS, SHUFFLE_BUFFER, Kind, Records
from rivals.arrays.per_record import batched


class Stored(tfds.core.GeneratorBasedBuilder):
    """A dataset with one split, whose records are of one kind."""

    VERSION = tfds.core.Version("1.0.0")

    def __init__(self, *, kind: Kind, records: Records, **kwargs: Any) -> None:
        self._kind, self._records = kind, records
        super().__init__(**kwargs)

    def _info(self) -> tfds.core.DatasetInfo:
        # Raw bytes, as in our tensors: lists of numbers, TFDS's default, are read no faster.
        value = tfds.features.Tensor(
            shape=self._kind.shape, dtype=np.dtype(self._kind.dtype), encoding="bytes"
        )
        features = tfds.features.FeaturesDict({"x": value})
        return tfds.core.DatasetInfo(builder=self, features=features)

    def _split_generators(self, dl_manager: Any) -> dict[str, Any]:
        return {"train": self._generate_examples()}

    def _generate_examples(self) -> Iterator[tuple[int, dict[str, Any]]]:
        for number in range(len(self._records)):
            yield number, {"x": self._records[number]}


def write(kind: Kind, records: Records, store: Path) -> None:
    """Writes the records to the same number of shards as the other contenders."""
    tfds.disable_progress_bar()
    Stored(kind=kind, records=records, data_dir=store).download_and_prepare(
        download_config=tfds.download.DownloadConfig(num_shards=NUM_SHARDS, try_download_gcs=False)
    )


def _open(task: Task) -> tf.data.Dataset:
    builder = tfds.builder_from_directory(task.store / "stored" / "1.0.0")
    # By default, TFDS keeps datasets of less than 250 MB in memory after the first epoch, and would not
    # read any more.
    read = tfds.ReadConfig(try_autocache=False, shuffle_seed=0)
    records = builder.as_dataset("train", shuffle_files=task.shuffle, read_config=read)
    if task.shuffle:
        records = records.shuffle(SHUFFLE_BUFFER, seed=0)
    return batched(records, task)


READER = Reader(modes={"TFDS": _open}, write=write)
