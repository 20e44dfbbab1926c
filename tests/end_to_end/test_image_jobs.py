"""Image jobs with files of several frames, and of one size or of several."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import readers
from beam_jobs import write
from readers.format.manifest import Manifest
from tests.support.archives import tarred
from tests.support.commands import ONE, interrupted, kept_shards, run
from tests.support.images import encoded


def animation(frames: int) -> bytes:
    first, *rest = (Image.new("L", (8, 6), number) for number in range(frames))
    return encoded(first, "TIFF", save_all=True, append_images=rest)


FILES = {"a/1.tif": animation(3), "a/2.png": encoded(np.zeros((6, 8), np.uint8), "PNG")}
FILES |= {f"b/{n}.tif": animation(2) for n in range(6)}


@pytest.fixture
def inputs(tmp_path):
    """A folder with the files, in which seven have more than one page, and one is damaged."""
    for name, data in {**FILES, "a/3.tif": animation(2)[:40]}.items():
        (tmp_path / "in" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "in" / name).write_bytes(data)
    (tmp_path / "in.tgz").write_bytes(tarred(list(FILES.items()), "w:gz"))
    return tmp_path


REMARK = "only its first frame was stored; --frames all makes a record of each"


def job(source: object, out: object, *flags: object) -> list[object]:
    return ["images", "--input", source, "--splits", "t=0.7,v=0.3", *flags, *ONE, "--output", out]


def test_files_whose_further_frames_are_left_out_are_counted_also_after_a_restart(inputs, capsys):
    command = job(inputs / "in", inputs / "out")
    interrupted(*command)
    assert run(*command) == 0
    printed = capsys.readouterr().err
    assert f"  7: {REMARK}, such as" in printed
    assert kept_shards(printed) == 2
    assert Manifest.read(inputs / "out").remarks[REMARK][0] == 7


def jpeg(number: int, height: int, width: int) -> bytes:
    return encoded(np.full((height, width, 3), number, np.uint8), "JPEG")


def by_job(pictures: list[bytes], folder: Path) -> Path:
    """A dataset of the files of pictures."""
    (folder / "in").mkdir()
    for number, data in enumerate(pictures):
        (folder / "in" / f"{number}.jpg").write_bytes(data)
    command = ["images", "--input", folder / "in", "--label", "none", *ONE]
    assert run(*command, "--output", folder / "out") == 0
    return folder / "out"


def by_write(pictures: list[bytes], folder: Path) -> Path:
    """A dataset of the same records."""
    schema = readers.Schema({"key": ("string",), "image": ("uint8", (None, None, 3), "source")})
    records = ((f"{number}.jpg", {"image": data}) for number, data in enumerate(pictures))
    write(records, folder / "out", schema)
    return folder / "out"


@pytest.mark.parametrize("written", [by_job, by_write])
def test_encoded_pictures_of_one_size_can_be_stacked(tmp_path, written):
    out = written([jpeg(n, 32, 48) for n in range(6)], tmp_path)
    (batch,) = readers.as_numpy(out, 6)
    assert batch["image"].shape == (6, 32, 48, 3)
    assert sorted(batch["image"][:, 0, 0, 0].tolist()) == [*range(6)]
    assert readers.load(out, 6).element_spec["image"].shape.as_list()[1:] == [32, 48, 3]


@pytest.mark.parametrize("written", [by_job, by_write])
def test_the_error_about_pictures_of_several_sizes_names_them(tmp_path, written):
    out = written([jpeg(n, 20 + n, 50 - n) for n in range(6)], tmp_path)
    message = (
        r"'image' has shapes from \[20, 45, 3\] to \[25, 50, 3\], so records cannot be stacked"
    )
    with pytest.raises(ValueError, match=message):
        readers.as_numpy(out, 6)
    assert len(list(readers.as_numpy(out, 2, batching="padded"))) == 3


def test_the_sizes_are_those_that_readers_decode(tmp_path):
    """A rotated picture is stored upright by a job, and decoded as it is if it was written otherwise."""
    turned = encoded(np.zeros((32, 48, 3), np.uint8), "JPEG", orientation=6)
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    job = by_job([turned, jpeg(1, 48, 32)], tmp_path / "a")
    assert next(readers.as_numpy(job, 2))["image"].shape == (2, 48, 32, 3)
    plain = by_write([turned, jpeg(1, 32, 48)], tmp_path / "b")
    assert next(readers.as_numpy(plain, 2))["image"].shape == (2, 32, 48, 3)
