"""Recordings of NumPy and HDF5, which hold arrays by name."""

import io
import struct
import zipfile
import zlib
from pathlib import Path

import h5py
import numpy as np
import pytest

from beam_jobs.errors import RejectError
from beam_jobs.jobs.sensors.formats.registry import read_recording
from beam_jobs.jobs.sensors.read_options import ReadOptions
from tests.support.arrays import assert_same
from tests.support.recordings import (
    h5,
    h5_of,
    npy,
    npz,
    read,
    rejected,
    signal,
    sound,
    waves,
)


@pytest.mark.parametrize("compressed", [False, True])
def test_the_arrays_of_an_archive_keep_their_names_unless_there_is_one(compressed):
    t, xyz, label = np.arange(4.0), np.ones((4, 3), np.float32), np.array(3)
    assert_same(signal("npz", npz(compressed, label=xyz)), xyz)
    data = npz(compressed, t=t, xyz=xyz, label=label)
    assert_same(signal("npz", data, arrays=("xyz",)), xyz)
    found = read("npz", data, arrays=("xyz", "t")).arrays
    assert list(found) == ["xyz", "t"]
    assert_same(found["t"], t)
    message = "no array 'gyro': the file has t, xyz, label"
    assert rejected("npz", data, arrays=("t", "gyro")) == message


def test_an_archive_without_arrays_is_rejected():
    assert rejected("npz", npz()) == "it has no array of numbers"


def test_other_members_of_an_archive_are_ignored():
    buffer = io.BytesIO(npz(x=np.ones(2)))
    with zipfile.ZipFile(buffer, "a") as archive:
        archive.writestr("readme.txt", "hello")
    assert_same(signal("npz", buffer.getvalue()), np.ones(2))


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
    assert "pickled objects" in rejected(kind, data)
    assert not trap.exists()
    # The trap works: NumPy's own pickle loader runs it.
    loaded = np.load(io.BytesIO(data), allow_pickle=True)
    if kind == "npz":
        loaded["x"]
    assert trap.exists()


def claim_size(archive: bytes, size: int) -> bytes:
    """An archive whose directory claims that its first member unpacks to `size` bytes."""
    data = bytearray(archive)
    directory = data.index(b"PK\x01\x02")
    data[directory + 24 : directory + 28] = struct.pack("<I", size)
    return bytes(data)


def test_an_archive_that_claims_a_huge_size_is_rejected_unread():
    found = rejected("npz", claim_size(npz(x=np.arange(3.0)), 2**32 - 2))
    assert found.startswith("it unpacks to 4294967294 bytes, more than")


def with_password(archive: bytes) -> bytes:
    """An archive that claims to be encrypted: bit 0 of the flags in both headers of a member."""
    data = bytearray(archive)
    data[6] |= 1
    data[data.index(b"PK\x01\x02") + 8] |= 1
    return bytes(data)


RANDOM = npz(True, x=np.random.default_rng(0).random(500))


@pytest.mark.parametrize(
    "data",
    [
        *(npz(x=np.arange(100.0))[:keep] for keep in (0, 10, 200, -1, -30)),
        RANDOM[:300] + bytes(20) + RANDOM[320:],
        with_password(npz(x=np.arange(3.0))),
        claim_size(npz(True, x=np.zeros(10**6)), 200),
    ],
    ids=lambda data: str(len(data)),
)
def test_an_archive_that_is_damaged_or_encrypted_is_rejected(data):
    assert rejected("npz", data).startswith("not a whole .npz file: ")


def test_other_arrays_of_an_archive_are_never_read():
    day = np.array(["2020-01-01"], "M8[D]")
    data = npz(x=np.arange(3), y=np.array(["a", None], object), name=["a"], fs=3.0, day=day)
    found = read("npz", data)
    assert_same(found.arrays["signal"], np.arange(3))
    assert found.notes == (
        "not read: y (pickled objects), name (text), fs (single number), day (datetime64[D]); choose arrays with --arrays",
    )
    assert read("npz", data, arrays=("x",)).notes == ()
    wrong = "array 'y' is pickled objects [2]: expected numbers along time"
    assert rejected("npz", data, arrays=("x", "y")) == wrong


def test_the_only_array_of_a_file_is_called_signal():
    for kind, data in (
        ("npy", npy(np.arange(3))),
        ("wav", sound(waves(), "PCM_16")),
        ("csv", b"1\n2\n"),
    ):
        assert signal(kind, data, arrays=("signal",)) is not None
        found = rejected(kind, data, arrays=("xyz",))
        assert found == "no array 'xyz': the file has signal"


DTYPES = [
    "int8",
    ">i2",
    "float16",
    ">f4",
    "complex64",
]


@pytest.mark.parametrize("dtype", DTYPES)
def test_h5_files_of_every_dtype_are_read(dtype):
    array = (np.arange(12).reshape(4, 3) % 2).astype(dtype)
    assert_same(signal("h5", h5(x=array)), array)
    assert_same(signal("hdf5", h5(x=array)), array)


def resizable(shape: tuple[int, ...], chunks: tuple[int, ...]) -> bytes:
    """A file with an array of zeros, which take no room in it."""

    def write(file):
        file.create_dataset("x", shape, "f8", chunks=chunks, maxshape=(None,))

    return h5_of(write)


def test_arrays_of_an_h5_file_have_their_paths_in_order():
    def write(file):
        file["z"] = np.arange(2.0)
        file["imu/gyro"] = np.ones((3, 2), np.int16)
        file["imu/acc/x"] = np.zeros((3, 0))
        file.create_dataset("a", data=np.arange(1000), chunks=(100,), compression="gzip")

    data = h5_of(write)
    found = read("h5", data).arrays
    assert list(found) == ["a", "imu/acc/x", "imu/gyro", "z"]
    assert_same(found["a"], np.arange(1000))
    assert_same(found["imu/acc/x"], np.zeros((3, 0)))
    assert_same(signal("h5", data, arrays=("imu/gyro",)), np.ones((3, 2), np.int16))
    assert list(read("h5", data, arrays=("z", "a")).arrays) == ["z", "a"]
    found = rejected("h5", data, arrays=("imu",))
    assert found == "no array 'imu': the file has a, imu/acc/x, imu/gyro, z"


def test_h5_objects_other_than_series_of_numbers_are_skipped_unless_asked_for():
    def write(file):
        file["x"] = np.arange(3)
        file["single"] = 5
        file["none"] = h5py.Empty("f4")
        file["text"] = ["a", "b"]
        file["bytes"] = np.array([b"a", b"b"])
        file["table"] = np.zeros(3, [("t", "f4"), ("x", "f4")])
        file["type"] = np.dtype("f4")
        file.create_dataset("ragged", (2,), h5py.vlen_dtype(np.int32))

        file["refs"] = np.array([file["x"].ref], h5py.ref_dtype)

    data = h5_of(write)
    found = read("h5", data)
    assert_same(found.arrays["signal"], np.arange(3))
    assert found.notes == (
        "not read: bytes (text), none (empty), ragged (ragged), refs (references), single (single number), "
        "table (compound of t, x), text (text); choose arrays with --arrays",
    )
    for name, message in {
        "single": "array 'single' is numbers []: expected numbers along time",
        "none": "array 'none' is empty []: expected",
        "text": "array 'text' is text [2]: expected",
        "bytes": "array 'bytes' is text [2]: expected",
        "ragged": "array 'ragged' is ragged [2]: expected",
        "table": "array 'table' is compound of t, x [3]: expected",
        "type": "no array 'type'",
    }.items():
        assert rejected("h5", data, arrays=("x", name)).startswith(message)


def test_an_h5_file_without_numbers_is_rejected():
    assert rejected("h5", h5(text=["a"])) == "it has no array of numbers, only text (text)"
    assert rejected("h5", h5()) == "it has no array of numbers"


def test_complex_numbers_of_other_programs_and_units_are_read():
    """MATLAB, Octave and Julia call the parts of numbers real and imag."""
    for dtype in ("f4", ">f8"):
        parts = np.array([(1, np.inf), (3, -4)], [("real", dtype), ("imag", dtype)])

        def write(file, parts=parts):
            file["z"] = parts
            file["z"].attrs["units"] = "m/s"

        found = read("h5", h5_of(write))
        expected = np.array([complex(1, np.inf), 3 - 4j], {"f4": "c8", ">f8": ">c16"}[dtype])
        assert_same(found.arrays["signal"], expected)
        assert found.units == {"signal": ("m/s",)}


@pytest.mark.parametrize("kind", ["npy", "npz", "h5"])
def test_recordings_without_samples_are_rejected(kind):
    empty = np.empty((0, 3))
    data = {"npy": npy(empty), "npz": npz(x=empty), "h5": h5(x=empty)}[kind]
    assert rejected(kind, data) == "the recording has no samples"


def test_names_of_other_features_are_refused_in_every_archive():
    for name in ("key", "label"):
        for kind, data in (("npz", npz(x=[1], **{name: [2]})), ("h5", h5(x=[1], **{name: [2]}))):
            found = rejected(kind, data)
            assert found == f"an array may not be called {name!r}: choose others with --arrays"


def test_soft_links_are_not_followed():
    def write(file):
        file["x"] = np.arange(3)
        file["soft"] = h5py.SoftLink("/x")
        file["nowhere"] = h5py.SoftLink("/y")

    assert_same(signal("h5", h5_of(write)), np.arange(3))
    assert rejected("h5", h5_of(write), arrays=("soft",)) == "no array 'soft': the file has x"


def test_groups_that_contain_themselves_are_entered_once():
    def write(file):
        file["g/x"] = np.arange(3)
        file["g/self"] = file["g"]
        file["g/root"] = file["/"]

    assert_same(signal("h5", h5_of(write)), np.arange(3))


def test_files_that_an_h5_file_names_are_not_followed(tmp_path):
    other = tmp_path / "other.h5"
    other.write_bytes(resizable((4,), chunks=(4,)))

    def external(file):
        file["far"] = h5py.ExternalLink(str(other), "/x")

    def storage(file):
        file.create_dataset("far", (4,), "f8", external=[(str(other), 0, 32)])

    def virtual(file):
        layout = h5py.VirtualLayout((4,), "f8", maxshape=(None,))
        source = h5py.VirtualSource(str(other), "x", (4,), maxshape=(None,))
        layout[: h5py.h5s.UNLIMITED] = source[: h5py.h5s.UNLIMITED]
        file.create_virtual_dataset("far", layout)

    files = []
    for write in (external, storage, virtual):
        buffer = io.BytesIO(h5(x=[1]))
        with h5py.File(buffer, "a") as file:
            write(file)
        files.append(buffer.getvalue())
        with h5py.File(io.BytesIO(files[-1])) as file:
            assert file["far"][:].size  # The trap works.
    for data in files:
        found = rejected("h5", data, arrays=("far",))
        assert found == "array 'far' is in another file []: expected numbers along time"
        found = read("h5", data)
        assert_same(found.arrays["signal"], np.array([1]))
        assert found.notes == ("not read: far (in another file); choose arrays with --arrays",)


def test_an_h5_file_that_claims_a_huge_array_is_rejected_unread():
    data = resizable((2**25 + 1,), (1000,))
    assert len(data) < 10_000
    assert rejected("h5", data) == (
        f"it unpacks to {2**28 + 8} bytes, more than 268435456: raise --max_record_bytes to keep it"
    )
    halves = h5_of(lambda file: [file.create_dataset(name, 2**24 + 1, "f8") for name in "ab"])
    assert rejected("h5", halves).startswith("it unpacks to 268435472 bytes")


@pytest.mark.slow
def test_a_chunk_that_unpacks_to_more_than_memory_is_rejected():
    packer = zlib.compressobj()
    head = packer.compress(b"") + packer.flush(zlib.Z_FULL_FLUSH)
    block = packer.compress(bytes(1 << 20)) + packer.flush(zlib.Z_FULL_FLUSH)

    def write(file):
        array = file.create_dataset("x", 256, "f4", chunks=(256,), compression="gzip")
        array.id.write_direct_chunk((0,), head + 1500 * block)

    with pytest.raises(RejectError, match=r"^not a whole \.h5 file: "):
        read_recording("x.h5", h5_of(write), ReadOptions(max_bytes=2000))
