"""`readers.report`: the page says what the dataset is, and is written or not at all."""

from __future__ import annotations

import json
import os
from dataclasses import replace

import pytest

import readers
from readers.__main__ import main
from readers.format.manifest import Manifest
from readers.format.schema import Schema
from tests.readers.pages.parsed import Parsed
from tests.support.datasets import write_dataset, write_numbers


@pytest.fixture
def numbers(tmp_path):
    return write_numbers(tmp_path / "numbers")


def changed(directory, change):
    """Rewrites the manifest of a dataset."""
    manifest = change(Manifest.read(directory))
    (directory / "manifest.json").write_bytes(manifest.to_bytes())
    return directory


def page_of(directory):
    return readers.report(directory, directory.parent / "page.html").read_text(encoding="utf-8")


def test_a_page_states_what_was_found_written_rejected_and_dropped(numbers):
    def count(manifest):
        train = replace(manifest.splits["train"], rejected=3, duplicates=2)
        return replace(manifest, splits={**manifest.splits, "train": train})

    page = Parsed(page_of(changed(numbers, count)))
    assert "25 inputs: 20 written, 3 (12%) rejected, 2 (8.0%) dropped as duplicates." in page.text
    assert "3 inputs: 3 written, none rejected or dropped." in page.text
    assert "4 shards, each with 4 to 7 records (" in page.text


def test_a_page_shows_why_inputs_were_rejected(numbers):
    rejects = numbers / "4f2a9c01/rejects"
    rejects.mkdir(parents=True)
    lines = [{"key": f"{n}.jpg", "stage": "decode", "error": f"cut at byte {n}"} for n in range(5)]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (rejects / "train-00000.jsonl").write_text(text + '{"key": 1}\nnonsense\n{"key": "cut')

    def reject(manifest):
        train = replace(manifest.splits["train"], rejected=9)
        splits = {**manifest.splits, "train": train}
        return replace(manifest, splits=splits, rejects=("4f2a9c01/rejects/train-00000.jsonl",))

    page = Parsed(page_of(changed(numbers, reject)))
    assert "cut at byte …, such as 0.jpg" in page.text and "4.jpg" not in page.text
    assert "Counted in 5 of 9 rejects." in page.text


def test_a_page_repeats_the_command_that_wrote_the_dataset(numbers):
    options = {"job": "images", "input": ["a b/*.jpg"], "boxes": "", "stratify": True, "seed": 7}
    options["x;y"] = 1
    page = Parsed(page_of(changed(numbers, lambda m: replace(m, options=options))))
    assert f"--output {numbers}" in page.text
    assert "'--x;y' 1" in page.text
    for words in ("beam-shards images", "--input 'a b/*.jpg'", "--stratify", "--seed 7"):
        assert words in page.text
    assert "--boxes" not in page.text


@pytest.mark.parametrize(
    ("splits", "words"),
    [({}, "There are no splits."), ({"train": [[]], "val": []}, "no records")],
)
def test_a_dataset_without_records_has_a_page(tmp_path, splits, words):
    schema = Schema({"image": ("uint8", (4, 4, 3)), "label": ("int64", ()), "t": ("string", ())})
    page = Parsed(page_of(write_dataset(tmp_path / "d", schema, splits)))
    assert words in page.text


def test_the_command_writes_the_page_and_prints_its_path(numbers, tmp_path, capsys):
    output = str(tmp_path / "x.html")
    assert main(["report", str(numbers), "--output", output]) == 0
    assert capsys.readouterr().out == f"{output}\n"
    assert main(["report", str(numbers), "--output", output, "--records", "5", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"file": output}
    assert "of 23 records" in (tmp_path / "x.html").read_text()


@pytest.mark.parametrize(
    ("output", "words"),
    [
        ("missing/x.html", "there is no directory"),
        ("numbers", "expected a file, found a directory"),
        ("pipe", "expected a file, found a device or a pipe"),
    ],
)
def test_a_page_that_cannot_be_written_is_a_mistake_of_the_user(
    numbers, tmp_path, output, words, capsys
):
    os.mkfifo(tmp_path / "pipe")
    assert main(["report", str(numbers), "--output", str(tmp_path / output)]) == 2
    assert words in capsys.readouterr().err
    assert (tmp_path / "pipe").is_fifo()


def test_a_page_is_written_where_a_link_points(numbers, tmp_path):
    (tmp_path / "pages").mkdir()
    (tmp_path / "link.html").symlink_to("pages/new.html")
    for _ in range(2):
        readers.report(numbers, tmp_path / "link.html")
        assert (tmp_path / "link.html").is_symlink()
        assert "of 23 records" in (tmp_path / "pages/new.html").read_text()


def test_a_damaged_dataset_has_no_page_and_keeps_the_old_one(numbers, tmp_path, capsys):
    output = tmp_path / "x.html"
    output.write_text("old")
    shard = next(numbers.glob("train-00000*.tfrecord"))
    data = bytearray(shard.read_bytes())
    data[20] ^= 1
    shard.write_bytes(data)
    assert main(["report", str(numbers), "--output", str(output)]) == 1
    assert "CRC32C" in capsys.readouterr().err
    assert output.read_text() == "old" and [p.name for p in tmp_path.glob(".*")] == []


def test_zero_records_are_refused(numbers):
    with pytest.raises(ValueError, match="records=0: expected a number of at least 1"):
        readers.report(numbers, records=0)
