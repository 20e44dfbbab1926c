"""The pages of docs/moving: the programs on both sides run and deliver the same, and so do the datasets that were moved."""

from __future__ import annotations

import pickle
import re
import subprocess
import sys
import venv
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import readers
from examples.samples import make_samples
from tests.support.checkout import ROOT
from tests.support.pages import Block, blocks_in, run

PAGES = ROOT / "docs" / "moving"
CELL = re.compile(r"^<tr><td>$(.*?)^</td><td>$(.*?)^</td></tr>$", re.M | re.S)

# Ends a program that reads: keeps what its `train` delivers.
_KEEP = """
import pickle

def _arrays(batch):
    values = [batch[name] for name in batch if name != "key"] if isinstance(batch, dict) else batch
    return [value.numpy() if hasattr(value, "numpy") else value for value in values]

with open("delivered.pickle", "wb") as file:
    pickle.dump([_arrays(batch) for batch in train], file)
"""


class Rows:
    """The rows of a page's table: the blocks of theirs, and of ours; and the blocks that move a dataset."""

    def __init__(self, name: str) -> None:
        text = (PAGES / f"{name}.md").read_text(encoding="utf-8")
        cells = [tuple(map(blocks_in, found)) for found in CELL.findall(text)]
        self.theirs, self.ours = ([cell[side] for cell in cells] for side in (0, 1))
        self.moving = blocks_in(text.partition("\n## Move a dataset\n")[2])
        printed = re.search(r"^(?:Both|All) print `(\d+)`", text, re.M)
        assert printed, "the page says what the programs print"
        self.printed = printed[1]


class Runner:
    """Runs blocks in a folder with samples."""

    def __init__(self, folder: Path, python: str = sys.executable) -> None:
        self.folder, self._python = folder, python
        make_samples(folder / "sample_data" / "inputs")

    def run(self, block: Block, after: str = "") -> str:
        """What a block prints."""
        # Some packages keep caches at home.
        more = {"HOME": str(self.folder), "PYTHONWARNINGS": "ignore"}
        return run(block._replace(text=block.text + after), self.folder, self._python, more)

    def write(self, blocks: list[Block]) -> None:
        """Runs blocks that write."""
        for block in blocks:
            self.run(block)

    def read(self, block: Block, printed: str) -> list[list[Any]]:
        """The batches of a program, which prints the number of records."""
        assert self.run(block, _KEEP).split()[-1] == printed
        return pickle.loads((self.folder / "delivered.pickle").read_bytes())


def records_of(batches: list[list[Any]]) -> Counter[tuple[bytes, int]]:
    """How often each pair of a value and a label was delivered; zeros at the end of recordings are padding."""
    found: Counter[tuple[bytes, int]] = Counter()
    for values, labels in batches:
        for value, label in zip(values, labels, strict=True):
            found[_content(value), int(label)] += 1
    return found


def _content(value: Any) -> bytes:
    if isinstance(value, bytes):
        return value
    array = np.asarray(value)
    return array.tobytes().rstrip(b"\0") if array.dtype == np.float32 else array.tobytes()


def moved(folder: Path, feature: str) -> Counter[tuple[bytes, int]]:
    """As `records_of`, of a dataset."""
    source = readers.RecordSource(folder, columns=[feature, "label"])
    return Counter((_content(record[feature]), int(record["label"])) for record in source)


def both_sides(runner: Runner, page: Rows) -> Counter[tuple[bytes, int]]:
    """What both sides of a page deliver, which is the same; moves the dataset of theirs."""
    (their_write, their_read), (our_write, our_read) = page.theirs, page.ours
    runner.write(their_write)
    runner.write(our_write)
    theirs = records_of(runner.read(their_read[0], page.printed))
    ours = records_of(runner.read(our_read[0], page.printed))
    assert theirs.total() == int(page.printed)
    assert theirs == ours
    return theirs


@pytest.mark.parametrize("page", sorted(PAGES.glob("*.md")), ids=lambda page: page.stem)
def test_a_page_has_a_line_of_at_most_60_columns_on_each_side_and_says_when_to_stay(page):
    if page.stem == "comparison":
        pytest.skip("a page of tables")
    rows = Rows(page.stem)
    assert rows.theirs and len(rows.theirs) == len(rows.ours)
    for block in (block for cell in rows.theirs + rows.ours for block in cell):
        assert [line for line in block.text.splitlines() if len(line) > 60] == []
    headings = re.findall(r"^## (.*)$", page.read_text(encoding="utf-8"), re.M)
    assert headings == ["The same program", "What differs", "Move a dataset", "When to stay"]


@pytest.mark.slow
@pytest.mark.ci
def test_tfrecords(tmp_path):
    page, runner = Rows("tfrecords"), Runner(tmp_path)
    records = both_sides(runner, page)
    read, index = page.moving
    assert records_of(runner.read(read, page.printed)) == records
    runner.write([index])
    assert moved(tmp_path / "old", "signal") == records


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("grain", marks=[pytest.mark.slow, pytest.mark.ci]),
        pytest.param("webdataset", marks=pytest.mark.frameworks),
        pytest.param("litdata", marks=pytest.mark.frameworks),
    ],
)
def test_pictures_that_were_moved(tmp_path, name):
    page, runner = Rows(name), Runner(tmp_path)
    records = both_sides(runner, page)
    runner.write(page.moving)
    assert moved(tmp_path / "shards" / "moved", "image") == records


@pytest.mark.frameworks
def test_tfds(tmp_path):
    page, runner = Rows("tfds"), Runner(tmp_path)
    records = both_sides(runner, page)
    runner.write(page.moving)
    assert moved(tmp_path / "shards" / "moved", "text") == records
    manifest = readers.Manifest.read(tmp_path / "shards" / "moved")
    assert manifest.label_names == ("negative", "positive")
    (command,) = re.findall(r"`(beam-shards index [^`]*)`", (PAGES / "tfds.md").read_text())
    runner.run(Block("bash", command))
    assert moved(tmp_path / "old" / "indexed", "text") == records


@pytest.fixture
def with_streaming(tmp_path):
    """Python with MosaicML Streaming, whose NumPy is older, before the packages of this environment."""
    folder = tmp_path / "streaming"
    venv.create(folder, with_pip=True)
    python = folder / "bin" / "python"
    (packages,) = folder.glob("lib/python*/site-packages")
    others = [path for path in sys.path if path.endswith("site-packages")]
    (packages / "others.pth").write_text("\n".join(others))
    required = ROOT / "benchmarks" / "requirements" / "mds.txt"
    pip = [python, "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    subprocess.run([*pip, "--requirement", required], check=True)
    return str(python)


@pytest.mark.frameworks
def test_mds(tmp_path, with_streaming):
    page, runner = Rows("mds"), Runner(tmp_path, with_streaming)
    records = both_sides(runner, page)
    runner.write(page.moving)
    assert moved(tmp_path / "shards" / "moved", "signal") == records


def pictures_of(batches: list[list[Any]]) -> tuple[np.ndarray, np.ndarray]:
    """The pictures of all batches as float32 [N, H, W, C], and their labels."""
    pictures = np.concatenate([np.asarray(values, np.float32) for values, _ in batches])
    if pictures.shape[1] == 3:  # As PyTorch has them.
        pictures = pictures.transpose(0, 2, 3, 1)
    return pictures, np.concatenate([np.asarray(labels) for _, labels in batches])


def distances(row: int, folder: Path) -> np.ndarray:
    """How much each picture of the left side differs from the nearest with its label on the right, in the mean; sorted."""
    page, runner = Rows("folders"), Runner(folder)
    write, read = page.ours[row]
    runner.write([write])
    left = pictures_of(runner.read(page.theirs[row][0], page.printed))
    right = pictures_of(runner.read(read, page.printed))
    assert np.bincount(left[1]).tolist() == np.bincount(right[1]).tolist()
    return np.sort(
        [
            np.abs(right[0][right[1] == label] - picture).mean(axis=(1, 2, 3)).min()
            for picture, label in zip(*left, strict=True)
        ]
    )


# Of 120 pictures, EXIF rotates 10, and 16 have 16 bits.


@pytest.mark.slow
def test_folders_with_keras(tmp_path):
    found = distances(0, tmp_path)
    assert found[109] < 15  # Without antialiasing.
    assert found[110] > 25


@pytest.mark.frameworks
def test_folders_with_torchvision(tmp_path):
    found = distances(1, tmp_path)
    assert found[93] == 0
    assert found[94] > 25
