"""The formats of images: the table in docs/write/images.md, made by reading one file of each."""

import dataclasses
import io
import struct
import sys
import warnings

import numpy as np
import pillow_heif
import pytest
from PIL import Image

from beam_jobs.errors import RejectError
from beam_jobs.jobs.images import image_files
from beam_jobs.jobs.images.image_files import FORMATS
from beam_jobs.jobs.images.image_job import ImageJob
from beam_jobs.sources.inputs import Inputs
from beam_jobs.sources.labels import Labels
from beam_jobs.sources.source import Source
from tests.support.checkout import ROOT
from tests.support.images import EPS, encoded

PLAIN = ImageJob(Inputs((), ""), Labels("none"), image_size=(64, 64))

Y, X = np.mgrid[:64, :64]
COLORS = np.stack([3 * Y, 3 * X, 2 * (X + Y)], -1).astype(np.uint8)
RGB = Image.fromarray(COLORS)


def stored(job: ImageJob, data: bytes) -> np.ndarray:
    return job.decode(Source("key"), io.BytesIO(data))["image"]


@pytest.fixture(scope="module", autouse=True)
def heif():
    """Pillow's writers of all formats."""
    Image.init()
    pillow_heif.register_heif_opener()
    image_files._formats.cache_clear()


def written(kind: str, image: Image.Image, **options) -> bytes | None:
    """An image file; None if Pillow does not write such an image in this format."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return encoded(image, kind, **options)
    except (OSError, ValueError, KeyError):
        return None


def example(kind: str) -> tuple[bytes, np.ndarray]:
    """A file of a format, and the pixels that it should have."""
    data = written(kind, RGB)
    assert data
    return data, COLORS


def has_frames(kind: str) -> bool:
    data = written(kind, RGB, save_all=True, append_images=[Image.new("RGB", (64, 64), "red")])
    every = dataclasses.replace(PLAIN, frames="all")
    return data is not None and len(every.parts_of(Source("key"), data)) == 2


def has_alpha(kind: str) -> bool:
    image = RGB.copy()
    image.putalpha(Image.fromarray((4 * X).astype(np.uint8)))
    data = written(kind, image)
    if data is None:
        return False
    found = stored(dataclasses.replace(PLAIN, channels=4), data)[..., 3]
    return bool(abs(found.astype(int) - 4 * X).max() <= 4)


def has_sixteen_bits(kind: str) -> bool:
    pixels = (1000 * X + Y).astype(np.uint16)
    data = written(kind, Image.fromarray(pixels))
    if data is None:
        return False
    return bool((stored(dataclasses.replace(PLAIN, dtype="uint16"), data)[..., 0] == pixels).all())


# The usual names of formats, if Pillow has others.
NAMES = {"WEBP": "WebP", "JPEG2000": "JPEG 2000", "PPM": "PPM, PGM, PBM", "HEIF": "HEIC, HEIF"}

# Those that not every environment reads.
ROWS = {"AVIF": "| AVIF | yes | yes | |", "HEIF": "| HEIC, HEIF | | yes | |"}


def row(kind: str) -> str:
    data, expected = example(kind)
    found = stored(PLAIN, data)
    assert abs(found.astype(int) - expected).mean() <= 8, kind
    marks = (has_frames(kind), has_alpha(kind), has_sixteen_bits(kind))
    return f"| {NAMES.get(kind, kind)} | {' | '.join('yes' if mark else '' for mark in marks)} |".replace(
        "|  |", "| |"
    ).replace("|  |", "| |")


REFUSED = {
    "EPS": EPS,
    "PDF": b"%PDF-1.4",
    "SVG": b"<svg xmlns='http://www.w3.org/2000/svg'></svg>",
    "PSD": b"8BPS\0\1" + bytes(20),
    "WMF": b"\xd7\xcd\xc6\x9a\0\0" + struct.pack("<5H", 0, 0, 9, 9, 1) + b"\1\0\t\0" * 20,
    "HDF5": b"\x89HDF\r\n\x1a\n" + bytes(100),
    "OpenEXR": b"v/1\x01" + bytes(100),
    "FITS": b"SIMPLE  =                    T".ljust(2880),
    "DICOM": bytes(128) + b"DICM" + bytes(100),
    "JPEG XL": b"\0\0\0\x0cJXL \r\n\x87\n" + bytes(20),
    "MP4": b"\0\0\0\x18ftypisom" + bytes(20),
}


def refusal(data: bytes) -> str:
    with pytest.raises(RejectError) as caught:
        stored(PLAIN, data)
    return str(caught.value)


def ycbcr_tiff(compression: str | None = None) -> bytes:
    return encoded(RGB.convert("YCbCr"), "TIFF", compression=compression)


def float_rgb_tiff() -> bytes:
    """The header of a TIFF of one RGB pixel of 32-bit floats."""
    tags = [(256, 3, 1, 1), (257, 3, 1, 1), (258, 3, 3, 8), (262, 3, 1, 2), (273, 4, 1, 8)]
    tags += [(277, 3, 1, 3), (279, 4, 1, 12), (339, 3, 3, 14)]
    body = struct.pack("<H", len(tags)) + b"".join(struct.pack("<HHII", *tag) for tag in tags)
    values = struct.pack("<6H", 32, 32, 32, 3, 3, 3) + bytes(12)
    return b"II*\0" + struct.pack("<I", 8 + len(values)) + values + body + bytes(4)


def refused_rows() -> list[str]:
    lines = {refusal(data) for data in REFUSED.values()}
    (line,) = lines
    return [
        f"| {', '.join(REFUSED)}, and any other | `{line}` |",
        f"| uncompressed YCbCr TIFF | `{refusal(ycbcr_tiff())}` |",
        f"| other TIFFs, such as colors of floats, or 64 bits | `{refusal(float_rgb_tiff())}` |",
        f"| an empty file | `{refusal(b'')}` |",
    ]


def test_the_tables_in_the_docs_are_what_files_of_each_format_give():
    found = ["| format | frames | alpha | 16 bits |", "|---|---|---|---|"]
    names: dict[str, list[str]] = {}
    for kind in FORMATS:
        made = row(kind) if kind in image_files._formats() else ROWS[kind]
        name, marks = made.removeprefix("| ").split(" | ", 1)
        names.setdefault(marks, []).append(name)
    found += [f"| {', '.join(alike)} | {marks}" for marks, alike in names.items()]
    refused = ["| not read | the reject |", "|---|---|", *refused_rows()]
    docs = (ROOT / "docs/write/images.md").read_text(encoding="utf-8")
    for table in (found, refused):
        assert "\n".join(table) in docs, "put this into docs/write/images.md:\n" + "\n".join(table)


@pytest.mark.parametrize("compression", ["jpeg", "tiff_lzw", "tiff_adobe_deflate"])
def test_compressed_ycbcr_is_read(compression):
    found = stored(PLAIN, ycbcr_tiff(compression))
    assert abs(found.astype(int) - COLORS).mean() <= 4


def heic(brand: bytes = b"heic") -> bytes:
    return struct.pack(">I", 24) + b"ftyp" + brand + bytes(4) + brand + b"mif1" + bytes(100)


def test_a_heic_file_without_its_package_is_a_reject_that_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "pillow_heif", None)
    monkeypatch.setattr(
        image_files, "_formats", lambda: tuple(set(FORMATS) & Image.OPEN.keys() - {"HEIF"})
    )
    expected = r"^HEIC and HEIF files need pillow_heif .*: pip install 'beam-shards\[heif\]'$"
    for brand in (b"heic", b"mif1"):
        with pytest.raises(RejectError, match=expected):
            stored(PLAIN, heic(brand))


def test_heic_is_read_upright():
    image = Image.fromarray(COLORS[:32])
    data = encoded(image, "HEIF", 6, quality=95)
    found = stored(dataclasses.replace(PLAIN, image_size=None), data)
    assert abs(found.astype(int) - np.rot90(COLORS[:32], -1)).mean() <= 4
    assert stored(PLAIN, data).shape == (64, 64, 3)
    assert "cannot be decoded" in refusal(data[:400])
