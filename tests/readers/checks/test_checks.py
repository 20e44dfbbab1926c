"""Each check finds its planted fault, and is silent on a dataset without one."""

from __future__ import annotations

import dataclasses
import functools
import importlib
import io
import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from scipy import ndimage, stats

import readers
from readers.__main__ import main
from readers.checks.distributions import by_chance, kolmogorov_smirnov
from readers.checks.registry import CHECKS
from readers.format.manifest import File, Manifest
from readers.format.schema import Feature, Schema
from tests.support.checkout import ROOT
from tests.support.datasets import write_dataset

# The module: `readers.check` is the function.
CHECK = importlib.import_module("readers.check")

SCHEMA = Schema(
    {
        "image": ("uint8", (None, None, 3)),
        "text": ("string", ()),
        "signal": ("float32", (None, 2)),
        "amount": ("float32", ()),
        "count": ("int64", ()),
        "key": ("string", ()),
        "label": ("int64", ()),
    }
)
SIZES = {"train": 240, "val": 100}
WORDS = [
    "the",
    "a",
    "of",
    "service",
    "room",
    "meal",
    "guide",
    "bright",
    "cold",
    "warm",
    "rich",
    "sour",
    "plain",
    "quiet",
    "over",
    "under",
]
NAMES = ("cat", "dog", "bird")


def a_record(rng: np.random.Generator, number: int) -> dict:
    field = ndimage.gaussian_filter(rng.normal(size=(40, 48, 3)), (1, 1, 0))
    field = 128 + 60 * field / field.std() + rng.normal(0, 8, field.shape)
    steps = int(rng.integers(80, 160))
    times = np.arange(steps)[:, None]
    waves = np.sin(times * rng.uniform(0.1, 0.4, 2) + rng.uniform(0, 6, 2))
    return {
        "image": np.clip(field, 0, 255).astype(np.uint8),
        "text": " ".join(rng.choice(WORDS, rng.integers(6, 30))) + f" {number}",
        "signal": (waves * rng.uniform(1, 2) + rng.normal(0, 0.05, waves.shape)).astype(np.float32),
        "amount": rng.normal(50, 5),
        "count": int(rng.integers(1, 50)),
        "key": f"{number:05d}",
        "label": int(rng.integers(0, 3)),
    }


@functools.cache
def _clean() -> dict[str, list[dict]]:
    rng = np.random.default_rng(7)
    numbers = iter(range(1_000_000))
    return {
        name: [a_record(rng, next(numbers)) for _ in range(size)] for name, size in SIZES.items()
    }


def clean() -> dict[str, list[dict]]:
    """Records without faults, of which values may be replaced."""
    return {name: [dict(record) for record in records] for name, records in _clean().items()}


def write(directory: Path, records: dict[str, list[dict]], shards: int = 4, **changes) -> Path:
    """Writes records of splits, with the counts of their labels in the manifest."""
    schema = changes.pop("schema", SCHEMA)
    write_dataset(
        directory,
        schema,
        {
            name: [list(part) for part in np.array_split(np.array(found, object), shards)]
            for name, found in records.items()
        },
        label_names=changes.pop("label_names", NAMES),
        options=changes.pop("options", {}),
    )
    manifest = Manifest.read(directory)
    splits = {}
    for name, split in manifest.splits.items():
        counts = Counter(str(record["label"]) for record in records[name])
        figures = {"label": {"values": dict(counts)}, **changes.get("statistics", {})}
        splits[name] = dataclasses.replace(
            split, statistics=figures, rejected=changes.get("rejected", 0)
        )
    more = {name: changes[name] for name in ("vocabulary", "files") if name in changes}
    manifest = dataclasses.replace(manifest, splits=splits, **more)
    (directory / "manifest.json").write_bytes(manifest.to_bytes())
    return directory


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    return write(tmp_path_factory.mktemp("good"), clean())


def found_in(report: readers.CheckResult) -> dict[str, readers.Finding]:
    return {finding.check: finding for finding in report.findings}


def test_a_dataset_without_faults_has_no_findings(good):
    report = readers.check(good)
    assert report.findings == ()
    assert str(report).startswith("340 of 340 records, ")
    assert str(report).endswith(" checks: 0 errors, 0 warnings, 0 notes")


TEXT = Schema({name: SCHEMA[name] for name in ("text", "key", "label")})


def texts() -> dict[str, list[dict]]:
    """The same records without pictures and signals, which take longer."""
    return {name: [{f: r[f] for f in TEXT} for r in records] for name, records in clean().items()}


def some(records, feature, change, first):
    """Plants a fault in one of 20 records of the first split."""
    for record in records["train"][first::20]:
        record[feature] = change(record[feature])


def channel(number, value):
    def change(signal):
        return np.where(np.arange(2) == number, np.float32(value), signal)

    return change


def with_nan(signal):
    signal = signal.copy()
    signal[3, 1] = np.nan
    return signal


def recompressed(pixels):
    """A smaller copy, compressed anew."""
    file = io.BytesIO()
    Image.fromarray(pixels).resize((40, 33)).save(file, "JPEG", quality=60)
    return np.asarray(Image.open(file))


# Check, feature, and the fault; each is planted in 20 other records of one dataset.
OF_RECORDS = [
    ("dark_pictures", "image", lambda x: x // 8),
    ("light_pictures", "image", lambda x: 247 + x // 32),
    ("flat_pictures", "image", lambda x: x * 0 + 99 + (x.cumsum(0) % 50 == 0)),
    ("blurry_pictures", "image", lambda x: ndimage.gaussian_filter(x, (5, 5, 0))),
    ("long_pictures", "image", lambda x: x[:12]),
    ("tiny_pictures", "image", lambda x: x[:5, :6]),
    ("gray_pictures", "image", lambda x: x[..., :1].repeat(3, 2)),
    ("empty_texts", "text", lambda _: " \n" * 9),
    ("wrong_encodings", "text", lambda x: (x + " café où”").encode().decode("cp1252", "ignore")),
    ("control_characters", "text", lambda x: x + "\x07"),
    ("markup", "text", lambda x: f"<p class='x'>{x}</p>"),
    ("few_letters", "text", lambda x: "0123456789 " * 3 + str(len(x))),
    ("outlier_lengths", "text", lambda x: f"{x} " * 200),
    ("repeated_texts", "text", lambda _: "no answer given"),
    ("empty_arrays", "signal", lambda x: x[:0]),
    ("missing_values", "signal", with_nan),
    ("constant_channels", "signal", channel(1, 2.5)),
    ("dead_channels", "signal", channel(0, 0)),
    ("clipped_signals", "signal", lambda x: np.clip(x, -0.8, 0.8)),
    ("outlier_levels", "signal", lambda x: x * 1000),
]  # fmt: skip


def test_faults_of_single_records_are_found(tmp_path):
    records = clean()
    for first, (_, feature, change) in enumerate(OF_RECORDS):
        some(records, feature, change, first)
    found = found_in(readers.check(write(tmp_path / "d", records)))
    for first, (name, feature, _) in enumerate(OF_RECORDS):
        assert (found[name].feature, found[name].count, found[name].seen) == (feature, 12, 340), (
            name
        )
        expected = tuple(f"{first + 20 * n:05d}" for n in range(5))
        assert found[name].examples == expected, name
        assert found[name].keys == tuple(f"{first + 20 * n:05d}" for n in range(12)), name
    assert found["outlier_sizes"].examples == found["tiny_pictures"].examples


def test_copies_are_found(tmp_path):
    records = clean()
    train, val = records["train"], records["val"]
    for n in range(7):
        train[n]["image"] = train[n + 50]["image"]
        train[n + 10]["image"] = recompressed(train[n + 60]["image"])
        val[n]["image"] = recompressed(train[n + 70]["image"])
        val[n]["signal"] = train[n]["signal"]
        train[n] |= {"text": train[n + 50]["text"], "label": (train[n + 50]["label"] + 1) % 3}
    found = {
        (f.check, f.feature): f for f in readers.check(write(tmp_path / "d", records)).findings
    }
    del found["contradictions", "signal"]  # Of random labels.
    assert {key: finding.count for key, finding in found.items()} == {
        ("near_duplicates", "image"): 14,
        ("near_leaks", "image"): 14,
        ("duplicates", "image"): 7,
        ("duplicates", "text"): 7,
        ("leaks", "signal"): 14,
        ("contradictions", "image"): 14,
        ("contradictions", "text"): 14,
    }
    assert found["near_duplicates", "image"].examples[0] == "00010 and 00060"
    assert found["near_leaks", "image"].examples[0] == "00070 and 00240"


def test_faults_of_features_are_found(tmp_path):
    records = clean()
    for number, record in enumerate(records["train"] + records["val"]):
        record |= {"amount": 3.0, "count": number}
        if record["label"] == 1:
            record["image"] = (128 + record["image"] / 3).astype(np.uint8)
    for record in records["val"]:
        record["signal"] = record["signal"] * 2
    found = {(f.check, f.feature) for f in readers.check(write(tmp_path / "d", records)).findings}
    assert found == {
        ("constant_features", "amount"),
        ("identifiers", "count"),
        ("telling_numbers", "image"),
        ("split_drift", "count"),
        ("split_drift", "signal"),
    }


# Checks, and the label of a record, given its split, its number and a random one.
OF_LABELS = {
    "missing_classes": lambda split, n, label: n % 2 if split == "val" else label,
    "unused_classes": lambda split, n, label: n % 2,
    "imbalance": lambda split, n, label: (2 if n % 40 == 0 else n % 2) if split == "train" else label,
    "label_drift": lambda split, n, label: 0 if split == "val" and n % 2 else label,
    "sorted_labels": lambda split, n, label: min(2, n // 78) if split == "train" else label,
}  # fmt: skip


@pytest.mark.parametrize("name", OF_LABELS)
def test_faults_of_labels_are_found(tmp_path, name):
    label = np.random.default_rng(0).integers(0, 3, 340)
    records = {
        split: [
            {"x": float(n) ** 0.5, "label": int(OF_LABELS[name](split, n, label[n]))}
            for n in range(size)
        ]
        for split, size in SIZES.items()
    }
    schema = Schema({"x": ("float64", ()), "label": ("int64", ())})
    found = found_in(readers.check(write(tmp_path / "d", records, schema=schema)))
    assert found[name].feature == "label" and found[name].message


def test_every_check_has_a_planted_fault():
    elsewhere = {"empty_splits", "rejected_inputs", "unknown_tokens"}
    elsewhere |= {"groups_across_splits", "undecodable_pictures"}  # In test_groups_and_copies.py
    elsewhere |= {"near_duplicates", "near_leaks", "duplicates", "leaks", "contradictions"}
    elsewhere |= {"constant_features", "identifiers", "telling_numbers", "split_drift"}
    elsewhere |= {"outlier_sizes"}
    planted = {*OF_LABELS, *(name for name, *_ in OF_RECORDS)}
    assert CHECKS.keys() == planted | elsewhere


def test_names_of_categories_and_of_records_are_no_copies(tmp_path):
    records = texts()
    for number, record in enumerate(records["train"] + records["val"]):
        record["city"] = ("Berne", "Lyon", "Oslo")[number % 3]
        record["patient"] = f"patient-of-the-year-{number:04d}"
    schema = Schema({**TEXT, "city": Feature("string"), "patient": Feature("string")})
    report = readers.check(write(tmp_path / "d", records, schema=schema))
    assert [(f.check, f.feature) for f in report.findings] == [("identifiers", "patient")]


TABLE = Schema(
    {
        "weight": ("float32", ()),
        "values": ("float32", (3,)),
        "rooms": ("int64", ()),
        "city": ("string", ()),
        "patient": ("string", ()),
        "key": ("string", ()),
        "label": ("int64", ()),
    }
)


def rows_of_a_table() -> dict[str, list[dict]]:
    rng = np.random.default_rng(5)
    return {
        name: [
            {
                "weight": round(rng.normal(50, 5), 1),
                "values": rng.normal(50, 5, 3).astype(np.float32),
                "rooms": int(rng.integers(1, 6)),
                "city": str(rng.choice(["Berne", "Lyon", "Oslo"])),
                "patient": f"patient-{name[0]}-{number:03d}",
                "key": f"{name}-{number:03d}",
                "label": int(rng.integers(0, 3)),
            }
            for number in range(size)
        ]
        for name, size in SIZES.items()
    }


def test_equal_rows_of_a_table_are_copies(tmp_path):
    def copied(row: dict, name: str) -> dict:
        return {**row, "key": name, "patient": f"patient-{name}"}

    records = rows_of_a_table()
    clean = readers.check(write(tmp_path / "clean", records, schema=TABLE))
    assert [(f.check, f.feature) for f in clean.findings] == [("identifiers", "patient")]
    train, val = records["train"], records["val"]
    for number in range(4):
        train[number] = copied(train[number + 50], f"c-{number:03d}")
    for number in range(3):
        val[number] = copied(train[number + 100], f"l-{number:03d}")
    train[7] = copied(train[70], "o-007") | {"label": (train[70]["label"] + 1) % 3}
    found = found_in(readers.check(write(tmp_path / "d", records, schema=TABLE)))
    del found["identifiers"]
    assert {name: finding.count for name, finding in found.items()} == {
        "duplicates": 5,
        "leaks": 6,
        "contradictions": 2,
    }
    assert found["contradictions"].examples == ("o-007", "train-070")


def test_counts_of_splits_are_those_of_all_records(tmp_path):
    tokens = {"input_tokens": {"values": {"1": 30, "2": 100, "5": 70}}}
    schema = Schema({**TEXT, "input_tokens": ("int64", (None,))})
    changes = {"rejected": 50, "statistics": tokens}
    changes |= {"vocabulary": 6, "files": {"vocabulary.txt": File("vocabulary.txt", 0)}}
    records = {
        name: [{**record, "input_tokens": np.array([1, 2])} for record in found]
        for name, found in (texts() | {"test": []}).items()
    }
    directory = write(tmp_path / "d", records, schema=schema, **changes)
    report = readers.check(directory, records=10)
    found = {(f.check, f.split): f.message for f in report.findings}
    assert found["rejected_inputs", ""] == "150 of 490 inputs were rejected (30.6%)"
    unknown = "15.0% of 200 tokens are not in the vocabulary"
    assert found["unknown_tokens", "train"] == unknown
    assert ("empty_splits", "test") in found and report.worst() == "error"


def test_a_dataset_is_compared_with_another(tmp_path, good):
    assert readers.check(good, records=60, against=good).findings == ()
    records = clean()
    for found in records.values():
        for record in found:
            record["image"] = record["image"] // 2 + 100
            record["label"] = record["label"] if record["label"] else 1
            record["more"] = 1.0
            record["count"] = float(record["count"])
            del record["amount"]
    features = {**SCHEMA, "more": ("float32", ()), "count": ("float32", ())}
    schema = Schema({name: feature for name, feature in features.items() if name != "amount"})
    directory = write(tmp_path / "d", records, schema=schema)
    report = readers.check(directory, records=200, against=good)
    found = {(finding.check, finding.feature) for finding in report.findings}
    assert {
        ("new_features", "more"),
        ("missing_features", "amount"),
        ("changed_features", "count"),
        ("changed_labels", "label"),
        ("drift", "image"),
    } <= found
    assert not found & {("drift", "signal"), ("drift", "text")}
    keyed = write(tmp_path / "keyed", texts(), schema=TEXT, options={"names": "key=text"})
    one = write(tmp_path / "one", texts(), schema=TEXT)
    assert readers.check(one, against=keyed).findings == readers.check(one).findings


def test_the_distances_are_those_of_scipy():
    rng = np.random.default_rng(1)
    for _ in range(50):
        one, two = (np.sort(rng.integers(0, 20, rng.integers(1, 60))) for _ in range(2))
        expected = stats.ks_2samp(one, two, method="asymp").statistic
        assert kolmogorov_smirnov(one, two) == pytest.approx(expected)
    distance = by_chance(10_000, 20_000)
    assert stats.kstwo.sf(distance, round(10_000 * 20_000 / 30_000)) == pytest.approx(1e-5, rel=0.2)


def test_the_command_fails_from_the_severity_that_is_asked_for(tmp_path, capsys):
    records = texts()
    good = str(write(tmp_path / "good", records, schema=TEXT))
    records["train"][3]["text"] = ""
    directory = str(write(tmp_path / "d", records, schema=TEXT))
    assert main(["check", good, "--fail_on", "note"]) == 0
    assert main(["check", directory]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert printed[-2:] == [
        "warning: empty_texts: text: 1 of 340 records has no words (00003)",
        f"340 of 340 records, {len(CHECKS)} checks: 0 errors, 1 warning, 0 notes",
    ]
    assert main(["check", directory, "--fail_on", "warning"]) == 1
    assert main(["check", directory, "--json", "--fail_on", "note"]) == 1
    report = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (report["ok"], report["seen"], len(report["findings"])) == (False, 340, 1)
    assert report["findings"][0]["keys"] == ["00003"]
    assert main(["check", directory, "--records", "0"]) == 2


def test_the_sample_is_bounded_and_of_all_splits(good):
    assert readers.check(good, records=34).seen == 24 + 10
    assert readers.check(good, records=1).seen == 2


def test_hostile_names_do_not_reach_the_terminal(tmp_path):
    records = texts()
    records["train"][0] |= {"key": "\x1b[31m\u202e" + "x" * 10_000, "text": ""}
    (line,) = map(str, readers.check(write(tmp_path / "d", records, schema=TEXT)).findings)
    assert "\x1b" not in line and "\u202e" not in line and len(line) < 300


def test_the_docs_list_all_checks():
    rows = [
        line
        for line in (ROOT / "docs/check/checks.md").read_text().splitlines()
        if line.startswith("|")
    ]
    listed = [line.split("|")[1].strip(" `") for line in rows[2:]]
    assert listed[: len(CHECKS)] == list(CHECKS)


def test_a_dataset_without_splits_is_checked(tmp_path):
    directory = write_dataset(tmp_path / "d", Schema({"s": ("float64", ())}), {})
    assert readers.check(directory).findings == ()
    assert "there are no splits" in readers.open(directory)._repr_html_()
