"""Image jobs with annotations, whose boxes and masks must surround the shapes in the images."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageOps
from sklearn.datasets import load_sample_images

from readers.format.manifest import Manifest
from tests.support.commands import ONE, refused, run
from tests.support.datasets import records_of
from tests.support.images import encoded

# Turns an upright image into the pixels that a camera stores with this EXIF orientation.
STORED = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_90,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_270,
}
COLORS = ((255, 0, 255), (0, 255, 0))  # in neither photograph
CLASSES = ("zebra", "ant")


def write(path: Path, data: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(data, dict):
        data = json.dumps(data, default=float)
    path.write_bytes(data if isinstance(data, bytes) else str(data).encode())


def extent(found: np.ndarray) -> np.ndarray:
    """x0, y0, x1, y1 in pixels around those that are set."""
    rows, columns = np.nonzero(found)
    return np.array([columns.min(), rows.min(), columns.max() + 1, rows.max() + 1])


def extents(mask: Image.Image) -> np.ndarray:
    return np.array([extent(np.asarray(mask) == value) for value in (1, 2)])


def drawn(number: int, orientation: int) -> tuple[Image.Image, Image.Image]:
    """A photograph with two rectangles as a camera stores it, and its mask with the values 1 and 2."""
    height, width = (220, 301) if number % 2 else (283, 200)
    photo = load_sample_images().images[number % 2]
    image = Image.fromarray(photo[60 : 60 + height, 100 : 100 + width])
    mask = Image.new("L", image.size, 0)
    # In the part that a crop keeps, and off its center.
    boxes = ((70, 90, 120, 150), (125, 100, 145, 112))
    for value, (box, color) in enumerate(zip(boxes, COLORS, strict=True), 1):
        image.paste(color, box)
        mask.paste(value, box)
    if turn := STORED.get(orientation):
        image, mask = image.transpose(turn), mask.transpose(turn)
    return image, mask


def upright(mask: Image.Image, orientation: int) -> Image.Image:
    """A stored mask as viewers show it."""
    mask = mask.copy()
    mask.getexif()[0x0112] = orientation
    return ImageOps.exif_transpose(mask)


@pytest.fixture(scope="module")
def rectangles(tmp_path_factory):
    """A folder of photographs in all orientations, with masks and all formats of annotations."""
    folder = tmp_path_factory.mktemp("rectangles")
    images, annotations = [], []
    for number in range(16):
        orientation = number % 8 + 1
        image, mask = drawn(number // 8, orientation)
        kind, options = ("JPEG", {"quality": 95}) if number % 3 else ("PNG", {})
        name = f"{number:02}.{kind.lower()}"
        write(folder / "p" / name, encoded(image, kind, orientation, **options))
        write(folder / "m" / f"{number:02}.png", encoded(mask, "PNG"))
        shown = upright(mask, orientation)
        # Beside YOLO's boxes, a mask whose size does not tell is about the upright image.
        beside_yolo = shown if shown.size == mask.size else mask
        write(folder / "m-yolo" / f"{number:02}.png", encoded(beside_yolo, "PNG"))
        # Annotations in pixels refer to the stored image, or to the upright one.
        by_shown = (number + number // 8) % 2 and shown.size != mask.size
        width, height = shown.size if by_shown else mask.size
        images.append({"id": number, "file_name": name, "height": height, "width": width})
        objects, lines = "", ""
        pixels, shares = extents(shown if by_shown else mask), extents(shown) / (*shown.size * 2,)
        for class_, ((x0, y0, x1, y1), share) in enumerate(zip(pixels, shares, strict=True)):
            bbox = [x0, y0, x1 - x0, y1 - y0]
            annotations.append({"image_id": number, "category_id": 9 - class_, "bbox": bbox})
            objects += f"<object><name>{CLASSES[class_]}</name><bndbox><xmin>{x0}</xmin>"
            objects += f"<ymin>{y0}</ymin><xmax>{x1}</xmax><ymax>{y1}</ymax></bndbox></object>"
            (cx, cy), (w, h) = (share[:2] + share[2:]) / 2, share[2:] - share[:2]
            lines += f"{class_ + 3} {cx} {cy} {w} {h}\n"
        sides = f"<size><width>{width}</width><height>{height}</height></size>"
        write(folder / "voc" / f"{number:02}.xml", f"<annotation>{sides}{objects}</annotation>")
        write(folder / "yolo" / f"{number:02}.txt", lines)
    categories = [{"id": 9 - n, "name": name} for n, name in enumerate(CLASSES)]
    coco = {"images": images, "annotations": annotations, "categories": categories}
    write(folder / "coco.json", coco)
    return folder


@pytest.mark.slow(base=["voc:-jpeg-100x-fit"])
@pytest.mark.parametrize(
    ("boxes", "encoding", "size", "resize"),
    [
        ("coco:{}/coco.json", "tensor", "120x160", "stretch"),
        ("voc:{}/voc", "jpeg", "100x90", "fit"),  # decoded at half size
        ("yolo:{}/yolo", "raw", "128x128", "crop"),
        ("yolo:{}/yolo", "source", "none", "stretch"),
    ],
    ids=lambda value: value[:4],
)
def test_boxes_and_masks_surround_the_shapes_in_the_image(
    rectangles, tmp_path, boxes, encoding, size, resize
):
    masks = rectangles / ("m-yolo" if "yolo" in boxes else "m")
    flags = ["--boxes", boxes.format(rectangles), "--masks", masks, "--label", "none"]
    flags += ["--encoding", encoding, "--image_size", size, "--resize", resize]
    assert run("images", "--input", rectangles / "p", *flags, "--output", tmp_path / "o") == 0
    found = records_of(tmp_path / "o")
    assert len(found) == 16
    for key, record in found.items():
        pixels, mask = record["image"], record["mask"][..., 0]
        height, width = pixels.shape[:2]
        assert mask.shape == (height, width)
        assert size in ("none", f"{height}x{width}")
        assert set(np.unique(mask)) == {0, 1, 2}
        assert record["box_labels"].tolist() == ([3, 4] if "yolo" in boxes else [1, 0])
        for number, (box, color) in enumerate(zip(record["boxes"], COLORS, strict=True), 1):
            colored = np.abs(pixels.astype(int) - color).sum(axis=2) < 200
            y0, x0, y1, x1 = box * (height, width, height, width)
            np.testing.assert_allclose([x0, y0, x1, y1], extent(colored), atol=2, err_msg=key)
            np.testing.assert_allclose(extent(mask == number), extent(colored), atol=2)
            inside = colored[mask == number]
            assert inside.mean() > (0.4 if inside.size < 50 else 0.8), key
    names = Manifest.read(str(tmp_path / "o")).class_names
    assert names == {"box_labels": () if "yolo" in boxes else ("ant", "zebra")}


def test_a_guess_about_turned_images_is_reported_once(tmp_path, capsys):
    for orientation in (1, 3, 6):
        image = Image.new("RGB", (40, 30), COLORS[0])
        write(tmp_path / f"p/{orientation}.png", encoded(image, "PNG", orientation))
        write(
            tmp_path / f"m/{orientation}.png",
            encoded(Image.new("L", (30, 40) if orientation == 6 else (40, 30)), "PNG"),
        )
    flags = ["--masks", tmp_path / "m", "--label", "none"]
    output = ["--output", tmp_path / "o"]
    assert run("images", "--input", tmp_path / "p", *flags, *ONE, *output) == 0
    lines = [line for line in capsys.readouterr().err.splitlines() if "EXIF" in line]
    (line,) = lines
    assert "1: EXIF turns it without changing its size" in line
    assert "--annotations_of upright" in line


def test_pixels_of_no_annotations_are_refused(tmp_path, capsys):
    write(tmp_path / "1.png", encoded(drawn(0, 1)[0], "PNG"))
    flags = ["--input", tmp_path, "--output", tmp_path / "o", "--annotations_of", "stored"]
    message = "--annotations_of stored: it has no effect without --boxes or --masks"
    refused(capsys, 2, message, "images", *flags)
