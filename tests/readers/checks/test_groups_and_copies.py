"""Signals that are near, groups in several splits, and pictures that cannot be decoded are found, and nothing else is."""

from __future__ import annotations

import io
import json

import numpy as np
from PIL import Image

import readers
from readers.__main__ import main
from readers.format.schema import Schema
from tests.readers.format.similarity.lookalikes import drift, noisy, smooth_picture
from tests.support.datasets import write_dataset

SIGNALS = Schema({"signal": ("float32", (None, 2)), "key": ("string", ())})


def of_check(directory, *names, **options):
    report = readers.check(directory, **options)
    return [finding for finding in report.findings if finding.check in names]


def signals(made, first=0):
    return [
        {"signal": np.asarray(signal, np.float32), "key": f"s{n}"}
        for n, signal in enumerate(made, first)
    ]


def test_scaled_shifted_and_noisy_signals_are_near_duplicates(tmp_path):
    made = [drift(seed, 3000, 2) for seed in range(20)]
    copies = [-2 + 3 * noisy(signal[3:-2]) for signal in made[:4]]
    splits = {"train": [signals([*made, *copies[:2]])], "val": [signals(copies[2:], 22)]}
    directory = write_dataset(tmp_path / "d", SIGNALS, splits)
    near, leaks = of_check(directory, "near_duplicates", "near_leaks")
    assert (near.count, near.feature, near.seen) == (4, "signal", 24)
    assert near.examples == ("s0 and s20", "s1 and s21")
    assert (leaks.count, leaks.examples) == (4, ("s2 and s22", "s3 and s23"))


def of_speakers(name, speakers, first=0):
    return [
        {name: speaker.encode(), "key": f"{speaker}/{n}.wav", "x": float(n)}
        for n, speaker in enumerate(speakers, first)
    ]


def speakers(directory, train, val, name="speaker_id", **manifest):
    schema = Schema({name: ("string", ()), "key": ("string", ()), "x": ("float32", ())})
    splits = {"train": [of_speakers(name, train)], "val": [of_speakers(name, val, 100)]}
    return write_dataset(directory, schema, splits, **manifest)


def test_a_speaker_in_two_splits_is_found(tmp_path):
    directory = speakers(tmp_path / "d", [*"aabbccdd"], [*"eeffa"])
    (found,) = of_check(directory, "groups_across_splits")
    assert (found.feature, found.count, found.seen) == ("speaker_id", 3, 13)
    assert found.examples == ("a/0.wav and a/104.wav",)
    assert found.message.startswith("1 of 6 groups have records in several splits")


def test_whole_groups_classes_and_other_features_are_no_finding(tmp_path):
    assert not of_check(speakers(tmp_path / "1", [*"aabbcc"], [*"dee"]), "groups_across_splits")
    assert not of_check(speakers(tmp_path / "2", [*"aabb"], [*"ab"]), "groups_across_splits")
    assert not of_check(
        speakers(tmp_path / "3", [*"aabbcc"], [*"ca"], "colour"), "groups_across_splits"
    )


def test_the_column_of_the_job_and_that_of_the_user_name_groups(tmp_path, capsys):
    grouped = {"group_by": "column:colour"}
    stated = speakers(tmp_path / "1", [*"aabbcc"], [*"ca"], "colour", options=grouped)
    assert of_check(stated, "groups_across_splits")
    plain = speakers(tmp_path / "2", [*"aabbcc"], [*"ca"], "colour")
    assert of_check(plain, "groups_across_splits", group_by="column:colour")
    (found,) = of_check(plain, "groups_across_splits", group_by=r"(\w)/")
    assert (found.feature, found.count) == ("", 6)
    assert not of_check(plain, "groups_across_splits", group_by=r"/(\d+)")
    assert not of_check(plain, "groups_across_splits", group_by="nothing")
    assert main(["check", str(plain), "--group_by", "(", "--json"]) == 2
    assert "not a regular expression" in json.loads(capsys.readouterr().out)["error"]


def test_an_expression_of_the_manifest_is_not_evaluated(tmp_path):
    """It could take years."""
    slow = {"group_by": "(a+)+$"}
    directory = speakers(tmp_path / "d", ["a" * 40 + "!"], ["b", "c"], "colour", options=slow)
    assert not of_check(directory, "groups_across_splits")


def a_png(seed):
    file = io.BytesIO()
    Image.fromarray(smooth_picture(seed, 64)).save(file, "PNG")
    return file.getvalue()


def test_a_picture_that_cannot_be_decoded_is_a_finding_and_the_others_are_checked(tmp_path):
    schema = Schema(
        {
            "image": ("uint8", (None, None, 3), "png"),
            "more": ("uint8", (None, None, 3), "png"),
            "key": ("string", ()),
        }
    )
    records = [{"image": a_png(n), "more": a_png(20 + n), "key": f"{n}"} for n in range(12)]
    records[3]["image"] = b"no picture"
    records[5]["image"] = records[5]["image"][:200]
    records[7]["image"] = records[1]["image"]
    records[9]["more"] = records[2]["more"]
    directory = write_dataset(tmp_path / "d", schema, {"train": [records]})
    found = {(f.check, f.feature): f for f in readers.check(directory).findings}
    broken = found["undecodable_pictures", "image"]
    assert (broken.severity, broken.count, broken.seen) == ("error", 2, 12)
    assert broken.examples == ("3", "5")
    assert found["duplicates", "image"].examples == ("1 and 7",)
    assert found["duplicates", "more"].examples == ("2 and 9",)
    assert ("empty_arrays", "image") not in found
    assert main(["check", str(directory)]) == 1
