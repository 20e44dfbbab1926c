"""Image jobs with files of several frames."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

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
