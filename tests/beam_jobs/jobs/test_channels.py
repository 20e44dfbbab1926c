"""Names and units of channels: compared between files, put into one order, and kept in the manifest."""

import io
import json

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet
import pytest

from beam_jobs.cli.sensors import SensorFlags
from beam_jobs.errors import UsageError
from beam_jobs.jobs.sensors.channels import aligned
from beam_jobs.jobs.sensors.recording import Recording
from beam_jobs.sources.source import Source

X_Y = {"x": [1.0, 2.0], "y": [10.0, 20.0]}
Y_X = {"y": [10.0, 20.0], "x": [1.0, 2.0]}
SIGNAL = np.array([[1, 10], [2, 20]], np.float32)


def csv(columns, delimiter=","):
    rows = [columns, *zip(*columns.values(), strict=True)]
    return "".join(delimiter.join(map(str, row)) + "\n" for row in rows).encode()


def jsonl(columns):
    rows = zip(*columns.values(), strict=True)
    return b"".join(
        f"{dict(zip(columns, row, strict=True))}\n".replace("'", '"').encode() for row in rows
    )


def arrow(write):
    def content(columns):
        buffer = io.BytesIO()
        write(pa.table({name: pa.array(v, pa.float32()) for name, v in columns.items()}), buffer)
        return buffer.getvalue()

    return content


CONTENT = {
    "csv": csv,
    "tsv": lambda columns: csv(columns, "\t"),
    "txt": lambda columns: csv(columns, " "),
    "jsonl": jsonl,
    "parquet": arrow(pyarrow.parquet.write_table),
    "feather": arrow(pyarrow.feather.write_feather),
}


def job(folder, suffix, *tables, **flags):
    for name, columns in zip("abc", tables, strict=False):
        (folder / f"{name}.{suffix}").write_bytes(CONTENT[suffix](columns))
    given = SensorFlags(input=(f"{folder}/*",), label="none", **flags)
    return given.make_job((), "", 1 << 20)


@pytest.mark.parametrize("suffix", CONTENT)
def test_channels_of_all_files_are_in_the_order_of_the_first_one(tmp_path, suffix):
    made = job(tmp_path, suffix, X_Y, Y_X)
    for name in "ab":
        np.testing.assert_array_equal(made.load(Source(f"{name}.{suffix}"))["signal"], SIGNAL)
    assert made.facts == {"channel_names": {"signal": ["x", "y"]}}


def test_rows_of_all_files_have_one_order(tmp_path):
    made = job(tmp_path, "csv", X_Y, Y_X, record="row")
    parts = list(made.parts_in(Source("b.csv"), lambda: CONTENT["csv"](Y_X)))
    np.testing.assert_array_equal([part.made[0]["signal"] for part in parts], SIGNAL)


@pytest.mark.parametrize("suffix", CONTENT)
@pytest.mark.parametrize("others", [["p", "q"], ["x", "z"], ["x", "y", "z"], ["x"]])
def test_other_channels_are_an_error_that_names_both(tmp_path, suffix, others):
    made = job(tmp_path, suffix, X_Y, {name: [1.0, 2.0] for name in others})
    message = (
        f"b.{suffix}: the channels of 'signal' are {', '.join(others)}, but a.{suffix} has x, y;"
    )
    with pytest.raises(UsageError, match=message):
        made.load(Source(f"b.{suffix}"))


def test_the_flag_chooses_channels_and_their_order(tmp_path):
    made = job(tmp_path, "csv", X_Y, {"z": [5.0, 6.0], **Y_X}, columns="y,x")
    for name in "ab":
        np.testing.assert_array_equal(made.load(Source(f"{name}.csv"))["signal"], SIGNAL[:, ::-1])


def test_a_file_without_names_is_taken_in_order_with_a_remark(tmp_path):
    made = job(tmp_path, "csv", X_Y)
    (tmp_path / "b.csv").write_bytes(b"1,10\n2,20\n")
    record = made.load(Source("b.csv"))
    np.testing.assert_array_equal(record["signal"], SIGNAL)
    assert ["names" in remark for remark in record.remarks] == [True]


def recording(names, units):
    stated = {"channels": {"signal": names}, "units": {"signal": units} if units else {}}
    return Recording({"signal": SIGNAL[:, [("x", "y").index(name) for name in names]]}, **stated)


def test_units_move_with_their_channels_and_must_agree():
    first = recording(("x", "y"), ("uV", "s"))

    def found(*how):
        return aligned("b", recording(*how), "a", first)

    assert found(("y", "x"), ("s", "\N{MICRO SIGN}V")).units == {"signal": ("\N{MICRO SIGN}V", "s")}
    for how in [(("y", "x"), ("", "uV")), (("x", "y"), ())]:
        np.testing.assert_array_equal(found(*how).arrays["signal"], SIGNAL)
    with pytest.raises(UsageError, match="b: channel y is in ms, but in a in s;"):
        found(("y", "x"), ("ms", "uV"))


def test_an_array_of_another_name_is_taken_with_a_remark(tmp_path):
    for name, array in {"a": "acc", "b": "gyro", "c": "acc"}.items():
        np.savez(tmp_path / f"{name}.npz", **{array: SIGNAL})
    made = SensorFlags(input=(f"{tmp_path}/*",), label="none").make_job((), "", 1 << 20)
    remarks = [made.load(Source(f"{name}.npz")).remarks for name in "abc"]
    assert [len(each) for each in remarks] == [0, 1, 0]
    assert "another name than that of the first file" in remarks[1][0]


def test_a_unit_that_is_not_utf_8_is_kept_in_a_form_that_the_manifest_can_state(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["x"] = SIGNAL
        file["x"].attrs["units"] = b"\xb0C"  # degrees in Latin-1
    made = SensorFlags(input=(f"{tmp_path}/*",), label="none").make_job((), "", 1 << 20)
    assert json.dumps(made.facts, ensure_ascii=False).encode()
    assert "C" in str(made.facts["channel_units"])
