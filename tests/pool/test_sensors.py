"""Recordings of the pool, held against soundfile, NumPy and the csv module."""

import csv
import math

import numpy as np
import pytest
import soundfile

from beam_jobs.errors import RejectError
from beam_jobs.jobs.sensors.formats.registry import read_recording
from beam_jobs.jobs.sensors.recording import ReadOptions
from tests.pool.packages import unpack
from tests.support.commands import run
from tests.support.datasets import records_of, rejects_of

pytestmark = pytest.mark.pool

SCIPY = "scipy-1.17.1-cp311-cp311-manylinux_2_27_x86_64.manylinux_2_28_x86_64.whl"
SCIKIT = "scikit_image-0.26.0-cp311-cp311-manylinux_2_24_x86_64.manylinux_2_28_x86_64.whl"
STATSMODELS = "statsmodels-0.15.0-cp311-cp311-manylinux_2_27_x86_64.manylinux_2_28_x86_64.whl"

# What soundfile reads and the job rejects, and why.
KNOWN = {
    "test-44100Hz-le-1ch-4bytes-early-eof.wav": "it ends in its audio; soundfile reads what is there",
    "test-8000Hz-le-3ch-5S-24bit-inconsistent.wav": "its header contradicts itself",
}


def mono(path):
    try:
        values, _ = soundfile.read(path, dtype="float32", always_2d=True)
    except soundfile.LibsndfileError:
        return None
    return values.mean(1, keepdims=True)


# The rate of a dataset's recordings is one, and so a job reads one of these.
@pytest.mark.parametrize("rate", [8000, 44_100])
def test_audio_has_the_samples_that_soundfile_reads(rate, tmp_path):
    folder = unpack(SCIPY, rf"scipy/io/tests/data/(test-{rate}Hz.*\.wav)", tmp_path / "in")
    flags = ["--label", "none", "--channels", 1, "--dtype", "float32"]
    out = tmp_path / "out"
    assert run("sensors", "--input", folder, "--output", out, *flags) == 0
    records, rejects, wrong = records_of(out), rejects_of(out), set()
    for path in sorted(folder.iterdir()):
        assert (path.name in records) != (path.name in rejects), path.name
        found, expected = records.get(path.name, {}).get("signal"), mono(path)
        if found is None or expected is None:
            if found is not expected:
                wrong.add(path.name)
        elif found.shape != expected.shape or abs(found - expected).max(initial=0) > 1e-6:
            wrong.add(path.name)
    assert records and wrong == {name for name in KNOWN if (folder / name).exists()}


def table_of(data):
    """The columns of a CSV file by the csv module; None if a cell is neither missing nor a number."""
    text = data.decode("utf-8-sig")
    separator = next((mark for mark in ",;\t" if mark in text.split("\n", 1)[0]), ",")
    rows = [row for row in csv.reader(text.splitlines(), delimiter=separator) if row]
    try:
        [number_of(cell) for cell in rows[0]]
    except ValueError:
        header, *rows = rows
        if len(header) != len(rows[0]):
            return None
    try:
        return np.array([[number_of(cell) for cell in row] for row in rows]).T
    except ValueError:  # Rows of several lengths, too.
        return None


def number_of(cell):
    return float("nan" if cell.strip() in ("", "NA", "-", "null") else cell)


def test_tables_have_the_numbers_that_the_csv_module_reads(tmp_path):
    folder = unpack(STATSMODELS, r"[a-z]+/(.*/[^/]+\.csv)", tmp_path)
    compared = 0
    for path in sorted(folder.rglob("*.csv")):
        data = path.read_bytes()
        try:
            recording = read_recording(path.name, data, ReadOptions())
        except RejectError:
            assert table_of(data) is None, path
            continue
        found, columns = recording.arrays["signal"].T, table_of(data)
        # Columns called like times, which may be dates, are left out with a note.
        if columns is None:
            assert recording.notes, path
            continue
        if len(found) == len(columns):
            assert np.array_equal(found, columns, equal_nan=True), path
        else:
            left = iter(columns)
            held = [any(np.array_equal(a, b, equal_nan=True) for b in left) for a in found]
            assert all(held) and recording.notes, path
        compared += 1
    assert compared > 100


@pytest.mark.parametrize(("package", "prefix"), [(SCIPY, "scipy"), (SCIKIT, "skimage")])
def test_arrays_have_the_values_that_numpy_loads(package, prefix, tmp_path):
    folder = unpack(package, rf"{prefix}/(.*\.np[yz])", tmp_path)
    for path in sorted(folder.rglob("*.np[yz]")):
        try:
            found = np.load(path)
            arrays = {"signal": found} if path.suffix == ".npy" else dict(found)
        except ValueError:  # Objects, which only pickle loads.
            arrays = {}
        try:
            recording = read_recording(path.name, path.read_bytes(), ReadOptions())
        except RejectError as error:
            assert not arrays or "key" in arrays or "object" in str(error), (path, error)
            continue
        expected = {"signal": next(iter(arrays.values()))} if len(arrays) == 1 else arrays
        assert recording.arrays.keys() == expected.keys(), path
        for name, array in recording.arrays.items():
            assert (array.dtype, array.shape) == (expected[name].dtype, expected[name].shape), path
            assert math.prod(array.shape) == 0 or array.tobytes() == expected[name].tobytes(), path
