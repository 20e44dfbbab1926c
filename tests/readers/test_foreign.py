"""Every encoding of a feature in files of other writers: all readers return the same values."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

import readers
from readers.format.dtypes import FLOATS_IN_A_LIST, INTEGERS_IN_A_LIST, TENSORFLOW_DTYPES
from readers.format.schema import Feature, Schema
from tests.support.arrays import assert_same, random_array
from tests.support.images import encoded
from tests.support.plain import example, tensor, write_plain

LENGTHS = (2, 0, 3, 1, 5)


@pytest.fixture
def rng():
    return np.random.default_rng(17)


def dtypes_and_shapes(dtypes):
    """(dtype, shape) pairs: each dtype with one of three shapes, and the first dtype with each."""
    shapes = [(), (3, 2), (None, 2)]
    return [*zip(dtypes, itertools.cycle(shapes), strict=False), *((dtypes[0], s) for s in shapes)]


def in_a_list(array):
    """The values as a list of an Example holds them: integers, floats or bytes."""
    if array.dtype == object:
        return array.reshape(-1)
    return array.reshape(-1).astype(np.int64 if array.dtype.kind in "iub" else np.float32)


WRITTEN = {
    "list": (in_a_list, [*INTEGERS_IN_A_LIST, *FLOATS_IN_A_LIST, "string"]),
    "raw": (np.ndarray.tobytes, sorted(set(TENSORFLOW_DTYPES) - {"string"})),
    "tensor": (tensor, sorted(TENSORFLOW_DTYPES)),
}
CASES = [
    Feature(dtype, shape, encoding)
    for encoding, (_, dtypes) in WRITTEN.items()
    for dtype, shape in dtypes_and_shapes(dtypes)
]


def assert_value(found, expected):
    if isinstance(found, list):  # the texts of a record of a source
        assert found == expected.tolist()
        return
    # A text is no array.
    assert isinstance(found, bytes) or found.dtype in (expected.dtype, tf.string)
    found = found.numpy() if isinstance(found, tf.Tensor) else found
    assert_same(np.asarray(found, expected.dtype), expected)


def assert_readers_agree(path, schema, records):
    """Reads a file with every reader; each record must equal the one that was written."""
    batching = "ragged" if any(not f.is_fixed for f in schema.values()) else "dense"
    arguments = {"schema": schema, "batch_size": 2, "batching": batching}
    for batches in (
        readers.load(path, **arguments),
        readers.as_numpy(path, **arguments),
    ):
        rows = iter(records)
        for batch in batches:
            for row, record in zip(range(batch[next(iter(schema))].shape[0]), rows, strict=False):
                for name, expected in record.items():
                    value = batch[name][row]
                    if isinstance(value, tf.RaggedTensor):
                        value = value.to_tensor()
                    assert_value(value, expected)
        assert next(rows, None) is None
    source = readers.RecordSource(path, schema=schema)
    for rows in (source, source.__getitems__(range(len(source)))):
        for found, record in zip(rows, records, strict=True):
            for name, expected in record.items():
                assert_value(found[name], expected)


@pytest.mark.slow(base=["raw", "list"])
@pytest.mark.parametrize("encoding", list(WRITTEN))
def test_every_reader_reads_every_encoding_of_every_dtype(tmp_path, rng, encoding):
    write, _ = WRITTEN[encoding]
    features = {
        f"{feature.dtype} {number}": feature
        for number, feature in enumerate(CASES)
        if feature.encoding == encoding
    }
    records = [
        {
            name: random_array(rng, f.dtype, [n if d is None else d for d in f.shape])
            for name, f in features.items()
        }
        for n in LENGTHS
    ]
    examples = [
        example(**{name: write(array) for name, array in record.items()}) for record in records
    ]
    path = write_plain(tmp_path / "a.tfrecord", examples)
    assert_readers_agree(path, Schema(features), records)


# Encoded images.

_PIXELS = np.random.default_rng(17)

RGB = _PIXELS.integers(0, 256, (9, 7, 3)).astype(np.uint8)
GRAY = RGB[..., 0]
SIXTEEN_BITS = _PIXELS.integers(0, 65536, (9, 7)).astype(np.uint16)
PALETTE = Image.fromarray(RGB).quantize(16)

IMAGES = {
    "JPEG": encoded(RGB, "JPEG", quality=90),
    "JPEG without subsampling": encoded(RGB, "JPEG", subsampling=0),
    "progressive JPEG": encoded(RGB, "JPEG", progressive=True),
    "gray JPEG": encoded(GRAY, "JPEG"),
    "JPEG of TensorFlow": tf.io.encode_jpeg(RGB).numpy(),
    "PNG": encoded(RGB, "PNG"),
    "gray PNG": encoded(GRAY, "PNG"),
    "PNG of one bit": encoded(Image.fromarray(GRAY).convert("1"), "PNG"),
    "PNG of 16 bits": encoded(SIXTEEN_BITS, "PNG"),
    "PNG of TensorFlow of 16 bits": tf.io.encode_png(np.dstack([SIXTEEN_BITS] * 3)).numpy(),
    "PNG with a palette": encoded(PALETTE, "PNG"),
    "PNG with a transparent color": encoded(PALETTE, "PNG", transparency=3),
    "PNG with transparent colors": encoded(PALETTE, "PNG", transparency=bytes(range(0, 256, 16))),
    "PNG with alpha": encoded(np.dstack([RGB, GRAY]), "PNG"),
    "GIF": encoded(PALETTE, "GIF"),
    "first frame of a GIF": encoded(PALETTE, "GIF", save_all=True, append_images=[PALETTE]),
    "BMP": encoded(RGB, "BMP"),
    "WebP": encoded(RGB, "WEBP", lossless=True),
}


def expected_pixels(data, channels):
    if data[:2] == b"\xff\xd8":
        return tf.io.decode_jpeg(data, channels, dct_method="INTEGER_ACCURATE")
    return tf.io.decode_image(data, channels, expand_animations=False)


@pytest.mark.slow(base=["3"])
@pytest.mark.parametrize("channels", [1, 3])
def test_every_reader_decodes_every_image_format_to_the_same_pixels(tmp_path, channels):
    names = [n for n in IMAGES if channels == 3 or "JPEG" in n or "PNG" in n]
    records = [example(**{name: IMAGES[name] for name in names})] * 2
    path = write_plain(tmp_path / "a.tfrecord", records)
    schema = Schema(dict.fromkeys(names, ("uint8", (9, 7, channels), "source")))
    for (batch,) in (
        readers.load(path, schema=schema, batch_size=2),
        readers.as_numpy(path, schema=schema, batch_size=2),
    ):
        for name in names:
            # When a color PNG becomes gray, Pillow rounds and libpng truncates.
            tolerance = int(channels == 1 and "PNG" in name)
            expected = np.int64(expected_pixels(IMAGES[name], channels))
            for found in batch[name]:
                np.testing.assert_allclose(np.int64(found), expected, atol=tolerance, err_msg=name)
