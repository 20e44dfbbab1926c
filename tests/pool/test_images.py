"""Images of the pool, held against TensorFlow's decoders and Pillow's plain functions."""

import warnings

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image, ImageOps

from tests.pool.packages import unpack
from tests.support.commands import run
from tests.support.datasets import records_of, rejects_of

pytestmark = pytest.mark.pool

SCIKIT = "scikit_image-0.26.0-cp311-cp311-manylinux_2_24_x86_64.manylinux_2_28_x86_64.whl"

PACKAGES = {
    "pillow": ("pillow-12.3.0.tar.gz", r"[^/]*/Tests/images/(.*)"),
    "scikit-image": (SCIKIT, r"skimage/data/(.*\.(?:png|jpg|gif|tif))"),
}

# These would be read as archives of images.
ARCHIVES = {".tar", ".zip", ".gz", ".tgz"}

# Larger files show nothing that smaller ones do not.
MAX_BYTES, MAX_PIXELS = 100_000, 89_478_485

# The formats of docs/write/images.md by Pillow's names.
FORMATS = {
    *("JPEG", "MPO", "PNG", "GIF", "BMP", "DIB", "WEBP", "TIFF", "JPEG2000", "AVIF", "PPM", "ICO"),
    *("QOI", "DDS", "SGI", "TGA"),
}

# The differences, by their reason.
KNOWN = {
    "TensorFlow ignores a transparent color without an alpha channel": {
        "caption_6_33_22.png, TensorFlow",
        "i_trns.png, TensorFlow",
        "rgb_trns.png, TensorFlow",
    },
    "the job rejects TIFFs that Pillow misreads": {
        "12bit.cropped.tif, Pillow",
        "8bit.s.tif, Pillow",
        "separate_planar_extra_samples.tiff, Pillow",
    },
    "Pillow alone does not read HEIC": {"avif/hopper.heif, Pillow"},
    "Pillow refuses a PNG for its broken animation": {"apng/chunk_no_fctl.png, TensorFlow"},
    "Pillow rejects a PNG for its long text or broken color profile": {
        "png_decompression_dos.png, TensorFlow",
        "unknown_compression_method.png, TensorFlow",
    },
}


def of_pillow(path):
    """RGB pixels as docs/write/images.md describes them, by other means than the job's; None for a reject."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            image = Image.open(path)
            if image.format not in FORMATS or image.width * image.height > MAX_PIXELS:
                return None
            image.load()
            image = ImageOps.exif_transpose(image)
    except Exception:  # Pillow raises many kinds of errors for damaged files.
        return None
    values = np.asarray(image)
    if image.mode == "F" or (image.mode == "I" and (values.min() < 0 or values.max() > 65535)):
        return None
    if image.mode.startswith("I"):
        gray = np.where(values == image.info.get("transparency", -1), 255, values.astype(int) >> 8)
        return np.repeat(gray[..., None], 3, 2)
    if "transparency" in image.info or image.mode in ("RGBA", "LA", "PA", "RGBa", "La"):
        values = np.asarray(image.convert("RGBA")).astype(np.float64)
        opaque = values[..., 3:] / 255
        return values[..., :3] * opaque + 255 * (1 - opaque)
    return np.asarray(image.convert("RGB"))


def of_tensorflow(path):
    """RGB pixels of a JPEG or a PNG, blended with white; None for a reject."""
    data = path.read_bytes()
    try:
        if data.startswith(b"\x89PNG"):
            # With `channels=4` the alpha of gray of fewer than 8 bits would be 1, not 255.
            found = tf.io.decode_png(data).numpy().astype(np.float64)
            colors, alpha = found[..., : found.shape[2] - 1 | 1], found[..., -1:] / 255
            blended = colors * alpha + 255 * (1 - alpha)
            rgb = colors if found.shape[2] in (1, 3) else blended
            return np.broadcast_to(rgb, (*rgb.shape[:2], 3))
        return tf.io.decode_jpeg(data, 3, dct_method="INTEGER_ACCURATE").numpy()
    except tf.errors.InvalidArgumentError:
        return None


def is_turned(path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return Image.open(path).getexif().get(274, 1) != 1
        except Exception:  # Then TensorFlow decides alone whether it is an image.
            return False


def difference(found, expected, tolerance):
    if found is None or expected is None:
        return "" if found is expected else f"record {found is not None}, {expected is not None}"
    if found.shape != expected.shape:
        return f"shape {found.shape}, {expected.shape}"
    largest = abs(found - expected.astype(np.float64)).max(initial=0)
    return f"values {largest:g}" if largest > tolerance else ""


@pytest.mark.parametrize("name", PACKAGES)
def test_images_have_the_pixels_of_other_decoders(name, tmp_path):
    folder = unpack(*PACKAGES[name], tmp_path / "in")
    paths = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    for path in paths:
        if path.stat().st_size > MAX_BYTES or path.suffix in ARCHIVES:
            path.unlink()
    out = tmp_path / "out"
    flags = ["--label", "none", "--encoding", "tensor", "--max_rejects", "all"]
    assert run("images", "--input", folder, "--output", out, *flags) == 0
    records, rejects, wrong = records_of(out), rejects_of(out), {}
    for path in filter(lambda path: path.exists(), paths):
        key = path.relative_to(folder).as_posix()
        assert (key in records) != (key in rejects), key
        found = records[key]["image"] if key in records else None
        wrong[f"{key}, Pillow"] = difference(found, of_pillow(path), 1)
        known_to_tensorflow = path.read_bytes().startswith((b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff"))
        if known_to_tensorflow and not is_turned(path):
            wrong[f"{key}, TensorFlow"] = difference(found, of_tensorflow(path), 4)
    known = {key for keys in KNOWN.values() for key in keys}
    wrong_ones = {key: what for key, what in wrong.items() if what}
    assert wrong_ones.keys() == known & wrong.keys(), wrong_ones
