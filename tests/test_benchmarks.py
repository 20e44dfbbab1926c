"""The benchmark of pictures: what it makes, what it refuses to time, and that it runs."""

import json
import subprocess
import sys
from argparse import Namespace
from pathlib import Path

import numpy as np
import pytest

import readers

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


@pytest.fixture
def on_path(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))


def test_a_crop_lies_within_its_picture_and_has_the_area_that_was_asked_for(on_path):
    from pictures.crops import draw_crop

    rng = np.random.default_rng(0)
    boxes = np.array([draw_crop(rng, 375, 500) for _ in range(2000)])
    top, left, height, width = boxes.T
    assert min(top.min(), left.min()) >= 0
    assert (top + height).max() <= 375 and (left + width).max() <= 500
    areas = height * width / (375 * 500)
    assert 0.07 < areas.min() < 0.1 and areas.max() <= 1
    aspects = width / height
    assert aspects.min() > 0.7 and aspects.max() < 1.4


def test_only_pictures_of_the_right_number_shape_dtype_and_mean_are_timed(
    on_path, tmp_path, monkeypatch
):
    import picture_process
    from pictures.contender import Contender
    from pictures.photographs import make_photographs
    from pictures.truth import files_of
    from PIL import Image

    truth = make_photographs(tmp_path / "some", 8)
    images = np.stack([np.asarray(Image.open(path)) for path in files_of(tmp_path / "some")])
    assert images.shape == (8, 375, 500, 3)
    np.testing.assert_allclose(images.mean(axis=(0, 1, 2)), truth.mean)
    flags = Namespace(
        contender="spdl", folder=tmp_path / "some", mode="SPDL", kind="jpeg", dtype="uint8", cores=1
    )

    def outcome(batch):
        contender = Contender({"SPDL": lambda task: [batch]})
        monkeypatch.setattr(picture_process, "load_contender", lambda name: contender)
        try:
            picture_process.check(flags)
        except SystemExit as error:
            return str(error)
        return "right"

    assert outcome(images) == "right"
    assert outcome({"image": images.transpose(0, 3, 1, 2)}) == "right"
    assert outcome(images[1:]) == "an epoch of 7 pictures, expected 8"
    assert outcome(images[:, 1:]).startswith("pictures of uint8 (374, 500, 3), expected uint8")
    assert outcome(images.astype("f4")).startswith("pictures of float32 (375, 500, 3), expected")
    assert outcome((images * 0.98).astype("u1")).startswith("a mean color of ")
    assert outcome(images[..., ::-1]).startswith("a mean color of ")


def test_a_rival_that_fails_is_a_row_below_those_that_it_loses_to_and_those_that_lose(on_path):
    from pictures.table import Reading, Result, format_results

    reading = Reading(0.5, 200.0, 0.004, 10**8)
    slow = Result("jpeg", "uint8", "ours", "load", 1, [reading])
    fast = Result("jpeg", "uint8", "tf_data", "tf.data", 1, [Reading(1, 400.0, 0.002, 10**8)])
    broken = Result("jpeg", "uint8", "ffcv", "FFCV", 1, problem="install ffcv: exit code 1")
    (table,) = format_results([broken, slow, fast])
    assert table.splitlines() == [
        "**jpeg, uint8, 1 core**",
        "",
        "|         |   pictures/s | of tf.data | CPU ms/picture | peak MB | first batch ms |",
        "|---------|-------------:|-----------:|---------------:|--------:|---------------:|",
        "| tf.data |          400 |       1.00 |           2.00 |     100 |          1,000 |",
        "| load    |          200 |       0.50 |           4.00 |     100 |            500 |",
        "| FFCV    | does not run |            |                |         |                |",
        "",
        "- FFCV: install ffcv: exit code 1",
    ]


@pytest.mark.slow
def test_readers_with_the_kernel_and_without_it_take_turns(tmp_path):
    command = [sys.executable, str(BENCHMARKS / "compiled_kernel.py"), "--quick"]
    command += ["--datasets", "small", "--data", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True)
    if not readers.is_compiled():
        assert done.returncode == 1 and "the kernel is not compiled" in done.stderr
        return
    assert done.returncode == 0, done.stdout + done.stderr
    rows = [line.split("|")[1:-1] for line in done.stdout.splitlines() if "dense" in line]
    assert [row[1].strip() for row in rows] == ["shuffled", "in order"]
    assert min(float(cell.replace(",", "")) for row in rows for cell in row[2:]) > 0


@pytest.mark.slow
def test_this_project_reads_the_photographs(tmp_path):
    command = [
        sys.executable,
        str(BENCHMARKS / "read_shards.py"),
        "--quick",
        "--contenders",
        "ours",
    ]
    command += ["--datasets", "jpeg", "--cores", "1", "--data", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    table = done.stdout.partition("**jpeg, uint8, 1 core**\n\n")[2].partition("\n\n")[0]
    rows = [line.split("|")[1:3] for line in table.splitlines()[2:]]
    ways = {way.strip(): float(rate.replace(",", "")) for way, rate in rows}
    assert set(ways) == {"load", "load, interleave", "as_numpy", "RecordSource"}
    assert min(ways.values()) > 0


@pytest.mark.parametrize("most", range(18))
def test_the_search_finds_how_many_accelerators_are_fed_to_an_eighth(on_path, most):
    from mlperf_storage import most_accelerators

    number, found = most_accelerators(lambda ranks: 0.95 if ranks <= most else 0.85, 0.9)
    assert number == most if most < 16 else most - 2 <= number <= most
    assert found == (0.95 if most else 0)


@pytest.mark.frameworks
def test_a_million_records_are_read_by_processes_that_share_the_index(tmp_path):
    command = [sys.executable, str(BENCHMARKS / "scale_read.py"), "--data", str(tmp_path)]
    command += ["--records", "2000000", "--workers", "2"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    first, again = (line.split("|")[1:-1] for line in done.stdout.splitlines()[1:])
    assert [cell.strip() for cell in first[:3]] == ["2,000,000", "2", "first"]
    assert [cell.strip() for cell in again[:3]] == ["2,000,000", "2", "again"]
    assert first[7].strip() == again[7].strip() == "8 MB"


@pytest.mark.slow
def test_the_memory_of_one_task_is_sampled_in_each_stage(tmp_path):
    command = [sys.executable, str(BENCHMARKS / "one_task.py"), "--data", str(tmp_path)]
    command += ["--bytes", "300_000_000"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    title, _, _, _, *rows = done.stdout.splitlines()
    assert title.startswith("direct: 301,968 records, 3")
    cells = [[cell.strip() for cell in row.split("|")[1:-1]] for row in rows]
    assert [row[0] for row in cells] == ["read", "encode", "write"]
    assert all(row[2].startswith("job ") and row[7].endswith(" MiB") for row in cells)
    growth = next(row[-1] for row in cells if row[0] == "encode")
    assert int(growth.split()[0]) < 20


@pytest.mark.slow
def test_the_time_and_memory_of_a_report_are_measured(tmp_path):
    command = [sys.executable, str(BENCHMARKS / "report_sizes.py"), "--kinds", "texts"]
    command += ["--records", "50", "--data", str(tmp_path), "--json", str(tmp_path / "r.json")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    (found,) = json.loads((tmp_path / "r.json").read_text())
    assert found["records"] == 50 and found["peak_bytes"] > 20 << 20
    assert (tmp_path / "report-texts-50.html").stat().st_size == found["page_bytes"]


@pytest.mark.slow
def test_near_duplicates_are_timed_and_all_planted_ones_are_dropped(tmp_path):
    command = [sys.executable, str(BENCHMARKS / "near_duplicates.py"), "--quick"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=BENCHMARKS.parent)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "100 of 100" in done.stdout


def test_a_name_without_the_fault_is_a_false_alarm_unless_another_fault_implies_it(on_path):
    from planted.truth import Truth, copies, score

    truth = Truth(6, splits={"a": "train", "b": "train", "c": "val", "d": "val", "e": "val"})
    truth.plant("exact duplicates", "a", "b")
    truth.plant("leaks", "b", "c")
    truth.plant("dark", "d")
    truth.plant("low information", "e")
    named = copies(truth, [["a", "b"], ["b", "c"], ["d", "e"]], [])
    assert str(score(truth, "exact duplicates", named["exact duplicates"])) == "1 of 1, 2 false"
    assert str(score(truth, "leaks", named["leaks"])) == "1 of 1"
    assert str(score(truth, "low information", ["d"])) == "0 of 1"
    assert str(score(truth, "dark", ["e", "d"])) == "1 of 1, 1 false"


def test_a_page_needs_the_network_for_what_it_loads_and_not_for_what_it_links_to(on_path):
    from planted.bench import loads_from_network

    for loaded in (
        b'<script async src="https://example.com/a.js"></script>',
        b"<link rel=stylesheet href='//example.com/a.css'>",
        b"<style>@import url(http://example.com/a.css)</style>",
        b'<link rel="import" href="https://example.com/facets.html">',
    ):
        assert loads_from_network(b"<html>" + loaded)
    assert not loads_from_network(
        b'<a href="https://example.com">x</a><img src="data:image/png;base64,iVBO">'
        b"<script>let x = 'http://www.w3.org/2000/svg'</script>"
    )


@pytest.mark.slow
def test_this_project_finds_planted_copies_in_pictures(tmp_path):
    command = [sys.executable, str(BENCHMARKS / "check_shards.py"), "--quick"]
    command += ["--contenders", "ours", "--datasets", "pictures", "--data", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = [line.split("|")[1:3] for line in done.stdout.splitlines() if line.startswith("| ")]
    found = {kind.strip(): cell.strip() for kind, cell in rows}
    for kind in ("exact duplicates", "leaks", "contradictions", "near duplicates", "near leaks"):
        assert found[kind] == "3 of 3"
    assert found["blurry"] == "3 of 3"
    assert float(found["peak GB"]) > 0
