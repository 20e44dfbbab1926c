"""The soak works for seconds, and its checks see what they are for."""

import subprocess
import sys

import numpy as np
import pytest

from tests.campaigns.soak.verdict import judge, lines_of, slope_of
from tests.campaigns.tally import Tally


def log_of(megabytes=0.0, descriptors=0):
    """A log of two hours in which a process grows by so much an hour."""
    random = np.random.default_rng(0)
    lines = []
    for name in ("reader", "writer"):
        for hours in np.arange(0, 2, 1 / 120):
            grows = hours if name == "reader" else 0
            step = {"process": name, "hours": hours, "records": 7, "what": "x"}
            step["rss"] = 500 + megabytes * grows + random.normal()
            step["descriptors"] = 9 + int(descriptors * grows) + int(random.integers(0, 3))
            lines.append(step)
    return lines


def faults_of(lines):
    tally = Tally()
    judge(lines, tally)
    return tally.faults


def test_a_process_that_does_not_grow_passes():
    assert faults_of(log_of()) == []


def test_growth_of_two_megabytes_an_hour_is_wrong():
    (wrong,) = faults_of(log_of(megabytes=2))
    assert wrong.startswith("reader: rss grows by ") and 1.5 < float(wrong.split()[4]) < 2.5


def test_a_descriptor_more_every_half_hour_is_wrong():
    assert faults_of(log_of(descriptors=2)) == ["reader: descriptors have grown by 2"]


def test_a_failure_is_wrong_and_so_is_no_work():
    failed = {**log_of()[0], "failure": "3 records: [] are missing"}
    assert "3 records" in faults_of([*log_of(), failed])[0]
    assert faults_of([]) == [f"{name}: no work in all the time" for name in ("reader", "writer")]


def test_the_slope_is_not_moved_by_a_tenth_of_wild_points():
    random = np.random.default_rng(0)
    hours = np.linspace(0, 2, 400)
    values = 100 + 0.4 * hours + random.normal(0, 0.2, 400) + 500 * (random.random(400) < 0.1)
    found = slope_of(np.stack([hours, values], 1))
    assert found and abs(found[0] - 0.4) < 0.1 and found[1] < 0.4 < found[2]
    assert slope_of(np.zeros((3, 2))) is None


def test_a_line_that_a_kill_has_cut_is_left_out(tmp_path):
    (tmp_path / "reader.jsonl").write_text('{"a": 1}\n{"a": 2}\n{"a"')
    assert lines_of(tmp_path) == [{"process": "reader", "a": 1}, {"process": "reader", "a": 2}]


def soaked(log, *flags):
    """Runs a soak that ends soon; returns what it said and its log."""
    command = [sys.executable, "-m", "tests.campaigns", "soak", "--hours", "0.07", "--rest", "0.05"]
    command += ["--folder", str(log), *flags]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    return done.stdout, lines_of(log)


@pytest.mark.slow
def test_jobs_and_epochs_of_seconds_are_whole(tmp_path):
    said, lines = soaked(tmp_path / "log", "--steps", "6")
    assert not [line for line in lines if "failure" in line], said
    assert {line.get("what") for line in lines} >= {"as_numpy", "source", "images"}


@pytest.mark.slow
def test_a_process_that_stands_still_ends_the_soak_with_its_stacks(tmp_path):
    # Each job takes longer than this.
    said, _ = soaked(tmp_path / "log", "--patience", "0.5")
    assert "no progress in 0 s: " in said and "most recent call first" in said
