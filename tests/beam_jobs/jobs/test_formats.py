"""The formats of recordings: which file has which, and formats that other packages add."""

import gzip
import io
import itertools
import json
import re
import subprocess
import sys
import zlib
from importlib import metadata

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet
import pytest
import scipy.io
import soundfile

from beam_jobs.errors import RejectError, UsageError
from beam_jobs.jobs.sensors.formats import registry
from beam_jobs.jobs.sensors.formats.registry import flags_of, read_recording
from beam_jobs.jobs.sensors.read_options import ReadOptions
from tests.support.checkout import ROOT
from tests.support.recordings import edf, rejected

# What a stranger writes: a reader, and an entry point for its suffix.
READER = """
import numpy as np
from beam_jobs import Recording, RejectError

def read(data, options):
    if not data:
        raise RejectError("there is nothing in it")
    return Recording({"signal": np.frombuffer(data, ">i2")[:, None]}, rate=100.0)
"""
ENTRY_POINTS = """
[beam_shards.recordings]
ecg = heart:read
ecg.old = heart:read
lost = heart:nowhere
"""


@pytest.fixture
def stranger(tmp_path, monkeypatch):
    """An installed package that reads .ecg files."""
    info = tmp_path / "heart-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: heart\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(ENTRY_POINTS)
    (tmp_path / "heart.py").write_text(READER)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "heart", raising=False)
    for cached in (registry._others, registry._reader):
        cached.cache_clear()
    yield
    for cached in (registry._others, registry._reader):
        cached.cache_clear()


def test_another_package_adds_a_format_by_an_entry_point(stranger):
    assert [point.name for point in metadata.entry_points(group=registry.ENTRY_POINTS)]
    for name in ("a.ecg", "walk/A.ECG", "2024.01.31.ecg.old"):
        assert flags_of(name) == registry.FLAGS
        found = read_recording(name, b"\0\1\0\2", ReadOptions())
        np.testing.assert_array_equal(found.arrays["signal"], [[1], [2]])
        assert found.rate == 100
    for data, message in ((b"", "^there is nothing in it$"), (b"x", "^not a whole .ecg file: ")):
        with pytest.raises(RejectError, match=message):
            read_recording("a.ecg", data, ReadOptions())
    with pytest.raises(
        UsageError, match=r"^\.lost files are read by heart:nowhere: module 'heart'"
    ):
        read_recording("a.lost", b"", ReadOptions())
    with pytest.raises(RejectError, match=r"\.ecg, \.ecg\.old, \.lost$"):
        read_recording("a.beat", b"", ReadOptions())


def test_our_own_formats_go_first(stranger, tmp_path):
    points = tmp_path / "heart-1.0.dist-info" / "entry_points.txt"
    points.write_text(ENTRY_POINTS + "npy = heart:read\n")
    with pytest.raises(RejectError, match=r"not a whole \.npy file"):
        read_recording("a.npy", b"\0\1\0\2", ReadOptions())


def test_a_reader_is_imported_only_when_its_format_is_met():
    code = (
        "import sys; from beam_jobs.jobs.sensors.formats.registry import *; "
        "import beam_jobs.jobs.sensors.arrays; print(*sys.modules); "
        "from beam_jobs.jobs.sensors.read_options import ReadOptions; "
        "read_recording('a.csv', b'x\\n1\\n', ReadOptions()); print(*sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    before, after = done.stdout.splitlines()
    heavy = {"apache_beam", "tensorflow", "pyarrow", "h5py", "soundfile", "scipy", "pandas"}
    assert not heavy & set(before.split())
    formats = f"{registry.__package__}."
    loaded = {name.removeprefix(formats) for name in after.split() if formats in name}
    assert loaded == {"registry", "text_tables", "headers", "cells"}


# A file of each format, or of each family of one reader.
WALK = np.arange(12, dtype=np.float32).reshape(4, 3)


def written(suffix: str) -> bytes:
    """A recording of at least 4 samples, of 3 channels, audio of 2; one channel where a format has no more."""
    buffer = io.BytesIO()
    plain, packed = suffix.removesuffix(".gz"), suffix.endswith(".gz")
    if plain in (".csv", ".tsv", ".txt"):
        np.savetxt(buffer, WALK, delimiter={".csv": ",", ".tsv": "\t", ".txt": " "}[plain])
    elif plain == ".jsonl":
        buffer.write("\n".join(map(json.dumps, WALK.tolist())).encode())
    elif plain == ".parquet":
        pyarrow.parquet.write_table(pa.table(dict(zip("xyz", WALK.T, strict=True))), buffer)
    elif plain in (".feather", ".arrow"):
        pyarrow.feather.write_feather(pa.table(dict(zip("xyz", WALK.T, strict=True))), buffer)
    elif plain in (".h5", ".hdf5", ".nc"):
        with h5py.File(buffer, "w") as file:
            file["x"] = WALK
    elif plain == ".mat":
        scipy.io.savemat(buffer, {"x": WALK})
    elif plain == ".npz":
        np.savez(buffer, x=WALK)
    elif plain == ".npy":
        np.save(buffer, WALK)
    elif plain in (".edf", ".bdf"):
        return edf(16 if plain == ".edf" else 24, rates=(4, 4, 4))[0]
    elif plain not in (".wav", *registry._SOUNDS.split()):
        raise AssertionError(f"add a {suffix} file to `written`")
    else:
        sounds = {
            ".oga": "OGG",
            ".opus": "OGG",
            ".aif": "AIFF",
            ".aifc": "AIFF",
            ".snd": "AU",
            ".sph": "NIST",
        }
        kind = sounds.get(plain, plain[1:].upper())
        subtype = "OPUS" if plain == ".opus" else None
        soundfile.write(
            buffer, WALK[:, :2].repeat(500, 0) / 99, 16_000, format=kind, subtype=subtype
        )
    return gzip.compress(buffer.getvalue()) if packed else buffer.getvalue()


def table(heading: str) -> list[list[str]]:
    """The cells of the rows of a table in docs/write/sensors.md."""
    _, _, after = (ROOT / "docs/write/sensors.md").read_text().partition(f"{heading}\n")
    rows = itertools.takewhile(lambda line: line.startswith("|"), after.splitlines()[1:])
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]


@pytest.mark.parametrize("compressed", [False, True])
def test_values_of_another_type_than_numbers_are_a_reject(compressed):
    """SciPy ends its process for them."""
    buffer = io.BytesIO()
    scipy.io.savemat(buffer, {"x": WALK})
    data = bytearray(buffer.getvalue())
    data[data.index(WALK.tobytes("F")) - 8] = 20
    if compressed:
        packed = zlib.compress(data[128:])
        data[128:] = b"\x0f\0\0\0" + len(packed).to_bytes(4, "little") + packed
    with pytest.raises(RejectError, match=r"crashed twice|not a whole \.mat file"):
        read_recording("x.mat", bytes(data), ReadOptions())


def test_the_table_of_formats_lists_those_that_are_read():
    holds = {"arrays": "arrays by name", "columns": "a table", "channels": "audio"}
    listed = table("| files | hold | dtype | need |")
    for (files, hold, _, need), found in zip(listed, registry.FORMATS, strict=True):
        assert tuple(re.findall(r"`([^`]+)`", files)) == found.suffixes
        assert hold == next(map(holds.get, found.flags), "one array")
        assert need == (f"`[{found.extra}]`" if found.extra not in ("", "beam") else "")


@pytest.mark.parametrize("suffix", registry._OWN)
def test_a_file_of_each_format_is_read_in_a_dtype_of_the_table(suffix):
    (dtype,) = (
        dtype
        for files, _, dtype, _ in table("| files | hold | dtype | need |")
        if f"`{suffix}`" in files
    )
    found = read_recording(f"walk{suffix.upper()}", written(suffix), ReadOptions())
    (signal,) = found.arrays.values()
    assert signal.ndim == 2 and signal.shape[1] in (1, 2, 3) and len(signal) >= 4
    made = found.dtype or signal.dtype.name
    assert made in (re.findall(r"[a-z]+[0-9]+", dtype) or ["float32"]) or dtype.startswith(
        "the file's"
    )


def test_the_table_of_refused_formats_has_their_lines():
    *listed, _ = table("| files | the reject says |")
    assert {
        " ".join(re.findall(r"`([^`]+)`", files)): line for files, line in listed
    } == registry.NOT_READ
    for endings, line in registry.NOT_READ.items():
        for ending in endings.split():
            with pytest.raises(RejectError) as caught:
                read_recording(f"a{ending}", b"", ReadOptions())
            assert str(caught.value) == f"{ending} files are not read: {line}"


# Files that are damaged, or of another format.

WHOLE = {suffix: written(suffix) for suffix in registry._OWN if not suffix.endswith(".gz")}


@pytest.mark.parametrize("suffix", WHOLE)
def test_a_file_that_is_empty_or_something_else_is_rejected(suffix):
    for data in (b"", b"\xff" * 1000, b"\0" * 1000):
        found = rejected(suffix[1:], data)
        known = (f"not a whole {suffix} file: ", "the file is empty", "not UTF-8: ")
        # To SciPy 1.11, zeros are a MATLAB file without arrays.
        assert found.startswith((*known, "it has no array of numbers"))
