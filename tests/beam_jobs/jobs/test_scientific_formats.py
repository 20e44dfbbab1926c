"""Recordings of Arrow, MATLAB, NetCDF, EDF and BDF, by writers that are independent where there are some."""

import io

import h5py
import netCDF4
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
        file["#refs#/a"] = np.zeros((5, 5))
        for name, value in arrays.items():
            _write73(file, name, value)
        _write73(file, "when", np.array([[0xDD000000, 2, 1, 1, 1, 1]], np.uint32), "datetime")
        file["when"].attrs["MATLAB_object_decode"] = np.int32(3)
    return b"MATLAB 7.3 MAT-file".ljust(512) + buffer.getvalue()[512:]


def _write73(group, name: str, value, kind: str = "") -> None:
    if isinstance(value, dict):
        for inner, each in value.items():
            _write73(group.require_group(name), inner, each)
        return
    if scipy.sparse.issparse(value):
        value = value.tocsc()
        for part, array in (("data", value.data), ("ir", value.indices), ("jc", value.indptr)):
            group[f"{name}/{part}"] = array
        group[name].attrs["MATLAB_sparse"] = np.uint64(value.shape[0])
        return
    if isinstance(value, str):
        kind, value = "char", np.array([list(map(ord, value))], np.uint16)
    array = np.atleast_2d(value)
    if array.dtype == object:
        array, kind = np.full(array.shape, group.file["#refs#/a"].ref, h5py.ref_dtype), "cell"
    kinds = {"b": "logical", "f": "double", "u": "uint8", "c": "double", "O": "cell"}
    kind = kind or kinds[array.dtype.kind]
    if array.dtype.kind == "c":
        array = np.ascontiguousarray(array).view([("real", "f8"), ("imag", "f8")])
    group[name] = array.T if array.size else np.array(array.shape, np.uint64)
    group[name].attrs["MATLAB_class"] = np.bytes_(kind)
    if not array.size:
        group[name].attrs["MATLAB_empty"] = np.uint8(1)


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


@pytest.mark.parametrize("write", [mat, mat73, lambda **arrays: mat(False, **arrays)])
def test_only_numbers_of_a_mat_file_are_read_and_the_others_named(write):
    others = {
        "c": np.array([[ACC, "a"]], object),
        "e": np.zeros((0, 3)),
        "fs": 3.0,
        "name": "walk",
        "p": scipy.sparse.csc_matrix(ACC),
    }
    fields = {"x": np.arange(12.0).reshape(4, 3), "z": ACC * 1j}
    data = write(**others, s={"in": fields})
    found = read("mat", data, own_columns=("name",), metadata_columns=("name",))
    assert sorted(found.arrays) == ["s/in/x", "s/in/z"]
    for name, values in fields.items():
        assert_same(found.arrays[f"s/in/{name}"], values)
    assert found.metadata == {"name": "walk"}
    (note,) = found.notes
    for listed in ("c (cell)", "e (empty)", "fs (single number)"):
        assert listed in note
    assert "sparse" in note and ("when (datetime)" in note) == (b"MATLAB 7.3" in data)
    assert_same(read("mat", data, arrays=("s/in/x",)).arrays["signal"], fields["x"])
    assert rejected("mat", data, arrays=("c",)).startswith("array 'c' is cell ")
    found = rejected("mat", write(**others)).replace(
        "name (text), p (sparse)", "p (sparse), name (text)"
    )
    assert found.startswith(
        "it has no array of numbers, only c (cell), e (empty), fs (single number)"
    )


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
    packed.units = "m/s2"
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
        stated = {"scale_factor": np.float32(0.5), "add_offset": np.float32(1)}
        file["acc"].attrs.update(stated, _FillValue=np.int16([11]), units="m/s2")
        file["scalar"] = 3.0
    return buffer.getvalue()


@pytest.mark.parametrize("data", [classic(1), classic(2), hierarchical()])
def test_variables_of_netcdf_are_unpacked_and_coordinates_left_out(data):
    found = read("nc", data)
    expected = np.arange(12, dtype=np.float32).reshape(4, 3) * 0.5 + 1
    expected[3, 2] = np.nan
    assert sorted(found.arrays) == ["acc", "n"]
    assert_same(found.arrays["acc"], expected)
    assert_same(found.arrays["n"], np.arange(4, dtype=np.int32))
    assert found.units == {"acc": ("m/s2",) * 3}
    assert "time (coordinate)" in found.notes[0]
    assert_same(read("nc", data, arrays=("time",)).arrays["signal"], np.arange(4.0))
    assert rejected("nc", data, arrays=("x",)).startswith("no array 'x': the file has ")


@pytest.mark.parametrize("data", [classic(1), classic(2), hierarchical()])
def test_a_netcdf_file_that_is_cut_is_rejected(data):
    for cut in (1, 5, 30, 70, len(data) // 2, len(data) - 20):
        assert rejected("nc", data[:-cut]).startswith("not a whole .nc file: ")


def nc(kind: str, values, **attributes) -> bytes:
    """A variable `a` as stored; `kind` is the name of a format of netCDF4."""
    file = netCDF4.Dataset("memory", "w", memory=1, format=kind)
    file.createDimension("t", len(values))
    fill = attributes.get("_FillValue")
    variable = file.createVariable("a", values.dtype, ("t",), fill_value=fill)
    variable.set_auto_maskandscale(False)
    variable.setncatts({name: each for name, each in attributes.items() if name != "_FillValue"})
    variable[:] = values
    return bytes(file.close())


BYTES, SHORTS = np.array([0, 127, -128, -1], "i1"), np.array([0, 1, -2, -3], "i2")
FLOATS = np.array([1, 1e20, -5, 3], "f4")
NAN = np.nan


@pytest.mark.parametrize("kind", ["NETCDF3_CLASSIC", "NETCDF4"])
@pytest.mark.parametrize(
    ("values", "attributes", "expected"),
    [
        (BYTES, {"_Unsigned": "true"}, np.array([0, 127, 128, 255], "u1")),
        (BYTES, {"_Unsigned": "true", "_FillValue": np.int8(-1)}, [0, 127, 128, NAN]),
        (BYTES, {"_FillValue": np.int8(-1)}, [0, 127, -128, NAN]),
        (SHORTS, {"_Unsigned": "true", "scale_factor": 0.5}, [0, 0.5, 32767, 32766.5]),
        (SHORTS, {"missing_value": SHORTS[2:]}, [0, 1, NAN, NAN]),
        (SHORTS, {"valid_range": SHORTS[:2]}, [0, 1, NAN, NAN]),
        (SHORTS, {"valid_min": SHORTS[2]}, [0, 1, -2, NAN]),
        (FLOATS, {"missing_value": 1e20}, np.array([1, NAN, -5, 3], "f4")),
        (SHORTS, {"missing_value": 1e20}, [0.0, 1, -2, -3]),
        (np.array([1, 9.969209968386869e36], "f4"), {}, np.array([1, NAN], "f4")),
        (SHORTS, {"scale_factor": 0.5, "add_offset": 1.0}, [1, 1.5, 0, -0.5]),
        (SHORTS, {}, SHORTS),
    ],
)
def test_attributes_of_netcdf_state_what_values_mean(kind, values, attributes, expected):
    assert_same(read("nc", nc(kind, values, **attributes)).arrays["signal"], expected)


def test_integers_of_netcdf_are_kept_unless_some_are_missing():
    values = np.array([1, 255], "u1")
    for kind in ("NETCDF4", "NETCDF3_64BIT_DATA"):  # a value of a byte is never unwritten
        assert_same(read("nc", nc(kind, values)).arrays["signal"], values)
    unwritten = np.array([1, -32767], "i2")
    assert_same(read("nc", nc("NETCDF4", unwritten)).arrays["signal"], np.array([1, np.nan]))
    large = nc("NETCDF4", np.array([2**60 + 1, -1]), _FillValue=np.int64(-1))
    assert "integers that float64 does not hold" in rejected("nc", large)


def test_groups_of_netcdf_are_read_and_other_files_never(tmp_path):
    file = netCDF4.Dataset("memory", "w", memory=1)
    file.createDimension("t", None)
    file.createVariable("g/x", "f4", ("t",))[:] = [1, 2]
    file["g"].createVariable("y", "i2", ("t",))
    file.createVariable("name", str, ())[...] = "walk"
    file.createVariable("r", file.createVLType(np.int32, "ragged"), ("t",))
    data = bytes(file.close())
    found = read("nc", data, own_columns=("name",))
    assert_same(found.arrays["g/x"], np.array([1, 2], "f4"))
    assert len(found.arrays["g/y"]) == 2
    assert found.metadata == {"name": "walk"}
    assert found.notes[0] == "not read: r (ragged); choose arrays with --arrays"
    other = tmp_path / "other.nc"
    other.write_bytes(data)
    buffer = io.BytesIO(data)
    with h5py.File(buffer, "a") as file:
        file["#g/far"] = h5py.ExternalLink(str(other), "/g")
    expected = "it has an array in another file, which is never opened"
    assert rejected("nc", buffer.getvalue(), arrays=("g/x",)) == expected


# EDF and BDF.


@pytest.mark.parametrize(("kind", "bits"), [("edf", 16), ("bdf", 24)])
def test_signals_of_edf_are_channels_in_physical_units(kind, bits):
    data, expected = edf(bits)
    found = read(kind, data)
    np.testing.assert_allclose(found.arrays["signal"], np.stack(expected, 1), rtol=1e-9, atol=1e-9)
    assert (found.rate, found.times, found.dtype) == (4, None, "float32")
    assert found.channels == {"signal": ("EEG 0", "EEG 1")}
    assert (found.units, found.notes) == ({"signal": ("uV", "uV")}, ())
    only = read(kind, data, columns=("EEG 1",)).arrays["signal"]
    np.testing.assert_allclose(only[:, 0], expected[1], rtol=1e-9, atol=1e-9)
    for cut in (1, len(data) // 2, len(data) - 10):
        assert rejected(kind, data[:-cut]).startswith(f"not a whole .{kind} file: ")


def test_signals_of_several_rates_and_interrupted_recordings_are_rejected():
    data, expected = edf(rates=(4, 2))
    assert rejected("edf", data) == (
        "its signals differ in their rates: EEG 0 4 Hz, EEG 1 2 Hz; choose with --columns"
    )
    found = read("edf", data, columns=("EEG 1",))
    np.testing.assert_allclose(found.arrays["signal"][:, 0], expected[1], rtol=1e-9, atol=1e-9)
    assert found.rate == 2
    assert "was interrupted" in rejected("edf", edf(kind="EDF+D")[0])
    assert "drop --time_column" in rejected("edf", edf()[0], time_column="t")
    assert len(read("edf", edf(kind="EDF+C")[0]).arrays["signal"]) == 12


@pytest.mark.parametrize(
    ("fields", "scale", "note"),
    [
        ({"low": "-100,5", "high": "100,5"}, 1.005, "decimal commas"),
        ({"low": "-100\0\0", "high": "100"}, 1, ""),
        ({"low": 100, "high": -100}, -1, ""),
        ({"stated": -1}, 1, "was cut off (-1 data records): read to its end"),
        ({"times": (b"+0\x14\x14\0+0.5\x14blink\x14\0", b"", b"")}, 1, "not read: annotations"),
        ({"seconds": "1,0"}, 1, "decimal commas"),
    ],
)
def test_unusual_headers_of_edf(fields, scale, note):
    data, expected = edf(**fields)
    found = read("edf", data)
    np.testing.assert_allclose(
        found.arrays["signal"], np.stack(expected, 1) * scale, rtol=1e-9, atol=1e-9
    )
    assert found.rate == 4
    assert note in "; ".join(found.notes) and len(found.notes) == bool(note)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"low": 0, "high": 0}, "signal 'EEG 0' has an empty range"),
        ({"low": "none"}, "not a whole .edf file: could not convert string to float: 'none'"),
        ({"seconds": 0}, "its data records last 0 s, so its signals have no rate"),
        (
            {"rates": (), "times": (b"+0\x14\x14\0",) * 3},
            "none of its columns (it has none) is a channel",
        ),
        ({"blocks": 0, "stated": 0}, "the recording has no samples"),
    ],
)
def test_edf_files_without_units_rates_or_samples_are_rejected(fields, message):
    assert rejected("edf", edf(**fields)[0]).startswith(message)


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
