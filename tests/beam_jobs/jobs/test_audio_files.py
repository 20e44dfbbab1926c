"""Audio, compared with what SciPy and soundfile read in the same bytes."""

import io
import struct
import sys

import numpy as np
import pytest
import scipy.io.wavfile
import soundfile

from beam_jobs.errors import UsageError
from beam_jobs.jobs.sensors.formats import registry
from tests.support.arrays import assert_same
from tests.support.recordings import (
    RATE,
    SOUND_FILES,
    SOUNDS,
    limit_records,
    read,
    rejected,
    signal,
    sound,
    waves,
)


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
        (chunk(b"fmt ", form()), samples, chunk(b"LIST", b"more")),
        (chunk(b"fmt ", form() + b"\0\0"), samples),
        (chunk(b"LIST", b"odd")[:-1], chunk(b"fmt ", form()), samples),  # without the padding
    ):
        assert_same(signal("wav", riff(*chunks)), SAMPLES)


def id3(size: int) -> bytes:
    return b"ID3\x04\0\0" + bytes([0, 0, size >> 7, size & 127]) + bytes(size)


@pytest.mark.parametrize("subtype", ["PCM_16", "ULAW", "FLOAT"])
def test_a_tag_before_a_wav_file_takes_nothing_from_its_end(subtype, tmp_path):
    path = tmp_path / "a.wav"
    path.write_bytes(id3(1000) + sound(waves(2), subtype) + b"TAG".ljust(128))
    expected, _ = soundfile.read(path, always_2d=True)  # from a path, libsndfile is right
    assert len(expected) == 500
    assert_same(signal("wav", path.read_bytes(), float_audio=True), expected.astype(np.float32))


@pytest.mark.parametrize("kind", ["flac", *SOUND_FILES])
def test_tags_before_audio_of_any_format_change_nothing(kind):
    data = SOUND_FILES.get(kind) or sound(waves(), "PCM_16", "FLAC")
    assert_same(signal(kind, id3(1001) + id3(5) + data), signal(kind, data))
    assert "it begins with b'" in rejected(kind, id3(1000)[:-1] + data[:1])


UNREAD = ("bytes behind its audio were not read",)


@pytest.mark.parametrize("kind", ["flac", "ogg", "opus", "au", "caf"])
def test_the_first_of_several_streams_is_read_with_a_remark(kind):
    data = SOUND_FILES.get(kind) or sound(waves(), "PCM_16", kind.upper())
    whole, joined = read(kind, data), read(kind, data + data)
    assert_same(joined.arrays["signal"], whole.arrays["signal"])
    assert (joined.notes, whole.notes) == (UNREAD, ())


def test_bytes_behind_the_audio_of_a_wav_file_are_a_remark():
    more, samples = chunk(b"LIST", b"odd"), chunk(b"data", SAMPLES.tobytes())
    append = WHOLE[:4] + struct.pack("<I", len(WHOLE) - 8 + 600) + WHOLE[8:]  # as WAV.jl does
    for end in (b"", bytes(9), more, more + bytes(9), bytes(2) + more[:-1], more[:-1] + more):
        assert read("wav", WHOLE + end).notes == ()
    for end in (WHOLE, samples, more + samples, more[:-2], b"rubbish", b"\0\xff"):
        assert read("wav", WHOLE + end).notes == UNREAD
    assert read("wav", sound(waves(), "ULAW") + b"rubbish").notes == UNREAD
    assert read("wav", append + 100 * SAMPLES.tobytes()).notes == UNREAD
    assert_same(signal("wav", WHOLE + WHOLE), SAMPLES)


def test_audio_without_samples_is_rejected():
    empty = chunk(b"data", b"")
    head = chunk(b"fmt ", form(channels=3))
    for data in (riff(head, empty), riff(head, empty, chunk(b"LIST", b"more"))):
        assert rejected("wav", data) == "the recording has no samples"


UNKNOWN = b"\xff" * 4
SOX, ARECORD = (struct.pack("<I", size) for size in (0x7FFFF000, 0x80000000))


@pytest.mark.parametrize("whole_size", [UNKNOWN, struct.pack("<I", 36), bytes(4)])
@pytest.mark.parametrize("audio_size", [UNKNOWN, bytes(4), SOX, ARECORD])
def test_audio_whose_size_was_never_written_is_read_to_the_end_of_the_file(whole_size, audio_size):
    data = b"RIFF" + whole_size + WHOLE[8:40] + audio_size + WHOLE[44:]
    assert_same(signal("wav", data), SAMPLES)
    assert_same(signal("wav", data + b"\0"), SAMPLES)
    assert rejected("wav", data[:44]) == "the recording has no samples"


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
        (b"", "it begins with b"),
        (WHOLE[:8] + b"AVI " + WHOLE[12:], "it begins with b"),
        (WHOLE[:12], "the file ends before its audio"),
        (WHOLE[:-1], "the file ends in its audio, after 5 of 6 bytes"),
        (WHOLE[:40] + b"\xfe" * 4 + WHOLE[44:], "in its audio, after 6 of 4278124286 bytes"),
        (riff(chunk(b"data", b""), chunk(b"fmt ", form())), "its format does not come before"),
        (riff(chunk(b"fmt ", form()[:15]), chunk(b"data", b"")), "its format has 15 bytes"),
        (riff(chunk(b"fmt ", form(channels=0)), chunk(b"data", b"12")), "0 channels of"),
        (
            riff(chunk(b"fmt ", form(frame=4)), chunk(b"data", b"1234")),
            "1 channels of 16 bits in 4 bytes",
        ),
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


def test_other_audio_that_is_called_wav_is_read():
    for kind, subtype in (("NIST", "PCM_16"), ("AIFF", "PCM_16")):
        data = sound(waves(), subtype, kind)
        assert_same(signal("wav", data), heard(data, "int16"))


@pytest.mark.parametrize(("tag", "bits"), [(1, 64), (3, 16), (16, 16), (0xFFFE, 16)])
def test_samples_that_nobody_reads_are_rejected(tag, bits):
    data = riff(chunk(b"fmt ", form(tag, bits=bits)), chunk(b"data", b""))
    found = rejected("wav", data)
    assert found.startswith(f"audio of format {tag} with {bits} bits cannot be read: ")


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
        assert (
            message == "it unpacks to 104 bytes, more than 100: raise --max_record_bytes to keep it"
        )


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
    # docs/write/sensors.md names these.
    blind = kind in ("mp3", "caf") and cut == 1
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
            assert "all of its samples" in rejected("mp3", without)


def test_seeks_of_decoders_before_the_first_byte_print_nothing(capfd):
    rejected("mp3", SOUND_FILES["mp3"][:200])
    assert "Traceback" not in capfd.readouterr().err


def claimed_frames(frames: int) -> bytes:
    """A FLAC file that claims a number of samples, in the 36 bits of its header for them."""
    data = bytearray(sound(waves(), "PCM_16", "FLAC"))
    data[21] = data[21] & 0xF0 | frames >> 32
    data[22:26] = struct.pack(">I", frames & 0xFFFFFFFF)
    return bytes(data)


def test_a_flac_file_that_claims_more_samples_than_it_has_is_rejected():
    assert rejected("flac", claimed_frames(501)).startswith("not a whole .flac file: ")
    message = f"it unpacks to {(2**36 - 1) * 4} bytes, more than 268435456: raise --max_record_bytes to keep it"
    assert rejected("flac", claimed_frames(2**36 - 1)) == message
    assert "does not state the number of samples" in rejected("flac", claimed_frames(0))


@pytest.mark.parametrize(
    ("kind", "module", "extra"),
    [
        ("flac", "soundfile", "beam"),
        ("mat", "scipy", "matlab"),
        ("parquet", "pyarrow", "beam"),
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
