"""`croissant.json`, which says what is known and nothing else; mlcroissant validates it in tests/end_to_end."""

import dataclasses
import hashlib
import json

from beam_jobs.dataset.card.croissant import croissant
from readers.format.schema import Schema
from tests.beam_jobs.dataset.card.test_readme import MANIFEST


def of(**changes):
    return json.loads(croissant(dataclasses.replace(MANIFEST, **changes)))


def test_only_the_manifest_has_a_checksum_and_it_is_right():
    manifest, shards = of()["distribution"]
    assert manifest["sha256"] == hashlib.sha256(MANIFEST.to_bytes()).hexdigest()
    assert manifest["contentSize"] == f"{len(MANIFEST.to_bytes())} B"
    assert shards["includes"] == ["train-*-of-00002.tfrecord"]  # val has no shard
    assert "sha256" not in shards


def test_files_of_tokens_are_listed_if_there_are_any():
    found = of(vocabulary=9, tokenizer=300)["distribution"]
    assert [each.get("includes") for each in found[2:]] == [["vocabulary.txt"], ["tokenizer.json"]]


def test_the_splits_are_records():
    (splits, _) = of()["recordSet"]
    assert splits["data"] == [
        {"splits/name": "train", "splits/records": 1199},
        {"splits/name": "val", "splits/records": 0},
    ]


def test_each_feature_has_a_type_and_an_identifier_of_its_own():
    names = ("split", "a/b", "a b", "<&>", "ü", "a%2Fb", "@id")
    dtypes = ("int8", "uint64", "bool", "string", "float16", "complex64", "int64")
    features = {name: (dtype,) for name, dtype in zip(names, dtypes, strict=True)}
    features["image"] = ("uint8", (None, None, 3), "jpeg")
    fields = of(schema=Schema(features))["recordSet"][1]["field"]
    assert len({field["@id"] for field in fields}) == len(features) + 1
    types = {field["name"]: field["dataType"] for field in fields[1:]}
    expected = ["Integer", "Integer", "Boolean", "Text", "Float", "Float", "Integer"]
    assert types == {n: f"sc:{kind}" for n, kind in zip(names, expected, strict=True)} | {
        "image": "sc:ImageObject"
    }


def test_a_licence_is_stated_only_if_it_is_given():
    assert of()["license"] == "CC-BY-4.0"
    assert "license" not in of(options={})


def test_there_is_no_date():
    assert "date" not in croissant(MANIFEST).decode().lower()
