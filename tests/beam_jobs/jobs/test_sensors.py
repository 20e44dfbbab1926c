import io
import pickle
import struct
import zipfile
from pathlib import Path

import hypothesis.extra.numpy as hnp
import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from beam_jobs.errors import RejectError, UsageError
from beam_jobs.jobs.sensors.arrays import _npy_header, parse_npy
from beam_jobs.jobs.sensors.conditioning import Conditioning
from beam_jobs.jobs.sensors.job import SensorJob
from beam_jobs.jobs.sensors.recording import Reading
from beam_jobs.sources.inputs import Inputs
from beam_jobs.sources.labels import Labels
from beam_jobs.sources.source import Source
from readers.format.schema import TENSORFLOW_DTYPES, Feature, Schema

DTYPES = sorted(set(TENSORFLOW_DTYPES) - {"string", "bfloat16"})


def npy(array, **options) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array, **options)
    return buffer.getvalue()


def npz(compressed: bool = False, **arrays) -> bytes:
    buffer = io.BytesIO()
    (np.savez_compressed if compressed else np.savez)(buffer, **arrays)
    return buffer.getvalue()


def read(tmp_path: Path, name: str, data: bytes, arrays=(), dtype="") -> dict[str, np.ndarray]:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_bytes(data)
    job = SensorJob(Inputs((), str(tmp_path)), Labels(), reading=Reading(arrays), dtype=dtype)
    return job.read(Source(name))


def job(tmp_path: Path, arrays=(), dtype="", **files: bytes) -> SensorJob:
    """The job of files `name_suffix=data`."""
    for name, data in files.items():
        (tmp_path / name.replace("_", ".")).write_bytes(data)
    inputs = Inputs.of([f"{tmp_path}/*"])
    return SensorJob(inputs, Labels(), reading=Reading(arrays), dtype=dtype).learned()


def same(found: dict[str, np.ndarray], **expected) -> None:
    assert sorted(found) == sorted(expected)
    for name, array in expected.items():
        assert found[name].dtype.name == array.dtype.name
        np.testing.assert_array_equal(found[name], array)


@pytest.mark.parametrize("name", DTYPES)
@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("layout", ["C", "F"])
def test_npy_files_of_every_dtype_byte_order_and_layout_are_read(tmp_path, name, order, layout):
    values = np.arange(24).reshape(4, 3, 2) % 2
    stored = values.astype(np.dtype(name).newbyteorder(order), order=layout)
    same(read(tmp_path, "a.npy", npy(stored)), signal=values.astype(name))


def test_a_series_of_numbers_becomes_one_channel(tmp_path):
    same(read(tmp_path, "a.NPY", npy(np.arange(5.0))), signal=np.arange(5.0)[:, None])


@pytest.mark.parametrize("shape", [(0,), (0, 3), (5, 0), (1, 1), (2, 3, 4, 5)])
def test_recordings_of_any_rank_and_length_are_read(tmp_path, shape):
    found = read(tmp_path, "a.npy", npy(np.zeros(shape, np.float32)))["signal"]
    assert found.shape == (shape if len(shape) > 1 else (*shape, 1))


@pytest.mark.parametrize("compressed", [False, True])
def test_the_only_array_of_an_archive_is_the_signal_whatever_its_name(tmp_path, compressed):
    array = np.arange(6, dtype=np.int16).reshape(3, 2)
    same(read(tmp_path, "a.npz", npz(compressed, label=array)), signal=array)


@pytest.mark.parametrize("compressed", [False, True])
def test_several_arrays_keep_their_names(tmp_path, compressed):
    t, xyz = np.arange(4.0), np.ones((4, 3), np.float32)
    same(read(tmp_path, "a.npz", npz(compressed, t=t, xyz=xyz)), t=t[:, None], xyz=xyz)


def test_arrays_are_chosen_by_name(tmp_path):
    t, xyz, label = np.arange(4.0), np.ones((4, 3)), np.array(3)
    data = npz(t=t, xyz=xyz, label=label)
    same(read(tmp_path, "a.npz", data, ("xyz",)), signal=xyz)
    same(read(tmp_path, "a.npz", data, ("xyz", "t")), t=t[:, None], xyz=xyz)
    with pytest.raises(RejectError, match="no array 'gyro': the file has t, xyz, label"):
        read(tmp_path, "a.npz", data, ("t", "gyro"))


@pytest.mark.parametrize("name", ["key", "label"])
def test_names_of_other_features_are_refused(tmp_path, name):
    data = npz(x=np.ones(3), **{name: np.ones(3)})
    with pytest.raises(RejectError, match=f"may not be called '{name}': choose with --arrays"):
        read(tmp_path, "a.npz", data)


def of_encoding(tmp_path, encoding, array):
    (tmp_path / "a.npy").write_bytes(npy(array))
    inputs = Inputs.of([str(tmp_path / "a.npy")])
    return SensorJob(inputs, Labels(), encoding=encoding).learned()


def test_recordings_are_stored_in_the_encoding_that_is_asked_for(tmp_path):
    for encoding in ("tensor", "raw", "list"):
        schema = of_encoding(tmp_path, encoding, np.ones((5, 3), np.float32)).schema
        assert schema["signal"] == Feature("float32", (None, 3), encoding)


def test_an_encoding_that_cannot_hold_the_dtype_is_refused_with_the_cure(tmp_path):
    with pytest.raises(UsageError) as caught:
        of_encoding(tmp_path, "list", np.ones((5, 3)))
    assert caught.value.message.startswith("a.npy: float64 [None, 3], list: ")
    assert caught.value.message.endswith("another --encoding, or convert with --dtype")


@pytest.mark.parametrize("name", ["x/shape", "a\x01b", ""])
def test_names_that_no_feature_can_have_are_the_users_mistake(tmp_path, name):
    with pytest.raises(UsageError, match=r"a.npz: feature ") as caught:
        job(tmp_path, a_npz=npz(x=np.ones(3), **{name: np.ones(3)}))
    assert "choose others with --arrays" in caught.value.message


def test_an_archive_without_arrays_is_rejected(tmp_path):
    with pytest.raises(RejectError, match="the archive holds no array"):
        read(tmp_path, "a.npz", npz())


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("bom", ["", "\ufeff"])
@pytest.mark.parametrize("header", ["", "x,y\n", '"time, s",y\n'])
def test_csv_rows_are_times_and_columns_are_channels(tmp_path, end, bom, header):
    text = (bom + header + "1,2\n\n-3.5,1e3\n nan , inf\n").replace("\n", end)
    expected = np.array([[1, 2], [-3.5, 1000], [np.nan, np.inf]], np.float32)
    same(read(tmp_path, "a.csv", text.encode()), signal=expected)


def test_a_csv_file_without_a_final_newline_is_whole(tmp_path):
    same(read(tmp_path, "a.csv", b"1\n2"), signal=np.array([[1], [2]], np.float32))


def test_an_empty_cell_of_a_csv_file_is_no_number(tmp_path):
    expected = np.array([[1, 2], [3, np.nan]], np.float32)
    same(read(tmp_path, "a.csv", b"1,2\n3,\n"), signal=expected)


def test_a_csv_file_of_a_header_alone_is_an_empty_recording(tmp_path):
    assert read(tmp_path, "a.csv", b"x,y,z\n")["signal"].shape == (0, 3)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"", "the file is empty"),
        (b"\n\n", "the file is empty"),
        (b"1,2\n3\n", "row 2 has 1 values, not 2"),
        (b"x,y\n1,2\n3,4,5\n", "row 2 has 3 values, not 2"),
        (b"1,2\n3,x\n", "not a whole .csv file"),
        (b"\xff\xfe1\0", "not a whole .csv file"),
        (b"1\n" + b"x" * 200_000, "not a whole .csv file"),
    ],
)
def test_a_csv_file_that_is_no_table_of_numbers_is_rejected(tmp_path, text, message):
    with pytest.raises(RejectError) as caught:
        read(tmp_path, "a.csv", text)
    assert message in str(caught.value)


class Malicious:
    """Unpickling it makes a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


@pytest.mark.parametrize("kind", ["npy", "npz"])
def test_pickled_objects_are_refused_and_never_run(tmp_path, kind):
    trap = tmp_path / "ran"
    array = np.array([Malicious(trap)], object)
    data = npy(array, allow_pickle=True) if kind == "npy" else npz(x=array)
    trap.unlink(missing_ok=True)
    with pytest.raises(RejectError, match="pickled objects, which are never loaded"):
        read(tmp_path, f"a.{kind}", data)
    assert not trap.exists()
    # The trap works: whoever loads it with pickle is caught.
    stream = io.BytesIO(data)
    loaded = np.load(stream, allow_pickle=True)
    if kind == "npz":
        loaded["x"]
    assert trap.exists()


@pytest.mark.parametrize("kind", ["npy", "npz", "csv"])
def test_a_bare_pickle_is_refused_and_never_run(tmp_path, kind):
    trap = tmp_path / "ran"
    data = pickle.dumps(Malicious(trap))
    with pytest.raises(RejectError):
        read(tmp_path, f"a.{kind}", data)
    assert not trap.exists()
    pickle.loads(data)
    assert trap.exists()


def claimed_shape(shape: tuple[int, ...]) -> bytes:
    """The head of an `.npy` file of some shape with nothing behind it."""
    text = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}".encode()
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"garbage",
        b"\x93NUMPY",
        b"\x93NUMPY\x09\x00",
        b"\x93NUMPY\x01\x00\xff\xff{",
        npy(np.arange(100.0))[:-1],
        npy(np.arange(100.0))[:90],
        claimed_shape((10**6, 10**12)),
        claimed_shape((10**30,)),
        claimed_shape((-1,)),
    ],
)
def test_a_file_that_is_no_whole_npy_is_rejected(tmp_path, data):
    with pytest.raises(RejectError, match=r"not a whole .npy file"):
        read(tmp_path, "a.npy", data)


@pytest.mark.parametrize("keep", [0, 10, 200, -1, -30])
def test_a_truncated_archive_is_rejected(tmp_path, keep):
    with pytest.raises(RejectError, match=r"not a whole .npz file"):
        read(tmp_path, "a.npz", npz(x=np.arange(100.0))[:keep])


def test_a_damaged_compressed_archive_is_rejected(tmp_path):
    data = bytearray(npz(True, x=np.random.default_rng(0).random(500)))
    data[300:320] = bytes(20)
    with pytest.raises(RejectError, match=r"not a whole .npz file"):
        read(tmp_path, "a.npz", bytes(data))


def test_an_archive_that_needs_a_password_is_rejected(tmp_path):
    data = bytearray(npz(x=np.arange(3.0)))
    # Bit 0 of the flags, in the local header and in the central directory.
    data[6] |= 1
    data[data.index(b"PK\x01\x02") + 8] |= 1
    with pytest.raises(RejectError, match=r"not a whole .npz file"):
        read(tmp_path, "a.npz", bytes(data))


@given(st.sampled_from(["npy", "npz", "csv"]), st.booleans(), st.data())
@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
@pytest.mark.filterwarnings("ignore")
def test_a_damaged_file_is_rejected_or_read_and_nothing_else(tmp_path, kind, compressed, data):
    array = np.arange(60.0).reshape(20, 3)
    whole = {
        "npy": npy(array),
        "npz": npz(compressed, x=array, y=array),
        "csv": b"a,b,c\n" + b"".join(b"1,2,%d\n" % i for i in range(30)),
    }[kind]
    damaged = bytearray(whole)
    for _ in range(data.draw(st.integers(1, 4))):
        # The heads of formats are where the traps are.
        position = data.draw(
            st.one_of(
                st.integers(0, len(whole) - 1),
                st.integers(0, min(150, len(whole) - 1)),
                st.integers(max(0, len(whole) - 150), len(whole) - 1),
            )
        )
        damaged[position] = data.draw(st.integers(0, 255))
    try:
        found = read(tmp_path, f"a.{kind}", bytes(damaged))
    except RejectError:
        return
    assert all(a.dtype.name in TENSORFLOW_DTYPES and a.ndim >= 2 for a in found.values())


def claim_size(archive: bytes, size: int) -> bytes:
    """An archive whose directory claims that its first member unpacks to `size` bytes."""
    data = bytearray(archive)
    directory = data.index(b"PK\x01\x02")
    data[directory + 24 : directory + 28] = struct.pack("<I", size)
    return bytes(data)


def test_an_archive_that_claims_a_huge_size_is_rejected_unread(tmp_path):
    data = claim_size(npz(x=np.arange(3.0)), 2**32 - 2)
    with pytest.raises(RejectError, match="unpacks to 4294967294 bytes, more than a record"):
        read(tmp_path, "a.npz", data)


def test_an_archive_that_claims_less_than_it_holds_is_rejected(tmp_path):
    with pytest.raises(RejectError, match=r"not a whole .npz file"):
        read(tmp_path, "a.npz", claim_size(npz(True, x=np.zeros(10**6)), 200))


def test_only_arrays_of_an_archive_are_read(tmp_path):
    buffer = io.BytesIO(npz(x=np.ones(2)))
    with zipfile.ZipFile(buffer, "a") as archive:
        archive.writestr("readme.txt", "hello")
    same(read(tmp_path, "a.npz", buffer.getvalue()), signal=np.ones((2, 1)))


def test_a_single_number_is_no_recording(tmp_path):
    with pytest.raises(RejectError, match="a single number is not a recording"):
        read(tmp_path, "a.npy", npy(np.float32(3)))


@pytest.mark.parametrize(
    "array",
    [
        np.zeros(3, [("t", "f4"), ("x", "f4")]),
        np.zeros(3, [("t", "f4")]),
        np.array(["a", "b"]),
        np.array([b"a", b"b"]),
        np.zeros(3, "M8[s]"),
        np.zeros(3, "m8[s]"),
        np.zeros(3, ml_dtypes.bfloat16),  # NumPy saves it as two nameless bytes
    ],
)
@pytest.mark.parametrize("dtype", ["", "float32", "int64"])
def test_what_is_no_number_is_rejected(tmp_path, array, dtype):
    with pytest.raises(RejectError, match=r"dtype .* is none that a tensor can have|without harm"):
        read(tmp_path, "a.npy", npy(array), dtype=dtype)


@pytest.mark.parametrize(
    ("found", "wanted"),
    [
        ("int16", "float32"),
        ("uint8", "int64"),
        ("bool", "float32"),
        ("float64", "float32"),
        ("float32", "float64"),
        ("int64", "float16"),
        ("float32", "complex64"),
        ("uint32", "int64"),
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
def test_conversions_that_lose_what_a_number_means_are_rejected(tmp_path, found, wanted):
    with pytest.raises(RejectError, match=f"{found} cannot become {wanted} without harm"):
        read(tmp_path, "a.npy", npy(np.ones(3, found)), dtype=wanted)


@pytest.mark.parametrize(
    ("array", "wanted"),
    [
        (np.array([0, 300]), "int8"),
        (np.array([-(2**40)]), "int32"),
        (np.array([2**63], np.uint64), "int64"),
        (np.array([256], np.uint16), "uint8"),
        (np.array([1e39]), "float32"),
        (np.array([70_000]), "float16"),
        (np.array([1e30], np.float32), "float16"),
    ],
)
def test_values_beyond_the_range_of_the_dtype_are_rejected(tmp_path, array, wanted, recwarn):
    with pytest.raises(RejectError, match=f"cannot become {wanted} without harm"):
        read(tmp_path, "a.npy", npy(array), dtype=wanted)
    assert not recwarn.list


def test_nan_and_infinities_may_be_converted(tmp_path):
    array = np.array([np.nan, np.inf, -np.inf, 0.1])
    found = read(tmp_path, "a.npy", npy(array), dtype="float32")
    same(found, signal=array.astype(np.float32)[:, None])


def test_a_csv_file_may_be_read_with_all_its_digits(tmp_path):
    found = read(tmp_path, "a.csv", b"1700000000.1\n", dtype="float64")
    same(found, signal=np.array([[1700000000.1]]))


def test_numbers_of_a_csv_file_beyond_float32_are_rejected(tmp_path):
    with pytest.raises(RejectError, match="float64 cannot become float32 without harm"):
        read(tmp_path, "a.csv", b"1e39\n")


@pytest.mark.parametrize("name", ["a.txt", "a.npy.gz", "a", "walk/rec1", "a.mat"])
def test_other_kinds_of_files_are_rejected(tmp_path, name):
    kinds = r"\.npy, \.npz, \.csv, \.wav, \.flac, \.parquet, \.h5, \.hdf5"
    with pytest.raises(
        RejectError, match=rf"expected a file of one of the kinds {kinds}, by its name"
    ):
        read(tmp_path, name, b"x")


def test_a_missing_file_is_rejected(tmp_path):
    with pytest.raises(RejectError, match="cannot be read"):
        SensorJob(Inputs((), str(tmp_path)), Labels()).read(Source("none.npy"))


def test_the_schema_is_that_of_the_first_file_that_can_be_read(tmp_path):
    found = job(
        tmp_path, a_npy=b"broken", b_npy=npy(np.ones((5, 3), np.int16)), c_npy=b"", d_txt=b"x"
    )
    assert found.example == "b.npy"
    assert found.schema == Schema({"signal": Feature("int16", (None, 3)), "key": Feature("string")})
    labelled = SensorJob(found.inputs, Labels("parent"), found.features)
    assert labelled.schema["label"] == Feature("int64")


def test_the_schema_takes_the_dtype_asked_for(tmp_path):
    found = job(tmp_path, (), "float32", a_npy=npy(np.ones((5, 3), np.int16)))
    assert found.schema["signal"] == Feature("float32", (None, 3))


def test_several_arrays_are_several_features(tmp_path):
    found = job(tmp_path, a_npz=npz(t=np.arange(4.0), xyz=np.ones((4, 3), np.float32)))
    assert dict(found.schema) == {
        "key": Feature("string"),
        "t": Feature("float64", (None, 1)),
        "xyz": Feature("float32", (None, 3)),
    }


def test_no_readable_file_is_the_users_mistake(tmp_path):
    with pytest.raises(
        UsageError, match=r"no recording among the first 2 files: a.npy: not a whole"
    ):
        job(tmp_path, a_npy=b"x", b_npy=b"y")


def test_a_job_loads_what_fits(tmp_path):
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    found = job(tmp_path, a_npy=npy(np.ones((5, 3), np.float32)), b_npy=npy(array))
    same(found.load(Source("b.npy")), signal=array)
    # In byte order and layout files may differ.
    (tmp_path / "c.npy").write_bytes(npy(array.astype(">f4", order="F")))
    same(found.load(Source("c.npy")), signal=array)


@pytest.mark.parametrize(
    ("misfit", "described"),
    [
        (npy(np.ones((5, 4), np.float32)), "signal float32 [None, 4]"),
        (npy(np.ones((5, 3))), "signal float64 [None, 3]"),
        (npy(np.ones((5, 3, 1), np.float32)), "signal float32 [None, 3, 1]"),
        (npy(np.ones(5, np.float32)), "signal float32 [None, 1]"),
    ],
)
def test_a_misfit_names_both_files_and_what_they_hold(tmp_path, misfit, described):
    found = job(tmp_path, a_npy=npy(np.ones((5, 3), np.float32)), b_npy=misfit)
    with pytest.raises(UsageError) as caught:
        found.load(Source("b.npy"))
    assert caught.value.message.startswith(
        f"b.npy: {described}, but a.npy has signal float32 [None, 3]; "
    )
    assert "--dtype" in caught.value.message


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


def conditioned(tmp_path, **flags):
    inputs = Inputs.of([f"{tmp_path}/*"])
    return SensorJob(inputs, Labels(), conditioning=Conditioning.parse(**flags)).learned()


def test_parts_are_known_by_key_and_size_before_they_are_made(tmp_path):
    (tmp_path / "a.npy").write_bytes(npy(np.ones((50, 3), np.float32)))
    for flags, keys, size in (
        ({"window": "20", "stride": "10"}, ["a.npy#1", "a.npy#2", "a.npy#3", "a.npy#4"], 240),
        ({"window": "20", "sequence": True}, ["a.npy"], 480),
        ({"window": "20", "spectrogram": "8:4"}, ["a.npy#1", "a.npy#2"], 4 * 4 * 5 * 3),
        ({}, ["a.npy"], 600),
    ):
        found = conditioned(tmp_path, **flags)
        source, data = Source("a.npy"), (tmp_path / "a.npy").read_bytes()
        parts = found.parts_of(source, data)
        assert [key for key, _ in parts] == keys
        assert all(size <= about <= size + 200 for _, about in parts)
        assert [key for key, _ in found.records_of(source, data)] == keys


def test_a_misfit_is_found_before_its_records_are_made(tmp_path):
    (tmp_path / "a.npy").write_bytes(npy(np.ones((50, 3), np.float32)))
    found = conditioned(tmp_path, window="20")
    with pytest.raises(
        UsageError, match=r"b.npy: signal float32 \[None, 2\], but a.npy has signal"
    ):
        found.parts_of(Source("b.npy"), npy(np.ones((50, 2), np.float32)))


# The bytes of an array, read without NumPy's own slow reader: as `np.load` reads them.


def npy_of(header: str | bytes, data: bytes = b"", version: tuple[int, int] = (1, 0)) -> bytes:
    """A `.npy` file with a header of one's own."""
    text = header.encode("utf-8" if version >= (3, 0) else "latin1")
    length = struct.pack("<I" if version[0] > 1 else "<H", len(text))
    return b"\x93NUMPY" + bytes(version) + length + text + data


def header(descr: object = "<f4", fortran: object = False, shape: object = (2,)) -> str:
    return f"{{'descr': {descr!r}, 'fortran_order': {fortran!r}, 'shape': {shape!r}, }}"


def same_array(data: bytes) -> np.ndarray:
    """The array, after checking that `np.load` gives the same."""
    found = parse_npy(data)
    expected = np.load(io.BytesIO(data), allow_pickle=False)
    assert found.dtype == expected.dtype
    assert found.shape == expected.shape
    assert found.tobytes() == expected.tobytes()
    assert found.flags.f_contiguous == expected.flags.f_contiguous
    assert found.flags.c_contiguous == expected.flags.c_contiguous
    return found


EVERY_DTYPE = [
    *("?", "b", "B", "h", "H", "i", "I", "l", "L", "q", "Q", "e", "f", "d", "g", "F", "D", "G"),
    *("S5", "U3", "M8[s]", "m8[ns]", "V7", [("t", "<f8"), ("x", ">i2", (2,))]),
]
SHAPES = [(), (1,), (7,), (0,), (3, 4), (0, 4), (4, 0), (2, 3, 5), (1, 1, 1, 1), (5, 1, 0, 2)]


@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
@pytest.mark.parametrize("order", "CF")
@pytest.mark.parametrize("dtype", EVERY_DTYPE, ids=str)
def test_an_array_is_what_numpy_reads(dtype, order, version):
    rng = np.random.default_rng(0)
    for shape in SHAPES:
        for swapped in (False, True):
            target = np.dtype(dtype).newbyteorder("S" if swapped else "=")
            octets = rng.integers(0, 2, (*shape, target.itemsize), np.uint8)
            array = np.ascontiguousarray(octets).view(target).reshape(shape)
            buffer = io.BytesIO()
            np.lib.format.write_array(buffer, np.asarray(array, order=order), version)
            same_array(buffer.getvalue())


@given(
    hnp.arrays(
        st.one_of(hnp.scalar_dtypes(), hnp.array_dtypes()),
        hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=5),
    ),
    st.sampled_from("CF"),
    st.sampled_from([(1, 0), (2, 0), (3, 0)]),
)
@settings(max_examples=200, suppress_health_check=list(HealthCheck))
def test_any_array_is_what_numpy_reads(array, order, version):
    array = np.asarray(array, order=order)
    assume(array.dtype.itemsize and array.flags.aligned and not array.dtype.hasobject)
    buffer = io.BytesIO()
    try:
        np.lib.format.write_array(buffer, array, version)
        np.load(io.BytesIO(buffer.getvalue()))
    except (UnicodeError, ValueError, SyntaxError):  # names that this version cannot hold
        assume(False)
    assume(array.dtype.names is None or version < (3, 0))
    same_array(buffer.getvalue())


def test_an_array_may_be_transposed_sliced_or_reversed_before_it_is_saved():
    array = np.arange(60, dtype=">i4").reshape(3, 4, 5)
    for saved in (array.T, array[::2, ::-1], array[..., 0], np.asfortranarray(array), array[:0].T):
        np.testing.assert_array_equal(same_array(npy(saved)), saved)


def test_what_follows_an_array_is_passed_over():
    array = np.arange(6.0).reshape(2, 3)
    same_array(npy(array) + npy(array))
    same_array(npy(array[:0]) + b"more")


@pytest.mark.filterwarnings("ignore:.*additional header parsing")
def test_headers_of_other_writers_are_read():
    data = np.arange(6, dtype="<f4").tobytes()
    for text in (
        header(shape=(2, 3)),
        header(shape=(2, 3)) + " " * 300,
        "{'shape': (2, 3), 'fortran_order': True, 'descr': '<f4'}",
        '{"descr":"<f4","fortran_order":False,"shape":(2,3)}',
        header(descr="f4", shape=(2, 3)),
        header(shape=(2, 1, 3)).replace("1", "1L"),  # as Python 2 wrote it
    ):
        for version in ((1, 0), (2, 0), (3, 0)):
            if "L" in text and version == (3, 0):
                continue
            # Without NumPy's padding the values lie at odd addresses.
            for padding in range(4):
                assert same_array(npy_of(text + " " * padding, data, version)).size == 6


def test_two_files_of_one_header_are_two_arrays():
    one, two = np.arange(5.0), np.arange(5.0) + 7
    found = [parse_npy(npy(array)) for array in (one, two, one)]
    for array, expected in zip(found, (one, two, one), strict=True):
        np.testing.assert_array_equal(array, expected)


def test_a_header_is_parsed_once_and_nothing_is_kept_of_the_values():
    _npy_header.cache_clear()
    for n in range(5):
        parse_npy(npy(np.full((7, n % 2), n)))
    info = _npy_header.cache_info()
    assert (info.misses, info.hits, info.currsize) == (2, 3, 2)


@pytest.mark.parametrize(
    "data",
    [
        *(npy(np.arange(100.0))[:keep] for keep in (0, 1, 6, 7, 8, 9, 10, 50, 127, 128, 135, 927)),
        npy_of(header(), bytes(7)),
        npy_of(header(shape=(3,)), bytes(11)),
        npy_of(header(shape=(-2,)), bytes(8)),
        npy_of(header(shape=(0, -1)), bytes(8)),
        npy_of(header(shape=(-1, -2)), bytes(8)),
        npy_of(header(shape=(2.0,)), bytes(8)),
        npy_of(header(shape=2), bytes(8)),
        npy_of(header(shape="2"), bytes(8)),
        npy_of(header(shape=[2]), bytes(8)),
        npy_of(header(shape=(1,) * 65), bytes(8)),
        npy_of(header(fortran=0), bytes(8)),
        npy_of(header(fortran=None), bytes(8)),
        npy_of(header(descr="<x9"), bytes(8)),
        npy_of(header(descr=None), bytes(8)),
        npy_of(header(descr=("<f4", (2,))), bytes(16)),
        npy_of("{'descr': '<f4', 'fortran_order': False, }", bytes(8)),
        npy_of(header()[:-1] + "'more': 1}", bytes(8)),
        npy_of("[]", bytes(8)),
        npy_of("__import__('os').system('true')", bytes(8)),
        npy_of("{'descr': '<f4', 'fortran_order': False, 'shape': (print(1),)}", bytes(8)),
        npy_of(header() + "#" * 20_000, bytes(8), (2, 0)),  # what takes long to parse
        npy_of("(" * 9000, bytes(8), (2, 0)),
        npy_of(header(), bytes(8))[:8] + b"\xff\xff" + header().encode(),
        b"\x93NUMPY\x02\x00\xff\xff\xff\xff" + header().encode(),
        b"\x93NUMPX\x01\x00" + npy_of(header(), bytes(8))[8:],
        npy_of(header(), bytes(8), (1, 1)),
        npy_of(header(), bytes(8), (0, 0)),
    ],
    ids=lambda data: repr(data[10:50]),
)
def test_a_header_that_numpy_refuses_is_refused(data):
    with pytest.raises(Exception):  # noqa: B017  (NumPy's own are of many kinds)
        np.load(io.BytesIO(data), allow_pickle=False)
    with pytest.raises(Exception):  # noqa: B017
        parse_npy(data)


@pytest.mark.parametrize("shape", [(2**40, 2**40), (2**63,), (10**30,), (2**62, 4, 0, 2**62)])
def test_a_shape_that_no_memory_holds_is_refused_at_once(tmp_path, shape):
    data = npy_of(header(shape=shape), bytes(64))
    with pytest.raises((ValueError, OverflowError)):
        parse_npy(data)
    with pytest.raises(RejectError, match=r"not a whole .npy file"):
        read(tmp_path, "a.npy", data)


@pytest.mark.parametrize(
    "descr", ["|O", "O", [("a", "<f4"), ("b", "|O")], [("a", [("b", "|O", (2,))])]], ids=str
)
def test_objects_are_refused_however_few_they_are(descr):
    for shape in ((0,), (1,), (3,)):
        for version in ((1, 0), (2, 0)):
            data = npy_of(header(descr=descr, shape=shape), pickle.dumps([1]) * 9, version)
            with pytest.raises(RejectError, match="pickled objects, which are never loaded"):
                parse_npy(data)


@pytest.mark.parametrize("version", [(2, 1), (4, 0), (9, 0), (255, 255)])
def test_a_version_that_numpy_does_not_know_is_refused(version):
    data = npy_of(header(), bytes(8), version)
    with pytest.raises(ValueError, match="we only support format version"):
        np.load(io.BytesIO(data))
    with pytest.raises(ValueError):
        parse_npy(data)


@given(st.data())
@settings(max_examples=400)
@pytest.mark.filterwarnings("ignore")
def test_a_damaged_header_gives_what_numpy_reads_or_an_error(data):
    array = np.arange(12, dtype="<i2").reshape(3, 4)
    octets = bytearray(npy(array, **{}))
    for _ in range(data.draw(st.integers(1, 3))):
        octets[data.draw(st.integers(8, 79))] = data.draw(
            st.one_of(st.integers(0, 255), st.sampled_from(list(b"0123456789<>|fiubcOSUV,()L' {}")))
        )
    try:
        found = parse_npy(bytes(octets))
    except Exception:
        return  # SensorJob.read turns all of them into a reject
    expected = np.load(io.BytesIO(bytes(octets)), allow_pickle=False)
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    assert found.tobytes() == expected.tobytes()
