"""Expired generations go with their files, and nothing else."""

import os
from pathlib import Path

import pytest

import readers
from beam_jobs.changes import expire
from beam_jobs.errors import UsageError
from readers.format.manifest import Manifest
from tests.support.living import command, files_of, living, write_living

ALL = range(30)


def history(directory):
    """Five generations, of which the second is tagged."""
    write_living(directory, ALL)
    for n in range(4):
        command("delete", directory, "--key", f"k{n}")
        if n == 0:
            command("tag", directory, "paper")
    return directory


@pytest.mark.parametrize("keep", [1, 2, 5, 9])
def test_kept_and_tagged_generations_stay_as_they_were(tmp_path, keep):
    directory = history(tmp_path / "photos")
    kept = sorted({2, *range(max(1, 6 - keep), 6)})
    before = {n: living(f"{directory}@{n}") for n in kept}
    command("expire", directory, "--keep", keep)
    assert before == {n: living(f"{directory}@{n}") for n in kept}
    names = {path for n in kept for path in Manifest.read(f"{directory}@{n}").paths}
    others = {"manifest.json", "tags/paper", *(f"generations/{n}.json" for n in kept)}
    assert {*files_of(directory)} == names | others
    assert readers.verify(directory).ok
    assert "dropped generations: none; 0 files" in command("expire", directory, "--keep", keep)


@pytest.mark.parametrize("step", range(4))
def test_an_interrupted_expiry_is_finished_by_the_next(tmp_path, monkeypatch, step):
    one, two = history(tmp_path / "one"), history(tmp_path / "two")
    for directory in (one, two):
        command("expire", directory, "--keep", 1) if directory == two else None
    left = step
    remove = os.remove

    def removed(path, **named):
        nonlocal left
        if left < 0 or ".staging" in str(path):
            return remove(path, **named)
        if not left:
            raise KeyboardInterrupt
        left -= 1
        return remove(path, **named)

    monkeypatch.setattr(os, "remove", removed)
    monkeypatch.setattr(os, "unlink", removed)
    with pytest.raises(KeyboardInterrupt):
        command("expire", one, "--keep", 1)
    monkeypatch.undo()
    assert living(one) == living(two)
    command("expire", one, "--keep", 1)
    assert files_of(one) == files_of(two)


def test_unfinished_folders_go_after_a_day_and_those_of_others_stay(tmp_path):
    directory = tmp_path / "photos"
    write_living(directory, ALL)
    for folder, name in (
        ("0123abcd", "change.done"),
        ("ffffffff", "change.done"),
        ("20240101", "a.tfrecord"),
    ):
        (directory / folder).mkdir()
        for file in {name, "train.gone"} if folder != "20240101" else {name}:
            Path(directory, folder, file).write_text("x")
            if folder != "0123abcd":
                os.utime(directory / folder / file, (1, 1))
    command("expire", directory, "--keep", 1)
    folders = {name.split("/")[0] for name in files_of(directory)}
    assert {"0123abcd", "20240101"} < folders and "ffffffff" not in folders


def test_at_least_one_generation_is_kept(tmp_path):
    with pytest.raises(UsageError, match="--keep 0: expected at least 1"):
        command("expire", tmp_path, "--keep", 0)
    assert expire._KEPT_NS == 86_400 * 10**9
