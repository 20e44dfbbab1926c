"""Images that Pillow misreads, or of which it drops something: the right pixels, a reject, or a remark."""

import io
import struct
import zlib

import cv2
import numpy as np
import pytest
import tifffile
from PIL import Image

from beam_jobs.errors import RejectError
from beam_jobs.jobs.images.image_job import ImageJob
from beam_jobs.sources.inputs import Inputs
from beam_jobs.sources.labels import Labels
from beam_jobs.sources.source import Source

RANDOM = np.random.default_rng(0)


def read(data: bytes, dtype="uint8", channels=3):
    job = ImageJob(Inputs((), ""), Labels("none"), dtype=dtype, channels=channels)
    return job.decode(Source("key"), io.BytesIO(data))


def pixels(top: int, *shape: int, dtype="uint8") -> np.ndarray:
    return RANDOM.integers(0, top, shape or (20, 24)).astype(dtype)


def tiff(array: np.ndarray, **options) -> bytes:
    file = io.BytesIO()
    tifffile.imwrite(file, array, **options)
    return file.getvalue()


def chunk(name: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))


def gray_png(rows: bytes, size: tuple[int, int], bits: int, key: int) -> bytes:
    """A gray PNG of (width, height) with a transparent gray."""
    header = struct.pack(">2I5B", *size, bits, 0, 0, 0, 0)
    body = chunk(b"tRNS", struct.pack(">H", key)) + chunk(b"IDAT", zlib.compress(rows))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + body + chunk(b"IEND", b"")


@pytest.mark.parametrize("layout", [{"rowsperstrip": 7}, {"tile": (16, 16)}])
@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("channels", [3, 4])
def test_sixteen_bits_in_separate_planes_are_right_or_rejected(channels, order, layout):
    planes = pixels(1 << 16, channels, 20, 24, dtype="uint16")
    alpha = {"extrasamples": ["unassalpha"]} if channels == 4 else {}
    options = {"photometric": "rgb", "planarconfig": "separate", "byteorder": order, **alpha}
    packed = tiff(planes, **options, compression="zlib")
    expected = np.moveaxis(planes, 0, -1) >> 8
    np.testing.assert_array_equal(read(packed, channels=channels)["image"], expected)
    for data, dtype in ((packed, "uint16"), (tiff(planes, **options, **layout), "uint8")):
        with pytest.raises(RejectError, match="in separate planes; save it with interleaved"):
            read(data, dtype, channels)


def test_one_plane_of_sixteen_bits_is_read():
    gray = pixels(1 << 16, dtype="uint16")
    data = tiff(gray, photometric="minisblack", planarconfig="separate")
    np.testing.assert_array_equal(read(data, "uint16", 1)["image"][..., 0], gray)


def gif_of_a_part() -> bytes:
    """A GIF of 16x16 pixels whose first frame has 8x8."""
    file = io.BytesIO()
    Image.new("P", (8, 8)).save(file, "GIF")
    return file.getvalue()[:6] + struct.pack("<2H", 16, 16) + file.getvalue()[10:]


def j2k(**options) -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels(256)).save(file, "JPEG2000", **options)
    return file.getvalue()


PLANES = {"photometric": "minisblack", "planarconfig": "separate", "compression": "zlib"}
WHITE = cv2.imencode(".jp2", np.full((64, 64, 3), 65535, np.uint16))[1].tobytes()
MISREAD = {
    "signed bytes": tiff(pixels(256).view("int8"), photometric="minisblack"),
    "of 12 bits": tiff(pixels(4096, dtype="uint16"), photometric="minisblack").replace(
        struct.pack("<HHI2H", 258, 3, 1, 16, 0), struct.pack("<HHI2H", 258, 3, 1, 12, 0)
    ),
    "whose white is 0": tiff(pixels(1 << 16, dtype="uint16"), photometric="miniswhite"),
    "palette has 8 bits": tiff(
        pixels(256), photometric="palette", colormap=pixels(256, 3, 256, dtype="uint16")
    ),
    "with alpha, in separate planes": tiff(
        pixels(256, 2, 20, 24), **PLANES, extrasamples=["unassalpha"]
    ),
    "first frame covers a part": gif_of_a_part(),
    "JPEG 2000 file of signed numbers": j2k(signed=True),
    "JPEG 2000 file with colors of 16 bits": WHITE,
}


@pytest.mark.parametrize("reason", MISREAD)
def test_a_file_that_pillow_would_decode_to_wrong_pixels_is_rejected(reason):
    with pytest.raises(RejectError, match=reason):
        read(MISREAD[reason])


def test_a_later_page_of_a_tiff_is_checked_too():
    file = io.BytesIO()
    with tifffile.TiffWriter(file) as writer:
        for array in (pixels(256), pixels(256).view("int8")):
            writer.write(array, photometric="minisblack")
    job = ImageJob(Inputs((), ""), Labels("none"), frames="all")
    with pytest.raises(RejectError, match="signed bytes"):
        list(job.records_of(Source("key"), file.getvalue()))


@pytest.mark.parametrize("dtype", ["uint8", "uint16"])
def test_a_transparent_gray_of_any_number_of_bits_is_transparent(dtype):
    white = np.iinfo(dtype).max
    packed = gray_png(b"\0\x1b", (4, 1), 2, 1)  # the grays 0, 1, 2, 3
    np.testing.assert_array_equal(
        read(packed, dtype, 4)["image"][0, :, 3], [white, 0, white, white]
    )
    wide = gray_png(b"\0" + struct.pack(">3H", 0x1234, 0x1235, 0x1334), (3, 1), 16, 0x1234)
    np.testing.assert_array_equal(read(wide, dtype, 4)["image"][0, :, 3], [0, white, white])


BANDS = tiff(pixels(256, 20, 24, 5), photometric="rgb", planarconfig="contig", extrasamples=[0, 0])
UPPER, FEW = "uint8 has the upper byte", "its 16-bit pixels are below 4,096"


def png(array: np.ndarray) -> bytes:
    return cv2.imencode(".png", array)[1].tobytes()


@pytest.mark.parametrize(
    ("data", "dtype", "channels", "remark"),
    [
        (BANDS, "uint8", 3, "only 3 of its 5 channels were read"),
        (png(pixels(1 << 16, dtype="uint16")), "uint8", 3, UPPER),
        (png(pixels(1 << 16, 8, 8, 3, dtype="uint16")), "uint8", 3, UPPER),
        (png(pixels(4096, dtype="uint16")), "uint8", 3, FEW),
        (png(pixels(4096, dtype="uint16")), "uint16", 3, ""),
        (b"P6 1 1 4095\n" + bytes(6), "uint16", 3, "its pixels of 16 bits were decoded"),
        (b"P5 1 1 4095\n" + bytes(2), "uint16", 3, ""),
        (b"P1 2 1\n0 1\n", "uint8", 3, ""),
        (png(pixels(256, 8, 8, 4)), "uint8", 3, "its transparent pixels were blended"),
        (png(pixels(256, 8, 8, 4)), "float32", 1, "its transparent pixels were blended"),
        (png(pixels(256, 8, 8, 4)), "uint8", 4, ""),
        (png(np.full((8, 8, 4), 255, np.uint8)), "uint8", 3, ""),
        (tiff(pixels(256, 8, 8, 4), photometric="separated"), "uint8", 3, "its CMYK was"),
    ],
)
def test_what_a_record_lacks_of_its_image_is_said(data, dtype, channels, remark):
    remarks = read(data, dtype, channels).remarks
    assert remarks[0].startswith(remark) if remark else not remarks, remarks
    assert len(remarks) <= 1
