"""Files of masks: their values are class ids, whatever their colors."""

import struct
import zlib

import numpy as np
import pytest
from PIL import Image

from beam_jobs.errors import RejectError
from beam_jobs.jobs.images.features import read_mask
from tests.support.images import encoded

VALUES = np.arange(16, dtype=np.uint8).reshape(2, 8)


def chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def palette_png(values: np.ndarray, bits: int, transparent: bytes = b"") -> bytes:
    """A PNG of palette entries, made without Pillow; entry n has the color 3n, 3n + 1, 3n + 2."""
    height, width = values.shape
    pixels = np.unpackbits(values[:, :, None], axis=2)[:, :, 8 - bits :].reshape(height, -1)
    rows = b"".join(b"\0" + row.tobytes() for row in np.packbits(pixels, axis=1))
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, bits, 3, 0, 0, 0))
    entries = chunk(b"PLTE", bytes(range(3 << bits))[: 3 << bits] if bits < 8 else bytes(768))
    alpha = chunk(b"tRNS", transparent) if transparent else b""
    data = chunk(b"IDAT", zlib.compress(rows))
    return b"\x89PNG\r\n\x1a\n" + header + entries + alpha + data + chunk(b"IEND", b"")


@pytest.mark.parametrize("bits", [1, 2, 4, 8])
@pytest.mark.parametrize("transparent", [b"", b"\0"])
def test_the_value_of_a_palette_mask_is_the_number_of_the_entry(bits, transparent):
    values = (VALUES % (1 << min(bits, 7))).astype(np.uint8)
    data = palette_png(values, bits, transparent)
    mask = read_mask(data, 16)
    assert mask.mode == "L"
    np.testing.assert_array_equal(np.asarray(mask), values)


@pytest.mark.slow
def test_tensorflow_decodes_palettes_to_their_colors():
    import tensorflow as tf

    decoded = tf.io.decode_png(palette_png(VALUES, 4)).numpy()
    np.testing.assert_array_equal(decoded, np.arange(48).reshape(2, 8, 3))


@pytest.mark.parametrize("mode", ["RGB", "RGBA", "LA"])
def test_a_mask_of_colors_is_a_reject_with_its_mode_and_the_cure(mode):
    data = encoded(Image.new(mode, (2, 2)), "PNG")
    message = f"its mask: an image of mode {mode}, expected one value per pixel: .*; replace each color by"
    with pytest.raises(RejectError, match=message):
        read_mask(data, 4)


def test_a_mask_that_is_a_jpeg_is_rejected():
    with pytest.raises(RejectError, match="its mask: it is a JPEG, which changes class ids"):
        read_mask(encoded(Image.fromarray(VALUES), "JPEG"), 100)
