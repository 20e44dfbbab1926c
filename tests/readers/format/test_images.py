"""Images are decoded by several codecs, in several threads, to the same pixels and errors."""

import contextlib
import subprocess
import sys
import threading

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from readers.files import processors
from readers.format.decode import jpeg
from readers.format.decode.image_columns import image_column
from readers.format.decode.images import decode_image
from readers.format.schema import Feature
from tests.support.images import encoded

PIXELS = np.random.default_rng(0).integers(0, 256, (61, 43, 3), np.uint8)

JPEGS = {
    **{
        f"subsampling {subsampling}, {'progressive' if progressive else 'baseline'}": encoded(
            PIXELS, "JPEG", subsampling=subsampling, progressive=progressive
        )
        for subsampling in (0, 1, 2)
        for progressive in (False, True)
    },
    "gray": encoded(PIXELS[..., 0], "JPEG"),
    "RGB": encoded(PIXELS, "JPEG", keep_rgb=True),
    "rotated by EXIF": encoded(PIXELS, "JPEG", orientation=6),
    "restart markers": encoded(PIXELS, "JPEG", restart_marker_blocks=2),
    "bytes after its end": encoded(PIXELS, "JPEG") + b"abc",
}


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("name", JPEGS)
def test_a_jpeg_has_the_pixels_of_tensorflow_with_and_without_its_codec(
    name, channels, monkeypatch
):
    data, feature = JPEGS[name], Feature("uint8", (None, None, channels), "jpeg")
    expected = tf.io.decode_jpeg(data, channels, dct_method="INTEGER_ACCURATE").numpy()
    assert jpeg.jpeg_size(data) == expected.shape[:2]
    np.testing.assert_array_equal(decode_image("x", feature, data), expected)
    monkeypatch.setattr(jpeg, "_codec", lambda: None)
    np.testing.assert_array_equal(decode_image("x", feature, data), expected)


def test_pillow_decodes_what_the_codec_of_jpegs_cannot():
    cmyk = Image.fromarray(PIXELS).convert("CMYK")
    data = encoded(cmyk, "JPEG", quality=100)
    assert jpeg.jpeg_size(data) is jpeg.jpeg_size(encoded(PIXELS, "PNG")) is None
    found = decode_image("x", Feature("uint8", (None, None, 3), "jpeg"), data)
    np.testing.assert_allclose(found, np.int64(cmyk.convert("RGB")), atol=8)


@pytest.mark.parametrize("channels", [1, 3])
def test_pillow_decodes_subsamplings_that_the_codec_has_no_name_for(channels):
    data = bytearray(encoded(PIXELS, "JPEG", subsampling=2))
    data[data.index(b"\xff\xc0") + 11] = 0x14  # 4:4:1, of as many blocks as 4:2:0
    assert jpeg.jpeg_size(bytes(data)) is None
    found = decode_image("x", Feature("uint8", (None, None, channels), "jpeg"), bytes(data))
    expected = tf.io.decode_jpeg(bytes(data), channels, dct_method="INTEGER_ACCURATE").numpy()
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("cut", [3, 300, -20])
def test_a_damaged_jpeg_has_the_same_error_with_and_without_its_codec(cut, monkeypatch):
    feature, data = Feature("uint8", (None, None, 3), "jpeg"), JPEGS["gray"][:cut]
    with pytest.raises(ValueError, match="feature 'x'") as found:
        decode_image("x", feature, data)
    monkeypatch.setattr(jpeg, "_codec", lambda: None)
    with pytest.raises(ValueError, match="feature 'x'") as expected:
        decode_image("x", feature, data)
    assert str(found.value) == str(expected.value)


def test_a_jpeg_that_claims_to_be_huge_is_refused_before_memory_is_allocated():
    data = bytearray(encoded(PIXELS, "JPEG"))
    at = data.index(b"\xff\xc0") + 5
    data[at : at + 4] = b"\xff\xdc\xff\xdc"
    assert jpeg.jpeg_size(bytes(data)) is None
    with pytest.raises(ValueError, match="exceeds limit"):
        decode_image("x", Feature("uint8", (None, None, 3), "jpeg"), bytes(data))


@contextlib.contextmanager
def located(row):
    try:
        yield
    except ValueError as error:
        raise ValueError(f"row {row}: {error}") from None


@pytest.mark.parametrize("shape", [(None, None, 3), (61, None, 3), (61, 43, 3)])
def test_a_column_has_the_pixels_of_each_image(shape, monkeypatch):
    monkeypatch.setattr(processors, "processors", lambda: 4)
    sizes = [43] * 3 if None not in shape else [43, 7, 1]
    images = [PIXELS[:, :size] for size in sizes]
    kinds = [("JPEG", {}), ("PNG", {}), ("WEBP", {"lossless": True})]
    data = [encoded(p, kind, **how) for p, (kind, how) in zip(images, kinds, strict=True)] * 9
    feature = Feature("uint8", shape, "source")
    column = image_column("x", feature, data, located)
    for found, one in zip(column.arrays(), data, strict=True):
        np.testing.assert_array_equal(found, decode_image("x", feature, one))
    assert len(image_column("x", feature, [], located).arrays()) == 0


def test_the_first_of_several_broken_images_is_reported(monkeypatch):
    monkeypatch.setattr(processors, "processors", lambda: 4)
    good, broken = encoded(PIXELS, "PNG"), encoded(PIXELS, "PNG")[:-40]
    feature = Feature("uint8", (None, None, 3), "png")
    for _ in range(5):
        with pytest.raises(ValueError, match="row 7: feature 'x'"):
            image_column("x", feature, [*[good] * 7, *[broken] * 9], located)


def test_work_is_shared_by_threads_and_by_callers(monkeypatch):
    monkeypatch.setattr(processors, "processors", lambda: 3)
    monkeypatch.setattr(processors, "_threads", processors._threads.__wrapped__)
    # Each call waits until all three threads are at work.
    together, done = threading.Barrier(3), []

    def work(number):
        together.wait(10)
        done.append(number)

    processors.on_all_processors(work, 3)
    assert sorted(done) == [0, 1, 2]


def test_an_interrupt_ends_the_work_of_all_threads(monkeypatch):
    monkeypatch.setattr(processors, "processors", lambda: 2)
    is_raised, done = threading.Event(), []

    def work(number):
        if threading.current_thread() is not threading.main_thread():
            is_raised.set()
            raise KeyboardInterrupt
        is_raised.wait(10)
        done.append(number)

    with pytest.raises(KeyboardInterrupt):
        processors.on_all_processors(work, 10**6)
    assert len(done) < 10**5


def test_work_goes_on_in_a_thread_that_outlives_the_main_thread():
    program = """
import threading
from readers.files import processors

processors.processors = lambda: 3
main = threading.main_thread()

def work():
    main.join()
    processors.on_all_processors(print, 2)

threading.Thread(target=work).start()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == "0\n1\n", done.stderr
