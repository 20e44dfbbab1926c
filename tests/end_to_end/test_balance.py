"""The shards of a split differ by at most one record, also with damaged inputs; indexes go with the records."""

import random

import numpy as np
import pytest
from PIL import Image

from tests.support.commands import run
from tests.support.datasets import (
    balanced,
    folder_of,
    has_moved_records,
    records_of,
    rejects_of,
    write_recordings,
)


def test_damaged_images_leave_the_shards_of_every_split_balanced(tmp_path, capsys):
    (tmp_path / "in" / "x").mkdir(parents=True)
    bad = set(random.Random(90).sample(range(120), 90))
    for n in range(120):
        path = tmp_path / "in" / "x" / f"{n}.png"
        if n in bad:
            path.write_bytes(b"\x89PNG\r\n\x1a\n broken")
        else:
            Image.new("RGB", (4 + n % 5, 3 + n % 4), (n, 255 - n, 7)).save(path)
    arguments = ["images", "--input", f"{tmp_path}/in/*/*.png", "--num_shards", 7]
    arguments += ["--splits", "train=0.7,val=0.3", "--max_rejects", "all"]
    out = tmp_path / "out"
    assert run(*arguments, "--output", out) == 0
    assert "90 rejected, listed in " in capsys.readouterr().err
    manifest, records = balanced(out), records_of(out)
    assert has_moved_records(out)
    assert sorted(records) == sorted(f"x/{n}.png" for n in range(120) if n not in bad)
    assert sorted(rejects_of(out)) == sorted(f"x/{n}.png" for n in bad)
    splits = manifest.splits.values()
    assert sum(split.records for split in splits) == 30
    assert sum(split.rejected for split in splits) == 90
    for key, record in records.items():
        n = int(key[2:-4])
        assert record["image"].shape == (3 + n % 4, 4 + n % 5, 3)
        assert (record["image"] == np.array([n, 255 - n, 7])).all()
    names = {path.name for path in folder_of(out).glob("*") if path.is_file()}
    shards = {shard.path.rpartition("/")[2] for shard in manifest.shards}
    assert names == {*shards, *(f"{name}.index" for name in shards)}


SOURCE = """
def changed(features, info):
    number = int(info.key[2:7]) + int(info.key.partition("#")[2])
    if number % 3 == 0:
        raise RuntimeError("too loud")
    return {"x": features["signal"][: number % 4, 0], "mean": features["signal"].mean(), "odd": number % 2 == 1}
"""


@pytest.mark.parametrize("kind", ["files", "parts of files"])
def test_what_an_index_says_of_a_record_goes_with_it_to_another_shard(tmp_path, monkeypatch, kind):
    flags, bad = [], range(1, 60, 3)
    if kind == "parts of files":
        (tmp_path / "functions_of_balance.py").write_text(SOURCE)
        flags, bad = ["--window", 8, "--map", "functions_of_balance:changed"], range(0)
    monkeypatch.chdir(tmp_path)
    write_recordings(tmp_path / "in", [8 + n % 17 for n in range(60)], bad)
    flags += ["--num_shards", 5, "--seed", 7, "--splits", "train=0.7,val=0.3"]
    flags += ["--max_rejects", "all"]
    assert run("sensors", "--input", "in/*/*.npy", *flags, "--output", "out") == 0
    manifest = balanced(tmp_path / "out")
    assert manifest.rejected >= 20
    assert has_moved_records(tmp_path / "out")
