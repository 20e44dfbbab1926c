"""Images of 16 bits, of floating-point numbers, and with alpha."""

import dataclasses
import io
import struct
import zlib

import numpy as np
import pytest
import tensorflow as tf
import tifffile
from PIL import Image

from beam_jobs.errors import RejectError
from beam_jobs.jobs.images.image_job import ImageJob
from beam_jobs.sources.inputs import Inputs
from beam_jobs.sources.labels import Labels
from beam_jobs.sources.source import Source
from readers.format.decode.images import decode_image
from readers.format.schema import Feature
from tests.support.images import encoded

RNG = np.random.default_rng(0)
WIDE = {c: RNG.integers(0, 65536, (5, 7, c), dtype=np.uint16) for c in (1, 2, 3, 4)}
BYTES = RNG.integers(0, 256, (5, 7, 3), dtype=np.uint8)


def job(channels=3, dtype="uint16", size=None, **options) -> ImageJob:
    plain = ImageJob(Inputs((), ""), Labels("none"), size, channels=channels)
    return dataclasses.replace(plain, dtype=dtype, **options)


def stored(job: ImageJob, data: bytes):
    return job.decode(Source("key"), io.BytesIO(data))["image"]


def chunk(name: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))


def png(pixels: np.ndarray, key: tuple[int, ...] = (), orientation: int = 0) -> bytes:
    """A PNG of 16 bits [height, width, C], whose lines have all filters in turn."""
    height, width, channels = pixels.shape
    rows = pixels.astype(">u2").reshape(height, -1).view(np.uint8).astype(int)
    step, lines = 2 * channels, []
    for y, row in enumerate(rows):
        left = np.concatenate((np.zeros(step, int), row[:-step]))
        above = rows[y - 1] if y else np.zeros_like(row)
        corner = np.concatenate((np.zeros(step, int), above[:-step]))
        guess = left + above - corner
        near = np.abs(guess - [left, above, corner]).argmin(0)
        paeth = np.choose(near, [left, above, corner])
        filtered = row - [0 * row, left, above, (left + above) // 2, paeth][y % 5]
        lines.append(bytes([y % 5]) + (filtered % 256).astype(np.uint8).tobytes())
    color = {1: 0, 2: 4, 3: 2, 4: 6}[channels]
    exif = Image.Exif()
    exif[0x0112] = orientation
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", struct.pack(">2I5B", width, height, 16, color, 0, 0, 0))
        + (chunk(b"tRNS", struct.pack(f">{len(key)}H", *key)) if key else b"")
        + (chunk(b"eXIf", exif.tobytes()[6:]) if orientation else b"")
        + chunk(b"IDAT", zlib.compress(b"".join(lines)))
        + chunk(b"IEND", b"")
    )


def tiff(pixels: np.ndarray, order: str, orientation: int = 1) -> bytes:
    """An uncompressed TIFF of 16 bits [height, width, 3 or 4] in a byte order, "<" or ">"."""
    height, width, channels = pixels.shape
    data = pixels.astype(f"{order}u2").tobytes()
    tags = [(256, 3, 1, width), (257, 3, 1, height), (258, 3, channels, 8), (259, 3, 1, 1)]
    tags += [(262, 3, 1, 2), (273, 4, 1, 16), (274, 3, 1, orientation), (277, 3, 1, channels)]
    tags += [(278, 3, 1, height), (279, 4, 1, len(data))] + [(338, 3, 1, 2)] * (channels == 4)
    directory = b"".join(
        struct.pack(f"{order}HHI", tag, kind, count)
        + struct.pack(f"{order}H2x" if kind == 3 and count == 1 else f"{order}I", value)
        for tag, kind, count, value in tags
    )
    head = (b"II*\0" if order == "<" else b"MM\0*") + struct.pack(f"{order}I", 16 + len(data))
    bits = struct.pack(f"{order}4H", 16, 16, 16, 16)
    return head + bits + data + struct.pack(f"{order}H", len(tags)) + directory + bytes(4)


@pytest.mark.parametrize("channels", [1, 2, 3, 4])
def test_a_png_keeps_its_sixteen_bits_as_tensorflow_decodes_them(channels):
    data = png(WIDE[channels])
    expected = tf.io.decode_png(data, 4, tf.uint16).numpy()
    np.testing.assert_array_equal(stored(job(4), data), expected)
    if channels in (1, 3):
        np.testing.assert_array_equal(stored(job(channels), data), WIDE[channels])
        np.testing.assert_array_equal(stored(job(3), data), expected[..., :3])


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("channels", [3, 4])
def test_a_tiff_keeps_its_sixteen_bits(order, channels):
    found = stored(job(channels), tiff(WIDE[channels], order))
    np.testing.assert_array_equal(found, WIDE[channels])
    upper = stored(job(channels, "uint8"), tiff(WIDE[channels], order))
    np.testing.assert_array_equal(upper, WIDE[channels] >> 8)


@pytest.mark.parametrize(
    ("kind", "dtype"), [("PNG", np.uint16), ("TIFF", np.uint16), ("TIFF", np.int32)]
)
def test_gray_of_sixteen_bits_is_kept(kind, dtype):
    pixels = WIDE[1][..., 0].astype(dtype)
    np.testing.assert_array_equal(stored(job(1), encoded(pixels, kind))[..., 0], pixels)


def test_a_tiff_of_many_strips_and_of_compressed_ones_keeps_its_sixteen_bits():
    for options in ({"rowsperstrip": 2}, {"tile": (16, 16)}, {"compression": "zlib"}):
        out = io.BytesIO()
        tifffile.imwrite(out, WIDE[3], photometric="rgb", **options)
        np.testing.assert_array_equal(stored(job(3), out.getvalue()), WIDE[3])


@pytest.mark.parametrize("dtype", ["int16", "int32", "float32"])
def test_compressed_big_endian_numbers_which_pillow_swaps_are_rejected(dtype):
    pixels = np.arange(300, 312).reshape(3, 4).astype(dtype)
    for compression in (None, "zlib"):
        out = io.BytesIO()
        tifffile.imwrite(out, pixels, byteorder=">", compression=compression)
        if compression:
            with pytest.raises(
                RejectError, match="a compressed big-endian TIFF, whose bytes Pillow"
            ):
                stored(job(1, "float32"), out.getvalue())
        else:
            scale = 1 if dtype == "float32" else np.float32(65535)
            found = stored(job(1, "float32"), out.getvalue())[..., 0]
            np.testing.assert_array_equal(found, pixels.astype(np.float32) / scale)


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "GIF", "TIFF"])
@pytest.mark.parametrize("channels", [1, 3, 4])
def test_eight_bits_are_times_257_and_floats_from_0_to_1(kind, channels):
    data = encoded(BYTES, kind)
    narrow = stored(job(channels, "uint8"), data)
    np.testing.assert_array_equal(stored(job(channels), data), narrow.astype(np.uint16) * 257)
    found = stored(job(channels, "float32"), data)
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, narrow / np.float32(255))


def test_sixteen_bits_become_floats_from_0_to_1():
    found = stored(job(3, "float32"), png(WIDE[3]))
    np.testing.assert_array_equal(found, WIDE[3] / np.float32(65535))


@pytest.mark.parametrize("channels", [1, 3, 4])
def test_floating_point_pixels_stay_as_they_are(channels):
    pixels = np.array([[-1.5, np.nan, 1e30, 0.1]], np.float32)
    found = stored(job(channels, "float32"), encoded(pixels, "TIFF"))
    for channel in range(min(channels, 3)):
        np.testing.assert_array_equal(found[..., channel], pixels)
    assert (found[..., 3:] == 1).all()


def test_pixels_whose_range_is_unknown_are_rejected():
    floats, integers = np.ones((2, 2), np.float32), np.full((2, 2), 65536, np.int32)
    with pytest.raises(
        RejectError, match="numbers: convert it to 8 or 16 bit, or add --dtype float32"
    ):
        stored(job(), encoded(floats, "TIFF"))
    for dtype in ("uint16", "float32"):
        with pytest.raises(RejectError, match="integers from 0 to 65536, more than 16 bits hold"):
            stored(job(dtype=dtype), encoded(integers, "TIFF"))


@pytest.mark.parametrize("orientation", range(2, 9))
@pytest.mark.parametrize("dtype", ["uint16", "float32"])
def test_wide_images_are_turned_as_narrow_ones(orientation, dtype):
    narrow = BYTES.astype(np.uint16) * 257
    for data in (png(narrow, orientation=orientation), tiff(narrow, "<", orientation)):
        expected = stored(job(3, "uint8"), data)
        scale = 257 if dtype == "uint16" else 1 / np.float32(255)
        found = stored(job(3, dtype), data)
        np.testing.assert_allclose(found, expected.astype(np.float32) * scale, rtol=1e-6)
    assert expected.shape == ((7, 5, 3) if orientation > 4 else (5, 7, 3))


@pytest.mark.parametrize("resize", ["stretch", "fit", "crop"])
@pytest.mark.parametrize("size", [(3, 4), (9, 5)])
@pytest.mark.parametrize("channels", [1, 3, 4])
def test_wide_images_are_resized_as_narrow_ones(resize, size, channels):
    y, x = np.mgrid[:48, :64]
    pixels = np.stack([5 * y, 4 * x, 2 * (x + y), 100 + 3 * y], -1).astype(np.uint8)
    data = encoded(pixels, "PNG")
    narrow = stored(job(channels, "uint8", size, resize=resize), data)
    wide = stored(job(channels, "uint16", size, resize=resize), data)
    floats = stored(job(channels, "float32", size, resize=resize), data)
    assert wide.dtype == np.uint16
    # Pillow weighs colors with alpha in 8 bits.
    assert abs(wide / 257 - narrow).max() <= (4 if channels == 4 else 1.5)
    np.testing.assert_allclose(wide / 65535, floats, atol=1e-5)


def test_transparency_is_blended_with_white_or_kept():
    pixels = np.array([[[1000, 2000, 3000, 0], [0, 0, 0, 0x8000], [7, 8, 9, 65535]]], np.uint16)
    found = stored(job(3), png(pixels))
    assert found.tolist() == [[[65535] * 3, [32767] * 3, [7, 8, 9]]]
    np.testing.assert_array_equal(stored(job(4), png(pixels)), pixels)
    half = Image.new("RGBA", (2, 1), (10, 20, 30, 40))
    assert (stored(job(4, "uint8"), encoded(half, "PNG")) == (10, 20, 30, 40)).all()
    assert stored(job(1), png(pixels)).tolist() == [[[65535], [32767], [8]]]


def test_a_transparent_color_of_sixteen_bits_differs_in_one_bit_from_another():
    colors = np.array([[[1, 2, 3], [1, 2, 4]]], np.uint16)
    assert stored(job(3), png(colors, (1, 2, 3))).tolist() == [[[65535] * 3, [1, 2, 4]]]
    found = stored(job(4), png(colors[..., :1] + np.array([[[5], [0]]], np.uint16), (6,)))
    assert found[..., 3].tolist() == [[0, 65535]]


@pytest.mark.parametrize(
    "mode", ["L", "LA", "P", "1", "RGB", "RGBA", "CMYK", "YCbCr", "LAB", "I;16"]
)
@pytest.mark.parametrize("dtype", ["uint8", "uint16", "float32"])
def test_every_mode_becomes_rgba(mode, dtype):
    image = Image.new("L", (4, 3), 255).convert("RGB" if mode == "LAB" else "L")
    if mode == "I;16":
        image = Image.fromarray(np.full((3, 4), 65535, np.uint16))
    elif mode == "LAB":
        image = Image.new("LAB", (4, 3), (255, 128, 128))
    else:
        image = image.convert(mode)
    found = stored(job(4, dtype), encoded(image, "JPEG" if mode == "YCbCr" else "TIFF"))
    assert found.shape == (3, 4, 4)
    # Pillow converts LAB to RGB with a profile, which loses one of 255 levels.
    levels = found / {"uint8": 255, "uint16": 65535, "float32": 1}[dtype]
    assert (levels >= (0.99 if mode == "LAB" else 1)).all()


FILES = {f"png{c}": png(WIDE[c]) for c in (1, 2, 3, 4)} | {"jpeg": encoded(BYTES, "JPEG")}


@pytest.mark.parametrize("channels", [1, 3, 4])
@pytest.mark.parametrize("dtype", ["uint8", "uint16"])
@pytest.mark.parametrize("name", FILES)
def test_all_readers_decode_the_png_that_is_stored(tmp_path, name, dtype, channels):
    pixels = stored(job(channels, dtype), FILES[name])
    kept = stored(job(channels, dtype, encoding="png"), FILES[name])
    np.testing.assert_array_equal(
        tf.io.decode_png(kept, channels, tf.as_dtype(dtype)).numpy(), pixels
    )
    feature = Feature(dtype, (None, None, channels), "png")
    found = decode_image("image", feature, kept)
    assert found.dtype == pixels.dtype
    np.testing.assert_array_equal(found, pixels)


@pytest.mark.parametrize("dtype", ["uint16", "float32"])
@pytest.mark.parametrize("encoding", ["tensor", "raw"])
def test_the_schema_and_sizes_have_the_dtype(dtype, encoding):
    found = job(3, dtype, (6, 4), encoding=encoding)
    assert found.schema["image"] == Feature(dtype, (6, 4, 3), encoding)
    pixels = stored(found, png(WIDE[3]))
    assert found.parts_of(Source("a"), png(WIDE[3])) == [("a", pixels.nbytes + 200)]
