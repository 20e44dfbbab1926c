"""What features are follows from their schema and from what their job called them, not from their names."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import readers
from readers.format.features import Features
from readers.format.manifest import File, Manifest
from readers.format.schema import Schema
from tests.support.datasets import write_dataset


def test_the_kind_of_a_feature_follows_from_its_schema():
    kinds = {
        "picture": [
            ("uint8", (8, 8, 3)),
            ("uint8", (None, None, 3), "jpeg"),
            ("uint8", (28, 28)),
            ("float32", (9, 9, 1)),
        ],
        "text": [("string", ())],
        "signal": [("float32", (None, 6)), ("int16", (None,)), ("float64", (100,))],
        "floats": [("float32", ()), ("bfloat16", ()), ("float32", (2, 3, 4, 5))],
        "integers": [("int64", (None,)), ("int64", ()), ("bool", ())],
        None: [("string", (None,)), ("float32", (None, 3), "sequence"), ("complex64", (4,))],
    }
    for kind, features in kinds.items():
        for feature in features:
            assert Features.of(Manifest(Schema({"x": feature}), {})).kinds.get("x") == kind
    assert Features.of(Manifest(Schema({"key": ("string", ())}), {})).kinds == {}
    renamed = Schema({"path": ("string", ()), "face_boxes": ("float32", (None, 4))})
    options = {"names": "key=path"}
    assert Features.of(Manifest(renamed, {}, options=options)).kinds == {"face_boxes": "floats"}
    mask = Schema({"mask": ("uint8", (None, None, 1))})
    names = {"mask": ("sky", "road")}
    assert Features.of(Manifest(mask, {}, class_names=names)).kinds == {"mask": "integers"}


RENAMED = {"key": "path", "label": "labels", "tokens": "input_ids", "boxes": "where", "image": "x"}
OF_A_JOB = {
    "key": ("string", ()),
    "label": ("int64", ()),
    "tokens": ("int64", (None,)),
    "boxes": ("float32", (None, 4)),
    "image": ("uint8", (None, None, 3)),
}


def test_a_renamed_feature_is_what_its_job_called_it():
    plain = Features.of(Manifest(Schema(OF_A_JOB), {}, label_names=("cat", "dog")))
    names = ", ".join(f"{old}={new}" for old, new in RENAMED.items())
    schema = Schema({RENAMED[name]: feature for name, feature in OF_A_JOB.items()})
    manifest = Manifest(schema, {}, label_names=("cat", "dog"), options={"names": names})
    found = Features.of(manifest)
    for mapping, expected in (
        (found.roles, plain.roles),
        (found.kinds, plain.kinds),
        (found.classes, plain.classes),
    ):
        assert mapping == {RENAMED[name]: value for name, value in expected.items()}
    assert set(plain.roles.values()) == {"key", "label", "tokens", "boxes"}
    # Without the option, they are no more than their types.
    assert set(Features.of(Manifest(schema, {})).roles.values()) == set()


@pytest.mark.parametrize("renamed", [False, True])
def test_the_checks_and_the_report_of_renamed_features_are_those_of_the_others(tmp_path, renamed):
    called = RENAMED if renamed else {name: name for name in RENAMED}
    rng = np.random.default_rng(0)
    records = [
        {
            called["key"]: f"recordings/of/neighbouring/paths/of/one/folder/{number:04d}.wav",
            called["label"]: number % 3,
            called["tokens"]: np.array([1, 1, 2]),
            "signal": rng.normal(size=200).astype(np.float32),
        }
        for number in range(60)
    ]
    schema = Schema(
        {
            called["key"]: ("string", ()),
            called["label"]: ("int64", ()),
            called["tokens"]: ("int64", (None,)),
            "signal": ("float32", (None,)),
        }
    )
    statistics = {
        called["label"]: {"values": {"0": 15, "1": 15, "2": 15}, "min": 0, "max": 2},
        called["tokens"]: {"values": {"1": 90, "2": 45}},
    }
    options = {"names": ",".join(f"{old}={new}" for old, new in called.items() if old != new)}
    directory = write_dataset(
        tmp_path / "d",
        schema,
        {"train": [records[:45]], "val": [records[45:]]},
        options=options,
        vocabulary=9,
        files={"vocabulary.txt": File("vocabulary.txt", 0)},
    )
    manifest = Manifest.read(directory)
    splits = {
        name: replace(split, statistics=statistics) for name, split in manifest.splits.items()
    }
    (directory / "manifest.json").write_bytes(replace(manifest, splits=splits).to_bytes())
    assert Manifest.read(directory).num_classes == 3
    found = {(f.check, f.feature) for f in readers.check(directory).findings}
    # Keys are no texts, and ids that are not in the vocabulary are seen.
    assert found == {("constant_features", called["tokens"]), ("unknown_tokens", called["tokens"])}
    page = readers.report(directory, tmp_path / "page.html").read_text()
    assert 'class="name">' in page
