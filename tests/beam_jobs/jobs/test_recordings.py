"""Recordings of every format, compared with what other libraries read in the same bytes."""

import contextlib
import csv
import datetime
import gzip
import io
import itertools
import json
import pickle
import struct
import subprocess
import sys
import tracemalloc
import zipfile
from pathlib import Path

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.io.wavfile
import soundfile
from hypothesis import given, settings
from hypothesis import strategies as st

from beam_jobs.errors import RejectError, UsageError
from beam_jobs.jobs.sensors import recording
from beam_jobs.jobs.sensors.formats import delimited, json_lines, registry, wav
from beam_jobs.jobs.sensors.formats.registry import read_recording
from beam_jobs.jobs.sensors.recording import ReadOptions, Recording
from tests.support.arrays import assert_same

RATE = 16_000


def read(kind: str, data: bytes, **options) -> Recording:
    return read_recording(f"walk.{kind}", data, ReadOptions(**options))


def signal(kind: str, data: bytes, **options) -> np.ndarray:
    """The only array of a recording."""
    (found,) = read(kind, data, **options).arrays.items()
    assert found[0] == "signal"
    return found[1]


def rejected(kind: str, data: bytes, **options) -> str:
    """The reason why a file is not a recording."""
    with pytest.raises(RejectError) as caught:
        read(kind, data, **options)
    return str(caught.value)


def limit_records(monkeypatch, size: int) -> None:
    """Lowers the largest size of a record, in bytes."""
    monkeypatch.setattr(recording, "MAX_RECORD_BYTES", size)


# Audio.


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
    assert_same(found.arrays["signal"], expected.reshape(-1, channels))
    assert (found.rate, found.times) == (rate, None)


@pytest.mark.parametrize("subtype", WAVES[:4])
def test_samples_become_the_floats_that_soundfile_gives(subtype):
    data = sound(waves(), subtype)
    expected, _ = soundfile.read(io.BytesIO(data), dtype="float32", always_2d=True)
    assert_same(signal("wav", data, float_audio=True), expected)


def test_float_samples_are_unchanged():
    for subtype, dtype in (("FLOAT", np.float32), ("DOUBLE", np.float64)):
        values = (waves() * 3).astype(dtype)
        assert_same(signal("wav", sound(values, subtype), float_audio=True), values)


@pytest.mark.parametrize("subtype", WAVES)
def test_the_channels_of_audio_are_mixed_to_their_mean(subtype):
    data = sound(waves(3), subtype)
    for floats in (False, True):
        expected = signal("wav", data, float_audio=floats)
        found = signal("wav", data, float_audio=floats, mono=True)
        assert (found.dtype, found.shape) == (expected.dtype, (500, 1))
        exact = expected.astype(np.float64).mean(1, keepdims=True)
        np.testing.assert_allclose(found, exact, rtol=1e-6, atol=1e-7 if floats else 0.5)
    one = sound(waves(1), subtype)
    assert_same(signal("wav", one, mono=True), signal("wav", one))


def test_other_chunks_of_a_wav_file_are_skipped():
    samples = chunk(b"data", SAMPLES.tobytes())
    for chunks in (
        (chunk(b"LIST", b"odd"), chunk(b"fmt ", form()), chunk(b"fact", b""), samples),
        (chunk(b"fmt ", form()), samples, chunk(b"LIST", b"more"), b"rubbish"),
        (chunk(b"fmt ", form() + b"\0\0"), samples),
    ):
        assert_same(signal("wav", riff(*chunks)), SAMPLES)


def test_audio_without_samples_is_rejected():
    empty = chunk(b"data", b"")
    head = chunk(b"fmt ", form(channels=3))
    for data in (riff(head, empty), riff(head, empty, chunk(b"LIST", b"more"))):
        assert rejected("wav", data) == "the recording has no samples"


UNKNOWN = b"\xff" * 4


@pytest.mark.parametrize("whole_size", [UNKNOWN, struct.pack("<I", 36), bytes(4)])
@pytest.mark.parametrize("audio_size", [UNKNOWN, bytes(4)])
def test_audio_whose_size_was_never_written_is_read_to_the_end_of_the_file(whole_size, audio_size):
    data = b"RIFF" + whole_size + WHOLE[8:40] + audio_size + WHOLE[44:]
    assert_same(signal("wav", data), SAMPLES)
    assert_same(signal("wav", data + b"\0"), SAMPLES)
    assert rejected("wav", data[:44]) == "the recording has no samples"


def test_streamed_audio_with_other_chunks_before_it_is_what_soundfile_reads():
    data = riff(
        chunk(b"LIST", b"Lavf"),
        chunk(b"fmt ", form()),
        b"data" + UNKNOWN + waves()[:, :1].tobytes(),
    )
    expected, _ = soundfile.read(io.BytesIO(data), dtype="int16", always_2d=True)
    assert_same(signal("wav", data), expected)


@pytest.mark.parametrize("subtype", WAVES)
def test_the_form_of_wav_for_large_files_is_read(subtype):
    values = waves()
    expected = signal("wav", sound(values, subtype))
    assert_same(signal("wav", sound(values, subtype, "RF64")), expected)
    samples = SAMPLES.tobytes()
    sizes = struct.pack("<QQQI", 100, len(samples), 3, 0)
    data = b"RF64" + UNKNOWN + b"WAVE" + chunk(b"ds64", sizes) + chunk(b"fmt ", form())
    data += b"data" + UNKNOWN
    assert_same(signal("wav", data + samples + chunk(b"LIST", b"more")), SAMPLES)
    assert "after 5 of 6 bytes" in rejected("wav", data + samples[:5])


WHOLE = riff(chunk(b"fmt ", form()), chunk(b"data", SAMPLES.tobytes()))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "it does not begin with a RIFF WAVE header"),
        (WHOLE[:8] + b"AVI " + WHOLE[12:], "it does not begin with a RIFF WAVE header"),
        (WHOLE[:12], "the file ends before its audio"),
        (WHOLE[:-1], "the file ends in its audio, after 5 of 6 bytes"),
        (WHOLE[:40] + b"\xfe" * 4 + WHOLE[44:], "in its audio, after 6 of 4278124286 bytes"),
        (WHOLE[:16] + b"\xff" * 4 + WHOLE[20:], "in its header, after 30 of 4294967295 bytes"),
        (riff(chunk(b"data", b""), chunk(b"fmt ", form())), "its format does not come before"),
        (riff(chunk(b"fmt ", form()[:15]), chunk(b"data", b"")), "its format has 15 bytes"),
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


def heard(data: bytes, dtype: str) -> np.ndarray:
    """[time, channels] as libsndfile reads it."""
    with soundfile.SoundFile(io.BytesIO(data)) as file:
        return file.read(file.frames, dtype, always_2d=True)


@pytest.mark.parametrize("subtype", ["ALAW", "ULAW", "IMA_ADPCM", "MS_ADPCM", "GSM610", "G721_32"])
def test_compressed_audio_in_a_wav_file_is_what_soundfile_reads(subtype):
    one = subtype in ("GSM610", "G721_32")  # which have one channel
    data = sound(waves(1 if one else 2, 2000), subtype)
    assert_same(signal("wav", data), heard(data, "int16"))
    assert_same(signal("wav", data, float_audio=True), heard(data, "float32"))
    if subtype == "ULAW":
        cut = rejected("wav", data[:-5])
        assert cut == "not a whole .wav file: the file ends in its audio, after 3995 of 4000 bytes"
        missing_pad = sound(waves(1, 2001), subtype)[:-1]
        assert len(signal("wav", missing_pad)) == 2001


def test_big_endian_wav_files_are_what_soundfile_reads():
    buffer = io.BytesIO()
    soundfile.write(buffer, waves(), RATE, subtype="PCM_24", format="WAV", endian="BIG")
    data = buffer.getvalue()
    assert data.startswith(b"RIFX")
    assert_same(signal("wav", data), heard(data, "int32"))
    assert "the file ends in its audio, after 2999 of 3000" in rejected("wav", data[:-1])


def test_other_audio_that_is_called_wav_is_read():
    for kind, subtype in (("NIST", "PCM_16"), ("AIFF", "PCM_16")):
        data = sound(waves(), subtype, kind)
        assert_same(signal("wav", data), heard(data, "int16"))


@pytest.mark.parametrize(("tag", "bits"), [(1, 64), (3, 16), (16, 16), (0xFFFE, 16)])
def test_samples_that_nobody_reads_are_rejected(tag, bits):
    data = riff(chunk(b"fmt ", form(tag, bits=bits)), chunk(b"data", b""))
    found = rejected("wav", data)
    assert found.startswith(f"audio of format {tag} with {bits} bits cannot be read: ")


def test_an_extensible_wav_file_of_an_unknown_format_is_rejected():
    tail = struct.pack("<HHIH", 22, 16, 4, 1) + wav._WAVE_GUID
    for end, known in ((tail, True), (tail[:-1] + b"\0", False)):
        data = riff(chunk(b"fmt ", form(0xFFFE) + end), chunk(b"data", SAMPLES.tobytes()))
        with (
            contextlib.nullcontext()
            if known
            else pytest.raises(
                RejectError, match=r"^audio of format 65534 with 16 bits cannot be read: "
            )
        ):
            assert_same(signal("wav", data), SAMPLES)


def test_the_size_of_samples_is_checked_before_they_are_read(monkeypatch):
    limit_records(monkeypatch, 100)
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
        assert_same(found.arrays["signal"], expected)
        assert (found.rate, found.times) == (RATE, None)


# Suffix, format and encoding, and the dtype in which the samples are read.
SOUNDS = [
    ("ogg", "OGG", "VORBIS", "float32"),
    ("opus", "OGG", "OPUS", "float32"),
    ("mp3", "MP3", "MPEG_LAYER_III", "float32"),
    ("aiff", "AIFF", "PCM_16", "int16"),
    ("aif", "AIFF", "PCM_24", "int32"),
    ("aifc", "AIFF", "PCM_U8", "int16"),
    ("au", "AU", "DOUBLE", "float64"),
    ("snd", "AU", "ULAW", "int16"),
    ("caf", "CAF", "ALAC_24", "int32"),
    ("w64", "W64", "FLOAT", "float32"),
    ("voc", "VOC", "PCM_16", "int16"),
    ("sph", "NIST", "PCM_16", "int16"),
]
SOUND_FILES = {
    kind: sound(waves(length=48_000) / 2, subtype, name) for kind, name, subtype, _ in SOUNDS
}


@pytest.mark.parametrize(("kind", "name", "subtype", "dtype"), SOUNDS)
def test_other_audio_is_what_soundfile_reads(kind, name, subtype, dtype):
    data = SOUND_FILES[kind]
    found = read(kind, data)
    assert_same(found.arrays["signal"], heard(data, dtype))
    assert found.rate == RATE
    if dtype != "float64":
        assert_same(signal(kind, data, float_audio=True), heard(data, "float32"))
    assert signal(kind, data, mono=True).shape == (len(heard(data, dtype)), 1)


@pytest.mark.parametrize("kind", SOUND_FILES)
@pytest.mark.parametrize("cut", [1, 1500, 20_000])
def test_audio_that_is_cut_is_rejected_where_the_library_notices(kind, cut, monkeypatch):
    data = SOUND_FILES[kind][:-cut]
    # docs/inputs.md names these.
    blind = kind == "sph" or (kind in ("mp3", "caf", "voc") and cut == 1)
    if not blind:
        assert rejected(kind, data).startswith(f"not a whole .{kind} file: ")
    else:
        assert 0 < len(signal(kind, data)) <= 48_000


@pytest.mark.parametrize("kind", ["ogg", "opus"])
def test_a_hole_in_ogg_is_rejected(kind):
    data = bytearray(SOUND_FILES[kind])
    data[len(data) // 2] ^= 4
    assert rejected(kind, bytes(data)).startswith(f"not a whole .{kind} file: it has ")


def test_an_mp3_file_without_a_count_is_read_whole_or_rejected():
    for mode in ("CONSTANT", "VARIABLE"):
        buffer = io.BytesIO()
        quiet_first = waves(1, 48_000) * np.linspace(1e-4, 1, 48_000)[:, None]
        soundfile.write(
            buffer, quiet_first, RATE, format="MP3", compression_level=0.5, bitrate_mode=mode
        )
        data = buffer.getvalue()
        without = data[data.find(data[:2], 10) :]  # the first frame holds the count
        assert len(signal("mp3", data)) == 48_000
        if mode == "CONSTANT":
            assert len(signal("mp3", without)) >= 48_000
        else:
            assert "the number of samples: encode it again" in rejected("mp3", without)


def test_seeks_of_decoders_before_the_first_byte_print_nothing(capfd):
    rejected("mp3", SOUND_FILES["mp3"][:200])
    assert "Traceback" not in capfd.readouterr().err


def test_a_damaged_file_or_another_format_is_not_flac():
    data = sound(waves(), "PCM_16", "FLAC")
    for damaged in (b"", sound(waves(), "PCM_16"), data[:60], data[:-1], data[:900] + data[901:]):
        assert rejected("flac", damaged).startswith("not a whole .flac file: ")


def claimed_frames(frames: int) -> bytes:
    """A FLAC file that claims a number of samples, in the 36 bits of its header for them."""
    data = bytearray(sound(waves(), "PCM_16", "FLAC"))
    data[21] = data[21] & 0xF0 | frames >> 32
    data[22:26] = struct.pack(">I", frames & 0xFFFFFFFF)
    return bytes(data)


def test_a_flac_file_that_claims_more_samples_than_it_has_is_rejected():
    assert rejected("flac", claimed_frames(501)).startswith("not a whole .flac file: ")
    message = f"it unpacks to {(2**36 - 1) * 4} bytes, more than a record can hold (2 GiB)"
    assert rejected("flac", claimed_frames(2**36 - 1)) == message
    assert "does not state the number of samples" in rejected("flac", claimed_frames(0))


def test_a_flac_file_that_libsndfile_reads_only_in_part_is_rejected(monkeypatch):
    # Some versions of libsndfile stop early without an error.
    monkeypatch.setattr(soundfile.SoundFile, "read", lambda *_, **__: np.zeros((3, 2), np.int16))
    found = rejected("flac", sound(waves(), "PCM_16", "FLAC"))
    assert found == "not a whole .flac file: it has 3 of 500 samples"


@pytest.mark.parametrize(
    ("kind", "module", "extra"),
    [
        ("flac", "soundfile", "audio"),
        ("h5", "h5py", "hdf5"),
        ("parquet", "pyarrow", "beam"),
        ("csv", "pyarrow", "beam"),
    ],
)
def test_a_missing_library_is_named_with_the_way_to_get_it(monkeypatch, kind, module, extra):
    for name in [name for name in sys.modules if name.split(".")[0] == module]:
        monkeypatch.setitem(sys.modules, name, None)
    registry._reader.cache_clear()
    with pytest.raises(UsageError) as caught:
        read(kind, b"1")
    assert f".{kind} files need {module}" in caught.value.message
    assert f"pip install 'beam-shards[{extra}]'" in caught.value.message


# Tables of text.

FLOATS = st.floats(allow_nan=True, allow_infinity=True)


@given(st.lists(st.tuples(FLOATS, FLOATS, st.integers(-(2**70), 2**70)), max_size=6), st.booleans())
@settings(max_examples=60, deadline=None)
def test_numbers_are_what_python_reads(rows, header):
    text = "a,b,c\n" * header + "".join(f"{a!r}, {b:.3e},{c}\r\n" for a, b, c in rows)
    if not text:
        return
    expected = [[float(cell) for cell in line.split(",")] for line in text.splitlines()[header:]]
    assert_same(signal("csv", text.encode()), np.array(expected, np.float64).reshape(-1, 3))


MISSING = ("", "na", "n/a", "-", "nan", "null")


def by_python(text: str, header: bool) -> np.ndarray | None:
    """float64 [rows, columns] as Python reads a table of numbers; None if it is not one."""

    def value(cell: str) -> float:
        return np.nan if cell.strip().lower() in MISSING else float(cell)

    def is_value(cell: str) -> bool:
        with contextlib.suppress(ValueError):
            value(cell)
            return True
        return False

    try:
        rows = [row for row in csv.reader(io.StringIO(text, newline="")) if row]
        if "\0" in text or len({len(row) for row in rows}) != 1:
            return None
        names = int(header)
        if header and len(rows) > 2:  # the units of the columns
            words = [cell for cell in rows[1] if cell.strip()]
            below = [is_value(cell) for cell in rows[2] if cell]
            names += bool(words) and not any(map(is_value, words)) and any(below)
        cells = [[value(cell) for cell in row] for row in rows[names:]]
        table = np.array(cells, np.float64).reshape(-1, len(rows[0]))
        # A comma at the end of every line makes no channel.
        return (
            table[:, :-1]
            if not header and len(rows[0]) > 1 and np.isnan(table[:, -1]).all()
            else table
        )
    except (csv.Error, ValueError):
        return None


@given(st.text('0123456789.,,,\n\n\r" -+eEnaif_\t\x00\xa0x#\u0661', max_size=40), st.booleans())
@settings(max_examples=300, deadline=None)
def test_any_table_is_what_python_reads_or_rejected(text, header):
    text = "x,y\n" * header + text
    expected = by_python(text, header)
    if expected is not None:
        assert_same(signal("csv", text.encode()), expected)
    elif header:  # without one, the first row becomes the header if it is not numeric
        rejected("csv", text.encode())


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("bom", ["", "\ufeff"])
@pytest.mark.parametrize("header", ["", "x,y\n", '"time, s",y\n', "\n\nx,y\n"])
def test_csv_rows_are_times_and_columns_are_channels(end, bom, header):
    text = (bom + header + "1,2\n\n-3.5,1e3\n nan , inf").replace("\n", end)
    expected = np.array([[1, 2], [-3.5, 1000], [np.nan, np.inf]])
    assert_same(signal("csv", text.encode()), expected)
    assert_same(signal("csv", (text + end).encode()), expected)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"", "the file is empty"),
        (b"\n\n", "the file is empty"),
        (b"1,2\n3\n", "row 2 has 1 values, not 2"),
        (b"x,y\n1,2\n\n3,4,5\n", "row 2 has 3 values, not 2"),
        (b"1,2\n3,x\n", "not a whole .csv file: 'x' in row 2 is not a number"),
        (b"\xff\xfe1\0", "UTF-16 text: convert it to UTF-8, or add --text_encoding utf-16"),
        (b"x\n1\n\xff\n", "its text is not UTF-8: name its encoding with --text_encoding, such"),
        (b"x\n1\n1,\xff\n", "its text is not UTF-8"),
        (b"1\n" + b"x" * 200_000, "not a whole .csv file: "),
    ],
)
def test_a_csv_file_that_is_not_a_table_of_numbers_is_rejected(text, message):
    assert rejected("csv", text).startswith(message)


def test_a_csv_file_of_a_header_alone_is_an_empty_recording():
    assert_same(signal("csv", b"x,y,z\n"), np.empty((0, 3)))


def test_columns_are_taken_by_name_in_the_order_that_is_asked_for():
    data = b"t, x ,y,activity\n0,1,2,walking\n1,3,4,\n"
    assert_same(signal("csv", data, columns=("y", "x")), np.array([[2.0, 1], [4, 3]]))
    found = read("csv", data, columns=("y",), time_column="t")
    assert_same(found.arrays["signal"], np.array([[2.0], [4]]))
    assert_same(found.times, np.array([0.0, 1]))
    assert found.rate is None
    assert rejected("csv", data, columns=("z",)) == "no column 'z': the file has t, x, y, activity"
    assert rejected("csv", data, time_column="z").startswith("no column 'z'")


def test_all_columns_but_the_time_are_channels():
    found = read("csv", b"x,t,y\n5,0.5,6\n7,0.75,8\n", time_column="t")
    assert_same(found.arrays["signal"], np.array([[5.0, 6], [7, 8]]))
    assert_same(found.times, np.array([0.5, 0.75]))
    message = "none of its columns t is a channel; name channels with --columns"
    assert rejected("csv", b"t\n1\n2\n", time_column="t") == message


UNORDERED = [3.0, 1, 1, 2, 3, 0]


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_rows_out_of_order_are_rejected_dropped_or_sorted(kind):
    def table(times, rows=None):
        rows = np.arange(1.0, 1 + len(times)) if rows is None else rows
        if kind == "parquet":
            return parquet({"t": times, "x": rows})
        return ("t,x\n" + "".join(f"{t},{x}\n" for t, x in zip(times, rows, strict=True))).encode()

    def kept(times, policy):
        found = read(kind, table(times), time_column="t", times=policy)
        return list(zip(found.times.tolist(), found.arrays["signal"][:, 0].tolist(), strict=True))

    assert kept(UNORDERED, "sort") == [(0, 6), (1, 2), (2, 4), (3, 1)]
    assert kept([0.0, 1, 1, 1, 2], "drop_duplicates") == [(0, 1), (1, 2), (2, 5)]
    assert kept([0.0, 1], "strict") == kept([0.0, 1], "sort") == [(0, 1), (1, 2)]
    assert kept(np.empty(0), "sort") == []
    message = "row 2: time 1.0 s does not come after 3.0 s; --times sort accepts it"
    for policy in ("strict", "drop_duplicates"):
        assert rejected(kind, table(UNORDERED), time_column="t", times=policy) == message
    message = "row 3: time 1.0 s does not come after 1.0 s; --times drop_duplicates accepts it"
    assert rejected(kind, table([0.0, 1, 1]), time_column="t") == message
    for policy in ("strict", "drop_duplicates", "sort"):
        found = rejected(kind, table([2.0, np.nan, 1]), time_column="t", times=policy)
        assert found == "row 2: time nan is not finite"


TIME_NAMES = ["time", "Timestamp", "t", "Time (s)", "time_ms", "datetime", "date time", "Unix Time"]
ROW_NUMBERS = ["", "Unnamed: 0", "__index_level_0__"]


@pytest.mark.parametrize("name", TIME_NAMES + ROW_NUMBERS)
def test_times_and_row_numbers_are_channels_only_if_they_are_named(name):
    tables = {"csv": f"x,{name},y\n5,0,6\n7,1,8\n".encode()}
    tables["parquet"] = parquet({"x": [5.0, 7], name: [0.0, 1], "y": [6.0, 8]})
    for kind, data in tables.items():
        found = read(kind, data)
        assert_same(found.arrays["signal"], np.array([[5.0, 6], [7, 8]]))
        (note,) = found.notes
        assert f"column {name or 'without a name'}; name the channels with --columns" in note
        if name:
            named = read(kind, data, columns=("y", name))
            assert_same(named.arrays["signal"], np.array([[6.0, 0], [8, 1]]))
            assert named.notes == ()


def test_only_a_column_that_could_be_a_channel_is_said_to_be_left_out():
    assert read("parquet", parquet({"x": [5.0], "time": ["12:00"]})).notes == ()


@pytest.mark.parametrize("name", ["time_to_peak", "tx", "temperature", "times", "update", "index"])
def test_other_names_are_channels(name):
    found = read("csv", f"x,{name}\n5,0\n".encode())
    assert_same(found.arrays["signal"], np.array([[5.0, 0]]))
    assert found.notes == ()


def test_a_comma_at_the_end_of_every_line_is_no_channel():
    assert_same(signal("csv", b"x,y,\n1,2,\n3,4,\n"), np.array([[1.0, 2], [3, 4]]))
    assert_same(signal("csv", b"1,2,\n3,4,\n"), np.array([[1.0, 2], [3, 4]]))


def test_columns_may_be_left_out_by_name():
    tables = {
        "csv": b"x,y,who\n5,6,me\n",
        "parquet": parquet({"x": [5.0], "y": [6.0], "who": ["me"]}),
    }
    for kind, data in tables.items():
        found = read(kind, data, drop_columns=("y", "who"))
        assert_same(found.arrays["signal"], np.array([[5.0]]))
        assert found.notes == ()
        message = "no column 'z': the file has x, y, who"
        assert rejected(kind, data, drop_columns=("z",)) == message
        # Metadata of the record need not be in the file.
        found = read(kind, data, metadata_columns=("who", "z"))
        assert_same(found.arrays["signal"], np.array([[5.0, 6]]))
        assert_same(
            signal(kind, data, columns=("y",), metadata_columns=("y", "who")), np.array([[6.0]])
        )


def test_a_column_of_text_is_refused_with_the_cure():
    data = b"x,activity\n1,2\n\n1,walking\n"
    assert rejected("csv", data) == (
        "column 'activity' is not numeric: 'walking' in row 2; choose others with --columns, or leave it "
        "out with --drop_columns activity"
    )
    assert_same(signal("csv", data, columns=("x",)), np.array([[1.0], [1]]))


def test_columns_without_names_cannot_be_chosen():
    for options in ({"columns": ("x",)}, {"drop_columns": ("x",)}, {"time_column": "x"}):
        message = "its columns have no names for --columns, --drop_columns or --time_column"
        assert rejected("csv", b"1,2\n3,4\n", **options) == message


def test_a_name_of_two_columns_cannot_be_chosen():
    data = b"t,x,x\n0,1,2\n"
    assert rejected("csv", data, columns=("x",)) == "two columns 'x': the file has t, x, x"
    assert_same(signal("csv", data), np.array([[1.0, 2]]))


def test_empty_cells_are_nan():
    nan = np.nan
    assert_same(signal("csv", b"x,y\n1,\n , 2 \n"), np.array([[1, nan], [nan, 2]]))
    assert_same(signal("csv", b"1,\n2,3\n"), np.array([[1, nan], [2, 3]]))
    assert_same(signal("csv", b",\n2,3\n"), np.array([[nan, nan], [2, 3]]))
    assert_same(signal("csv", b",x\n0,1\n"), np.array([[1.0]]))
    assert_same(signal("csv", b"x\n\n \n1\n"), np.array([[nan], [1]]))


def test_tables_of_several_blocks_are_read_and_their_rows_counted(monkeypatch):
    monkeypatch.setattr(delimited, "_BLOCK_BYTES", 1000)
    lines = [f"{i},{i * 2},\n" for i in range(8000)]
    found = read("csv", "".join(["t,x,y\n", *lines]).encode(), time_column="t")
    assert_same(found.times, np.arange(8000.0))
    assert_same(found.arrays["signal"][:, 0], np.arange(8000.0) * 2)
    lines[5000] = "5000,oops,\n"
    assert "'oops' in row 5001;" in rejected("csv", "".join(["t,x,y\n", *lines]).encode())
    for row, count in (("4999,1\n", 2), ("4999,1,2,3\n", 4)):
        lines[4999] = row
        found = rejected("csv", "".join(["t,x,y\n", *lines]).encode())
        assert found == f"row 5000 has {count} values, not 3"


def test_a_row_may_be_longer_than_a_block(monkeypatch):
    monkeypatch.setattr(delimited, "_BLOCK_BYTES", 1000)
    values = np.arange(2000.0).reshape(2, 1000)
    text = "\n".join(",".join(map(repr, row)) for row in values.tolist())
    assert_same(signal("csv", text.encode()), values)


@pytest.mark.parametrize(("unit", "scale"), [("s", 1), ("ms", 10**3), ("us", 10**6), ("ns", 10**9)])
def test_times_are_numbers_of_a_unit(unit, scale):
    moments = [0, 0.25, 3.5]
    text = "t,x\n" + "".join(f"{moment * scale!r},1\n" for moment in moments)
    found = read("csv", text.encode(), time_column="t", time_unit=unit)
    assert_same(found.times, np.array(moments))


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
    assert_same(read("csv", text.encode(), time_column="t").times, np.array(expected, np.float64))


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        ("now", "row 1: time 'now' is neither a number nor ISO 8601"),
        ("1,NaT", "row 2: time 'NaT' is neither"),
        ("2024-01-01,today", "row 2: time 'today' is neither"),
        ("2024-01-01,5", "row 2: time '5' is a number, row 1 has a date"),
        ("5,2024-01-01", "row 2: time '2024-01-01' is a date, row 1 has a number"),
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
def test_times_that_are_malformed_missing_or_not_increasing_are_rejected(cells, message):
    text = "t,x\n" + "".join(f"{cell},1\n" for cell in cells.split(","))
    assert rejected("csv", text.encode(), time_column="t").startswith(message)


TABLE = np.array([[0.5, -1], [np.nan, 2e-3], [7, 8]])


@pytest.mark.parametrize("kind", ["csv", "tsv", "txt", "csv.gz", "tsv.gz", "txt.gz"])
@pytest.mark.parametrize("header", [False, True])
def test_tables_are_what_numpy_reads(kind, header):
    mark = "," if kind.startswith("csv") else "\t"
    buffer = io.BytesIO()
    np.savetxt(buffer, TABLE, delimiter=mark, header=f"x{mark}y" * header, comments="")
    text = buffer.getvalue().replace(b"nan", b"NA")
    data = gzip.compress(text) if kind.endswith(".gz") else text
    assert_same(
        signal(kind, data), np.genfromtxt(buffer.getvalue().splitlines()[header:], delimiter=mark)
    )
    assert read(kind, data).dtype == "float32"
    if header:
        assert_same(signal(kind, data, columns=("y",)), TABLE[:, 1:])


@pytest.mark.parametrize("form", ["%10.4f", "%.3e", "%g"])
def test_columns_of_txt_may_be_separated_by_any_number_of_spaces(form):
    buffer = io.BytesIO()
    np.savetxt(buffer, TABLE, form, header="made by a logger\nx y", delimiter="  ")
    assert_same(signal("txt", buffer.getvalue()), np.loadtxt(io.BytesIO(buffer.getvalue())))
    assert_same(signal("txt", b" t  x\n 0   1\n10 -2 \n", columns=("x",)), np.array([[1.0], [-2]]))


@pytest.mark.parametrize("kind", ["csv", "txt"])
@pytest.mark.parametrize("mark", [",", ";", "\t"])
@pytest.mark.parametrize("header", ["x{}y\n", '"x (a,b;c)"{}y\n', ""])
def test_the_delimiter_is_recognised(kind, mark, header):
    text = header.format(mark) + f"1{mark}2\n3{mark}4\n"
    assert_same(signal(kind, text.encode()), np.array([[1.0, 2], [3, 4]]))


def test_the_delimiter_may_be_named():
    assert_same(signal("csv", b"x|y\n1|2\n", delimiter="|"), np.array([[1.0, 2]]))
    assert_same(signal("tsv", b"x y\n1 2\n", delimiter=" "), np.array([[1.0, 2]]))


def test_commas_are_decimal_points_between_semicolons():
    expected = np.array([[0.5, -1000], [np.nan, 2]])
    for header in ("Zeit (h, min);Wert\n", ""):
        text = header + "0,5;-1e3\nNA;2,0\n"
        assert_same(signal("csv", text.encode()), expected)
    assert_same(signal("csv", b"x;y\n0.5;-1000\n;2\n"), expected)
    for text in (b"x;y\n1.234,5;1\n", b"x;y\n1,5;1\n2.5;1\n"):
        assert "column 'x' is not numeric: " in rejected("csv", text)
    assert "column 'x' is not numeric: '0,5' in row 1" in rejected("tsv", b"x\ty\n0,5\t1\n")


def test_names_and_labels_between_semicolons_keep_their_commas():
    data = b"acc, g;how,ever\n1,5;fast, slow\n2,5;3,5\n"
    options = {"delimiter": ";", "inside": ("how,ever",), "metadata_columns": ("how,ever",)}
    found = read("csv", data, **options)
    assert_same(found.arrays["signal"], np.array([[1.5], [2.5]]))
    assert found.columns["how,ever"].of_rows() == ["fast, slow", "3,5"]
    assert "the file has acc, g, how,ever" in rejected("csv", data, delimiter=";", columns=("x",))


def test_words_for_missing_values_are_nan_and_booleans_are_numbers():
    words = ["NA", "n/a", "N/A", "-", "NaN", "null", "NULL", "", " "]
    text = "x,y\n" + "".join(f"{word},1\n" for word in words) + "True,FALSE\n"
    found = signal("csv", text.encode())
    assert np.isnan(found[:-1, 0]).all() and (found[:-1, 1] == 1).all()
    assert_same(found[-1], np.array([1.0, 0]))
    assert_same(signal("csv", b"NA,true\n1,2\n"), np.array([[np.nan, 1], [1, 2]]))
    for word in ("none", "missing", "--", "yes"):
        assert f"not numeric: '{word}'" in rejected("csv", f"x\n1\n{word}\n".encode())


def test_a_row_of_units_below_the_header_is_left_out_with_a_remark():
    text = b"time,x,y\ns,m/s,\n0,1,2\n1,oops,4\n"
    found = read("csv", text.replace(b"oops", b"3"))
    assert_same(found.arrays["signal"], np.array([[1.0, 2], [3, 4]]))
    assert found.notes[-1] == (
        "its second line has no number and was taken for units: ['s', 'm/s', '']"
    )
    assert "'oops' in row 3" in rejected("csv", text)
    assert_same(read("csv", text, columns=("y",), time_column="time").times, np.array([0.0, 1]))
    assert read("csv", b"x\nNA\n1\n").notes == ()
    assert "'a' in row 1" in rejected("csv", b"t,x\n2024-01-31,a\n2024-02-01,1\n", time_column="t")
    assert "'a' in row 1" in rejected("csv", b"x\na\nb\n1\n")


def test_tables_of_text_may_be_in_another_encoding():
    text = "Zeit;Kraft µN\n0;1\n"
    for encoding in ("cp1252", "utf-16", "utf-16-le"):
        data = text.encode(encoding)
        assert_same(signal("csv", data, encoding=encoding), np.array([[0.0, 1]]))
        rejected("csv", data)
    assert "add --text_encoding utf-16" in rejected("csv", text.encode("utf-16"))


@given(
    st.lists(st.tuples(FLOATS, st.one_of(st.none(), st.integers(-(2**60), 2**60)), st.booleans()))
)
@settings(max_examples=40, deadline=None)
def test_lines_of_json_are_arrays_or_objects_of_numbers(rows):
    if not rows:
        return
    rows = json.loads(json.dumps(rows))  # which knows one NaN
    expected = np.array([[np.nan if v is None else v for v in row] for row in rows], np.float64)
    for lines in (rows, [dict(zip("xyz", row, strict=True)) for row in rows]):
        data = "\n".join(map(json.dumps, lines)).encode()
        assert_same(signal("jsonl", data), expected)
        assert_same(signal("jsonl.gz", gzip.compress(data)), expected)
    assert_same(signal("jsonl", data, columns=("z", "x")), expected[:, [2, 0]])


def test_columns_and_times_of_json_lines_are_chosen_as_those_of_other_tables():
    lines = [
        {"time": "2024-01-31", "x": 1, "who": "me", "y": None},
        {"x": 2.5, "time": "2024-01-31T00:00:02", "who": 3},
    ]
    data = "\n\n".join(map(json.dumps, lines)).encode()
    found = read("jsonl", data)
    assert_same(found.arrays["signal"], np.array([[1, np.nan], [2.5, np.nan]]))
    assert found.dtype == "float32" and not found.notes
    (note,) = read("jsonl", b'{"t":1,"x":2}').notes
    assert note.startswith("left out as times")
    found = read("jsonl", data, time_column="time", drop_columns=("y",))
    assert_same(found.arrays["signal"], np.array([[1.0], [2.5]]))
    assert_same(np.diff(found.times), np.array([2.0]))
    assert_same(
        read("jsonl", b'{"t":1,"x":2}\n{"t":3,"x":4}', time_column="t", time_unit="ms").times,
        np.array([0.001, 0.003]),
    )
    assert_same(signal("jsonl", b"1\n2\n"), np.array([[1.0], [2]]))


def test_values_of_several_types_in_json_lines_are_labels_each():
    lines = [{"x": i, "y": value} for i, value in enumerate([1, "1", True, None, 1.0, "a"] * 2)]
    data = "\n".join(map(json.dumps, lines)).encode()
    for block in (1, 5, 4096):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(json_lines, "_BLOCK_LINES", block)
            found = read("jsonl", data, inside=("y",), metadata_columns=("y",))
        assert_same(found.arrays["signal"], np.arange(12.0)[:, None])
        column = found.columns["y"].of_rows()
        assert column == [1, "1", True, None, 1, "a"] * 2
        assert [type(value) for value in column[:5]] == [int, str, bool, type(None), int]


def test_lines_of_json_take_little_more_memory_than_their_numbers():
    data = gzip.compress(b"1\n" * 300_000)
    tracemalloc.start()
    try:
        assert len(signal("jsonl.gz", data)) == 300_000
        assert tracemalloc.get_traced_memory()[1] < 3 * 8 * 300_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        (b"", {}, "the file is empty"),
        (b"[1]\n[1,2]", {}, "line 2 has other columns than the first"),
        (b"\n[1]\n{}", {}, "line 3 has other columns than the first"),
        (b'{"x":1}\n{"x":1,"y":2}', {}, "line 2 has other columns than the first"),
        (b'{"x":1}\n{"x":"a"}', {}, "line 2: 'a' of 'x' is not a number"),
        (b"[1]\n[[1]]", {}, "line 2: [1] is not a number"),
        (b'{"x":1,"s":"a"}', {"columns": ("s",)}, "line 1: 'a' of 's' is not a number"),
        (b"[1]", {"columns": ("s",)}, "its columns have no names for --columns"),
        (b'{"s":"a"}', {}, "none of its columns s is a channel; name channels with --columns"),
        (b"[]", {}, "none of its 0 columns is a channel"),
        (b"[1]", {"inside": ("y",)}, "no column 'y' in its metadata: the file has columns without"),
        (
            b'{"x":1,"y":"a"}\n{"x":1,"y":[2]}',
            {"inside": ("y",)},
            "line 2: [2] of 'y' is no text or",
        ),
        (b"[1]\n[2", {}, "not a whole .jsonl file: line 2 is not JSON"),
        (b"[" * 100_000, {}, "not a whole .jsonl file: line 1 is not JSON"),
        (b'{"t":"a","x":1}', {"time_column": "t"}, "row 1: time 'a' is neither"),
        (b'{"t":null,"x":1}', {"time_column": "t"}, "row 1: time nan is not finite"),
    ],
)
def test_json_lines_of_anything_else_are_rejected(text, options, message):
    assert rejected("jsonl", text, **options).startswith(message)


def test_a_packed_table_that_is_damaged_or_too_large_is_rejected(monkeypatch):
    data = gzip.compress(b"x\n" + b"1\n" * 5000)
    assert len(signal("csv.gz", data)) == 5000
    for damaged in (data[:-1], data[:-9] + bytes(9), data[:20]):
        assert rejected("csv.gz", damaged).startswith("not a whole .csv.gz file: ")
    limit_records(monkeypatch, 1000)
    assert rejected("csv.gz", data).startswith("it unpacks to 10002 bytes, more than")


def test_the_size_of_a_table_is_checked_before_it_is_read(monkeypatch):
    limit_records(monkeypatch, 63)
    for end in ("\n", "\r\n", "\r"):
        assert signal("csv", end.join(["1,2", "3,4", "5,6"]).encode()).nbytes == 48
        found = rejected("csv", end.join(["1,2,3", "3,4,5", "5,6"]).encode())
        assert found.startswith("it unpacks to 64 bytes, more than a record")


# Archives.


def npy(array, **options) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array, **options)
    return buffer.getvalue()


def npz(compressed: bool = False, **arrays) -> bytes:
    buffer = io.BytesIO()
    (np.savez_compressed if compressed else np.savez)(buffer, **arrays)
    return buffer.getvalue()


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
    assert rejected("npz", npz()) == "the archive holds no array"


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
    assert rejected(kind, data) == "it holds pickled objects, which are never loaded"
    assert not trap.exists()
    # The trap works: NumPy's own pickle loader runs it.
    loaded = np.load(io.BytesIO(data), allow_pickle=True)
    if kind == "npz":
        loaded["x"]
    assert trap.exists()


@pytest.mark.parametrize("kind", ["npy", "npz", "csv"])
def test_a_bare_pickle_is_refused_and_never_run(tmp_path, kind):
    trap = tmp_path / "ran"
    data = pickle.dumps(Malicious(trap))
    assert rejected(kind, data)
    assert not trap.exists()
    pickle.loads(data)
    assert trap.exists()


def claim_size(archive: bytes, size: int) -> bytes:
    """An archive whose directory claims that its first member unpacks to `size` bytes."""
    data = bytearray(archive)
    directory = data.index(b"PK\x01\x02")
    data[directory + 24 : directory + 28] = struct.pack("<I", size)
    return bytes(data)


def test_an_archive_that_claims_a_huge_size_is_rejected_unread():
    found = rejected("npz", claim_size(npz(x=np.arange(3.0)), 2**32 - 2))
    assert found.startswith("it unpacks to 4294967294 bytes, more than a record")


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
    data = npz(x=np.arange(3), names=np.array(["a", None], object))
    assert_same(signal("npz", data, arrays=("x",)), np.arange(3))
    assert "pickled objects" in rejected("npz", data)


def test_the_only_array_of_a_file_is_called_signal():
    for kind, data in (("npy", npy(np.arange(3))), ("wav", WHOLE), ("csv", b"1\n2\n")):
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

    data = h5_of(write)
    assert_same(signal("h5", data), np.arange(3))
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
    for name in ("key", "label"):
        for kind, data in (("npz", npz(x=[1], **{name: [2]})), ("h5", h5(x=[1], **{name: [2]}))):
            found = rejected(kind, data)
            assert found == f"an array may not be called {name!r}: choose with --arrays"


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
        for arrays in ((), ("far",)):
            found = rejected("h5", data, arrays=arrays)
            assert found == "array 'far' is in another file, which is never opened"
        assert_same(signal("h5", data, arrays=("x",)), np.array([1]))


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


INTEGERS = [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)]
NUMBERS = [*INTEGERS, "float16", "float32", "float64", "bool"]


@pytest.mark.parametrize("dtype", NUMBERS)
def test_parquet_columns_of_every_dtype_are_read(dtype):
    column = (np.arange(6) % 2).astype(dtype)
    found = read("parquet", parquet({"x": column, "y": ~column if dtype == "bool" else column + 1}))
    expected = np.stack([column, ~column if dtype == "bool" else column + np.ones((), dtype)], 1)
    assert_same(found.arrays["signal"], expected)
    assert (found.rate, found.times) == (None, None)


@pytest.mark.parametrize(("one", "two"), [*itertools.combinations(NUMBERS[:3] + NUMBERS[6:], 2)])
def test_columns_become_the_dtype_that_holds_them(one, two):
    found = signal("parquet", parquet({"x": np.ones(3, one), "y": np.zeros(3, two)}))
    assert_same(found, np.array([[1, 0]] * 3).astype(np.result_type(np.dtype(one), np.dtype(two))))


@pytest.mark.parametrize("kind", ["int8", "uint64", "bool", "float32", "float64"])
def test_nulls_are_nan(kind):
    column = pa.array([1, None, 0], "int8").cast(kind)
    expected = "float32" if kind == "float32" else "float64"
    assert_same(signal("parquet", parquet({"x": column})), np.array([[1], [np.nan], [0]], expected))


def test_parquet_columns_are_chosen_by_name():
    data = parquet({"t": [0, 1], "s": ["a", "b"], "x": [1, 2], "l": [[1], [2]], "y": [3, 4]})
    assert_same(signal("parquet", data), np.array([[1, 3], [2, 4]]))
    assert_same(signal("parquet", data, columns=("y", "x", "y")), np.array([[3, 1, 3], [4, 2, 4]]))
    assert_same(signal("parquet", data, time_column="t"), np.array([[1, 3], [2, 4]]))
    found = read("parquet", data, columns=("t",), time_column="t")
    assert_same(found.arrays["signal"], np.array([[0], [1]]))
    assert_same(found.times, np.array([0.0, 1]))
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
def test_columns_other_than_numbers_are_refused_with_the_cure(column, kind):
    data = parquet({"x": [1], "other": column})
    assert rejected("parquet", data, columns=("other",)) == (
        f"column 'other' is not numeric but {kind}: choose others with --columns"
    )
    assert_same(signal("parquet", data), np.array([[1]]))
    alone = rejected("parquet", parquet({"other": column}))
    assert alone == "none of its columns other is a channel; name channels with --columns"


def test_a_dot_in_the_name_of_a_column_is_not_a_path():
    data = parquet({"a": [1], "a.b": [2], "s": [{"b": 3}], "s.b": [4]})
    assert_same(signal("parquet", data, columns=("s.b", "a.b")), np.array([[4, 2]]))
    assert_same(signal("parquet", data), np.array([[1, 2, 4]]))


def test_a_name_of_two_parquet_columns_is_rejected():
    buffer = io.BytesIO()
    pq.write_table(pa.Table.from_arrays([pa.array([1]), pa.array([2])], ["x", "x"]), buffer)
    assert rejected("parquet", buffer.getvalue()) == "two columns 'x': the file has x, x"


def test_recordings_of_many_row_groups_or_of_none_are_read():
    x = np.arange(1000)
    assert_same(signal("parquet", parquet({"x": x}, row_group_size=7)), x[:, None])
    found = read("parquet", parquet({"x": x[:0], "t": x[:0]}), time_column="t")
    assert_same(found.arrays["signal"], np.empty((0, 1), np.int64))
    assert_same(found.times, np.empty(0))


def test_other_columns_are_never_read():
    columns = {"x": np.arange(100), "s": [f"text {i}" for i in range(100)]}
    data = bytearray(parquet(columns, compression="none"))
    chunk = pq.ParquetFile(io.BytesIO(data)).metadata.row_group(0).column(1)
    begin = chunk.dictionary_page_offset
    data[begin : begin + chunk.total_compressed_size] = bytes(chunk.total_compressed_size)
    with pytest.raises(OSError):
        pq.read_table(io.BytesIO(data))
    assert_same(signal("parquet", bytes(data)), np.arange(100)[:, None])


def test_the_size_of_a_parquet_file_is_checked_before_it_is_read(monkeypatch):
    data = parquet({"x": np.zeros(10, np.int8), "y": np.zeros(10), "s": ["long text"] * 10})
    limit_records(monkeypatch, 159)
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
    assert_same(found.times, expected)
    assert found.arrays["signal"].shape == (3, 1)
    for kind in ("int64", "uint64", "float64"):
        data = parquet({"t": pa.array(ticks).cast(kind, safe=False), "x": [1, 2, 3]})
        found = read("parquet", data, time_column="t", time_unit=unit)
        np.testing.assert_allclose(found.times, expected, rtol=0, atol=2.5e-7)


def test_timestamps_are_exact_to_a_microsecond():
    ticks = 1_700_000_000_123_456_789 + np.arange(1000) * 1000
    data = parquet({"t": pa.array(ticks, pa.timestamp("ns")), "x": ticks})
    whole, rest = np.divmod(ticks, 10**9)
    assert (abs(read("parquet", data, time_column="t").times - whole - rest / 1e9) < 2.5e-7).all()


def test_times_may_be_dates():
    days = [datetime.date(2024, 1, 1), datetime.date(2024, 1, 2)]
    for kind in ("date32", "date64"):
        data = parquet({"t": pa.array(days).cast(kind), "x": [1, 2]})
        assert_same(
            read("parquet", data, time_column="t").times, np.array([1704067200.0, 1704153600])
        )


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
def test_parquet_times_that_are_missing_or_not_increasing_are_rejected(times, message):
    found = rejected("parquet", parquet({"t": times, "x": [1, 2]}), time_column="t")
    assert found.startswith(message)


# Any file.


FILES = {
    "npy": npy(waves(3, 20)),
    "npz": npz(x=waves(2, 20), y=waves(1, 20)),
    "csv": b"t,x,y\n" + b"".join(b"%d,1.5,2\n" % i for i in range(40)),
    "wav": sound(waves(3, 20), "PCM_24", "WAVEX"),
    "flac": sound(waves(2, 500), "PCM_16", "FLAC"),
    "parquet": parquet({"t": np.arange(40), "x": [None, 2] * 20, "s": ["a"] * 40}),
    "h5": h5(x=waves(2, 20), g=np.arange(5), s="text"),
}


FILES |= {kind: data[:4000] for kind, data in SOUND_FILES.items() if kind not in ("caf", "au")}


@pytest.mark.parametrize("kind", FILES)
def test_a_file_that_is_empty_or_something_else_is_rejected(kind):
    for data in (b"", b"\xff" * 1000, b"\0" * 1000):
        found = rejected(kind, data)
        known = f"not a whole .{kind} file: ", "the file is empty", "its text is not UTF-8"
        assert found.startswith(known)


@pytest.mark.parametrize("kind", FILES)
@given(st.data())
@settings(max_examples=60, deadline=None)
def test_a_damaged_file_is_rejected_or_read(kind, data):
    whole = FILES[kind]
    length = data.draw(st.one_of(st.just(len(whole)), st.integers(0, len(whole))))
    damaged = bytearray(whole[:length])
    for _ in range(data.draw(st.integers(1, 4)) if damaged else 0):
        # The heads and tails of formats are where the traps are.
        near = st.integers(0, min(len(damaged), 400) - 1)
        place = data.draw(
            st.one_of(near, near.map(lambda i: -1 - i), st.integers(0, len(damaged) - 1))
        )
        damaged[place] = data.draw(st.integers(0, 255))
    try:
        found = read(kind, bytes(damaged), time_column="t" * (kind in ("csv", "parquet")))
    except RejectError:
        return
    assert all(array.ndim for array in found.arrays.values())
    assert found.times is None or len(found.times) == len(found.arrays["signal"])


def test_nothing_heavy_is_imported_before_a_file_needs_it():
    modules = "beam_jobs.jobs.sensors.formats.registry, beam_jobs.jobs.sensors.signals"
    code = f"import sys, {modules}; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    heavy = {"apache_beam", "tensorflow", "pyarrow", "h5py", "soundfile", "scipy", "pandas"}
    assert not heavy & set(loaded.stdout.split())
