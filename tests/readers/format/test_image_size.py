"""The sizes in headers are those of Pillow, and no bytes are an error."""

import io
import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from readers.format.decode.image_size import image_size
from readers.format.decode.images import decode_image
from readers.format.schema import Feature
from tests.support.images import encoded

PIXELS = np.random.default_rng(0).integers(0, 256, (61, 43, 3), np.uint8)
PICTURE, SIZE = Image.fromarray(PIXELS), (61, 43)
PLAIN = encoded(PIXELS, "JPEG")
THUMBNAIL = encoded(PIXELS[:20, :30], "JPEG")


def with_segments(*segments: bytes, padding: int = 0) -> bytes:
    """A JPEG with more segments at its start, each after some more bytes FF."""
    start = b"".join(
        b"\xff" * padding + s[:2] + struct.pack(">H", len(s)) + s[2:] for s in segments
    )
    return PLAIN[:2] + start + PLAIN[2:]


def padded(data: bytes) -> bytes:
    """A JPEG with three more bytes FF before each of its markers up to the pixels."""
    found, at = data[:2], 2
    while data[at + 1] != 0xDA:
        length = int.from_bytes(data[at + 2 : at + 4], "big") + 2
        found += b"\xff\xff\xff" + data[at : at + length]
        at += length
    return found + data[at:]


JPEGS = {
    "baseline": PLAIN,
    "progressive": encoded(PIXELS, "JPEG", progressive=True),
    "gray": encoded(PIXELS[..., 0], "JPEG"),
    "CMYK": encoded(PICTURE.convert("CMYK"), "JPEG"),
    "rotated by EXIF": encoded(PIXELS, "JPEG", orientation=6),
    "thumbnail in EXIF": with_segments(b"\xff\xe1Exif\0\0" + THUMBNAIL),
    "padding": padded(PLAIN),
    "padding before further segments": with_segments(b"\xff\xfe" + THUMBNAIL, padding=900),
    "color profile": encoded(PIXELS, "JPEG", icc_profile=bytes(range(256)) * 800),
    "restart markers": encoded(PIXELS, "JPEG", restart_marker_blocks=2),
    "other bytes between segments": with_segments(b"\xff\xfe").replace(b"\xff\xdb", b"ab\xff\0\xff\xdb", 1),
    "several pictures": encoded(PICTURE, "MPO", save_all=True, append_images=[PICTURE.resize((9, 8))]),
}  # fmt: skip

PNGS = {
    **{mode: encoded(PICTURE.convert(mode), "PNG") for mode in ("1", "L", "LA", "P", "RGBA")},
    "16 bits": encoded(Image.fromarray(PIXELS[..., 0].astype(np.uint16)), "PNG"),
    "animation": encoded(PICTURE, "PNG", save_all=True, append_images=[PICTURE.rotate(9)]),
    "rotated by EXIF": encoded(PIXELS, "PNG", orientation=6),
}

PICTURES = {
    **{f"JPEG, {name}": data for name, data in JPEGS.items()},
    **{f"PNG, {name}": data for name, data in PNGS.items()},
}

OTHERS = {
    **{kind: encoded(PIXELS, kind) for kind in ("GIF", "BMP", "WEBP", "TIFF")},
    "nothing": b"",
    "text": b"JFIF IHDR" * 9,
    "a JPEG that ends at once": b"\xff\xd8\xff\xd9" + PLAIN[2:],
    "pixels before the size": b"\xff\xd8\xff\xda\0\2" + PLAIN[2:],
    "a PNG without a header": PNGS["L"][:8] + PNGS["L"][33:],
}


@pytest.mark.parametrize("name", PICTURES)
def test_the_size_is_that_of_pillow(name):
    data = PICTURES[name]
    with Image.open(io.BytesIO(data)) as image:
        assert (image.height, image.width) == SIZE
    assert image_size(data) == image_size(memoryview(data)) == SIZE


@pytest.mark.parametrize("name", OTHERS)
def test_other_bytes_have_no_size(name):
    assert image_size(OTHERS[name]) is image_size(memoryview(OTHERS[name])) is None


@pytest.mark.parametrize("name", PICTURES)
def test_what_is_cut_off_has_the_same_size_or_none(name):
    data = PICTURES[name][:3000]
    found = [image_size(data[:cut]) for cut in range(len(data))]
    assert {*found} <= {None, SIZE}
    assert found == sorted(found, key=bool)


@pytest.mark.parametrize("size", [(0, 5), (5, 0), (0, 0), (13400, 13400)])
def test_sizes_that_readers_reject_are_none(size):
    place = PLAIN.index(b"\xff\xc0") + 5
    of_jpeg = PLAIN[:place] + struct.pack(">2H", *size) + PLAIN[place + 4 :]
    of_png = PNGS["L"][:16] + struct.pack(">2I", *size[::-1]) + PNGS["L"][24:]
    for data in (of_jpeg, of_png):
        assert image_size(data) is None
        with pytest.raises(ValueError, match="feature 'x'"):
            decode_image("x", Feature("uint8", (None, None, 3), "source"), data)


@pytest.mark.parametrize(
    "rest", [b"\xff" * 5_000_000 + b"\0", b"\xff\0" * 2_000_000, b"\xff\xe0\0\2" * 1_000_000]
)
def test_no_bytes_take_long(rest):
    assert image_size(b"\xff\xd8" + rest + PLAIN[2:]) in (None, SIZE)


BYTES = st.integers(0, 255)


@pytest.mark.filterwarnings("ignore::UserWarning")
@given(
    st.sampled_from([*PICTURES.values(), OTHERS["GIF"]]),
    st.dictionaries(st.integers(0, 700), BYTES, max_size=6),
)
@settings(max_examples=400, deadline=None)
def test_the_size_of_a_damaged_picture_is_that_of_its_pixels(data, changes):
    changed = bytearray(data)
    for place, value in changes.items():
        changed[place % len(changed)] = value
    size = image_size(bytes(changed))
    try:
        pixels = decode_image("x", Feature("uint8", (None, None, 3), "source"), bytes(changed))
    except ValueError:
        return
    assert size in (None, pixels.shape[:2])


@given(st.sampled_from([b"", b"\xff\xd8", b"\xff\xd8\xff\xe0", PNGS["L"][:16]]), st.binary())
@settings(max_examples=300, deadline=None)
def test_random_bytes_are_no_error(start, rest):
    size = image_size(start + rest)
    assert size is None or min(size) > 0
