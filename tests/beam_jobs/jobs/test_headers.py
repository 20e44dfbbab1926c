"""The first lines of tables of text, compared with tables that pandas and NumPy write, or with the values that were written."""

import numpy as np
import pytest

from tests.support.arrays import assert_same
from tests.support.recordings import read, rejected, signal

VALUES = np.array([[0.5, -1.25], [2.75, 8.5], [3.5, 0.125], [1.5, 9.25]])

ROWS = "".join(f"{x},{y}\n" for x, y in VALUES.tolist())


def numbered(rows: str) -> str:
    return "".join(f"{i},{row}\n" for i, row in enumerate(rows.splitlines()))


@pytest.mark.parametrize("kind", ["csv", "tsv", "txt"])
@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("x,y\n" + ROWS, ("x", "y")),
        ("0,1\n" + ROWS, ("0", "1")),  # pandas with index=False
        (",0,1\n" + numbered(ROWS), ("0", "1")),  # pandas
        ("2024-01-01,2024-02-01\n" + ROWS, ("2024-01-01", "2024-02-01")),
        ("1990,b\n" + ROWS, ("1990", "b")),
        ("# x,y\n" + ROWS, ("x", "y")),  # numpy.savetxt with a header
        ("#made, by, me\n#,x,y\n" + numbered(ROWS), ("x", "y")),
        ("# made by a logger\n\n% 2 channels\nx,y\n" + ROWS, ("x", "y")),
        ("sep=,\r\nx,y\n" + ROWS, ("x", "y")),
        ("Report,\nx,y\n" + ROWS, ("x", "y")),
        (ROWS, ()),
    ],
)
def test_names_are_found_where_programs_write_them(kind, text, names):
    text = text.replace(",", {"csv": ",", "tsv": "\t", "txt": ";"}[kind])
    found = read(kind, text.encode())
    assert_same(found.arrays["signal"], VALUES)
    assert found.channels == ({"signal": names} if names else {})


@pytest.mark.parametrize(
    ("text", "is_header", "note"),
    [
        ("0,1,2\n3,4,9\n7,5,8\n", True, "--header no: for a sample"),
        ("0,1,2\n3,4,5\n6,7,8\n", False, ""),  # np.arange(9)
        ("0,1\n1,2\n2,3\n3,5\n", False, ""),  # a column goes on in equal steps
        ("0,1\n0.1,1.5\n0.2,1.25\n", False, ""),
        ("1990,1991,1992\n0.5,1.5,2.5\n", True, "--header no: for a sample"),
        ("1990,1991,1992\n5,15,2\n", False, ""),
        ("1990,1991,1993\n0.5,1.5,2.5\n", True, "--header no: for a sample"),
        ("1990,1991\n0.5,1.5\n", True, "--header no: for a sample"),
        ("1991,1990\n0.5,1.5\n", False, ""),
        ("990,991,993\n0.5,1.5,2.5\n", False, ""),
        ("1,2\n0.5,1.5\n", False, ""),
        ("2,1,0\n0.5,1.5,2.5\n", False, ""),
        (",5,6\n1,5,6\n,2,3\n", False, ""),
    ],
)
def test_numbers_in_the_first_line_are_names_only_if_they_count_up(text, is_header, note):
    lines = text.splitlines()[is_header:]
    first = text.startswith(",") and is_header  # an index
    found = read("csv", text.encode(), drop_columns=())
    assert len(found.arrays["signal"]) == len(lines)
    assert bool(found.channels) == is_header
    assert found.arrays["signal"].shape[1] == text.split("\n")[0].count(",") + 1 - first
    assert any(note in each for each in found.notes) or not note
    assert not any("--header" in each for each in found.notes) or note
    assert len(signal("csv", text.encode(), header="no", columns=("1",))) == len(text.splitlines())
    if not first:
        assert len(signal("csv", text.encode(), header="yes")) == len(text.splitlines()) - 1


def test_a_first_row_of_dates_or_labels_is_a_sample():
    stamps = "2014-05-07 16:29:38.120,0.1,0.2\n2014-05-07 16:29:38.130,0.3,0.4\n"
    expected = np.array([[0.1, 0.2], [0.3, 0.4]])
    assert_same(signal("csv", stamps.encode(), drop_columns=("0",)), expected)
    assert "column '0' is not numeric: '2014" in rejected("csv", stamps.encode())
    assert_same(signal("csv", b"0.1,0.2,a\n0.3,0.4,b\n", drop_columns=("2",)), expected)


def test_lines_above_a_table_are_skipped():
    text = b'"Plot Title: a"\nstart,8:00,x\n1,2\n3,4\n5,7\n'
    assert_same(signal("csv", text, skip_lines=2), np.array([[1.0, 2], [3, 4], [5, 7]]))
    assert_same(signal("csv", text, skip_lines=3), np.array([[3.0, 4], [5, 7]]))
    assert "--skip_lines leaves out lines above the table" in rejected("csv", text)
    assert rejected("csv", text, skip_lines=9) == "the file is empty"


@pytest.mark.parametrize(
    ("text", "options", "times", "note"),
    [
        ("t,x\nms,g\n0,1\n1500,2\n", {}, [0, 1.5], "its times are in ms"),
        ("t,x\nms,g\n0,1\n1500,2\n", {"time_unit": "us"}, [0, 0.0015], "with --time_unit us"),
        ("t,x\nms,g\n0,1\n1500,2\n", {"time_unit": "ms"}, [0, 1.5], ""),
        ("t,x\n\N{MICRO SIGN}s,g\n0,1\n1500,2\n", {}, [0, 0.0015], "its times are in us"),
        ("t,x\n[s],g\n0,1\n1500,2\n", {}, [0, 1500], ""),
        ("t,x\nUTC,g\n0,1\n1500,2\n", {}, [0, 1500], ""),
        ("Time (ms),x\n0,1\n1500,2\n", {}, [0, 1.5], "its times are in ms"),
        ("time_ns,x\n0,1\n1500,2\n", {}, [0, 1.5e-6], "its times are in ns"),
        ("time_ms,x\n1600000000000,1\n1600000000500,2\n", {}, [1.6e9, 1.6e9 + 0.5], "in ms"),
        ("t,x\n1600000000000,1\n1600000000500,2\n", {"time_unit": "s"}, [1.6e12, 1.6e12 + 500], ""),
    ],
)
def test_the_unit_of_times_is_that_of_the_file(text, options, times, note):
    name = text.partition(",")[0]
    found = read("csv", text.encode(), time_column=name, **options)
    np.testing.assert_allclose(found.times, times, rtol=1e-12)
    remarks = [each for each in found.notes if "times are in" in each]
    assert len(remarks) == bool(note) and all(note in each for each in remarks)


def test_times_in_long_units_are_rejected():
    for text, name in (("t,x\nmin,g\n0,1\n", "t"), ("Time [h],x\n0,1\n", "Time [h]")):
        assert "convert them to s" in rejected("csv", text.encode(), time_column=name)
        assert len(read("csv", text.encode(), time_column=name, time_unit="s").times) == 1


def test_an_empty_column_at_the_end_is_a_remark():
    assert read("csv", b"1,2,\n3,4,\n").notes == ("its last column is empty and left out",)


@pytest.mark.parametrize("mark", [",", ";", "\t"])
def test_rows_without_values_at_the_end_are_left_out_with_a_remark(mark):
    for end in ("\n", "\r\n", "\r"):
        for rest in (f"{mark}\n {mark} \n\n", mark):
            text = f"t{mark}x\n1{mark}\n{mark}\n2{mark}\n{rest}".replace("\n", end)
            found = read("csv", text.encode(), columns=("t", "x"))
            assert_same(
                found.arrays["signal"], np.array([[1, np.nan], [np.nan, np.nan], [2, np.nan]])
            )
            assert found.notes == ("rows without values at its end are left out",)


def test_quotes_between_tabs_do_not_swallow_rows():
    rows = 't\tx\tnote\n0\t1\t"one\n1\t2\ttwo "x"\n2\t3\tthree"\n3\t4\t"four"\n'
    options = {"time_column": "t", "own_columns": ("note",), "metadata_columns": ("note",)}
    for kind in ("tsv", "txt", "csv"):
        found = read(kind, rows.encode(), **options)
        assert_same(found.arrays["signal"], np.array([[1.0], [2], [3], [4]]))
        assert found.columns["note"].of_rows() == ['"one', 'two "x"', 'three"', "four"]


def test_numbers_of_python_alone_are_text():
    for cell in ("1_000", "\N{ARABIC-INDIC DIGIT ONE}", "\N{FULLWIDTH DIGIT ONE}", "0x1", "1d0"):
        assert "is not numeric" in rejected("csv", f"x,y\n{cell},1\n".encode())
    assert_same(signal("csv", b"x,y\n+1,.5\n1.,-inf\n"), np.array([[1, 0.5], [1, -np.inf]]))


def test_blank_lines_between_single_numbers_are_a_remark():
    for end in ("\n", "\r\n", "\r"):
        found = read("csv", "x\n1\n\n3\n\n".replace("\n", end).encode())
        assert_same(found.arrays["signal"], np.array([[1.0], [3]]))
        assert found.notes == (
            "blank lines between its samples are not read; a missing value is NA",
        )
        assert not read("csv", "x\n1\n3\n\n\n".replace("\n", end).encode()).notes


def test_times_with_and_without_a_zone_are_not_mixed():
    text = b"t,x\n2021-01-01T00:00:00+01:00,0\n2021-01-01T00:00:01,1\n"
    assert "all with or all without a time zone" in rejected("csv", text, time_column="t")
