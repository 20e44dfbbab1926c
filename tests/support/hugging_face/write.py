"""Writes the .parquet files of this folder with Hugging Face's library; they are of datasets 5.2.0."""

import io
from pathlib import Path

import datasets
import numpy as np
import pyarrow as pa
import soundfile
from PIL import Image

FOLDER = Path(__file__).parent

FILE = pa.struct({"bytes": pa.binary(), "path": pa.string()})

ANIMALS = datasets.ClassLabel(names=["zebra", "ant", "cat"])


def png(value: int) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(np.full((2, 3, 3), value, np.uint8)).save(buffer, "PNG")
    return buffer.getvalue()


def wav(samples: int) -> bytes:
    buffer = io.BytesIO()
    soundfile.write(buffer, np.arange(samples, dtype=np.int16), 8000, format="WAV")
    return buffer.getvalue()


def write(name: str, features: dict, columns: dict, batch_size: int = 1000) -> None:
    dataset = datasets.Dataset(pa.table(columns)).cast(datasets.Features(features))
    dataset.to_parquet(FOLDER / name, batch_size=batch_size)


write(
    "images.parquet",
    {
        "image": datasets.Image(),
        "label": ANIMALS,
        "meta": {"tags": datasets.List(ANIMALS), "age": datasets.Value("float32")},
    },
    {
        "image": pa.array(
            [{"bytes": png(i), "path": f"{i}.png" if i % 2 else None} for i in range(6)], FILE
        ),
        "label": [i % 3 for i in range(6)],
        "meta": [{"tags": [i % 3, 0][: i % 3], "age": float(i)} for i in range(6)],
    },
    batch_size=4,
)
write(
    "audio.parquet",
    {
        "audio": datasets.Audio(sampling_rate=8000),
        "file": datasets.Value("string"),
        "label": datasets.ClassLabel(names=["yes", "no"]),
    },
    {
        "audio": pa.array([{"bytes": wav(10 + i), "path": f"{i}.wav"} for i in range(4)], FILE),
        "file": [f"/gone/{i}.wav" for i in range(4)],
        "label": [0, 1, 1, -1],
    },
)
write(
    "texts.parquet",
    {"text": datasets.Value("string"), "label": datasets.ClassLabel(names=["neg", "Pos"])},
    {"text": ["good film", "bad film", "so so"], "label": [1, 0, 1]},
)
