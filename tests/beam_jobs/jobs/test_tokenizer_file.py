"""Datasets with a tokenizer beside their shards: what the readers say and check of it."""

from __future__ import annotations

import json

import pytest
import tokenizers

import readers
from beam_jobs.jobs.text.subwords import Subwords, train_bpe
from readers.__main__ import main
from readers.format.manifest import DatasetError, Manifest
from tests.support.datasets import write_numbers

TEXT = train_bpe([b"a tokenizer learns from texts, and texts alone"] * 9, 300)


def unigram() -> str:
    tokenizer = tokenizers.Tokenizer(
        tokenizers.models.Unigram([("<unk>", 0.0), ("a", -1.0), ("b", -2.0)], 0)
    )
    tokenizer.add_special_tokens(["<s>"])
    return tokenizer.to_str()


def dataset_with(tmp_path, text: str, ids: int, **fields):
    dataset = write_numbers(tmp_path / "numbers", (5, 6, 7, 4))
    path = dataset / "manifest.json"
    manifest = json.loads(path.read_text())
    path.write_text(json.dumps(manifest | {"tokenizer": ids} | fields))
    (dataset / "tokenizer.json").write_text(text)
    return dataset


@pytest.mark.parametrize("text", [TEXT, unigram()])
def test_a_tokenizer_with_as_many_ids_as_the_manifest_says_is_whole(tmp_path, text):
    ids = Subwords(text).size
    assert readers.verify(dataset_with(tmp_path, text, ids)).ok


def test_another_tokenizer_is_found(tmp_path):
    dataset = dataset_with(tmp_path, unigram(), Subwords(TEXT).size)
    (problem,) = readers.verify(dataset).problems
    assert f"4 ids, the manifest states {Subwords(TEXT).size}" in str(problem)
    assert main(["verify", str(dataset)]) == 1


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "{}", '{"model": {}}', '{"model": {"vocab": 7}}', '{"model": {"vocab": "x"}}']
    + [
        '{"model": {"vocab": {"a": "b"}}}',
        '{"model": {"vocab": []}, "added_tokens": [7]}',
        "[" * 9999,
    ],
)
def test_what_is_no_tokenizer_is_a_problem_not_a_traceback(tmp_path, text):
    (problem,) = readers.verify(dataset_with(tmp_path, text, 300)).problems
    assert "tokenizer.json" in str(problem)


def test_a_missing_tokenizer_is_found(tmp_path):
    dataset = dataset_with(tmp_path, TEXT, 300)
    (dataset / "tokenizer.json").unlink()
    (problem,) = readers.verify(dataset).problems
    assert "tokenizer.json" in str(problem) and "missing" in str(problem)


def test_info_tells_of_tokenizer_classes_and_duplicates(tmp_path, capsys):
    dataset = dataset_with(tmp_path, TEXT, 300, class_names={"box_labels": ["cat", "dog"]})
    assert main(["info", str(dataset)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "tokenizer   300 ids, in tokenizer.json" in lines
    assert "box_labels  2: cat, dog" in lines
    assert not any("duplicates" in line for line in lines)
    path = dataset / "manifest.json"
    manifest = json.loads(path.read_text())
    manifest["splits"]["train"]["duplicates"] = 1234
    path.write_text(json.dumps(manifest))
    assert main(["info", str(dataset)]) == 0
    lines = capsys.readouterr().out.splitlines()
    header = next(line for line in lines if "records a shard" in line)
    row = next(line for line in lines if line.startswith("train"))
    assert header.split()[-1] == "duplicates" and row.split()[-1] == "1,234"


def test_manifests_of_before_have_neither(tmp_path):
    dataset = dataset_with(tmp_path, TEXT, 0)
    path = dataset / "manifest.json"
    manifest = json.loads(path.read_text())
    for name in ("class_names", "tokenizer"):
        manifest.pop(name)
    for split in manifest["splits"].values():
        split.pop("duplicates")
    path.write_text(json.dumps(manifest))
    found = Manifest.read(dataset)
    assert (found.class_names, found.tokenizer, found.duplicates) == ({}, 0, 0)


@pytest.mark.parametrize(
    "fields",
    [{"class_names": []}, {"class_names": {"x": "y"}}, {"class_names": {"x": [1]}}]
    + [{"tokenizer": -1}, {"tokenizer": "5"}],
)
def test_fields_of_another_type_are_refused(tmp_path, fields):
    dataset = dataset_with(tmp_path, TEXT, 0, **fields)
    with pytest.raises(DatasetError, match=next(iter(fields))):
        Manifest.read(dataset)


def test_tensorflow_is_not_asked_to_run_a_tokenizer_of_subwords(tmp_path):
    from readers import transforms

    dataset = dataset_with(tmp_path, TEXT, 300, options={"job": "text", "tokens": "bpe"})
    with pytest.raises(ValueError, match=r"Tokenizer\.from_file\('.*/tokenizer\.json'\)"):
        transforms.Vectorizer(dataset)
