"""Tables of recordings of the pool, held against the csv module."""

import csv

import numpy as np
import pytest

from beam_jobs.errors import RejectError
from beam_jobs.jobs.sensors.formats.registry import read_recording
from beam_jobs.jobs.sensors.recording import ReadOptions
from tests.pool.packages import unpack

pytestmark = pytest.mark.pool

STATSMODELS = "statsmodels-0.15.0-cp311-cp311-manylinux_2_27_x86_64.manylinux_2_28_x86_64.whl"


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
