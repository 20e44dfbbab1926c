"""Recordings of Arrow, MATLAB, NetCDF, EDF and BDF, by writers that are independent where there are some."""

import io

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.feather
import pytest
import scipy.io
import scipy.sparse

from tests.support.arrays import assert_same
from tests.support.recordings import edf, limit_records, read, rejected

ACC = np.random.default_rng(0).normal(size=(50, 3))


# Arrow.


def feather(compression: str = "zstd", **columns) -> bytes:
    buffer = io.BytesIO()
    pyarrow.feather.write_feather(pa.table(columns), buffer, compression=compression)
    return buffer.getvalue()


@pytest.mark.parametrize("compression", ["zstd", "lz4", "uncompressed"])
@pytest.mark.parametrize("kind", ["feather", "arrow"])
def test_arrow_files_are_tables(compression, kind):
    data = feather(compression, t=np.arange(50), x=ACC[:, 0], s=["a"] * 50, y=[None, 2] * 25)
    found = read(kind, data, time_column="t", time_unit="ms")
    assert_same(found.arrays["signal"], np.stack([ACC[:, 0], [np.nan, 2] * 25], 1))
    assert_same(found.times, np.arange(50) / 1000)
    assert_same(read(kind, data, columns=("t",)).arrays["signal"], np.arange(50)[:, None])
    assert rejected(kind, data[:-1]).startswith(f"not a whole .{kind} file: ")


def test_rows_of_an_arrow_file_are_counted_before_they_are_unpacked(monkeypatch):
    data = feather(x=np.zeros(100_000))
    limit_records(monkeypatch, 10_000)
    before = pa.total_allocated_bytes()
    assert rejected("feather", data).startswith("it unpacks to 800000 bytes, more than")
    assert pa.total_allocated_bytes() < before + 10_000


# MATLAB.


def mat(compressed: bool = True, **arrays) -> bytes:
    buffer = io.BytesIO()
    scipy.io.savemat(buffer, arrays, do_compression=compressed)
    return buffer.getvalue()


def mat73(**arrays) -> bytes:
    """As MATLAB writes it: HDF5 behind a header of 512 bytes, with transposed arrays."""
    buffer = io.BytesIO()
    with h5py.File(buffer, "w", userblock_size=512) as file:
        for name, array in arrays.items():
            file[name] = np.atleast_2d(array).T
            kind = {"b": "logical", "f": "double", "u": "uint8"}[np.asarray(array).dtype.kind]
            file[name].attrs["MATLAB_class"] = np.bytes_(kind)
        file["#refs#/a"] = np.zeros((5, 5))
        file["name"] = np.array([[112], [48]], np.uint16)
        file["name"].attrs["MATLAB_class"] = np.bytes_("char")
    return b"MATLAB 7.3 MAT-file".ljust(512) + buffer.getvalue()[512:]


@pytest.mark.parametrize("write", [mat, mat73])
def test_mat_files_hold_their_arrays_of_numbers(write):
    small = np.arange(12.0).reshape(4, 3)  # which MATLAB stores in bytes
    rows = np.array([[1, 2, 3]], np.uint8)
    data = write(acc=small, row=rows, fs=np.array([[100.0]]), on=np.array([[True], [False]]))
    found = read("mat", data).arrays
    assert sorted(found) == ["acc", "on", "row"]
    assert_same(found["acc"], small)
    assert_same(found["row"], rows[0])
    assert_same(found["on"], np.array([[True], [False]]))
    assert list(read("mat", data, arrays=("acc",)).arrays) == ["signal"]
    assert_same(read("mat", data, arrays=("fs",)).arrays["signal"], np.array([100.0]))
    assert rejected("mat", data[: len(data) // 2]).startswith("not a whole .mat file: ")


@pytest.mark.parametrize("compressed", [False, True])
def test_only_numbers_of_a_mat_file_are_read(compressed):
    others = {"s": "text", "c": np.array([1, "a"], object), "d": {"x": ACC}}
    data = mat(compressed, z=ACC * 1j, sparse=scipy.sparse.csc_matrix(ACC), **others)
    assert_same(read("mat", data).arrays["signal"], ACC * 1j)
    assert rejected("mat", data, arrays=("d",)) == "no array 'd': the file has z"
    assert rejected("mat", mat(compressed, **others)) == "it has no array of numbers"


def test_a_mat_file_that_unpacks_to_too_much_is_rejected(monkeypatch):
    data = mat(x=np.zeros(100_000))
    assert len(data) < 2000
    limit_records(monkeypatch, 10_000)
    assert rejected("mat", data).startswith("it unpacks to 800000 bytes, more than")


# NetCDF.


def classic(version: int = 1) -> bytes:
    buffer = io.BytesIO()
    file = scipy.io.netcdf_file(buffer, "w", version=version)
    file.createDimension("time", None)
    file.createDimension("axis", 3)
    file.createVariable("time", "d", ("time",))[:] = np.arange(4)
    packed = file.createVariable("acc", "h", ("time", "axis"))
    packed[:] = np.arange(12).reshape(4, 3)
    packed.scale_factor, packed.add_offset, packed._FillValue = 0.5, 1.0, np.int16(11)
    file.createVariable("n", "i", ("time",))[:] = np.arange(4)
    file.flush()
    return buffer.getvalue()


def hierarchical() -> bytes:
    buffer = io.BytesIO()
    with h5py.File(buffer, "w") as file:
        file["time"], file["axis"] = np.arange(4.0), np.zeros(3)
        file["acc"] = np.arange(12, dtype=np.int16).reshape(4, 3)
        file["n"] = np.arange(4, dtype=np.int32)
        for name in ("time", "axis"):
            file[name].make_scale(name)
        stated = {"scale_factor": 0.5, "add_offset": 1.0, "_FillValue": np.int16([11])}
        file["acc"].attrs.update(stated)
        file["scalar"] = 3.0
    return buffer.getvalue()


@pytest.mark.parametrize("data", [classic(1), classic(2), hierarchical()])
def test_variables_of_netcdf_are_unpacked_and_coordinates_left_out(data):
    found = read("nc", data).arrays
    expected = np.arange(12).reshape(4, 3) * 0.5 + 1
    expected[3, 2] = np.nan
    assert sorted(found) == ["acc", "n"]
    assert_same(found["acc"], expected)
    assert_same(found["n"], np.arange(4, dtype=np.int32))
    assert_same(read("nc", data, arrays=("time",)).arrays["signal"], np.arange(4.0))
    assert rejected("nc", data, arrays=("x",)).startswith("no array 'x': the file has ")
    assert rejected("nc", data[: len(data) // 2]).startswith("not a whole .nc file: ")
    assert "CDF-5" in rejected("nc", b"CDF\x05" + data[4:])


# EDF and BDF.


@pytest.mark.parametrize(("kind", "bits"), [("edf", 16), ("bdf", 24)])
def test_signals_of_edf_are_channels_in_physical_units(kind, bits):
    data, expected = edf(bits)
    found = read(kind, data)
    np.testing.assert_allclose(found.arrays["signal"], np.stack(expected, 1), rtol=1e-9, atol=1e-9)
    assert (found.rate, found.times, found.dtype) == (4, None, "float32")
    only = read(kind, data, columns=("EEG 1",)).arrays["signal"]
    np.testing.assert_allclose(only[:, 0], expected[1], rtol=1e-9, atol=1e-9)
    for cut in (1, len(data) // 2, len(data) - 10):
        assert rejected(kind, data[:-cut]).startswith(f"not a whole .{kind} file: ")


def test_signals_of_several_rates_and_interrupted_recordings_are_rejected():
    data, expected = edf(rates=(4, 2))
    assert rejected("edf", data) == (
        "its signals differ in their rates: EEG 0 4 Hz, EEG 1 2 Hz; choose signals of one rate "
        "with --columns"
    )
    found = read("edf", data, columns=("EEG 1",))
    np.testing.assert_allclose(found.arrays["signal"][:, 0], expected[1], rtol=1e-9, atol=1e-9)
    assert found.rate == 2
    assert "was interrupted" in rejected("edf", edf(kind="EDF+D")[0])
    assert "drop --time_column" in rejected("edf", edf()[0], time_column="t")
    assert len(read("edf", edf(kind="EDF+C")[0]).arrays["signal"]) == 12


# Labels and metadata inside the files.


def test_columns_inside_a_file_are_read_beside_its_arrays():
    labels = np.arange(4, dtype=np.int32)
    found = {
        "mat": (mat(X=np.ones((4, 3)), n=labels, fs=50.0), "fs"),
        "nc": (classic(), ""),
        "feather": (feather(x=np.ones(4), n=labels), ""),
        "jsonl": (b"\n".join(b'{"x":1,"n":%d}' % n for n in labels), ""),
        "csv": (b"x,n\n" + b"".join(b"1,%d\n" % n for n in labels), ""),
    }
    for kind, (data, single) in found.items():
        inside = ("n", *filter(None, [single]))
        recording = read(kind, data, own_columns=inside, metadata_columns=inside)
        assert "n" not in recording.arrays
        assert [int(value) for value in recording.columns["n"].of_rows()] == [0, 1, 2, 3]
        assert recording.metadata == ({"fs": 50.0} if single else {})
        assert rejected(kind, data, own_columns=("what",)).count("'what'") == 1
