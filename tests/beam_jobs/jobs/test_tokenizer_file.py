"""How the readers describe and verify a dataset with a tokenizer."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import google_crc32c

import readers
from beam_jobs.jobs.text.subwords import train_bpe
from readers.__main__ import main
from readers.format.manifest import File, Manifest
from tests.support.datasets import write_numbers

BPE = train_bpe([b"a tokenizer learns from texts, and texts alone"] * 9, 300)


def dataset_with(tmp_path: Path, tokenizer: str, ids: int, **fields: Any) -> Path:
    dataset = write_numbers(tmp_path / "numbers", (5, 6, 7, 4))
    files = {"tokenizer.json": File("tokenizer.json", google_crc32c.value(tokenizer.encode()))}
    manifest = replace(Manifest.read(dataset), tokenizer=ids, files=files, **fields)
    (dataset / "manifest.json").write_bytes(manifest.to_bytes())
    (dataset / "tokenizer.json").write_text(tokenizer)
    return dataset


def test_another_tokenizer_is_found(tmp_path):
    dataset = dataset_with(tmp_path, BPE, 300)
    assert readers.verify(dataset).ok
    (dataset / "tokenizer.json").write_text("{}")
    (problem,) = readers.verify(dataset).problems
    assert "tokenizer.json: its CRC32C is" in str(problem)
    assert main(["verify", str(dataset)]) == 1


def test_a_missing_tokenizer_is_found(tmp_path):
    dataset = dataset_with(tmp_path, BPE, 300)
    (dataset / "tokenizer.json").unlink()
    (problem,) = readers.verify(dataset).problems
    assert "tokenizer.json" in str(problem) and "missing" in str(problem)


def test_info_shows_tokenizer_classes_and_duplicates(tmp_path, capsys):
    dataset = dataset_with(tmp_path, BPE, 300, class_names={"box_labels": ("cat", "dog")})
    assert main(["info", str(dataset)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "tokenizer   300 ids, in tokenizer.json" in lines
    assert "box_labels  2: cat, dog" in lines
    assert not any("duplicates" in line for line in lines)
    manifest = Manifest.read(dataset)
    train = replace(manifest.splits["train"], duplicates=1234)
    manifest = replace(manifest, splits=manifest.splits | {"train": train})
    (dataset / "manifest.json").write_bytes(manifest.to_bytes())
    assert main(["info", str(dataset)]) == 0
    lines = capsys.readouterr().out.splitlines()
    header = next(line for line in lines if "records/shard" in line)
    row = next(line for line in lines if line.startswith("train"))
    assert header.split()[-1] == "duplicates" and row.split()[-1] == "1,234"
