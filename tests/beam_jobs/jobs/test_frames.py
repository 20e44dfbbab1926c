"""Animations and files with several pages: the first frame, or a record for each."""

import dataclasses
import io
import struct
import zlib

import numpy as np
import pytest
from PIL import Image, ImageSequence

from beam_jobs.errors import RejectError
from beam_jobs.jobs.images.image_job import ImageJob
from beam_jobs.sources.inputs import Inputs
from beam_jobs.sources.labels import Labels
from beam_jobs.sources.source import Source
from tests.support.images import encoded

FIRST = ImageJob(Inputs((), ""), Labels("none"))
ALL = dataclasses.replace(FIRST, frames="all")
SOURCE = Source("a")

FRAMES = [Image.new("RGB", (8, 6), color) for color in ((255, 0, 0), (0, 255, 0), (0, 0, 255))]


def animation(kind: str, frames: list[Image.Image] = FRAMES) -> bytes:
    first, *rest = (frame.copy() for frame in frames)  # Pillow leaves settings of a format in them
    return encoded(first, kind, save_all=True, append_images=rest)


@pytest.mark.parametrize("kind", ["GIF", "WEBP", "PNG", "TIFF", "AVIF"])
def test_each_frame_is_a_record_with_a_key_of_its_own(kind):
    data = animation(kind)
    found = dict(ALL.records_of(SOURCE, data))
    assert list(found) == ["a#1", "a#2", "a#3"]
    assert [key for key, _ in ALL.parts_of(SOURCE, data)] == list(found)
    shown = [
        np.asarray(f.convert("RGB")) for f in ImageSequence.Iterator(Image.open(io.BytesIO(data)))
    ]
    for record, frame, color in zip(found.values(), shown, FRAMES, strict=True):
        np.testing.assert_array_equal(record["image"], frame)
        assert abs(frame[0, 0].astype(int) - color.getpixel((0, 0))).max() <= 8


def test_pages_keep_their_own_size_and_mode():
    pages = [Image.new("L", (8, 6), 9), Image.new("RGB", (3, 5), (1, 2, 3)), Image.new("1", (2, 2))]
    found = [record["image"] for _, record in ALL.records_of(SOURCE, animation("TIFF", pages))]
    assert [image.shape for image in found] == [(6, 8, 3), (5, 3, 3), (2, 2, 3)]
    assert [image[0, 0].tolist() for image in found] == [[9, 9, 9], [1, 2, 3], [0, 0, 0]]


@pytest.mark.parametrize("kind", ["JPEG", "GIF", "TIFF", "MPO"])
def test_a_file_with_one_frame_is_one_record(kind):
    # The second image of an MPO is a preview or another view.
    data = animation(kind) if kind == "MPO" else encoded(FRAMES[0], kind)
    assert [key for key, _ in ALL.records_of(SOURCE, data)] == ["a#1"]
    assert not FIRST.decode(SOURCE, io.BytesIO(data)).remarks


@pytest.mark.parametrize(("kind", "encoding"), [("GIF", "tensor"), ("PNG", "source")])
def test_frames_that_are_left_out_are_noted(kind, encoding):
    job = dataclasses.replace(FIRST, encoding=encoding)
    assert job.decode(SOURCE, io.BytesIO(animation(kind))).remarks
    (record,) = (record for _, record in job.records_of(SOURCE, animation(kind)))
    assert record.remarks


@pytest.mark.parametrize("kind", ["GIF", "TIFF"])
def test_a_second_frame_that_is_damaged_does_not_reject_the_first(kind):
    noise = [Image.fromarray(np.full((60, 60), n, np.uint8)) for n in (3, 200)]
    data = animation(kind, noise)
    assert FIRST.decode(SOURCE, io.BytesIO(data[:-100]))["image"].shape == (60, 60, 3)


def lying_about_its_frames(count: int) -> bytes:
    """An animated PNG of three frames that states another number."""
    data = animation("PNG")
    at = data.index(b"acTL")
    body = b"acTL" + struct.pack(">II", count, 0)
    return data[:at] + body + struct.pack(">I", zlib.crc32(body)) + data[at + 16 :]


def test_a_number_of_frames_that_the_file_has_no_room_for_is_rejected():
    data = lying_about_its_frames(0x7FFFFFFF)
    for read in (ALL.parts_of, lambda *a: list(ALL.records_of(*a))):
        with pytest.raises(
            RejectError, match=r"^2147483647 frames in \d+ bytes: the number of fram"
        ):
            read(SOURCE, data)


def test_frames_after_a_damaged_one_are_rejected():
    data = lying_about_its_frames(5)
    records = ALL.records_of(SOURCE, data)
    assert [next(records)[0] for _ in range(3)] == ["a#1", "a#2", "a#3"]
    with pytest.raises(RejectError, match="cannot be decoded"):
        next(records)
    assert len(ALL.parts_of(SOURCE, data)) == 5


def test_a_page_that_is_too_large_is_rejected():
    pages = [Image.new("L", (10, 10)), Image.new("L", (11, 10))]
    job = dataclasses.replace(ALL, max_pixels=100)
    records = job.records_of(SOURCE, animation("TIFF", pages))
    assert next(records)[0] == "a#1"
    with pytest.raises(RejectError, match="its 110 pixels are more than --max_pixels 100: give a"):
        next(records)


@pytest.mark.parametrize("encoding", ["tensor", "jpeg"])
def test_sizes_of_parts_are_those_of_their_records(encoding):
    noise = np.random.default_rng(0).integers(0, 256, (4, 64, 64, 3), dtype=np.uint8)
    data = animation("WEBP", list(map(Image.fromarray, noise)))
    job = dataclasses.replace(ALL, encoding=encoding)
    sizes = [size for _, size in job.parts_of(SOURCE, data)]
    images = [record["image"] for _, record in job.records_of(SOURCE, data)]
    if encoding == "tensor":
        assert sizes == [image.nbytes + 200 for image in images]
    else:
        assert sum(sizes) < 4 * sum(map(len, images))
