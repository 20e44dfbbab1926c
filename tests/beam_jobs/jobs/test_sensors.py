"""The sensors job: its schema, conversions, misfits, and the records of a file."""

import io
import re
from dataclasses import replace
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
import soundfile

from beam_jobs.cli.sensors import SensorFlags
from beam_jobs.errors import RejectError, UsageError
from beam_jobs.jobs.sensors.formats.registry import FORMATS, suffixes_of
from beam_jobs.jobs.sensors.read_options import ReadOptions, lay_out
from beam_jobs.jobs.sensors.sensor_job import SensorJob
from beam_jobs.sources.inputs import Inputs
from beam_jobs.sources.labels import Labels
from beam_jobs.sources.source import Source
from readers.format.dtypes import TENSORFLOW_DTYPES
from readers.format.schema import Feature, Schema

DTYPES = sorted(set(TENSORFLOW_DTYPES) - {"string", "bfloat16"})


def npy(array) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


def npz(**arrays) -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()


def read(tmp_path: Path, name: str, data: bytes, arrays=(), dtype="") -> dict[str, np.ndarray]:
    """The only record of a file, whatever the schema."""
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_bytes(data)
    options = ReadOptions(arrays)
    job = SensorJob(Inputs((), str(tmp_path)), Labels(), read_options=options, dtype=dtype)
    _, (record,) = job.read(Source(name))
    return record


def job(tmp_path: Path, dtype="", encoding="tensor", flags=None, **files: bytes) -> SensorJob:
    """The job of files `name_suffix=data`, with its schema."""
    for name, data in files.items():
        (tmp_path / name.replace("_", ".")).write_bytes(data)
    inputs, conditioning = Inputs.of([f"{tmp_path}/*"]), SensorFlags(**flags or {}).conditioning()
    return SensorJob(
        inputs, Labels(), dtype=dtype, encoding=encoding, conditioning=conditioning
    ).with_schema()


def same(found: dict[str, np.ndarray], **expected) -> None:
    """Asserts that records are the same but for the byte order of their arrays."""
    assert sorted(found) == sorted(expected)
    for name, array in expected.items():
        assert found[name].dtype.name == array.dtype.name
        np.testing.assert_array_equal(found[name], array)


@pytest.mark.parametrize("name", DTYPES)
def test_arrays_of_every_dtype_byte_order_and_layout_become_records(tmp_path, name):
    values = np.arange(24).reshape(4, 3, 2) % 2
    for order in "<>":
        for layout in "CF":
            stored = values.astype(np.dtype(name).newbyteorder(order), order=layout)
            same(read(tmp_path, "a.NPY", npy(stored)), signal=values.astype(name))


@pytest.mark.parametrize("name", ["a.md", "a.npy.gz", "a", "walk/rec1", "npy", "a.npy/b"])
def test_files_of_other_formats_are_rejected(tmp_path, name):
    kinds = re.escape(", ".join(suffixes_of(*FORMATS)))
    with pytest.raises(RejectError, match=f"expected a file name that ends in one of {kinds}$"):
        read(tmp_path, name, b"x")


def test_a_missing_file_is_rejected(tmp_path):
    with pytest.raises(RejectError, match="cannot be read"):
        SensorJob(Inputs((), str(tmp_path)), Labels()).read(Source("none.npy"))


def test_columns_called_like_times_are_left_out_by_name():
    names = ["time", "x", "Unnamed: 0", "y", "", "epoch_ms"]
    layout = lay_out(names, len(names), ReadOptions())
    assert layout.channels == [1, 3]
    assert "row numbers: time, Unnamed: 0, (no name), epoch_ms;" in layout.notes[0]
    assert lay_out(["T", "t", "P"], 3, ReadOptions()).channels == [0, 2]  # a temperature


def test_values_that_float32_rounds_to_one_are_remarks(tmp_path):
    large = b"x\n16777216\n16777217\n"
    first = job(tmp_path, a_csv=large, b_csv=large)
    (warning,) = first.warnings
    assert warning.startswith("a.csv: some values that differ are equal in float32")
    assert [warning] == [f"a.csv: {remark}" for remark in first.load(Source("b.csv")).remarks]


# Conversion.


@pytest.mark.parametrize(
    "array",
    [
        np.zeros(3, [("t", "f4"), ("x", "f4")]),
        np.array(["a", "b"]),
        np.zeros(3, "M8[s]"),
        np.zeros(3, ml_dtypes.bfloat16),  # NumPy saves it as two nameless bytes
        np.array(3),
    ],
)
def test_arrays_other_than_series_of_numbers_are_rejected(tmp_path, array):
    message = r"(text|dtype) .* cannot be stored as a tensor$|'signal' is a single number$"
    for dtype in ("", "float32", "int64"):
        with pytest.raises(RejectError, match=message):
            read(tmp_path, "a.npy", npy(array), dtype=dtype)


@pytest.mark.parametrize(
    ("found", "wanted"),
    [
        ("int16", "float32"),
        ("float32", "complex64"),
        ("int64", "int8"),
    ],
)
def test_arrays_are_converted_to_a_dtype_that_can_hold_them(tmp_path, found, wanted):
    array = (np.arange(6) % 2).reshape(3, 2).astype(found)
    same(read(tmp_path, "a.npy", npy(array), dtype=wanted), signal=array.astype(wanted))


@pytest.mark.parametrize(
    ("found", "wanted"),
    [("float32", "int16"), ("complex64", "float32"), ("int16", "uint16"), ("float64", "bool")],
)
def test_arrays_are_not_converted_to_a_dtype_of_another_kind(tmp_path, found, wanted):
    with pytest.raises(RejectError, match=f"^{found} cannot be converted to {wanted}$"):
        read(tmp_path, "a.npy", npy(np.ones(3, found)), dtype=wanted)


@pytest.mark.parametrize(
    ("array", "wanted"),
    [
        (np.array([0, 300]), "int8"),
        (np.array([2**63], np.uint64), "int64"),
        (np.array([1e39]), "float32"),
        (np.array([1e30], np.float32), "float16"),
    ],
)
def test_values_out_of_the_range_of_the_dtype_are_rejected(tmp_path, array, wanted, recwarn):
    message = f"^a {array.dtype.name} value is out of the range of {wanted}$"
    with pytest.raises(RejectError, match=message):
        read(tmp_path, "a.npy", npy(array), dtype=wanted)
    assert not recwarn.list


def test_nan_and_infinities_may_be_converted(tmp_path):
    array = np.array([np.nan, np.inf, -np.inf, 0.1])
    found = read(tmp_path, "a.npy", npy(array), dtype="float32")
    same(found, signal=array.astype(np.float32)[:, None])


def test_a_csv_file_becomes_float32_unless_another_dtype_is_given(tmp_path):
    found = read(tmp_path, "a.csv", b"1700000000.1\n", dtype="float64")
    same(found, signal=np.array([[1700000000.1]]))
    same(read(tmp_path, "a.csv", b"0.1\n"), signal=np.array([[0.1]], np.float32))
    with pytest.raises(RejectError, match="a float64 value is out of the range of float32"):
        read(tmp_path, "a.csv", b"1e39\n")


# The schema.


def test_arrays_are_stored_in_the_encoding_and_dtype_that_are_asked_for(tmp_path):
    for encoding in ("tensor", "raw", "list"):
        found = job(tmp_path, "float32", encoding, a_npy=npy(np.ones((5, 3), np.int16)))
        assert found.schema["signal"] == Feature("float32", (None, 3), encoding)


def test_an_encoding_that_cannot_hold_the_dtype_is_refused_with_the_cure(tmp_path):
    with pytest.raises(UsageError) as caught:
        job(tmp_path, encoding="list", a_npy=npy(np.ones((5, 3))))
    assert caught.value.message.startswith("a.npy: float64 [None, 3], list: ")
    assert caught.value.message.endswith("another --encoding, or convert with --dtype")


@pytest.mark.parametrize("name", ["x/shape", "a\x01b", ""])
def test_names_that_no_feature_can_have_are_the_users_mistake(tmp_path, name):
    with pytest.raises(UsageError, match=r"a.npz: (feature|an array may not be called) ") as caught:
        job(tmp_path, a_npz=npz(x=np.ones(3), **{name: np.ones(3)}))
    assert "choose others with --arrays" in caught.value.message


def test_the_schema_is_that_of_the_first_file_that_can_be_read(tmp_path):
    found = job(
        tmp_path, a_npy=b"broken", b_npy=npy(np.ones((5, 3), np.int16)), c_npy=b"", d_txt=b"x"
    )
    assert found.example == "b.npy"
    assert found.schema == Schema({"signal": Feature("int16", (None, 3)), "key": Feature("string")})
    labelled = SensorJob(found.inputs, Labels("parent"), found.features)
    assert labelled.schema["label"] == Feature("int64")


def test_a_lower_rate_of_irregular_samples_is_warned_of(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("t,x\n" + "".join(f"{n / 100},{n * n}\n" for n in range(300)))
    for rate, warns in (("50Hz", True), ("100Hz", False), ("200Hz", False)):
        made = SensorJob(
            Inputs.of([str(path)]),
            Labels(),
            read_options=ReadOptions(time_column="t"),
            conditioning=SensorFlags(resample=rate).conditioning(),
        ).with_schema()
        assert ["frequencies above 25 Hz appear" in text for text in made.warnings] == [
            True
        ] * warns


def test_values_that_float32_makes_equal_are_warned_of(tmp_path):
    cases = {"1700000038912,1\n1700000038913,2\n": True, "16777216,1\n16777215,2\n": False}
    cases |= {"1e30,1\n2e30,2\n": False, "nan,1\ninf,2\n": False}
    for number, (rows, warns) in enumerate(cases.items()):
        (tmp_path / str(number)).mkdir()
        made = job(tmp_path / str(number), a_csv=f"stamp,x\n{rows}".encode())
        assert ["add --dtype float64" in text for text in made.warnings] == [True] * warns
        as_float64 = job(tmp_path / str(number), dtype="float64")
        assert as_float64.warnings == ()


def test_no_readable_file_is_the_users_mistake(tmp_path):
    with pytest.raises(
        UsageError, match=r"no recording among the first 2 files: a.npy: not a whole"
    ):
        job(tmp_path, a_npy=b"x", b_npy=b"y")
    (tmp_path / "b.npy").unlink()
    with pytest.raises(UsageError, match=r"a\.npy: not a whole") as caught:
        job(tmp_path)
    assert caught.value.message.startswith("a.npy: ")


# Records that fit the schema.


@pytest.mark.parametrize(
    ("misfit", "described"),
    [
        (npy(np.ones((5, 4), np.float32)), "signal float32 [None, 4]"),
        (npy(np.ones((5, 3))), "signal float64 [None, 3]"),
        (npy(np.ones((5, 3, 1), np.float32)), "signal float32 [None, 3, 1]"),
        (npy(np.ones(5, np.float32)), "signal float32 [None, 1]"),
    ],
)
def test_a_misfit_names_both_files_and_their_arrays(tmp_path, misfit, described):
    found = job(tmp_path, a_npy=npy(np.ones((5, 3), np.float32)), b_npy=misfit)
    with pytest.raises(UsageError) as caught:
        found.load(Source("b.npy"))
    assert caught.value.message.startswith(
        f"b.npy: {described}, but a.npy has signal float32 [None, 3]; "
    )
    cure = ", or convert with --dtype" if "float64" in described else ""
    assert caught.value.message.endswith(f"narrow --input{cure}")


def test_mono_beside_stereo_is_refused_with_the_flag_that_helps(tmp_path):
    for name, channels in (("a", 1), ("b", 2)):
        soundfile.write(tmp_path / f"{name}.wav", np.zeros((5, channels)), 8000)
    made = job(tmp_path)
    with pytest.raises(UsageError) as caught:
        made.load(Source("b.wav"))
    assert caught.value.message == (
        "b.wav: signal int16 [None, 2], but a.wav has signal int16 [None, 1]; records of one dataset "
        "must agree: narrow --input, or mix audio to one channel with --channels 1"
    )
    mixed = replace(made, read_options=ReadOptions(mono=True))
    assert mixed.load(Source("b.wav"))["signal"].shape == (5, 1)


def test_missing_and_additional_arrays_are_misfits(tmp_path):
    x = np.ones((2, 1))
    found = job(
        tmp_path, a_npz=npz(t=x, x=x), b_npz=npz(x=x, y=x), c_npz=npz(t=x, x=x, y=x), d_npz=npz(x=x)
    )
    for key, message in {
        "b.npz": "b.npz: no t, but a.npz has t float64 [None, 1]",
        "c.npz": "c.npz: y float64 [None, 1], but a.npz has no y",
        "d.npz": "d.npz: signal float64 [None, 1], but a.npz has no signal",
    }.items():
        with pytest.raises(UsageError) as caught:
            found.load(Source(key))
        assert message in caught.value.message


@pytest.mark.parametrize(
    ("flags", "keys", "size"),
    [
        ({"window": "20", "stride": "10"}, ["a.npy#1", "a.npy#2", "a.npy#3", "a.npy#4"], 240),
        ({"window": "20", "sequence": True}, ["a.npy"], 480),
        ({"window": "30", "last_window": "pad"}, ["a.npy#1", "a.npy#2"], 360),
        ({}, ["a.npy"], 600),
    ],
)
def test_parts_are_known_by_key_and_size_before_they_are_made(tmp_path, flags, keys, size):
    data = npy(np.ones((50, 3), np.float32))
    found = job(tmp_path, flags=flags, a_npy=data)
    parts = found.parts_of(Source("a.npy"), data)
    assert [key for key, _ in parts] == keys
    assert all(size <= about <= size + 200 for _, about in parts)
    assert [key for key, _ in found.records_of(Source("a.npy"), data)] == keys


def test_a_misfit_is_found_before_its_records_are_made(tmp_path):
    found = job(tmp_path, flags={"window": "20"}, a_npy=npy(np.ones((50, 3), np.float32)))
    with pytest.raises(
        UsageError, match=r"b.npy: signal float32 \[None, 2\], but a.npy has signal"
    ):
        found.parts_of(Source("b.npy"), npy(np.ones((50, 2), np.float32)))


def test_another_rate_is_a_misfit_unless_recordings_are_resampled(tmp_path):
    for name, rate in (("a", 16_000), ("b", 8000)):
        soundfile.write(tmp_path / f"{name}.wav", np.zeros(400), rate)
    with pytest.raises(UsageError) as caught:
        job(tmp_path).load(Source("b.wav"))
    assert caught.value.message == (
        "b.wav: 8000 Hz, but a.wav has 16000 Hz; records of one dataset must agree: narrow --input, or add "
        "--resample"
    )
    resampled = job(tmp_path, flags={"resample": "4kHz"})
    lengths = [len(resampled.load(Source(f"{name}.wav"))["signal"]) for name in "ab"]
    assert lengths == [100, 200]


def test_padded_windows_state_their_length(tmp_path):
    flags = {"window": "30", "last_window": "pad"}
    found = job(tmp_path, flags=flags, a_npy=npy(np.ones((50, 3), np.float32)))
    assert found.schema["length"] == Feature("int64")
