"""The benchmarks: what they make, what they refuse to time, what they print, and that each script runs."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


@pytest.fixture
def on_path(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))


def output_of(script, *flags):
    command = [sys.executable, str(BENCHMARKS / script), *map(str, flags)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=BENCHMARKS.parent)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def cells_of(text):
    """The cells of all rows of tables of Markdown by the first of their row."""
    rows = [line.split("|")[1:-1] for line in text.splitlines() if line.startswith("| ")]
    return {row[0].strip(): [cell.strip() for cell in row[1:]] for row in rows}


def test_only_pictures_of_the_right_number_shape_dtype_and_mean_are_timed(on_path, tmp_path):
    from measure import BenchmarkError
    from pictures import KINDS, check, files_of, make_photographs
    from PIL import Image

    truth = make_photographs(tmp_path / "some", 8)
    images = np.stack([np.asarray(Image.open(path)) for path in files_of(tmp_path / "some")])
    assert images.shape == (8, 375, 500, 3)
    np.testing.assert_allclose(images.mean(axis=(0, 1, 2)), truth.mean)

    def outcome(batch):
        try:
            check(KINDS["jpeg"], "uint8", tmp_path / "some", [batch])
        except BenchmarkError as error:
            return str(error)
        return "right"

    assert outcome(images) == "right"
    assert outcome(images.transpose(0, 3, 1, 2)) == "right"
    assert outcome(images[1:]) == "an epoch of 7 pictures, expected 8"
    assert outcome(images[:, 1:]).startswith("pictures of uint8 (374, 500, 3), expected uint8")
    assert outcome(images.astype("f4")).startswith("pictures of float32 (375, 500, 3), expected")
    assert outcome((images * 0.98).astype("u1")).startswith("a mean color of ")
    assert outcome(images[..., ::-1]).startswith("a mean color of ")


def test_only_the_right_records_are_timed_in_any_order(on_path, tmp_path):
    from measure import BenchmarkError
    from records import KINDS, Records, check, collate, make_records

    kind = KINDS["recordings"]
    make_records(str(tmp_path / "records"), kind.name, 12)
    records = Records(tmp_path / "records")
    rows, two = list(records)[::-1], ["signal", "label"]
    check(kind, "padded", "all", records, [collate(rows, list(records.columns), "padded")])
    check(kind, "ragged", "chosen", records, [collate(rows, two, "ragged")])
    for names, other, message in (
        (
            ["key", "signal"],
            rows,
            r"a batch of \['key', 'signal'\], expected \['label', 'signal'\]",
        ),
        (two, rows[1:], "recordings, ragged, chosen: 11 records with checksum"),
        (two, [rows[1], *rows[1:]], "recordings, ragged, chosen: 12 records with checksum"),
    ):
        with pytest.raises(BenchmarkError, match=message):
            check(kind, "ragged", "chosen", records, [collate(other, names, "ragged")])


def test_a_rival_that_fails_is_a_row_below_those_that_it_loses_to_and_those_that_lose(on_path):
    from harness import Result, format_rates

    def run(rate, cpu, first):
        return {
            "records_per_second": rate,
            "cpu_per_record": cpu,
            "peak_bytes": 10**8,
            "first_seconds": first,
        }

    case = "jpeg, uint8, 1 core"
    slow = Result(case, "ours", "load", runs=[run(200.0, 4e-6, 0.5)])
    fast = Result(case, "tf_data", "tf.data", runs=[run(400.0, 2e-6, 1)])
    broken = Result(case, "ffcv", "FFCV", problem="install ffcv: exit code 1")
    assert format_rates([broken, slow, fast], ["tf.data"]).splitlines() == [
        "**jpeg, uint8, 1 core**",
        "",
        "|         |    records/s | of tf.data | CPU µs/record | peak MB | first batch ms |",
        "|---------|-------------:|-----------:|--------------:|--------:|---------------:|",
        "| tf.data |          400 |       1.00 |           2.0 |     100 |          1,000 |",
        "| load    |          200 |       0.50 |           4.0 |     100 |            500 |",
        "| FFCV    | does not run |            |               |         |                |",
        "",
        "- FFCV: install ffcv: exit code 1",
    ]


def test_a_row_is_slower_if_it_is_in_every_turn_by_the_clock_or_by_processor_time(on_path):
    from compare import Cost, Row, format_rows

    def row(*now):
        before = [Cost(1.0, 2.0)] * len(now)
        return Row("write text", before, [Cost(*each) for each in now])

    assert not row((1.1, 2.0), (1.1, 2.0), (1.0, 2.0)).is_slower
    assert row((1.1, 2.0), (1.2, 2.0), (1.04, 2.0)).is_slower
    assert row((0.9, 2.1), (0.9, 2.2), (0.9, 2.2)).is_slower
    assert not row((-0.1, 2.0)).is_slower  # tiny inputs: the larger one took less time
    slow = row((1.25, 2.0), (2.0, 2.5), (1.6, 1.6))
    assert cells_of(format_rows([slow], ["before", "now"]))["write text"] == [
        "1/s",
        "1/s",
        "0.62 (0.50 to 0.80)",
        "1.00 (0.80 to 1.25)",
        "SLOWER",
    ]


@pytest.mark.slow
def test_this_project_is_measured_in_each_encoding(tmp_path):
    found = cells_of(
        output_of("compare_encodings.py", "--quick", "--datasets", "counts", "--data", tmp_path)
    )
    assert list(found) == ["256 counts", "tensor", "raw", "list"]
    for size, share, *rates in list(found.values())[1:]:
        values = [float(cell.replace(",", "")) for cell in (size, share, *rates)]
        assert len(values) == 5 and min(values) > 0


@pytest.mark.slow
def test_an_environment_is_compared_with_itself(tmp_path):
    flags = ["--quick", "--cache", tmp_path, "--output", tmp_path / "ratios.json"]
    found = cells_of(output_of("compare.py", sys.executable, sys.executable, *flags))
    assert {name.split()[0] for name in found if name} == {"write", "start:", "read"}
    rates = {name: cells for name, cells in found.items() if name.startswith("read ")}
    assert len(rates) == 4
    assert min(float(cells[0].rstrip("/s").replace(",", "")) for cells in rates.values()) > 0


@pytest.mark.slow
def test_this_project_reads_arrays_and_photographs(tmp_path):
    flags = ["--quick", "--contenders", "ours", "--datasets", "recordings,jpeg", "--cores", "1"]
    text = output_of("read_shards.py", *flags, "--data", tmp_path)
    graphs = {"load, loop", "load, graph", "load, graph, interleave", "as_numpy, interleave"}
    for title, more in (
        ("**recordings, padded, all columns, 1 core**", graphs),
        ("**jpeg, uint8, 1 core**", {"load"}),
    ):
        found = cells_of(text.partition(title)[2].partition("**")[0])
        assert set(found) == {"", "as_numpy", "RecordSource", *more}
        assert min(float(found[way][0].replace(",", "")) for way in found if way) > 0


@pytest.mark.slow
def test_this_project_reads_from_a_store(tmp_path):
    flags = ["--quick", "--contenders", "ours", "--readers", "as_numpy", "--latency", "1"]
    found = cells_of(output_of("read_stores.py", *flags, "--runs", "1", "--data", tmp_path))
    assert int(found["as_numpy"][2]) > 2 and found["as_numpy"][5] == "0"


@pytest.mark.slow
def test_64_hosts_read_8_and_64_shards(tmp_path):
    ways = "interleave from disk,interleave from cache"
    flags = ["--quick", "--datasets", "rows", "--contenders", ways, "--latency", "1"]
    text = output_of("few_shards.py", *flags, "--data", tmp_path)
    assert "each 1 steps and 0.01 MB, together 2,048 records" in text
    found = cells_of(text)
    assert list(found) == ["", *ways.split(",")]  # of several rows with a name, the last
    assert {cells[0] for cells in found.values()} == {"shards", "64"}
    assert 2 <= int(found["interleave from cache"][3]) <= 8


@pytest.mark.slow
def test_this_project_finds_planted_copies_in_pictures(tmp_path):
    flags = ["--quick", "--contenders", "ours", "--datasets", "pictures", "--data", tmp_path]
    found = cells_of(output_of("check_shards.py", *flags))
    for kind in ("exact duplicates", "leaks", "contradictions", "near duplicates", "near leaks"):
        assert found[kind] == ["3 of 3"]
    assert found["blurry"] == ["3 of 3"]
    assert float(found["peak GB"][0]) > 0
