"""Pictures through Pillow and libjpeg: by the images job, and by readers."""

from __future__ import annotations

import contextlib
import functools
import io
from typing import Any

import numpy as np
from PIL import Image

from beam_jobs.errors import RejectError
from beam_jobs.jobs.images.features import read_mask
from beam_jobs.jobs.images.image_files import decoding, stored_size
from beam_jobs.jobs.images.image_job import ImageJob
from beam_jobs.sources.inputs import Inputs
from beam_jobs.sources.labels import Labels
from beam_jobs.sources.source import Source
from readers.format.decode.images import EncodedImage, decode_image
from readers.format.schema import Feature
from tests.campaigns.fuzz.limits import Limits
from tests.campaigns.fuzz.mutations import chunks
from tests.campaigns.fuzz.target import Target, after_choice, by_choice

_MOST_PIXELS = 1 << 16


_job = functools.partial(ImageJob, Inputs(("none",), ""), Labels(), max_pixels=_MOST_PIXELS)

_JOBS = (
    _job(),
    _job((8, 8), "fit", 1, "raw"),
    _job(encoding="source"),
    _job(frames="all", image_size=(4, 6), resize="crop"),
    _job(dtype="uint16", encoding="png"),
    _job(dtype="float32", channels=1),
    _job(channels=4, encoding="png"),
)


def _examine_job(job: ImageJob, data: bytes) -> None:
    source = Source("a/b.png", len(data))
    stored_size(io.BytesIO(data), _MOST_PIXELS)
    try:
        job.parts_of(source, data)
        for number, (_, record) in enumerate(job.records_of(source, data)):
            _check_picture(job, data, record["image"])
            if number == 3:
                break
    except RejectError as error:
        assert str(error), "a reject without a reason"
    with contextlib.suppress(RejectError):
        assert read_mask(data, _MOST_PIXELS).mode == "L"


def _check_picture(job: ImageJob, data: bytes, image: Any) -> None:
    """What the job writes is what readers read."""
    feature = job.schema["image"]
    if isinstance(image, bytes):
        pixels = decode_image("image", feature, image)
        if image == data:  # With "source": readers decode the file itself.
            with decoding(io.BytesIO(data), _MOST_PIXELS) as opened:
                expected = np.asarray(opened.convert("RGB"))
            assert np.array_equal(pixels, expected), "other pixels than the job's"
        return
    assert image.dtype == feature.dtype and image.ndim == 3
    for found, size in zip(image.shape, feature.shape, strict=True):
        assert size in (None, found), f"shape {image.shape}, expected {feature.shape}"


# Of one size: Pillow's limit, the only one of readers for pictures of any size, is 500 MB.
_FEATURES = (
    Feature("uint8", (6, 7, 3), "source"),
    Feature("uint8", (6, 7, 1), "jpeg"),
    Feature("uint16", (6, 7, 3), "png"),
    Feature("uint8", (6, 7, 4), "png"),
)


def _examine_reader(feature: Feature, data: bytes) -> None:
    try:
        pixels = decode_image("photo", feature, data)
    except ValueError as error:
        assert "'photo'" in str(error), f"the error names no feature: {error}"
        return
    assert pixels.shape == feature.shape and pixels.dtype == feature.dtype
    assert np.array_equal(pixels, decode_image("photo", feature, memoryview(data)))
    try:
        small, factor = EncodedImage("photo", feature, data).reduced(2)
    except ValueError as error:
        raise AssertionError(f"decodes whole, but not reduced: {error}") from error
    assert small.shape[:2] == (-(-6 // factor), -(-7 // factor))


def _encoded(kind: str, mode: str = "RGB", frames: int = 1, **options: Any) -> bytes:
    rng = np.random.default_rng(len(kind))
    pictures = [
        Image.fromarray(rng.integers(0, 256, (6, 7, 3)).astype(np.uint8)).convert(mode)
        for _ in range(frames)
    ]
    out = io.BytesIO()
    if frames > 1:
        options |= {"save_all": True, "append_images": pictures[1:]}
    pictures[0].save(out, kind, **options)
    return out.getvalue()


_KINDS = (
    ("JPEG", "RGB"), ("JPEG", "L"), ("JPEG", "CMYK"), ("PNG", "RGB"), ("PNG", "P"), ("PNG", "LA"), ("PNG", "I;16"),
    ("PNG", "1"), ("GIF", "P"), ("BMP", "RGB"), ("WEBP", "RGB"), ("TIFF", "RGB"), ("JPEG2000", "RGB"), ("AVIF", "RGB"),
    ("PPM", "RGB"), ("ICO", "RGBA"), ("QOI", "RGB"), ("DDS", "RGBA"), ("SGI", "RGB"), ("TGA", "RGB"),
)  # fmt: skip


def _pictures() -> list[bytes]:
    found = []
    for kind, mode in _KINDS:
        try:
            found.append(_encoded(kind, mode))
        except (KeyError, OSError):  # This Pillow does not write it.
            continue
    exif: Any = Image.Exif()
    exif[0x0112] = 6
    found.append(_encoded("JPEG", exif=exif.tobytes()))
    found.append(_encoded("PNG", frames=2))
    found.append(_encoded("GIF", frames=3))
    found.append(_encoded("TIFF", compression="tiff_lzw"))
    return found


def _of_job() -> list[bytes]:
    return [bytes([n % len(_JOBS)]) + data for n, data in enumerate(_pictures())]


def _of_reader() -> list[bytes]:
    found = [bytes([n % 2]) + data for n, data in enumerate(_pictures())]
    wide = Image.fromarray(np.arange(42, dtype=np.uint16).reshape(6, 7) * 1500)
    out = io.BytesIO()
    wide.save(out, "PNG")
    return [*found, b"\2" + out.getvalue(), b"\3" + _encoded("PNG", "RGBA")]


_WORDS = (b"IHDR", b"IDAT", b"acTL", b"fcTL", b"tRNS", b"\xff\xd8", b"\xff\xc0", b"\xff\xda", b"II*\0", b"MM\0*", b"GIF89a",
          b"RIFF", b"WEBPVP8X", b"ANMF", b"ftypavif", b"jP  \r\n\x87\n", b"DDS |", b"qoif", b"\0\0\1\0", b"P6 ")  # fmt: skip

_target = functools.partial(
    Target, mutate=after_choice(chunks.mutate_picture), words=_WORDS, limits=Limits(64 << 20)
)

TARGETS = (
    _target("picture_of_job", _of_job, by_choice(_JOBS, _examine_job)),
    _target("picture_of_reader", _of_reader, by_choice(_FEATURES, _examine_reader)),
)
