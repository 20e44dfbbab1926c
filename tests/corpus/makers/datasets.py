"""Datasets of this package, one for each job and for each option that changes what is on disk.

`python -m tests.corpus.makers.datasets` writes those that the folder of this format version lacks.
"""

from __future__ import annotations

import contextlib
import json
import os
import struct
import tempfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

from readers.format.manifest import FORMAT_VERSION
from readers.format.tfrecord import frame
from tests.support.commands import IN_MEMORY, ONE, run
from tests.support.datasets import npy
from tests.support.plain import sequence_example

CORPUS = Path(__file__).parents[1]

# The datasets that this version of the package writes.
OURS = CORPUS / f"v{FORMAT_VERSION}"

_SPLITS = ["--splits", "train=0.6,val=0.4", "--num_shards", "train=2,val=1", "--seed", "3"]

_WORDS = ("red", "fox", "jumps", "over", "été", "日本", "red fox")


def png(rows: list[list[tuple[int, ...]]]) -> bytes:
    """A PNG of 8 bits in gray or RGB, whose bytes do not depend on a library's version."""
    height, width, channels = len(rows), len(rows[0]), len(rows[0][0])
    color = {1: 0, 3: 2}[channels]
    lines = b"".join(b"\0" + bytes(value for pixel in row for value in pixel) for row in rows)
    # A deflate stream of one stored block.
    size = struct.pack("<BHH", 1, len(lines), len(lines) ^ 0xFFFF)
    packed = b"\x78\x01" + size + lines + struct.pack(">I", zlib.adler32(lines))
    head = struct.pack(">IIBBBBB", width, height, 8, color, 0, 0, 0)
    chunks = ((b"IHDR", head), (b"IDAT", packed), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in chunks
    )


def pixels(number: int, height: int, width: int) -> list[list[tuple[int, ...]]]:
    """The pixels in RGB of an image that is like no other."""
    return [
        [((40 * number + 7 * y + 3 * x) % 256, 10 * y, 255 - x) for x in range(width)]
        for y in range(height)
    ]


def _images(folder: Path, height: int, width: int, more: int = 0) -> None:
    """Writes images of two classes into `in/<class>`, each `more` pixels higher than the last one."""
    for number in range(7):
        path = folder / "in" / ("cat", "dog")[number % 2] / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(png(pixels(number, height + more * number, width)))


def _images_tensor(folder: Path) -> list[str]:
    _images(folder, 2, 3)
    return ["images", "--input", "in/*/*", "--image_size", "2x3"]


def _images_source(folder: Path) -> list[str]:
    _images(folder, 2, 2, more=1)
    (folder / "in/dog/9.png").write_bytes(b"no image")
    return ["images", "--input", "in/*/*", "--encoding", "source"]


def _lines(folder: Path) -> None:
    lines = [
        {"text": f"{_WORDS[n % 7]} {_WORDS[n * 3 % 5]}", "label": "ab"[n % 2]} for n in range(7)
    ]
    lines.append({"text": None, "label": "a"})
    text = "\n".join(json.dumps(line, ensure_ascii=False) for line in lines)
    (folder / "a.jsonl").write_text(text, encoding="utf-8")


def _text_words(folder: Path) -> list[str]:
    _lines(folder)
    flags = ["--tokens", "words", "--vocabulary_size", "8", "--label_field", "label"]
    return ["text", "--input", "a.jsonl", *flags]


def _text_raw(folder: Path) -> list[str]:
    text = "\n".join(f"{_WORDS[n % 7]} {n}" for n in range(7))
    (folder / "a.txt").write_text(text, encoding="utf-8")
    return ["text", "--input", "a.txt"]


def _text_tokenizer(folder: Path) -> list[str]:
    _lines(folder)
    words = sorted({word for text in _WORDS for word in text.split()})
    vocabulary = {word: number for number, word in enumerate(["[PAD]", "[UNK]", *words])}
    file = {
        "version": "1.0",
        **dict.fromkeys(("truncation", "padding", "normalizer", "post_processor", "decoder")),
        "added_tokens": [],
        "pre_tokenizer": {"type": "Whitespace"},
        "model": {"type": "WordLevel", "vocab": vocabulary, "unk_token": "[UNK]"},
    }
    (folder / "t.json").write_text(json.dumps(file, ensure_ascii=False), encoding="utf-8")
    flags = ["--tokens", "t.json", "--label_field", "label"]
    return ["text", "--input", "a.jsonl", *flags]


def _recordings(folder: Path, lengths: tuple[int, ...]) -> None:
    """Writes recordings of int16 [length, 2] of two classes into `in/<class>`."""
    for number, length in enumerate(lengths):
        path = folder / "in" / ("rest", "walk")[number % 2] / f"{number}.npy"
        path.parent.mkdir(parents=True, exist_ok=True)
        values = struct.pack(f"<{2 * length}h", *(100 * number + n for n in range(2 * length)))
        path.write_bytes(npy("<i2", (length, 2), values))


def _sensors_fixed(folder: Path) -> list[str]:
    _recordings(folder, (3, 3, 3, 3, 3, 3, 3))
    flags = ["--window", "3", "--encoding", "raw", "--names", "signal=wave"]
    return ["sensors", "--input", "in/*/*", *flags]


def _sensors_variable(folder: Path) -> list[str]:
    _recordings(folder, (1, 4, 2, 5, 3, 2, 4))
    return ["sensors", "--input", "in/*/*", "--dtype", "float32"]


def _sensors_list(folder: Path) -> list[str]:
    _recordings(folder, (1, 4, 2, 5, 3, 2, 4))
    return ["sensors", "--input", "in/*/*", "--encoding", "list", "--label", "none"]


def _sensors_sequence(folder: Path) -> list[str]:
    _recordings(folder, (2, 4, 6, 4, 2, 4, 2))
    flags = ["--window", "2", "--stride", "2", "--sequence", "--last_window", "drop"]
    return ["sensors", "--input", "in/*/*", *flags]


def _reshard(folder: Path) -> list[str]:
    """The steps of SequenceExamples of other writers, and their label."""
    (folder / "in").mkdir()
    for file in range(2):
        records = [
            sequence_example(
                {"label": [n]},
                audio=[[n + step / 4, -step / 4] for step in range(1 + n % 3)],
            )
            for n in range(4 * file, 4 * file + 4)
        ]
        (folder / "in" / f"{file}.tfrecord").write_bytes(b"".join(map(frame, records)))
    schema = {
        "audio": {"dtype": "float32", "shape": [None, 2], "encoding": "list steps"},
        "label": {"dtype": "int64", "shape": [], "encoding": "list"},
    }
    (folder / "schema.json").write_text(json.dumps(schema))
    return ["reshard", "--input", "in/*", "--schema", "schema.json"]


# Name -> what writes the inputs into a folder, and returns the job with its own flags.
MAKERS: dict[str, Callable[[Path], list[str]]] = {
    "images_tensor": _images_tensor,
    "images_source": _images_source,
    "text_words": _text_words,
    "text_raw": _text_raw,
    "text_tokenizer": _text_tokenizer,
    "sensors_fixed": _sensors_fixed,
    "sensors_variable": _sensors_variable,
    "sensors_list": _sensors_list,
    "sensors_sequence": _sensors_sequence,
    "reshard_steps": _reshard,
}


@contextlib.contextmanager
def _inside(folder: Path) -> Iterator[None]:
    """Works in a folder, because a manifest holds the inputs as they were typed."""
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def write(name: str, folder: Path) -> Path:
    """Writes a dataset of the corpus, and its inputs, into an empty folder; returns its directory."""
    job = MAKERS[name](folder)
    with _inside(folder):
        code = run(*job, *_SPLITS, "--output", name, *IN_MEMORY, *ONE)
    if code:
        raise RuntimeError(f"{name}: exit code {code}")
    return folder / name


def main() -> None:
    """Writes the datasets that the corpus lacks."""
    OURS.mkdir(exist_ok=True)
    for name in MAKERS:
        if not (OURS / name).exists():
            with tempfile.TemporaryDirectory() as folder:
                write(name, Path(folder)).rename(OURS / name)


if __name__ == "__main__":
    main()
