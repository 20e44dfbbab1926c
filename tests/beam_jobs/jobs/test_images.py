"""The pixels that the images job makes of image files."""

import dataclasses
import functools
import io
import re
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from PIL import ExifTags, Image, ImageCms, ImageOps, PngImagePlugin

import beam_jobs
import readers
from beam_jobs.errors import RejectError, UsageError
from beam_jobs.jobs.images.image_job import ImageJob
from beam_jobs.jobs.images.kept_files import kept_file
from beam_jobs.jobs.images.pixels import parse_image_size
from beam_jobs.sources.inputs import Inputs
from beam_jobs.sources.labels import Labels
from beam_jobs.sources.source import Source
from readers.format.schema import Feature, Schema
from tests.support.archives import zipped
from tests.support.images import EPS, encoded, mark_of_ghostscript


def job(size=None, resize="stretch", channels=3, encoding="tensor", label="none") -> ImageJob:
    return ImageJob(Inputs((), ""), Labels(label), size, resize, channels, encoding)


def stored(job: ImageJob, data: bytes) -> np.ndarray | bytes:
    """The image of an image file as a job stores it."""
    return job.decode(Source("key"), io.BytesIO(data))["image"]


def smooth(height: int = 48, width: int = 64) -> np.ndarray:
    """An image without sharp edges and with four different corners, uint8 [H, W, 3]."""
    y, x = np.mgrid[:height, :width]
    planes = (255 * y / height, 255 * x / width, 255 * (x + y) / (height + width))
    return np.stack(planes, -1).astype(np.uint8)


def error(a: np.ndarray, b: np.ndarray) -> float:
    """Mean absolute difference of two images."""
    assert a.shape == b.shape
    return float(abs(a.astype(int) - b.astype(int)).mean())


def by_tensorflow(data: bytes, channels: int = 3) -> np.ndarray:
    return tf.io.decode_image(data, channels, expand_animations=False).numpy()


@pytest.mark.parametrize(
    ("mode", "kind"),
    [
        ("L", "PNG"),
        ("L", "JPEG"),
        ("1", "PNG"),
        ("P", "PNG"),
        ("RGBA", "PNG"),
        ("LA", "PNG"),
        ("CMYK", "JPEG"),
        ("YCbCr", "JPEG"),
    ],
)
@pytest.mark.parametrize("channels", [1, 3])
def test_every_mode_becomes_gray_or_rgb(mode, kind, channels):
    # Pure colors come through every conversion; a fill avoids dithering.
    for color, gray in (((255, 255, 255), 255), ((0, 0, 0), 0)):
        image = Image.new("RGB", (20, 10), color).convert(mode)
        found = stored(job(channels=channels), encoded(image, kind))
        assert found.shape == (10, 20, channels)
        assert error(found, np.full((10, 20, channels), gray, np.uint8)) <= 2


def test_colors_become_their_luminance_in_gray():
    data = encoded(Image.new("RGB", (4, 4), (10, 200, 60)), "PNG")
    assert (stored(job(channels=1), data) == round(0.299 * 10 + 0.587 * 200 + 0.114 * 60)).all()


@pytest.mark.parametrize(
    ("kind", "options", "first"),
    [
        ("PNG", {}, [10, 20, 30]),
        ("GIF", {}, [10, 20, 30]),
        ("BMP", {}, [10, 20, 30]),
        ("PNG", {"transparency": 0}, [255, 255, 255]),
        ("GIF", {"transparency": 0}, [255, 255, 255]),
    ],
)
def test_palettes_give_their_colors_and_transparent_entries_white(kind, options, first):
    image = Image.new("P", (2, 1))
    image.putpalette([10, 20, 30, 200, 100, 50])
    image.putdata([0, 1])
    assert stored(job(), encoded(image, kind, **options)).tolist() == [[first, [200, 100, 50]]]


@pytest.mark.parametrize(
    ("mode", "pixel", "expected"),
    [
        ("RGBA", (10, 20, 30, 0), (255, 255, 255)),
        ("RGBA", (10, 20, 30, 255), (10, 20, 30)),
        ("RGBA", (0, 0, 0, 128), (127, 127, 127)),
        ("LA", (0, 0), (255, 255, 255)),
        ("LA", (77, 255), (77, 77, 77)),
    ],
)
def test_transparency_is_blended_with_white(mode, pixel, expected):
    data = encoded(Image.new(mode, (3, 2), pixel), "PNG")
    assert (stored(job(), data) == expected).all()


def test_a_transparent_color_of_a_png_without_alpha_becomes_white():
    image = Image.fromarray(np.array([[[1, 2, 3], [4, 5, 6]]], np.uint8))
    found = stored(job(), encoded(image, "PNG", transparency=(1, 2, 3)))
    assert found.tolist() == [[[255, 255, 255], [4, 5, 6]]]
    gray = Image.fromarray(np.array([[7, 8]], np.uint8))
    found = stored(job(channels=1), encoded(gray, "PNG", transparency=7))
    assert found.reshape(-1).tolist() == [255, 8]


@pytest.mark.parametrize("kind", ["PNG", "TIFF"])
@pytest.mark.parametrize("channels", [1, 3])
def test_sixteen_bits_keep_their_upper_byte(kind, channels):
    pixels = np.array([[0, 255, 256, 0x1234, 65535]], np.uint16)
    found = stored(job(channels=channels), encoded(pixels, kind))
    assert found.shape == (1, 5, channels)
    assert found[0, :, 0].tolist() == [0, 0, 1, 0x12, 255]


@pytest.mark.parametrize("encoding", ["tensor", "source"])
@pytest.mark.parametrize(("low", "high"), [(-5, 0), (0, 65536), (-1, 2**31 - 1)])
def test_integers_that_sixteen_bits_do_not_hold_are_rejected(low, high, encoding):
    pixels = np.array([[low, 0x1234, high]], np.int32)
    with pytest.raises(RejectError, match=r"pixels are integers from .* scale them to 0 to 255"):
        stored(job(encoding=encoding), encoded(pixels, "TIFF"))


def test_thirty_two_bit_integers_keep_the_upper_byte_of_sixteen():
    pixels = np.array([[0, 0x1234, 65535]], np.int32)
    found = stored(job(channels=1), encoded(pixels, "TIFF"))
    assert found.reshape(-1).tolist() == [0, 0x12, 255]


def test_floating_point_images_are_rejected():
    data = encoded(np.ones((4, 4), np.float32), "TIFF")
    with pytest.raises(RejectError, match="floating-point numbers: convert it to 8 or 16 bit"):
        stored(job(), data)


def turned(upright: np.ndarray, orientation: int) -> np.ndarray:
    """The pixels that a camera stores if the image is `upright` after its EXIF orientation."""
    undo = {
        1: lambda a: a,
        2: lambda a: a[:, ::-1],
        3: lambda a: a[::-1, ::-1],
        4: lambda a: a[::-1],
        5: lambda a: a.swapaxes(0, 1),
        6: lambda a: np.rot90(a, 1),
        7: lambda a: np.rot90(a, 2).swapaxes(0, 1),
        8: lambda a: np.rot90(a, -1),
    }
    return np.ascontiguousarray(undo[orientation](upright))


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("kind", ["PNG", "TIFF", "WEBP"])
def test_images_are_turned_upright(orientation, kind):
    upright = smooth(6, 10)
    options = {"lossless": True} if kind == "WEBP" else {}
    data = encoded(turned(upright, orientation), kind, orientation, **options)
    np.testing.assert_array_equal(stored(job(), data), upright)


@pytest.mark.parametrize("orientation", [3, 6])
@pytest.mark.parametrize("resize", ["stretch", "fit", "crop"])
# With its sides mixed up, the decoder would scale the second to half the requested size.
@pytest.mark.parametrize("size", [(60, 160), (320, 200)])
def test_turned_jpegs_look_like_upright_ones_when_they_are_resized(orientation, resize, size):
    noise = np.random.default_rng(0).integers(-40, 41, (480, 640, 1))
    upright = np.clip(smooth(480, 640) + noise, 0, 255).astype(np.uint8)
    data = encoded(turned(upright, orientation), "JPEG", orientation, quality=95)
    expected = encoded(upright, "JPEG", quality=95)
    sized = job(size, resize)
    assert error(stored(sized, data), stored(sized, expected)) < 1


@pytest.mark.parametrize("resize", ["stretch", "fit", "crop"])
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("source", [(48, 64), (64, 48), (7, 300), (300, 7), (1, 1), (32, 32)])
def test_every_image_gets_the_requested_size(resize, channels, source):
    data = encoded(Image.fromarray(smooth(*source)), "PNG")
    assert stored(job((32, 32), resize, channels), data).shape == (32, 32, channels)


def test_fitting_adds_black_borders_and_keeps_the_proportions():
    white = np.full((20, 40, 3), 255, np.uint8)
    found = stored(job((40, 40), "fit"), encoded(white, "PNG"))
    assert (found[10:30] == 255).all()
    assert not found[:10].any()
    assert not found[30:].any()


def test_cropping_keeps_the_center():
    pixels = np.zeros((20, 60, 3), np.uint8)
    pixels[:, 20:40] = 255
    found = stored(job((20, 20), "crop"), encoded(pixels, "PNG"))
    assert (found == 255).all()


def test_an_image_of_the_right_size_is_unchanged():
    data = encoded(smooth(), "PNG")
    for resize in ("stretch", "fit", "crop"):
        np.testing.assert_array_equal(stored(job((48, 64), resize), data), smooth())


@pytest.mark.parametrize("size", [(24, 24), (97, 33), (700, 700)])
@pytest.mark.parametrize("resize", ["stretch", "fit", "crop"])
def test_scaling_in_the_jpeg_decoder_looks_like_a_full_decode(size, resize):
    noise = np.random.default_rng(0).integers(-20, 21, (480, 640, 1))
    pixels = np.clip(smooth(480, 640) + noise, 0, 255).astype(np.uint8)
    jpeg = encoded(pixels, "JPEG", quality=90)
    full = encoded(Image.open(io.BytesIO(jpeg)), "PNG")
    sized = job(size, resize)
    assert error(stored(sized, jpeg), stored(sized, full)) < 3


@pytest.mark.parametrize("orientation", [1, 6])
def test_exact_jpegs_are_resized_as_by_pillow(orientation):
    pixels = np.random.default_rng(0).integers(0, 256, (480, 640, 3), dtype=np.uint8)
    jpeg = encoded(pixels, "JPEG", orientation)
    upright = ImageOps.exif_transpose(Image.open(io.BytesIO(jpeg)))
    expected = np.asarray(upright.resize((90, 60), Image.Resampling.BILINEAR))
    exact = dataclasses.replace(job((60, 90)), jpeg_exact=True)
    np.testing.assert_array_equal(stored(exact, jpeg), expected)
    assert error(stored(job((60, 90)), jpeg), expected) > 0


@pytest.mark.parametrize("kind", ["GIF", "WEBP", "PNG", "TIFF"])
def test_the_first_frame_of_several_is_taken(kind):
    first, second = (Image.new("RGB", (8, 6), color) for color in ((255, 0, 0), (0, 0, 255)))
    data = encoded(first, kind, save_all=True, append_images=[second])
    assert error(stored(job(), data), np.asarray(first)) < 8


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("encoding", ["jpeg", "png"])
@pytest.mark.parametrize("size", [None, (20, 30)])
def test_tensorflow_decodes_encoded_images_to_the_stored_pixels(channels, encoding, size):
    data = encoded(smooth(), "PNG")
    kept = stored(job(size, "stretch", channels, encoding), data)
    pixels = stored(job(size, "stretch", channels), data)
    magic = {"jpeg": b"\xff\xd8\xff", "png": b"\x89PNG"}[encoding]
    assert kept.startswith(magic)
    limit = 0 if encoding == "png" else 3
    assert error(by_tensorflow(kept, channels), pixels) <= limit


def chunk(name: bytes, body: bytes) -> bytes:
    """A chunk of a PNG."""
    return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))


def sixteen_bit_rgb_png() -> bytes:
    """A PNG of one row of two RGB pixels of 16 bit, which Pillow reads but does not write."""
    pixels = struct.pack(">6H", 0x0100, 0x02FF, 0x0380, 0xFFFF, 0xFE00, 0x00FF)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", struct.pack(">2I5B", 2, 1, 16, 2, 0, 0, 0))
        + chunk(b"IDAT", zlib.compress(b"\0" + pixels))
        + chunk(b"IEND", b"")
    )


GRAY = Image.fromarray(smooth()[..., 0])
PLAIN = {
    "rgb.jpg": encoded(smooth(), "JPEG"),
    "progressive.jpg": encoded(smooth(), "JPEG", progressive=True),
    "gray.jpg": encoded(GRAY, "JPEG"),
    "rgb.png": encoded(smooth(), "PNG"),
    "gray.png": encoded(GRAY, "PNG"),
    "rgb16.png": sixteen_bit_rgb_png(),
    "upright.jpg": encoded(smooth(), "JPEG", 1),
    "animated.png": encoded(smooth(), "PNG", save_all=True, append_images=[GRAY.convert("RGB")]),
    "two views.jpg": encoded(smooth(), "MPO", save_all=True, append_images=[GRAY.convert("RGB")]),
}


@pytest.mark.parametrize("name", PLAIN)
def test_source_keeps_files_that_tensorflow_decodes_to_the_same_pixels(name):
    data = PLAIN[name]
    kept = stored(job(encoding="source"), data)
    if name == "two views.jpg":
        assert Image.open(io.BytesIO(data)).format == "MPO" and b"MPF" not in kept
    else:
        assert kept == data
    # Decoders of JPEG may differ by rounding.
    assert error(by_tensorflow(kept), stored(job(), data)) < 1


@pytest.mark.parametrize("name", PLAIN)
def test_source_ends_with_the_image_whatever_follows_it_in_the_file(name):
    kept = stored(job(encoding="source"), PLAIN[name])
    for more in (b"more", b"\xff\xd9", PLAIN["rgb.jpg"], bytes(100_000)):
        assert stored(job(encoding="source"), PLAIN[name] + more) == kept


def with_metadata(kind: str) -> bytes:
    """An image with EXIF, XMP, a comment and a color profile."""
    image, exif = Image.fromarray(smooth()), Image.Exif()
    exif[ExifTags.Base.Artist] = "somebody"
    options = {
        "exif": exif,
        "icc_profile": ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes(),
    }
    if kind == "JPEG":
        return encoded(
            image, kind, comment=b"a word", xmp=b"<x:xmpmeta/>", progressive=True, **options
        )
    texts = PngImagePlugin.PngInfo()
    texts.add_text("Comment", "a word")
    texts.add_itxt("XML:com.adobe.xmp", "<x:xmpmeta/>")
    return encoded(image, kind, pnginfo=texts, **options)


def test_damaged_pixels_that_look_like_metadata_are_kept():
    data = bytearray(encoded(smooth(), "JPEG", quality=95))
    data[-500:-498] = b"\xff\xe1"
    stripped = stored(dataclasses.replace(job(encoding="source"), strip_metadata=True), bytes(data))
    assert stripped == data


def test_a_run_of_one_byte_takes_linear_time_and_padding_of_markers_is_kept():
    data = encoded(smooth(), "JPEG")
    run = data[:-2] + b"\xff" * 4_000_000 + b"\0" + data[-2:]  # Hours, if the time were quadratic.
    assert kept_file(run + b"more", False) == run
    padded = data[:2] + b"\xff" * 9 + data[2:]
    assert kept_file(padded, False) == kept_file(padded, True) == padded


@pytest.mark.parametrize("kind", ["JPEG", "PNG"])
def test_metadata_is_left_out_of_kept_files_without_a_change_of_pixels(kind):
    data = with_metadata(kind)
    stripped = stored(dataclasses.replace(job(encoding="source"), strip_metadata=True), data + b"x")
    for text in (b"somebody", b"xmpmeta", b"a word"):
        assert text in data and text not in stripped
    with Image.open(io.BytesIO(data)) as before, Image.open(io.BytesIO(stripped)) as after:
        assert after.info["icc_profile"] == before.info["icc_profile"]
        np.testing.assert_array_equal(after, before)
    np.testing.assert_array_equal(by_tensorflow(stripped), by_tensorflow(data))
    assert stored(job(encoding="source"), data) == data


OTHERS = {
    **{f"turned{i}.jpg": encoded(smooth(), "JPEG", i) for i in range(2, 9)},
    "cmyk.jpg": encoded(Image.fromarray(smooth()).convert("CMYK"), "JPEG"),
    "rgba.png": encoded(Image.fromarray(smooth()).convert("RGBA"), "PNG"),
    "half.png": encoded(Image.new("RGBA", (5, 4), (9, 8, 7, 100)), "PNG"),
    "la.png": encoded(GRAY.convert("LA"), "PNG"),
    "palette.png": encoded(Image.fromarray(smooth()).quantize(8), "PNG"),
    "bits.png": encoded(GRAY.convert("1"), "PNG"),
    "sixteen.png": encoded(Image.fromarray(smooth()[..., 0].astype(np.uint16) * 257), "PNG"),
    "transparent.png": encoded(smooth(), "PNG", transparency=(0, 0, 0)),
    "turned.png": encoded(smooth(), "PNG", 8),
    "a.gif": encoded(smooth(), "GIF"),
    "a.bmp": encoded(smooth(), "BMP"),
    "a.tif": encoded(smooth(), "TIFF"),
    "a.webp": encoded(smooth(), "WEBP"),
}


@pytest.mark.parametrize("name", OTHERS)
@pytest.mark.parametrize("channels", [1, 3])
def test_source_turns_other_files_into_jpeg_or_png(name, channels):
    kept = stored(job(channels=channels, encoding="source"), OTHERS[name])
    pixels = stored(job(channels=channels), OTHERS[name])
    if name.endswith(".jpg"):
        assert kept.startswith(b"\xff\xd8\xff")
        assert len(kept) < 3 * len(OTHERS[name])
        assert error(by_tensorflow(kept, channels), pixels) < 2
    else:
        assert kept.startswith(b"\x89PNG")
        np.testing.assert_array_equal(by_tensorflow(kept, channels), pixels)


DAMAGED = {
    **{f"cut{n}.png": PLAIN["rgb.png"][:-n] for n in (1, 8, 16)},
    "checksum of data.png": PLAIN["rgb.png"][:-14] + b"\0\0" + PLAIN["rgb.png"][-12:],
    "checksum of end.png": PLAIN["rgb.png"][:-1] + b"\0",
    "unknown chunk.png": PLAIN["rgb.png"][:33] + chunk(b"CgBI", b"1234") + PLAIN["rgb.png"][33:],
}


@pytest.mark.parametrize("name", DAMAGED)
def test_source_writes_a_png_anew_that_pillow_decodes_and_tensorflow_refuses(name):
    with pytest.raises(tf.errors.InvalidArgumentError, match="Invalid PNG"):
        by_tensorflow(DAMAGED[name])
    kept = stored(job(encoding="source"), DAMAGED[name])
    np.testing.assert_array_equal(by_tensorflow(kept), smooth())


def test_source_in_gray_keeps_only_gray_files():
    gray = job(channels=1, encoding="source")
    assert stored(gray, PLAIN["gray.jpg"]) == PLAIN["gray.jpg"]
    assert stored(gray, PLAIN["rgb.png"]).startswith(b"\x89PNG")


WHOLE = {kind: encoded(smooth(), kind) for kind in ("JPEG", "PNG", "GIF", "TIFF", "BMP", "WEBP")}


@pytest.mark.filterwarnings("ignore:Truncated File Read")
@pytest.mark.parametrize("encoding", ["tensor", "source"])
@pytest.mark.parametrize("share", [0.01, 0.6])
@pytest.mark.parametrize("kind", WHOLE)
def test_truncated_files_are_rejected(encoding, share, kind):
    data = WHOLE[kind]
    with pytest.raises(RejectError, match="cannot be decoded"):
        stored(job(encoding=encoding), data[: int(len(data) * share)])


@pytest.mark.parametrize("where", ["lie.jpg", "a.zip"])
def test_no_input_starts_ghostscript_whatever_it_is_called(where, tmp_path, monkeypatch):
    mark = mark_of_ghostscript(tmp_path, monkeypatch)
    data = EPS if where == "lie.jpg" else zipped([("lie.jpg", EPS)])
    (tmp_path / where).write_bytes(data)
    images = ImageJob(Inputs.of([f"{tmp_path}/{where}"]), Labels("none"))
    (source,) = images.sources(images.inputs.patterns[0])
    with pytest.raises(RejectError, match=r"^cannot be decoded: unknown image format$"):
        images.load(source)
    assert images.parts_of(source, EPS)
    assert not mark.exists()


def test_images_are_opened_nowhere_without_a_list_of_formats():
    for package in (beam_jobs, readers):
        for path in Path(package.__path__[0]).rglob("*.py"):
            calls = re.findall(r"Image\.open\(.*", path.read_text())
            assert all("formats=" in call for call in calls), path


@functools.cache
def bomb(side: int) -> bytes:
    """A small file that unpacks to side * side pixels."""
    return encoded(Image.new("1", (side, side)), "PNG")


@pytest.mark.parametrize("side", [9_500, 14_000])  # Pillow warns at 9,459 and refuses at 13,377
def test_a_decompression_bomb_is_rejected_before_it_is_decoded(side):
    data = bomb(side)
    assert len(data) < 100_000
    expected = (
        rf"^its {side * side} pixels are more than --max_pixels 89478485: give a larger number"
    )
    with pytest.raises(RejectError, match=expected):
        stored(job(), data)


def test_the_limit_of_pixels_may_be_lower():
    sized = dataclasses.replace(job((8, 8)), max_pixels=5_000)
    with pytest.raises(RejectError, match=r"^its 6400 pixels are more than --max_pixels 5000"):
        stored(sized, bomb(80))
    assert stored(sized, encoded(smooth(), "PNG")).shape == (8, 8, 3)


def test_an_image_inside_an_icon_has_the_same_limit(monkeypatch):
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 1_000)
    icon = bytearray(encoded(Image.new("RGB", (64, 64)), "ICO", sizes=[(64, 64)]))
    icon[6:8] = 8, 8  # the size that the directory states
    with pytest.raises(RejectError, match=r"^its 4096 pixels are more than --max_pixels 1000"):
        stored(dataclasses.replace(job(), max_pixels=1_000), bytes(icon))


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (WHOLE["PNG"][:29] + bytes(4) + WHOLE["PNG"][33:], "PNG"),
        (WHOLE["PNG"][:33] + chunk(b"tRNS", b"a") + WHOLE["PNG"][33:], "PNG"),
        (WHOLE["GIF"][:100], "GIF"),
        (WHOLE["JPEG"][:4], "JPEG"),
    ],
)
def test_the_reason_says_what_is_damaged(data, kind):
    with pytest.raises(RejectError, match=f"^cannot be decoded: a {kind} file that is damaged"):
        stored(job(), data)


def test_the_schema_describes_what_is_stored():
    assert job((20, 30), channels=1, encoding="jpeg", label="parent").schema == Schema(
        {
            "image": Feature("uint8", (20, 30, 1), "jpeg"),
            "key": Feature("string"),
            "label": Feature("int64"),
        }
    )
    assert job().schema == Schema(
        {"image": Feature("uint8", (None, None, 3)), "key": Feature("string")}
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [("224x128", (224, 128)), ("1X1", (1, 1)), ("none", None), ("007x8", (7, 8))],
)
def test_image_sizes_are_height_by_width(text, expected):
    assert parse_image_size(text) == expected


@pytest.mark.parametrize(
    "text",
    ["", "224", "224x", "x224", "0x5", "5x0", "-1x5", "1.5x2", "2x3x4", "None", "2 x 3", "²x2"],
)
def test_other_image_sizes_are_refused(text):
    with pytest.raises(UsageError) as caught:
        parse_image_size(text)
    assert caught.value.message == (
        f"--image_size {text}: expected HEIGHTxWIDTH such as 224x224, or none"
    )
