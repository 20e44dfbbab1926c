"""Boxes of images that are turned and resized stay around their objects."""

import io
from typing import get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, ImageOps

from beam_jobs.errors import RejectError
from beam_jobs.jobs.images.annotations import ImageAnnotations
from beam_jobs.jobs.images.boxes import Boxes, Geometry, Resize, letterbox, move_boxes
from beam_jobs.jobs.images.image_job import ImageJob
from beam_jobs.sources.inputs import Inputs
from beam_jobs.sources.labels import Labels
from beam_jobs.sources.source import Source
from tests.support.images import encoded

RESIZE = get_args(Resize)
ORIENTATIONS = range(1, 9)
SWAPPED = (5, 6, 7, 8)

# As fractions of the annotated image: y0, x0, y1, x1.
PLACES = [(0.25, 0.125, 0.5, 0.75), (0.0, 0.6, 0.3, 1.0), (0.7, 0.05, 0.95, 0.2)]


def boxes(*corners, size=None) -> Boxes:
    array = np.array(corners, np.float64).reshape(-1, 4)
    return Boxes(array, ("thing",) * len(array), size)


def plain(stored=(10, 10), orientation=1) -> Geometry:
    return Geometry(stored, orientation)


def upright(size: tuple[int, int], orientation: int) -> tuple[int, int]:
    return size[::-1] if orientation in SWAPPED else size


def with_rectangle(size: tuple[int, int], place) -> tuple[Image.Image, tuple[float, ...]]:
    """A black image of (height, width) with a white rectangle, and its exact corners."""
    pixels = np.zeros(size, np.uint8)
    edges = [round(share * side) for share, side in zip(place, size * 2, strict=True)]
    pixels[edges[0] : edges[2], edges[1] : edges[3]] = 255
    return Image.fromarray(pixels), tuple(np.array(edges) / (size * 2))


def written(data: bytes, size, resize: str) -> np.ndarray:
    """The image that the images job makes of a file, uint8 [H, W]."""
    job = ImageJob(Inputs((), ""), Labels(), size, resize, channels=1)
    return job.decode(Source("key"), io.BytesIO(data))["image"][..., 0]


def decoded_size(data: bytes, orientation: int, size) -> tuple[int, int]:
    """(height, width) of the upright image that the images job resizes."""
    with Image.open(io.BytesIO(data)) as image:
        if size:
            image.draft(None, upright(size, orientation)[::-1])
        return upright((image.height, image.width), orientation)


def extent(pixels: np.ndarray) -> list[int]:
    """Edges y0, x0, y1, x1 of the white part of an image, in pixels; empty if nothing is white."""
    y, x = np.nonzero(pixels > 127)
    return [y.min(), x.min(), y.max() + 1, x.max() + 1] if len(y) else []


def assert_around(found: np.ndarray, pixels: np.ndarray) -> None:
    """Asserts that the only box is the one around the white part, within a pixel."""
    assert found.dtype == np.float32
    expected = extent(pixels)
    if not expected:  # A sliver at the edge of a crop may be too thin to be seen.
        assert all((box[2:] - box[:2]).min() < 2 / min(pixels.shape) for box in found)
        return
    assert len(found) == 1
    assert abs(found[0] * (pixels.shape * 2) - expected).max() <= 1


@pytest.mark.parametrize("kind", ["PNG", "JPEG"])
@pytest.mark.parametrize("resize", RESIZE)
@pytest.mark.parametrize("orientation", ORIENTATIONS)
@pytest.mark.parametrize("size", [None, (60, 60), (20, 31), (90, 33), (200, 230)])
def test_a_box_stays_around_its_object(kind, resize, orientation, size):
    stored = (181, 263)
    for place in PLACES:
        image, corners = with_rectangle(stored, place)
        data = encoded(image, kind, orientation, quality=98)
        geometry = Geometry(
            stored, orientation, decoded_size(data, orientation, size), size, resize
        )
        found, _ = move_boxes(boxes(corners, size=stored), geometry)
        assert_around(found, written(data, size, resize))


@pytest.mark.parametrize("orientation", ORIENTATIONS)
@pytest.mark.parametrize("stored", [(40, 40), (40, 56)])
@pytest.mark.parametrize("sized", [True, False])
def test_annotations_are_about_the_pixels_that_the_user_names(orientation, stored, sized):
    image, corners = with_rectangle(stored, PLACES[0])
    pixels = written(encoded(image, "PNG", orientation), None, "stretch")
    geometry, seen = plain(stored, orientation), upright(stored, orientation)
    about_stored = boxes(corners, size=stored if sized else None)
    assert_around(move_boxes(about_stored, geometry._replace(about="stored"))[0], pixels)
    box = np.array(extent(pixels)) / (seen * 2)
    about_upright = boxes(box, size=seen if sized else None)
    assert_around(move_boxes(about_upright, geometry._replace(about="upright"))[0], pixels)


@pytest.mark.parametrize(("about", "size"), [("stored", (30, 20)), ("upright", (20, 30))])
def test_the_size_of_the_other_pixels_is_rejected(about, size):
    message = rf"of {size[1]} x {size[0]} pixels .*, --annotations_of {about} expects {size[0]} x {size[1]}$"
    with pytest.raises(RejectError, match=message):
        move_boxes(boxes((0, 0, 1, 1), size=size[::-1]), plain((30, 20), 6)._replace(about=about))


@pytest.mark.parametrize("orientation", [2, 3, 4])
@pytest.mark.parametrize("about", ["auto", "stored", "upright"])
@pytest.mark.parametrize("kind", ["yolo", "voc"])
def test_boxes_and_mask_of_one_image_are_about_the_same_pixels(tmp_path, orientation, about, kind):
    stored, _ = with_rectangle((40, 60), PLACES[0])
    y0, x0, y1, x1 = extent(np.asarray(stored))
    (tmp_path / "1.png").write_bytes(encoded(stored, "PNG", orientation))
    stored.point(lambda value: value // 255).save(tmp_path / "mask.png")
    if kind == "yolo":
        center = f"{(x0 + x1) / 120} {(y0 + y1) / 80} {(x1 - x0) / 60} {(y1 - y0) / 40}"
        (tmp_path / "boxes").write_text(f"0 {center}")
    else:
        (tmp_path / "boxes").write_text(
            "<a><size><height>40</height><width>60</width></size><object><name>x</name><bndbox>"
            f"<ymin>{y0}</ymin><xmin>{x0}</xmin><ymax>{y1}</ymax><xmax>{x1}</xmax></bndbox>"
            "</object></a>"
        )
    joined = tuple(
        (c, f"{tmp_path}/{n}", 0, 0) for c, n in (("boxes", "boxes"), ("mask", "mask.png"))
    )
    annotations = ImageAnnotations(boxes=kind, masks=str(tmp_path), about=about)
    job = ImageJob(Inputs((), str(tmp_path)), Labels("none"), annotations=annotations)
    record = job.load(Source("1.png", joined=joined))
    with Image.open(io.BytesIO(record["mask"])) as mask:
        assert_around(record["boxes"], np.asarray(mask) * 255)
    if about == "stored" or (about == "auto" and kind == "voc"):
        assert_around(record["boxes"], record["image"][..., 0])
    else:
        assert_around(record["boxes"], np.asarray(stored))


# Pillow turns a TIFF when it decodes it, and states the upright size before that.
@pytest.mark.parametrize("kind", ["PNG", "TIFF"])
@pytest.mark.parametrize("orientation", ORIENTATIONS)
@pytest.mark.parametrize("encoding", ["tensor", "source"])
def test_boxes_about_the_stored_pixels_turn_with_every_kind_of_file(
    tmp_path, kind, orientation, encoding
):
    image, corners = with_rectangle((40, 60), PLACES[0])
    (tmp_path / "1").write_bytes(encoded(image, kind, orientation))
    row = {"boxes": [[list(corners)], ["x"], [40, 60], []]}
    annotations = ImageAnnotations(boxes="coco", boxes_path="c.json")
    inputs = Inputs((), str(tmp_path))
    job = ImageJob(inputs, Labels("none"), encoding=encoding, annotations=annotations)
    record = job.load(Source("1", row=row))
    pixels = record["image"]
    if encoding == "source":
        pixels = np.asarray(Image.open(io.BytesIO(pixels)).convert("RGB"))
    assert pixels.shape[:2] == upright((40, 60), orientation)
    assert_around(record["boxes"], pixels[..., 0])


@pytest.mark.parametrize("orientation", [0, 9, 300, "6", (6,), b"6", None])
def test_undefined_orientations_turn_nothing_as_in_pillow(orientation):
    box = (0.1, 0.2, 0.3, 0.5)
    found, _ = move_boxes(boxes(box, size=(30, 20)), plain((30, 20), orientation))
    np.testing.assert_array_equal(found, np.array([box], np.float32))


@pytest.mark.parametrize(
    ("orientation", "size", "message"),
    [
        (1, (20, 30), r"of 20 x 30 pixels \(height x width\), the file has 30 x 20$"),
        (3, (20, 30), r"of 20 x 30 pixels \(height x width\), the file has 30 x 20$"),
        (6, (15, 10), r"of 15 x 10 pixels .* the file has 30 x 20, upright 20 x 30$"),
    ],
)
def test_an_annotation_of_another_size_is_rejected(orientation, size, message):
    with pytest.raises(RejectError, match=message):
        move_boxes(boxes((0, 0, 1, 1), size=size), plain((30, 20), orientation))


def test_boxes_are_clipped_to_the_image():
    found, kept = move_boxes(boxes((-0.5, 0.25, 0.5, 1.75), (-9, -9, 9, 9)), plain())
    assert found.tolist() == [[0, 0.25, 0.5, 1], [0, 0, 1, 1]]
    assert kept.tolist() == [0, 1]


def test_boxes_do_not_extend_into_the_borders_of_fit():
    # 20 x 40 in 40 x 40: rows 10 to 30.
    geometry = Geometry((20, 40), 1, (20, 40), (40, 40), "fit")
    found, _ = move_boxes(boxes((-0.5, 0, 1.5, 1)), geometry)
    assert found.tolist() == [[0.25, 0, 0.75, 1]]


def test_boxes_without_an_area_are_dropped():
    # 20 x 60 in 20 x 20: the middle third of the columns.
    geometry = Geometry((20, 60), 1, (20, 60), (20, 20), "crop")
    given_boxes = boxes(
        (0, 0, 1, 0.3),  # beside the crop
        (0, 0.4, 1, 0.6),
        (0, 0.1, 1, 1 / 3),  # up to its edge
        (0, 2 / 3, 1, 1),
        (0.5, 0.4, 0.5, 0.6),  # without a height
        (0.2, 0.5, 0.4, 0.5),  # without a width
        (0.6, 0.4, 0.4, 0.6),  # upside down
        (-2, 0.4, -1, 0.6),  # outside the image
        (0, 0, 1, 0.5),
    )
    found, kept = move_boxes(given_boxes, geometry)
    assert kept.dtype == np.int64
    assert kept.tolist() == [1, 8]
    np.testing.assert_allclose(found, [[0, 0.2, 1, 0.8], [0, 0, 1, 0.5]], atol=1e-6)


@pytest.mark.parametrize("orientation", ORIENTATIONS)
def test_no_boxes_give_no_boxes(orientation):
    found, kept = move_boxes(boxes(size=(10, 10)), plain((10, 10), orientation))
    assert (found.shape, found.dtype, kept.shape) == ((0, 4), np.float32, (0,))


SIDES = st.integers(1, 5000)
SIZES = st.tuples(SIDES, SIDES)
FRACTIONS = st.floats(-0.5, 1.5)


@given(
    SIZES, SIZES, st.sampled_from(RESIZE), st.sampled_from(ORIENTATIONS), st.booleans(), st.data()
)
def test_moved_boxes_are_ordered_and_inside_the_image(stored, size, resize, turn, about, data):
    corners = data.draw(st.lists(st.tuples(FRACTIONS, FRACTIONS, FRACTIONS, FRACTIONS), max_size=4))
    geometry = Geometry(stored, turn, upright(stored, turn), size, resize)
    found, kept = move_boxes(boxes(*corners, size=stored if about else None), geometry)
    assert ((found >= 0) & (found <= 1)).all()
    assert (found[:, :2] < found[:, 2:]).all()
    assert kept.tolist() == sorted(set(kept.tolist()))
    assert all(corners[row][0] < corners[row][2] for row in kept)


@given(SIZES, SIZES)
def test_a_letterbox_keeps_the_proportions_and_is_centered(size, outer):
    (height, width), (top, left) = letterbox(size, outer)
    assert 1 <= height <= outer[0] and 1 <= width <= outer[1]
    assert height == outer[0] or width == outer[1]
    scale = min(outer[0] / size[0], outer[1] / size[1])
    assert abs(height - max(1, size[0] * scale)) <= 0.5
    assert abs(width - max(1, size[1] * scale)) <= 0.5
    assert 0 <= outer[0] - height - 2 * top <= 1
    assert 0 <= outer[1] - width - 2 * left <= 1


@pytest.mark.parametrize("size", [(7, 50), (50, 7), (33, 32), (32, 32), (5, 6)])
@pytest.mark.parametrize("outer", [(64, 64), (70, 114), (121, 93)])
def test_a_crop_keeps_the_same_part_as_pillow_to_a_fraction_of_a_pixel(size, outer):
    scale, offset = Geometry(size, 1, size, outer, "crop").scale_and_offset
    for axis in (0, 1):
        # A ramp of coordinates, which linear interpolation keeps except at the very edges.
        ramp = np.indices(size)[axis].astype(np.float32) + 0.5
        image = ImageOps.fit(Image.fromarray(ramp), outer[::-1], Image.Resampling.BILINEAR)
        found = np.moveaxis(np.asarray(image), axis, 0)[:, 0]
        inside = (found > 0.51) & (found < size[axis] - 0.51)
        expected = (np.arange(outer[axis]) + 0.5) / outer[axis]
        shares = scale[axis] * found / size[axis] + offset[axis]
        assert inside.sum() > outer[axis] / 2
        np.testing.assert_allclose(shares[inside], expected[inside], atol=1e-5)


@pytest.mark.parametrize(
    ("corners", "remark"),
    [
        ((0.1, 0.2, 0.3, 0.5), ""),
        ((0, -0.005, 1.005, 1), ""),  # rounded by a tool
        ((0.5, 0.5, 1.2, 1), "cut at its edges"),
        ((1.5, 0.5, 1.7, 0.8), "were left out"),
        ((0.5, 0.5, 0.5, 0.8), "were left out"),
    ],
)
@pytest.mark.parametrize("size", [None, (10, 10)])  # A crop leaves out boxes without a word.
def test_boxes_beyond_their_image_are_said(tmp_path, corners, remark, size):
    (tmp_path / "1.png").write_bytes(encoded(Image.new("RGB", (60, 40)), "PNG"))
    row = {"boxes": [[list(corners)], ["x"], [40, 60], []]}
    annotations = ImageAnnotations(boxes="coco", boxes_path="c.json")
    inputs = Inputs((), str(tmp_path))
    job = ImageJob(inputs, Labels("none"), size, "crop", annotations=annotations)
    remarks = job.load(Source("1.png", row=row)).remarks
    assert remark in remarks[0] if remark else not remarks
