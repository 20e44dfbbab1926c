import contextlib
import csv
import datetime
import io
import itertools
import struct
import subprocess
import sys

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.io.wavfile
import soundfile
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from beam_jobs.errors import RejectError, UsageError
from beam_jobs.jobs.sensors import audio, recording, tables
from beam_jobs.jobs.sensors.formats import read_recording
from beam_jobs.jobs.sensors.recording import Reading, Recording

RATE = 16_000


def read(kind: str, data: bytes, **reading) -> Recording:
    return read_recording(kind, data, Reading(**reading))


def signal(kind: str, data: bytes, **reading) -> np.ndarray:
    """The only array of a recording."""
    (found,) = read(kind, data, **reading).arrays.items()
    assert found[0] == "signal"
    return found[1]


def same(found: np.ndarray, expected: np.ndarray) -> None:
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found, expected)


def rejected(kind: str, data: bytes, **reading) -> str:
    """What is said of a file that is no recording."""
    with pytest.raises(RejectError) as caught:
        read(kind, data, **reading)
    return str(caught.value)


def limited(monkeypatch, size: int) -> None:
    """Makes the largest record one of so many bytes."""
    monkeypatch.setattr(recording, "_MAX_ARRAY_BYTES", size)


# Sound.


def waves(channels: int = 2, length: int = 500) -> np.ndarray:
    """float64 [time, channels], from -1 to 1."""
    result = np.random.default_rng(0).uniform(-1, 1, (length, channels))
    result[0], result[1] = -1, 0
    return result


def sound(values: np.ndarray, subtype: str, kind: str = "WAV") -> bytes:
    buffer = io.BytesIO()
    soundfile.write(buffer, values, RATE, subtype=subtype, format=kind)
    return buffer.getvalue()


def chunk(name: bytes, data: bytes) -> bytes:
    return name + struct.pack("<I", len(data)) + data + bytes(len(data) % 2)


def form(
    tag: int = 1, channels: int = 1, rate: int = RATE, bits: int = 16, frame: int = 0
) -> bytes:
    frame = frame or channels * bits // 8
    return struct.pack("<HHIIHH", tag, channels, rate, rate * frame, frame, bits)


def riff(*chunks: bytes) -> bytes:
    body = b"WAVE" + b"".join(chunks)
    return b"RIFF" + struct.pack("<I", len(body)) + body


SAMPLES = np.array([[1], [-2], [3]], np.int16)
WAVES = ["PCM_U8", "PCM_16", "PCM_24", "PCM_32", "FLOAT", "DOUBLE"]


@pytest.mark.filterwarnings("ignore:Chunk")
@pytest.mark.parametrize("subtype", WAVES)
@pytest.mark.parametrize("kind", ["WAV", "WAVEX"])
@pytest.mark.parametrize("channels", [1, 2, 5])
def test_wav_files_are_what_scipy_reads(subtype, kind, channels):
    data = sound(waves(channels), subtype, kind)
    rate, expected = scipy.io.wavfile.read(io.BytesIO(data))
    found = read("wav", data)
    same(found.arrays["signal"], expected.reshape(-1, channels))
    assert (found.rate, found.times) == (rate, None)


@pytest.mark.parametrize("subtype", WAVES[:4])
def test_samples_become_the_floats_that_soundfile_gives(subtype):
    data = sound(waves(), subtype)
    expected, _ = soundfile.read(io.BytesIO(data), dtype="float32", always_2d=True)
    same(signal("wav", data, float_audio=True), expected)


def test_samples_of_16_bits_become_the_floats_that_tensorflow_gives():
    every = np.arange(-(2**15), 2**15).astype(np.int16)
    data = sound(every, "PCM_16")
    same(signal("wav", data, float_audio=True), tf.audio.decode_wav(data).audio.numpy())


def test_samples_that_are_floats_stay_as_they_are():
    for subtype, dtype in (("FLOAT", np.float32), ("DOUBLE", np.float64)):
        values = (waves() * 3).astype(dtype)
        same(signal("wav", sound(values, subtype), float_audio=True), values)


def test_other_chunks_of_a_wav_file_are_passed_over():
    samples = chunk(b"data", SAMPLES.tobytes())
    for chunks in (
        (chunk(b"LIST", b"odd"), chunk(b"fmt ", form()), chunk(b"fact", b""), samples),
        (chunk(b"fmt ", form()), samples, chunk(b"LIST", b"more"), b"rubbish"),
        (chunk(b"fmt ", form() + b"\0\0"), samples),
    ):
        same(signal("wav", riff(*chunks)), SAMPLES)


def test_a_wav_file_without_samples_is_an_empty_recording():
    data = riff(chunk(b"fmt ", form(channels=3)), chunk(b"data", b""))
    same(signal("wav", data), np.empty((0, 3), np.int16))


WHOLE = riff(chunk(b"fmt ", form()), chunk(b"data", SAMPLES.tobytes()))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "it does not begin as RIFF WAVE"),
        (b"RIFX" + WHOLE[4:], "it does not begin as RIFF WAVE"),
        (WHOLE[:8] + b"AVI " + WHOLE[12:], "it does not begin as RIFF WAVE"),
        (WHOLE[:12], "it has no chunk b'data'"),
        (WHOLE[:-1], "its chunk b'data' has 5 of 6 bytes"),
        (WHOLE[:40] + b"\xff" * 4 + WHOLE[44:], "its chunk b'data' has 6 of 4294967295 bytes"),
        (WHOLE[:16] + b"\xff" * 4 + WHOLE[20:], "its chunk b'fmt ' has 30 of 4294967295 bytes"),
        (riff(chunk(b"data", b""), chunk(b"fmt ", form())), "no chunk b'fmt ' comes before"),
        (riff(chunk(b"fmt ", form()[:15]), chunk(b"data", b"")), "requires a buffer of at least"),
        (riff(chunk(b"fmt ", form(channels=0)), chunk(b"data", b"12")), "0 channels in"),
        (riff(chunk(b"fmt ", form(rate=0)), chunk(b"data", b"12")), "2 bytes at 0 Hz"),
        (riff(chunk(b"fmt ", form(frame=4)), chunk(b"data", b"1234")), "1 channels in 4 bytes"),
        (riff(chunk(b"fmt ", form()), chunk(b"data", b"123")), "3 bytes at 16000 Hz"),
    ],
)
def test_a_wav_file_that_is_not_whole_is_rejected(data, message):
    found = rejected("wav", data)
    assert found.startswith("not a whole .wav file: ")
    assert message in found


@pytest.mark.parametrize("subtype", ["ALAW", "ULAW", "MS_ADPCM", "GSM610"])
def test_samples_of_other_formats_are_rejected(subtype):
    assert "expected PCM of 8, 16, 24 or 32 bits, or floats" in rejected(
        "wav", sound(waves(1), subtype)
    )


@pytest.mark.parametrize(("tag", "bits"), [(1, 12), (1, 64), (3, 16), (0xFFFE, 16)])
def test_samples_of_other_sizes_are_rejected(tag, bits):
    data = riff(chunk(b"fmt ", form(tag, bits=bits)), chunk(b"data", b""))
    assert rejected("wav", data).startswith(
        f"samples of format {tag} with {bits} bits: expected PCM"
    )


def test_an_extensible_form_must_be_a_known_one():
    tail = struct.pack("<HHIH", 22, 16, 4, 1) + audio._WAVE_GUID
    for end, known in ((tail, True), (tail[:-1] + b"\0", False)):
        data = riff(chunk(b"fmt ", form(0xFFFE) + end), chunk(b"data", SAMPLES.tobytes()))
        with (
            contextlib.nullcontext() if known else pytest.raises(RejectError, match="format 65534")
        ):
            same(signal("wav", data), SAMPLES)


def test_what_samples_become_is_measured_before_it_is_made(monkeypatch):
    limited(monkeypatch, 100)
    data = {subtype: sound(np.zeros(26), subtype) for subtype in WAVES[:4]}
    assert signal("wav", data["PCM_16"]).nbytes == 52
    for subtype, options in (
        ("PCM_U8", {"float_audio": True}),
        ("PCM_16", {"float_audio": True}),
        ("PCM_24", {}),
        ("PCM_32", {}),
    ):
        message = rejected("wav", data[subtype], **options)
        assert message == "it unpacks to 104 bytes, more than a record can hold (2 GiB)"


@pytest.mark.parametrize(
    ("subtype", "dtype"), [("PCM_S8", "int16"), ("PCM_16", "int16"), ("PCM_24", "int32")]
)
def test_flac_files_are_what_soundfile_reads(subtype, dtype):
    data = sound(waves(), subtype, "FLAC")
    for options, kind in (({}, dtype), ({"float_audio": True}, "float32")):
        found = read("flac", data, **options)
        expected, _ = soundfile.read(io.BytesIO(data), dtype=kind, always_2d=True)
        same(found.arrays["signal"], expected)
        assert (found.rate, found.times) == (RATE, None)


def test_a_flac_file_is_no_other_format_and_whole():
    data = sound(waves(), "PCM_16", "FLAC")
    for damaged in (b"", sound(waves(), "PCM_16"), data[:60], data[:-1], data[:900] + data[901:]):
        assert rejected("flac", damaged).startswith("not a whole .flac file: ")


def claimed_frames(frames: int) -> bytes:
    """A FLAC file that claims so many samples, in the 36 bits that stand for them."""
    data = bytearray(sound(waves(), "PCM_16", "FLAC"))
    data[21] = data[21] & 0xF0 | frames >> 32
    data[22:26] = struct.pack(">I", frames & 0xFFFFFFFF)
    return bytes(data)


def test_a_flac_file_that_claims_more_samples_than_it_has_is_rejected():
    assert rejected("flac", claimed_frames(501)).startswith("not a whole .flac file: ")
    message = f"it unpacks to {(2**36 - 1) * 4} bytes, more than a record can hold (2 GiB)"
    assert rejected("flac", claimed_frames(2**36 - 1)) == message
    assert "does not say how many samples follow" in rejected("flac", claimed_frames(0))


def test_a_flac_file_of_which_less_can_be_read_is_rejected(monkeypatch):
    # Versions of libsndfile end there without an error.
    monkeypatch.setattr(soundfile.SoundFile, "read", lambda *_, **__: np.zeros((3, 2), np.int16))
    found = rejected("flac", sound(waves(), "PCM_16", "FLAC"))
    assert found == "not a whole .flac file: it has 3 of 500 samples"


@pytest.mark.parametrize(
    ("kind", "module", "extra"),
    [("flac", "soundfile", "audio"), ("h5", "h5py", "hdf5"), ("parquet", "pyarrow", "beam")],
)
def test_a_missing_library_is_named_with_the_way_to_get_it(monkeypatch, kind, module, extra):
    for name in [name for name in sys.modules if name.split(".")[0] == module]:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(UsageError) as caught:
        read(kind, b"")
    assert f".{kind} files need {module}" in caught.value.message
    assert f"pip install 'beam-shards[{extra}]'" in caught.value.message


# Tables of text.

FLOATS = st.floats(allow_nan=True, allow_infinity=True)


@given(st.lists(st.tuples(FLOATS, FLOATS, st.integers(-(2**70), 2**70)), max_size=6), st.booleans())
@settings(max_examples=60, deadline=None)
def test_numbers_are_what_python_makes_of_them(rows, header):
    text = "a,b,c\n" * header + "".join(f"{a!r}, {b:.3e},{c}\r\n" for a, b, c in rows)
    if not text:
        return
    expected = [[float(cell) for cell in line.split(",")] for line in text.splitlines()[header:]]
    same(signal("csv", text.encode()), np.array(expected, np.float64).reshape(-1, 3))


@given(st.text('0123456789.,,,\n\n\r" -+eEnaif_\t\x00\xa0x#\u0661', max_size=40), st.booleans())
@settings(max_examples=300, deadline=None)
def test_the_fast_way_reads_what_the_careful_one_reads(text, header):
    text = "x,y\n" * header + text
    data = text.encode()
    try:
        first = next(tables._csv_rows(data), None)
    except csv.Error:
        first = None
    fast = tables._plain_table(data, header, len(first)) if first else None
    if fast is not None:
        names = ["x", "y"] if header else []
        places = list(range(len(first)))
        careful, _ = tables._mixed_table(data, names, len(first), places, None, "s")
        same(fast, careful)


def test_columns_are_taken_by_name_in_the_order_that_is_asked_for():
    data = b"t, x ,y,activity\n0,1,2,walking\n1,3,4,\n"
    same(signal("csv", data, columns=("y", "x")), np.array([[2.0, 1], [4, 3]]))
    found = read("csv", data, columns=("y",), time_column="t")
    same(found.arrays["signal"], np.array([[2.0], [4]]))
    same(found.times, np.array([0.0, 1]))
    assert found.rate is None
    assert rejected("csv", data, columns=("z",)) == "no column 'z': the file has t, x, y, activity"
    assert rejected("csv", data, time_column="z").startswith("no column 'z'")


def test_all_columns_but_the_time_are_channels():
    found = read("csv", b"x,t,y\n5,0.5,6\n7,0.75,8\n", time_column="t")
    same(found.arrays["signal"], np.array([[5.0, 6], [7, 8]]))
    same(found.times, np.array([0.5, 0.75]))
    message = "it has no column but the time 't'"
    assert rejected("csv", b"t\n1\n2\n", time_column="t") == message


def test_a_column_of_text_is_refused_with_the_cure():
    data = b"x,activity\n1,2\n\n1,walking\n"
    assert rejected("csv", data) == (
        "column 'activity' is not numeric: 'walking' in row 2; choose others with --columns"
    )
    same(signal("csv", data, columns=("x",)), np.array([[1.0], [1]]))
    assert rejected("csv", b"1,2\n3,x\n") == "not a whole .csv file: 'x' in row 2 is no number"


def test_columns_need_names_to_be_chosen_by():
    for options in ({"columns": ("x",)}, {"time_column": "x"}):
        message = "its first line has no names for --columns and --time_column"
        assert rejected("csv", b"1,2\n3,4\n", **options) == message


def test_a_name_that_two_columns_have_chooses_none():
    data = b"t,x,x\n0,1,2\n"
    assert rejected("csv", data, columns=("x",)) == "two columns 'x': the file has t, x, x"
    same(signal("csv", data), np.array([[0.0, 1, 2]]))


def test_empty_cells_are_nan():
    nan = np.nan
    same(signal("csv", b"x,y\n1,\n , 2 \n"), np.array([[1, nan], [nan, 2]]))
    same(signal("csv", b"1,\n2,3\n"), np.array([[1, nan], [2, 3]]))
    same(signal("csv", b",\n2,3\n"), np.array([[nan, nan], [2, 3]]))
    same(signal("csv", b",x\n0,1\n"), np.array([[0.0, 1]]))
    same(signal("csv", b"x\n\n \n1\n"), np.array([[nan], [1]]))


def test_tables_of_several_blocks_are_read_and_their_rows_counted():
    lines = [f"{i},{i * 2},\n" for i in range(2 * tables._BLOCK + 5)]
    found = read("csv", "".join(["t,x,y\n", *lines]).encode(), time_column="t")
    same(found.times, np.arange(float(len(lines))))
    same(found.arrays["signal"][:, 0], np.arange(float(len(lines))) * 2)
    lines[5000] = "5000,oops,\n"
    assert "'oops' in row 5001;" in rejected("csv", "".join(["t,x,y\n", *lines]).encode())
    for row, count in (("4999,1\n", 2), ("4999,1,2,3\n", 4)):
        lines[4999] = row
        found = rejected("csv", "".join(["t,x,y\n", *lines]).encode())
        assert found == f"row 5000 has {count} values, not 3"


@pytest.mark.parametrize(("unit", "scale"), [("s", 1), ("ms", 10**3), ("us", 10**6), ("ns", 10**9)])
def test_times_are_numbers_of_a_unit(unit, scale):
    moments = [0, 0.25, 3.5]
    text = "t,x\n" + "".join(f"{moment * scale!r},1\n" for moment in moments)
    for cell in ("", "\n5000000000000,\n"):  # the fast way, and the careful one
        found = read("csv", (text + cell).encode(), time_column="t", time_unit=unit)
        same(found.times[:3], np.array(moments))


TIMES = st.datetimes(datetime.datetime(1700, 1, 1), datetime.datetime(2199, 12, 31))
ZONES = st.sampled_from(
    [None, *(datetime.timezone(datetime.timedelta(minutes=m)) for m in (0, 330, -60))]
)


@given(st.lists(TIMES, min_size=1, max_size=5, unique=True), ZONES, st.sampled_from("T "))
@settings(max_examples=60, deadline=None)
@pytest.mark.filterwarnings("ignore:no explicit representation")
def test_times_may_be_iso_8601(moments, zone, separator):
    moments = sorted(moments)
    cells = [moment.replace(tzinfo=zone).isoformat(separator) for moment in moments]
    utc = datetime.timezone.utc
    epoch = datetime.datetime(1970, 1, 1, tzinfo=utc)
    microsecond = datetime.timedelta(microseconds=1)
    expected = [
        (moment.replace(tzinfo=zone or utc) - epoch) // microsecond / 1e6 for moment in moments
    ]
    text = "t,x\n" + "".join(f"{cell},1\n" for cell in cells)
    np.testing.assert_allclose(
        read("csv", text.encode(), time_column="t").times, expected, rtol=0, atol=1e-6
    )


@pytest.mark.filterwarnings("ignore:no explicit representation")
@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        (["2024-01-01", "2024-01-02"], [1704067200, 1704153600]),
        (["2024-01-01T00:00Z", "2024-01-01T00:00:00.5Z"], [1704067200, 1704067200.5]),
        (["1970-01-01 00:00:00.000000001", "1970-01-01 00:00:01"], [1e-9, 1]),
        (["1969-12-31T23:59:59.75", "1970-01-01"], [-0.25, 0]),
    ],
)
def test_times_may_be_written_short_or_long(cells, expected):
    text = "t,x\n" + "".join(f"{cell},1\n" for cell in cells)
    same(read("csv", text.encode(), time_column="t").times, np.array(expected, np.float64))


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        ("now", "row 1: time 'now' is neither a number nor ISO 8601"),
        ("1,NaT", "row 2: time 'NaT' is neither"),
        ("2024-01-01,today", "row 2: time 'today' is neither"),
        ("2024-01-01,5", "row 2: time '5' is neither a number nor ISO 8601, or not the one that"),
        ("5,2024-01-01", "row 2: time '2024-01-01' is neither"),
        ("12:30:05", "row 1: time '12:30:05' is neither"),
        ("0001-01-01", "row 1: time '0001-01-01' is neither"),
        ("2024-13-01", "not a whole .csv file: Month out of range"),
        ("1,,3", "row 2: time nan is not finite"),
        ("1,nan", "row 2: time nan is not finite"),
        ("1,inf", "row 2: time inf is not finite"),
        ("1,2,2", "row 3: time 2.0 s does not come after 2.0 s"),
        ("3,4,1", "row 3: time 1.0 s does not come after 4.0 s"),
        ("2024-01-02,2024-01-01", "row 2: time 1704067200.0 s does not come after 1704153600.0 s"),
    ],
)
def test_times_that_no_clock_shows_are_rejected(cells, message):
    text = "t,x\n" + "".join(f"{cell},1\n" for cell in cells.split(","))
    assert rejected("csv", text.encode(), time_column="t").startswith(message)


def test_a_table_is_measured_before_it_is_read(monkeypatch):
    limited(monkeypatch, 63)
    for end in ("\n", "\r\n", "\r"):
        assert signal("csv", end.join(["1,2", "3,4", "5,6"]).encode()).nbytes == 48
        found = rejected("csv", end.join(["1,2,3", "3,4,5", "5,6"]).encode())
        assert found.startswith("it unpacks to 64 bytes, more than a record")


# Archives.


def npz(**arrays) -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()


def test_only_the_arrays_that_are_asked_for_are_read():
    data = npz(x=np.arange(3), names=np.array(["a", None], object))
    same(signal("npz", data, arrays=("x",)), np.arange(3))
    assert "pickled objects" in rejected("npz", data)


def test_the_only_array_of_a_file_has_no_other_name():
    buffer = io.BytesIO()
    np.save(buffer, np.arange(3))
    for kind, data in (("npy", buffer.getvalue()), ("wav", WHOLE), ("csv", b"1\n2\n")):
        assert signal(kind, data, arrays=("signal",)) is not None
        found = rejected(kind, data, arrays=("xyz",))
        assert found == "no array 'xyz': the file has signal"


def h5(**arrays) -> bytes:
    def write(file):
        for name, array in arrays.items():
            file[name] = array

    return h5_of(write)


def h5_of(write) -> bytes:
    buffer = io.BytesIO()
    with h5py.File(buffer, "w") as file:
        write(file)
    return buffer.getvalue()


DTYPES = [
    "bool",
    "int8",
    "uint8",
    ">i2",
    "int64",
    "uint64",
    "float16",
    ">f4",
    "float64",
    "complex64",
]


@pytest.mark.parametrize("dtype", DTYPES)
def test_h5_files_of_every_dtype_are_read(dtype):
    array = (np.arange(12).reshape(4, 3) % 2).astype(dtype)
    same(signal("h5", h5(x=array)), array)
    same(signal("hdf5", h5(x=array)), array)


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
    same(found["a"], np.arange(1000))
    same(found["imu/acc/x"], np.zeros((3, 0)))
    same(signal("h5", data, arrays=("imu/gyro",)), np.ones((3, 2), np.int16))
    assert list(read("h5", data, arrays=("z", "a")).arrays) == ["z", "a"]
    found = rejected("h5", data, arrays=("imu",))
    assert found == "no array 'imu': the file has a, imu/acc/x, imu/gyro, z"


def test_what_is_no_series_of_numbers_is_left_out_unless_it_is_asked_for():
    def write(file):
        file["x"] = np.arange(3)
        file["single"] = 5
        file["none"] = h5py.Empty("f4")
        file["text"] = ["a", "b"]
        file["bytes"] = np.array([b"a", b"b"])
        file["table"] = np.zeros(3, [("t", "f4"), ("x", "f4")])
        file["type"] = np.dtype("f4")
        file.create_dataset("ragged", (2,), h5py.vlen_dtype(np.int32))

    data = h5_of(write)
    same(signal("h5", data), np.arange(3))
    for name, message in {
        "single": "array 'single' is int64 []: expected numbers along time",
        "none": "array 'none' is float32 []: expected",
        "text": "array 'text' is object [2]: expected",
        "bytes": "array 'bytes' is |S1 [2]: expected",
        "ragged": "array 'ragged' is object [2]: expected",
        "table": "array 'table' is [('t', '<f4'), ('x', '<f4')] [3]: expected",
        "type": "no array 'type'",
    }.items():
        assert rejected("h5", data, arrays=("x", name)).startswith(message)


def test_an_h5_file_without_numbers_is_rejected():
    assert rejected("h5", h5(text=["a"])) == "it holds no array of numbers"
    assert rejected("h5", h5()) == "it holds no array of numbers"


def test_names_of_other_features_are_refused_in_every_archive():
    for kind, data in (("npz", npz(x=[1], key=[2])), ("h5", h5(x=[1], key=[2]))):
        assert rejected(kind, data) == "an array may not be called 'key': choose with --arrays"


def test_soft_links_are_not_followed():
    def write(file):
        file["x"] = np.arange(3)
        file["soft"] = h5py.SoftLink("/x")
        file["nowhere"] = h5py.SoftLink("/y")

    same(signal("h5", h5_of(write)), np.arange(3))
    assert rejected("h5", h5_of(write), arrays=("soft",)) == "no array 'soft': the file has x"


def test_groups_that_hold_themselves_are_entered_once():
    def write(file):
        file["g/x"] = np.arange(3)
        file["g/self"] = file["g"]
        file["g/root"] = file["/"]

    same(signal("h5", h5_of(write)), np.arange(3))


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
        for arrays in ((), ("far",)):
            found = rejected("h5", data, arrays=arrays)
            assert found == "array 'far' lies in another file, which is never opened"
        same(signal("h5", data, arrays=("x",)), np.array([1]))


def test_an_h5_file_that_claims_a_huge_array_is_rejected_unread():
    for shape, chunks in (((2**28 + 1,), (1000,)), ((10,), (2**28 + 1,))):
        data = resizable(shape, chunks)
        assert len(data) < 10_000
        size = 2**31 + 8
        expected = f"it unpacks to {size} bytes, more than a record can hold (2 GiB)"
        assert rejected("h5", data) == expected
    halves = h5_of(lambda file: [file.create_dataset(name, 2**27 + 1, "f8") for name in "ab"])
    assert rejected("h5", halves).startswith("it unpacks to 2147483664 bytes")


# Parquet.


def parquet(columns: dict, **options) -> bytes:
    buffer = io.BytesIO()
    pq.write_table(pa.table(columns), buffer, **options)
    return buffer.getvalue()


NUMBERS = [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)] + [
    "float16",
    "float32",
    "float64",
    "bool",
]


@pytest.mark.parametrize("dtype", NUMBERS)
def test_parquet_columns_of_every_dtype_are_read(dtype):
    column = (np.arange(6) % 2).astype(dtype)
    found = read("parquet", parquet({"x": column, "y": ~column if dtype == "bool" else column + 1}))
    expected = np.stack([column, ~column if dtype == "bool" else column + np.ones((), dtype)], 1)
    same(found.arrays["signal"], expected)
    assert (found.rate, found.times) == (None, None)


@pytest.mark.parametrize(("one", "two"), [*itertools.combinations(NUMBERS[:3] + NUMBERS[6:], 2)])
def test_columns_become_the_dtype_that_holds_them(one, two):
    found = signal("parquet", parquet({"x": np.ones(3, one), "y": np.zeros(3, two)}))
    same(found, np.array([[1, 0]] * 3).astype(np.result_type(np.dtype(one), np.dtype(two))))


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("int8", "float64"),
        ("uint64", "float64"),
        ("bool", "float64"),
        ("float32", "float32"),
        ("float64", "float64"),
    ],
)
def test_nulls_are_nan(kind, expected):
    column = pa.array([1, None, 0], "int8").cast(kind)
    same(signal("parquet", parquet({"x": column})), np.array([[1], [np.nan], [0]], expected))


def test_parquet_columns_are_chosen_by_name():
    data = parquet({"t": [0, 1], "s": ["a", "b"], "x": [1, 2], "l": [[1], [2]], "y": [3, 4]})
    same(signal("parquet", data), np.array([[0, 1, 3], [1, 2, 4]]))
    same(signal("parquet", data, columns=("y", "x", "y")), np.array([[3, 1, 3], [4, 2, 4]]))
    same(signal("parquet", data, time_column="t"), np.array([[1, 3], [2, 4]]))
    found = read("parquet", data, columns=("t",), time_column="t")
    same(found.arrays["signal"], np.array([[0], [1]]))
    same(found.times, np.array([0.0, 1]))
    assert rejected("parquet", data, columns=("z",)) == "no column 'z': the file has t, s, x, l, y"
    assert rejected("parquet", data, time_column="z").startswith("no column 'z'")


@pytest.mark.parametrize(
    ("column", "kind"),
    [
        (["a"], "string"),
        ([[1]], "list<element: int64>"),
        ([{"a": 1}], "struct<a: int64>"),
        ([datetime.date(2024, 1, 1)], "date32[day]"),
        (pa.array([1], pa.decimal128(5, 2)), "decimal128(5, 2)"),
    ],
)
def test_columns_of_anything_but_numbers_are_refused_with_the_cure(column, kind):
    data = parquet({"x": [1], "other": column})
    assert rejected("parquet", data, columns=("other",)) == (
        f"column 'other' is not numeric but {kind}: choose others with --columns"
    )
    same(signal("parquet", data), np.array([[1]]))
    alone = rejected("parquet", parquet({"other": column}))
    assert alone == "no column of numbers but the time: the file has other"


def test_names_with_dots_are_names_of_columns():
    data = parquet({"a": [1], "a.b": [2], "s": [{"b": 3}], "s.b": [4]})
    same(signal("parquet", data, columns=("s.b", "a.b")), np.array([[4, 2]]))
    same(signal("parquet", data), np.array([[1, 2, 4]]))


def test_two_parquet_columns_of_a_name_are_rejected():
    buffer = io.BytesIO()
    pq.write_table(pa.Table.from_arrays([pa.array([1]), pa.array([2])], ["x", "x"]), buffer)
    assert rejected("parquet", buffer.getvalue()) == "two columns 'x': the file has x, x"


def test_recordings_of_many_row_groups_or_of_none_are_read():
    x = np.arange(1000)
    same(signal("parquet", parquet({"x": x}, row_group_size=7)), x[:, None])
    found = read("parquet", parquet({"x": x[:0], "t": x[:0]}), time_column="t")
    same(found.arrays["signal"], np.empty((0, 1), np.int64))
    same(found.times, np.empty(0))


def test_columns_that_nobody_asks_for_are_never_read():
    columns = {"x": np.arange(100), "s": [f"text {i}" for i in range(100)]}
    data = bytearray(parquet(columns, compression="none"))
    chunk = pq.ParquetFile(io.BytesIO(data)).metadata.row_group(0).column(1)
    begin = chunk.dictionary_page_offset
    data[begin : begin + chunk.total_compressed_size] = bytes(chunk.total_compressed_size)
    with pytest.raises(OSError):
        pq.read_table(io.BytesIO(data))
    same(signal("parquet", bytes(data)), np.arange(100)[:, None])


def test_a_parquet_file_is_measured_before_it_is_read(monkeypatch):
    data = parquet({"x": np.zeros(10, np.int8), "y": np.zeros(10), "s": ["long text"] * 10})
    limited(monkeypatch, 159)
    assert rejected("parquet", data).startswith("it unpacks to 160 bytes, more than a record")
    assert signal("parquet", data, columns=("x",)).shape == (10, 1)


SECONDS = [1_700_000_000, 1_700_000_001, 1_800_000_000]


@pytest.mark.parametrize("zone", [None, "Europe/Berlin"])
@pytest.mark.parametrize(("unit", "scale"), [("s", 1), ("ms", 10**3), ("us", 10**6), ("ns", 10**9)])
def test_times_of_a_parquet_file_are_timestamps_or_numbers(unit, scale, zone):
    ticks = [second * scale + scale // 4 for second in SECONDS]
    stamps = pa.array(ticks, pa.timestamp(unit, zone))
    expected = np.array([second + scale // 4 / scale for second in SECONDS])
    found = read("parquet", parquet({"t": stamps, "x": [1, 2, 3]}), time_column="t")
    same(found.times, expected)
    assert found.arrays["signal"].shape == (3, 1)
    for kind in ("int64", "uint64", "float64"):
        data = parquet({"t": pa.array(ticks).cast(kind, safe=False), "x": [1, 2, 3]})
        found = read("parquet", data, time_column="t", time_unit=unit)
        np.testing.assert_allclose(found.times, expected, rtol=0, atol=2.5e-7)


def test_timestamps_are_exact_to_a_microsecond_however_fine_they_are():
    ticks = 1_700_000_000_123_456_789 + np.arange(1000) * 1000
    found = read(
        "parquet", parquet({"t": pa.array(ticks, pa.timestamp("ns")), "x": ticks}), time_column="t"
    )
    exact = [divmod(int(tick), 10**9) for tick in ticks]
    assert all(
        abs((t - whole) - rest / 1e9) < 2.5e-7
        for t, (whole, rest) in zip(found.times, exact, strict=True)
    )


def test_times_may_be_dates():
    days = [datetime.date(2024, 1, 1), datetime.date(2024, 1, 2)]
    for kind in ("date32", "date64"):
        data = parquet({"t": pa.array(days).cast(kind), "x": [1, 2]})
        same(read("parquet", data, time_column="t").times, np.array([1704067200.0, 1704153600]))


@pytest.mark.parametrize(
    ("times", "message"),
    [
        (["a", "b"], "column 't' is string: expected numbers, timestamps or dates as times"),
        (pa.array([1, 2], pa.time64("us")), "column 't' is time64[us]: expected numbers"),
        (pa.array([1, None]), "row 2: time nan is not finite"),
        (pa.array([1, None], pa.timestamp("ms")), "row 2: time nan is not finite"),
        (pa.array([2.5, 2.5]), "row 2: time 2.5 s does not come after 2.5 s"),
        (pa.array([2, 1], pa.timestamp("s")), "row 2: time 1.0 s does not come after 2.0 s"),
    ],
)
def test_parquet_times_that_no_clock_shows_are_rejected(times, message):
    found = rejected("parquet", parquet({"t": times, "x": [1, 2]}), time_column="t")
    assert found.startswith(message)


# Any file.


@pytest.mark.parametrize("kind", ["txt", "mp3", "", "WAV"])
def test_other_kinds_are_rejected(kind):
    assert rejected(kind, b"") == (
        "expected a file of one of the kinds .npy, .npz, .csv, .wav, .flac, .parquet, .h5, .hdf5, "
        "by its name"
    )


FILES = {
    "npz": npz(x=waves(2, 20), y=waves(1, 20)),
    "csv": b"t,x,y\n" + b"".join(b"%d,1.5,2\n" % i for i in range(40)),
    "wav": sound(waves(3, 20), "PCM_24", "WAVEX"),
    "flac": sound(waves(2, 500), "PCM_16", "FLAC"),
    "parquet": parquet({"t": np.arange(40), "x": [None, 2] * 20, "s": ["a"] * 40}),
    "h5": h5(x=waves(2, 20), g=np.arange(5), s="text"),
}


@pytest.mark.parametrize("kind", FILES)
def test_a_file_that_is_empty_or_something_else_is_rejected(kind):
    for data in (b"", b"\xff" * 1000, b"\0" * 1000):
        found = rejected(kind, data)
        assert found.startswith(f"not a whole .{kind} file: ") or found == "the file is empty"


@pytest.mark.parametrize("kind", FILES)
@given(st.data())
@settings(max_examples=60, deadline=None)
def test_a_damaged_file_is_rejected_or_read_and_nothing_else(kind, data):
    whole = FILES[kind]
    damaged = bytearray(
        whole[: data.draw(st.one_of(st.just(len(whole)), st.integers(0, len(whole))))]
    )
    for _ in range(data.draw(st.integers(1, 4)) if damaged else 0):
        # The heads and tails of formats are where the traps are.
        near = st.integers(0, min(len(damaged), 400) - 1)
        place = data.draw(
            st.one_of(near, near.map(lambda i: -1 - i), st.integers(0, len(damaged) - 1))
        )
        damaged[place] = data.draw(st.integers(0, 255))
    reading = Reading(time_column="t" if kind in ("csv", "parquet") else "")
    try:
        found = read_recording(kind, bytes(damaged), reading)
    except RejectError:
        return
    assert all(array.ndim for array in found.arrays.values())
    assert found.times is None or len(found.times) == len(found.arrays["signal"])


def test_nothing_heavy_is_imported_before_a_file_needs_it():
    code = "import sys, beam_jobs.jobs.sensors.formats, beam_jobs.jobs.sensors.signals; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    heavy = {"apache_beam", "tensorflow", "pyarrow", "h5py", "soundfile", "scipy", "pandas"}
    assert not heavy & set(loaded.stdout.split())
