"""The soak works for seconds, and its checks see what they are for."""

import os
import subprocess
import sys

import numpy as np
import pytest

from tests.campaigns.soak.verdict import growth_of, lines_of, slope_of, verdict

SLOPE = 0.4


def log_of(megabytes=0.0, descriptors=0):
    """A log of two hours in which a process grows by so much an hour."""
    random = np.random.default_rng(0)
    lines = []
    for name in ("reader", "writer"):
        for hours in np.arange(0, 2, 1 / 120):
            grows = hours if name == "reader" else 0
            work = {"job": "text"} if name == "writer" else {"way": "load", "epochs": 4}
            held: dict[str, float] = {
                "rss": 500 + megabytes * grows + random.normal(),
                "descriptors": 9,
            }
            held["descriptors"] += int(descriptors * grows) + int(random.integers(0, 3))
            line = {"kind": "step", "process": name, "hours": hours, "records": 7, **work, **held}
            lines.append(line)
    return lines


def test_a_process_that_does_not_grow_passes():
    assert verdict(log_of())[1] == []


def test_growth_of_two_megabytes_an_hour_is_wrong():
    (wrong,) = verdict(log_of(megabytes=2))[1]
    assert wrong.startswith("reader: rss grows by ") and 1.5 < float(wrong.split()[4]) < 2.5


def test_a_descriptor_more_every_half_hour_is_wrong():
    assert verdict(log_of(descriptors=2))[1] == ["reader: descriptors have grown by 2"]


def test_a_failure_is_wrong_and_so_is_no_work():
    failed = {**log_of()[0], "failure": "3 records: [] are missing"}
    assert "3 records" in verdict([*log_of(), failed])[1][0]
    assert verdict([])[1] == ["no jobs in all the time", "no epochs in all the time"]


def test_the_slope_is_not_moved_by_a_tenth_of_wild_points():
    random = np.random.default_rng(0)
    hours = np.linspace(0, 2, 400)
    values = 100 + SLOPE * hours + random.normal(0, 0.2, 400) + 500 * (random.random(400) < 0.1)
    found = slope_of(np.stack([hours, values], 1))
    assert found and abs(found.value - SLOPE) < 0.1 and found.low < SLOPE < found.high
    assert slope_of(np.zeros((3, 2))) is None


def test_a_count_that_rises_and_falls_has_not_grown():
    wave = np.stack([np.arange(99), np.arange(99) % 10], 1)
    assert growth_of(wave) == 0
    assert growth_of(np.stack([np.arange(99), np.arange(99) // 33], 1)) == 2


def test_a_line_that_a_kill_has_cut_is_left_out(tmp_path):
    (tmp_path / "log").write_text('{"a": 1}\n{"a": 2}\n{"a"')
    assert lines_of(tmp_path / "log") == [{"a": 1}, {"a": 2}]


def soaked(log, plant, seconds, *flags):
    """Runs a soak with a plant for seconds; returns what it said and its log, after an exit code of 1."""
    command = [sys.executable, "-m", "tests.campaigns.soak", "--hours", str(seconds / 3600)]
    command += ["--log", str(log), "--rest", "0.05", "--every", "1", *flags]
    environment = os.environ | {"SOAK_PLANT": plant}
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment)
    assert done.returncode == 1, done.stdout + done.stderr
    return done.stdout, lines_of(log)


@pytest.mark.slow
def test_epochs_of_seconds_are_whole_and_planted_descriptors_are_seen(tmp_path):
    said, lines = soaked(tmp_path / "log", "reader files", 250, "--steps", "5")
    assert "WRONG: reader: descriptors have grown by" in said
    assert not [line for line in lines if "failure" in line]
    assert [line for line in lines if line.get("job")]
    assert {line.get("way") for line in lines} >= {"as_numpy", "source"}


@pytest.mark.slow
def test_a_process_that_stands_still_ends_the_soak_with_its_stacks(tmp_path):
    said, _ = soaked(tmp_path / "log", "reader sleep", 250, "--patience", "15")
    assert "WRONG: reader after" in said and "no progress in 15 s" in said
    assert "in spoil" in said or "in <lambda>" in said
