"""Reads inputs for all rivals, so that they differ only in the writing of records."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from PIL import Image

_IMAGE_SIZE = 224, 224
_PATTERNS = {"sensors": "*/*.npy", "images": "*/*.jpg", "text": "*.jsonl"}


def list_files(folder: str, kind: str) -> list[str]:
    """Returns the files of a kind, sorted."""
    return sorted(map(str, Path(folder).glob(_PATTERNS[kind])))


def class_names(folder: str) -> list[str]:
    """Returns the folders that name the classes, sorted: a label is an index into this list."""
    return sorted(path.name for path in Path(folder).iterdir() if path.is_dir())


def class_name(path: str) -> str:
    """Returns the class of a file."""
    return path.rsplit("/", 2)[-2]


def read_recording(path: str) -> np.ndarray:
    """Returns a recording, float32 [time, 6]."""
    return np.load(path)


def read_image(path: str) -> np.ndarray:
    """Returns an image, uint8 [224, 224, 3].

    `draft` makes the JPEG decoder skip details that resizing would discard: over twice as fast.
    """
    with Image.open(path) as image:
        image.draft("RGB", _IMAGE_SIZE)
        return np.asarray(image.resize(_IMAGE_SIZE, Image.Resampling.BILINEAR))


def parse_line(line: bytes) -> tuple[str, int]:
    """Returns the text and the label of a line."""
    row = json.loads(line)
    return row["text"], row["label"]


def read_lines(path: str) -> Iterator[bytes]:
    """Yields the lines of a file."""
    with Path(path).open("rb") as file:
        yield from file


def read_records(kind: str, path: str) -> Iterator[tuple[np.ndarray | str, int | None]]:
    """Yields (array or text, label) of the records of a file; the label is None if its folder names it."""
    if kind == "text":
        yield from map(parse_line, read_lines(path))
    else:
        yield read_image(path) if kind == "images" else read_recording(path), None
