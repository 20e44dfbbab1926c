"""Jobs over annotated pictures: what was drawn into a photograph is found in what is written."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from PIL import Image, ImageOps
from sklearn.datasets import load_sample_images

import readers
from beam_jobs.__main__ import main
from beam_jobs.errors import DataError
from beam_jobs.pipeline import commit
from readers.format.manifest import Manifest
from tests.support.datasets import files_of

ORIENTATION = 0x0112
# What turns an upright picture into the pixels that a camera has stored with this orientation.
STORED = {
    1: None,
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_90,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_270,
}
COLOURS = ((255, 0, 255), (0, 255, 0))  # In neither photograph.
CLASSES = ("zebra", "ant")


def run(*arguments: object) -> int:
    return main([str(argument) for argument in arguments])


def write(path: Path, data: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(data, dict):
        data = json.dumps(data)
    path.write_bytes(data if isinstance(data, bytes) else str(data).encode())


def records_of(out: Path) -> dict[str, dict[str, Any]]:
    report = readers.verify(str(out))
    assert report.ok, report.problems
    found: dict[str, dict[str, Any]] = {}
    for name, split in Manifest.read(str(out)).splits.items():
        for record in readers.RecordSource(str(out), name) if split.records else ():
            found[record["key"].item().decode()] = record
    return found


def rejects_of(out: Path) -> dict[str, str]:
    lines = [
        json.loads(line)
        for path in (out / "rejects").glob("*.jsonl")
        for line in path.read_text().splitlines()
    ]
    return {line["key"]: line["error"] for line in lines}


# Rectangles in photographs.


class Drawn(NamedTuple):
    """A photograph with two rectangles: its stored pixels, and (x0, y0, x1, y1) of both in them."""

    image: Image.Image
    mask: Image.Image
    boxes: tuple[tuple[int, int, int, int], ...]


def drawn(number: int, orientation: int) -> Drawn:
    """A part of a real photograph, as a camera in this orientation stores it."""
    height, width = (220, 301) if number % 2 else (283, 200)
    photo = load_sample_images().images[number % 2]
    image = Image.fromarray(photo[60 : 60 + height, 100 : 100 + width])
    mask = Image.new("L", image.size, 0)
    # In the middle three fifths, which a crop keeps of these; and not in the middle of those.
    boxes = ((70, 90, 120, 150), (125, 100, 145, 112))
    for value, (box, colour) in enumerate(zip(boxes, COLOURS, strict=True), 1):
        image.paste(colour, box)
        mask.paste(value, box)
    turn = STORED[orientation]
    if turn is not None:
        image, mask = image.transpose(turn), mask.transpose(turn)
    values = np.asarray(mask)
    found = []
    for value in (1, 2):
        rows, columns = np.nonzero(values == value)
        corners = columns.min(), rows.min(), columns.max() + 1, rows.max() + 1
        found.append(tuple(map(int, corners)))
    return Drawn(image, mask, tuple(found))


def encoded(image: Image.Image, kind: str, orientation: int) -> bytes:
    exif = Image.Exif()
    exif[ORIENTATION] = orientation
    out = io.BytesIO()
    image.save(out, kind, exif=exif, **({"quality": 95} if kind == "JPEG" else {}))
    return out.getvalue()


def upright(drawing: Drawn, orientation: int) -> tuple[tuple[int, int], np.ndarray]:
    """((height, width), shares x0, y0, x1, y1) of the picture as it is shown."""
    out = io.BytesIO()
    exif = Image.Exif()
    exif[ORIENTATION] = orientation
    drawing.mask.save(out, "PNG", exif=exif)
    with Image.open(out) as image:
        values = np.asarray(ImageOps.exif_transpose(image))
    shares = []
    for value in (1, 2):
        rows, columns = np.nonzero(values == value)
        shares.append([columns.min(), rows.min(), columns.max() + 1, rows.max() + 1])
    height, width = values.shape
    return (height, width), np.array(shares) / (width, height, width, height)


@pytest.fixture(scope="module")
def rectangles(tmp_path_factory):
    """A folder of photographs in all orientations, with annotations of every kind, and masks."""
    folder = tmp_path_factory.mktemp("rectangles")
    images, annotations = [], []
    for number in range(16):
        orientation = number % 8 + 1
        drawing = drawn(number // 8, orientation)
        kind = "JPEG" if number % 3 else "PNG"
        name = f"{number:02}.{kind.lower()}"
        write(folder / "p" / name, encoded(drawing.image, kind, orientation))
        out = io.BytesIO()
        drawing.mask.save(out, "PNG")
        write(folder / "m" / f"{number:02}.png", out.getvalue())
        (height, width), shares = upright(drawing, orientation)
        stored = drawing.image.height, drawing.image.width
        # Annotations in pixels are about the stored ones, or about the picture as it is shown.
        about_shown = (number + number // 8) % 2 and stored != (height, width)
        size = (height, width) if about_shown else stored
        pixels = shares * (width, height, width, height) if about_shown else drawing.boxes
        images.append({"id": number, "file_name": name, "height": size[0], "width": size[1]})
        objects, lines = "", ""
        for class_, ((x0, y0, x1, y1), share) in enumerate(zip(pixels, shares, strict=True)):
            bbox = [x0, y0, x1 - x0, y1 - y0]
            annotations.append({"image_id": number, "category_id": 9 - class_, "bbox": bbox})
            objects += f"<object><name>{CLASSES[class_]}</name><bndbox><xmin>{x0}</xmin>"
            objects += f"<ymin>{y0}</ymin><xmax>{x1}</xmax><ymax>{y1}</ymax></bndbox></object>"
            (cx, cy), (w, h) = (share[:2] + share[2:]) / 2, share[2:] - share[:2]
            lines += f"{class_ + 3} {cx} {cy} {w} {h}\n"
        sides = f"<size><width>{size[1]}</width><height>{size[0]}</height></size>"
        write(folder / "voc" / f"{number:02}.xml", f"<annotation>{sides}{objects}</annotation>")
        write(folder / "yolo" / f"{number:02}.txt", lines)
    categories = [{"id": 9 - n, "name": name} for n, name in enumerate(CLASSES)]
    coco = {"images": images, "annotations": annotations, "categories": categories}
    write(folder / "coco.json", json.dumps(coco, default=float))
    return folder


CASES = [
    # boxes, encoding, size, resize; and the two classes as they are written.
    ("coco:{}/coco.json", "tensor", "120x160", "stretch", (1, 0)),
    ("voc:{}/voc", "png", "150x110", "fit", (1, 0)),
    ("yolo:{}/yolo", "raw", "128x128", "crop", (3, 4)),
    ("coco:{}/coco.json", "jpeg", "100x90", "fit", (1, 0)),  # decoded at half size
    ("yolo:{}/yolo", "source", "none", "stretch", (3, 4)),
    ("voc:{}/voc", "tensor", "none", "stretch", (1, 0)),
]


def extent(found: np.ndarray) -> np.ndarray:
    """y0, x0, y1, x1 in pixels around those that are set."""
    rows, columns = np.nonzero(found)
    return np.array([rows.min(), columns.min(), rows.max() + 1, columns.max() + 1])


@pytest.mark.parametrize(
    ("boxes", "encoding", "size", "resize", "classes"),
    CASES,
    ids=[f"{case[0][:4]}-{case[1]}-{case[3]}" for case in CASES],
)
def test_boxes_and_masks_lie_where_the_picture_shows_what_they_are_about(
    rectangles, tmp_path, boxes, encoding, size, resize, classes
):
    flags = ["--boxes", boxes.format(rectangles), "--masks", rectangles / "m", "--label", "none"]
    flags += ["--encoding", encoding, "--image_size", size, "--resize", resize]
    assert run("images", "--input", rectangles / "p", *flags, "--output", tmp_path / "o") == 0
    found = records_of(tmp_path / "o")
    assert len(found) == 16
    for key, record in found.items():
        pixels, mask = record["image"], record["mask"][..., 0]
        height, width = pixels.shape[:2]
        assert mask.shape == (height, width)
        if size != "none":
            assert f"{height}x{width}" == size
        assert set(np.unique(mask)) == {0, 1, 2}
        assert record["box_labels"].tolist() == list(classes)
        for number, (box, colour) in enumerate(zip(record["boxes"], COLOURS, strict=True)):
            drawn_at = np.abs(pixels.astype(int) - colour).sum(axis=2) < 200
            around = box * (height, width, height, width)
            np.testing.assert_allclose(around, extent(drawn_at), atol=2, err_msg=key)
            np.testing.assert_allclose(extent(mask == number + 1), extent(drawn_at), atol=2)
            drawn_in = drawn_at[mask == number + 1]
            assert drawn_in.mean() > (0.4 if drawn_in.size < 50 else 0.8), key
    names = Manifest.read(str(tmp_path / "o")).class_names
    assert names == {"box_labels": () if "yolo" in boxes else ("ant", "zebra")}


# Datasets as they are laid out.


def photo(height: int = 30, width: int = 40, kind: str = "JPEG") -> bytes:
    whole = load_sample_images().images[0][100:]
    out = io.BytesIO()
    Image.fromarray(whole[:height, :width]).save(out, kind)
    return out.getvalue()


def voc(width: int, height: int, *objects: str) -> str:
    parts = "".join(
        f"<object><name>{name}</name><bndbox><xmin>4</xmin><ymin>3</ymin><xmax>20</xmax>"
        "<ymax>15</ymax></bndbox></object>"
        for name in objects
    )
    return (
        f"<annotation><size><width>{width}</width><height>{height}</height></size>{parts}"
        "</annotation>"
    )


def test_a_dataset_laid_out_as_pascal_voc(tmp_path):
    source = tmp_path / "VOC2007"
    for name in ("000001", "000002", "000003", "000004", "000005", "000006"):
        write(source / "JPEGImages" / f"{name}.jpg", photo())
    annotations = {
        "000001": voc(40, 30, "train", "dog"),
        "000002": voc(40, 30),
        "000003": voc(41, 30, "boat"),
        "000004": "<annotation><size>",
        "000006": voc(40, 30, "aeroplane"),
        "000099": voc(40, 30, "ghost"),  # of no picture
    }
    for name, text in annotations.items():
        write(source / "Annotations" / f"{name}.xml", text)
    write(source / "JPEGImages" / "000006.jpg", photo()[:500])
    flags = ["--boxes", "voc", "--label", "none", "--num_shards", 2]
    inputs = ["--input", source / "JPEGImages" / "*.jpg"]
    assert run("images", *inputs, *flags, "--output", tmp_path / "o") == 0
    found = records_of(tmp_path / "o")
    manifest = Manifest.read(str(tmp_path / "o"))
    # Sorted; those of pictures that turn out broken have a number too.
    names = manifest.class_names["box_labels"]
    assert names == tuple(sorted(names)) and set(names) >= {"train", "dog"} and "ghost" not in names
    assert [names[i] for i in found["000001.jpg"]["box_labels"]] == ["train", "dog"]
    expected = np.array([[3 / 30, 4 / 40, 15 / 30, 20 / 40]] * 2, np.float32)
    np.testing.assert_allclose(found["000001.jpg"]["boxes"], expected)
    assert found["000002.jpg"]["boxes"].shape == (0, 4)
    rejects = rejects_of(tmp_path / "o")
    assert found.keys() | rejects.keys() == {f"00000{n}.jpg" for n in range(1, 7)}
    assert rejects.pop("000003.jpg") == (
        "its boxes are for an image of 30 x 41 pixels (height x width), the file has 30 x 40"
    )
    assert rejects.pop("000004.jpg").startswith("not XML: ")
    assert rejects.pop("000005.jpg") == "no annotation file found"
    assert rejects.pop("000006.jpg").startswith("cannot be decoded: ")
    assert not rejects


def test_a_dataset_laid_out_as_ultralytics_has_it(tmp_path, capsys):
    source = tmp_path / "coco8"
    for split, numbers in (("train", range(4)), ("val", range(4, 6))):
        for n in numbers:
            write(source / "images" / split / f"{n}.jpg", photo())
            if n != 2:  # a picture of nothing
                line = f"{n % 3} 0.5 0.5 0.25 0.5\n" if n else ""
                write(source / "labels" / split / f"{n}.txt", line)
    write(source / "labels" / "train" / "9.txt", "0 0.5 0.5 1 1\n")
    write(source / "labels" / "val" / "5.txt", "7 0.5 0.5 1 1\n")
    write(source / "data.yaml", "path: coco8\nnames:\n  0: person\n  1: bicycle\n  2: car\n")
    flags = ["--boxes", "yolo", "--class_names", source / "data.yaml", "--label", "none"]
    # The folder with pictures and labels together; data.yaml is neither.
    assert run("images", "--input", source, *flags, "--output", tmp_path / "o") == 0
    found, rejects = records_of(tmp_path / "o"), rejects_of(tmp_path / "o")
    names = ("person", "bicycle", "car")
    assert Manifest.read(str(tmp_path / "o")).class_names == {"box_labels": names}
    assert {key: record["box_labels"].tolist() for key, record in found.items()} == {
        "images/train/0.jpg": [],
        "images/train/1.jpg": [1],
        "images/train/2.jpg": [],
        "images/train/3.jpg": [0],
        "images/val/4.jpg": [1],
    }
    np.testing.assert_allclose(found["images/val/4.jpg"]["boxes"], [[0.25, 0.375, 0.75, 0.625]])
    assert rejects.pop("images/val/5.jpg") == "line 1: class '7', expected 0 to 2"
    assert rejects.pop("data.yaml").startswith("cannot be decoded: ")
    assert not rejects
    # Numbers are what they are where nobody has named them.
    flags = ["--boxes", "yolo", "--label", "none", "--output", tmp_path / "numbers"]
    assert run("images", "--input", source / "images", *flags) == 0
    labels = {key: r["box_labels"].tolist() for key, r in records_of(tmp_path / "numbers").items()}
    assert labels["val/5.jpg"] == [7] and labels["val/4.jpg"] == [1]
    assert Manifest.read(str(tmp_path / "numbers")).class_names == {"box_labels": ()}


def test_a_dataset_laid_out_as_coco(tmp_path):
    source = tmp_path / "coco"
    sizes = {"000000000139.jpg": (30, 40), "000000000285.jpg": (40, 30), "000000000632.jpg": (8, 8)}
    for name, (height, width) in sizes.items():
        write(source / "val2017" / name, photo(height, width))
    write(source / "val2017" / "unknown.jpg", photo())
    images = [
        {"id": int(name[:-4]), "file_name": name, "height": height, "width": width}
        for name, (height, width) in sizes.items()
    ]
    images[2]["height"] = 9
    images.append({"id": 5, "file_name": "gone.jpg", "height": 1, "width": 1})
    categories = [{"id": 90, "name": "toothbrush"}, {"id": 1, "name": "person"}]
    categories.append({"id": 44, "name": "bottle"})
    boxes = [
        {"image_id": 139, "category_id": 90, "bbox": [10, 6, 20, 12], "iscrowd": 0},
        {"image_id": 139, "category_id": 1, "bbox": [0, 0, 40, 30], "iscrowd": 0},
        {"image_id": 139, "category_id": 44, "bbox": [0, 0, 4, 3], "iscrowd": 1},
        {"image_id": 632, "category_id": 1, "bbox": [0, 0, 4, 3], "iscrowd": 0},
    ]
    captions = [
        {"image_id": 139, "caption": "A room."},
        {"image_id": 139, "caption": "Ein schöner Raum."},
    ]
    instances = {"images": images, "annotations": boxes, "categories": categories}
    write(source / "annotations" / "instances_val2017.json", instances)
    texts = {"images": images, "annotations": captions}
    write(source / "annotations" / "captions_val2017.json", texts)
    flags = ["--boxes", f"coco:{source}/annotations/instances_val2017.json", "--label", "none"]
    flags += ["--captions", f"coco:{source}/annotations/captions_val2017.json", "--num_shards", 2]
    inputs = ["--input", source / "val2017" / "*.jpg"]
    assert run("images", *inputs, *flags, "--output", tmp_path / "o") == 0
    names = ("person", "bottle", "toothbrush")  # in the order of their ids
    assert Manifest.read(str(tmp_path / "o")).class_names == {"box_labels": names}
    found, rejects = records_of(tmp_path / "o"), rejects_of(tmp_path / "o")
    record = found.pop("000000000139.jpg")
    assert record["box_labels"].tolist() == [2, 0]
    np.testing.assert_allclose(record["boxes"], [[0.2, 0.25, 0.6, 0.75], [0, 0, 1, 1]])
    assert [text.decode() for text in record["captions"]] == ["A room.", "Ein schöner Raum."]
    nothing = found.pop("000000000285.jpg")
    assert (nothing["boxes"].shape, nothing["captions"].tolist()) == ((0, 4), [])
    assert not found
    assert rejects == {
        "000000000632.jpg": "its boxes are for an image of 9 x 8 pixels (height x width), the "
        "file has 8 x 8",
        "unknown.jpg": "the COCO file has no image of this name",
    }


def test_captions_and_masks_beside_pictures(tmp_path):
    source = tmp_path / "in"
    palette = Image.new("P", (40, 30))
    palette.putpalette([0, 0, 0, 200, 0, 0, 0, 200, 0])
    palette.paste(2, (5, 5, 20, 10))
    masks = {
        "0": palette,
        "1": Image.fromarray(np.eye(30, 40, dtype=bool)),
        "2": Image.new("RGB", (40, 30)),
        "3": Image.new("L", (40, 31)),
        "4": Image.fromarray(np.full((30, 40), 300, np.uint16)),
        "6": Image.new("L", (40, 30), 255),
        "7": Image.new("L", (40, 30), 255),
    }
    for n in range(8):
        write(source / f"{n}.jpg", photo())
        if n != 7:
            write(source / f"{n}.txt", f"Picture {n}.\n\nNumber {n}.\n")
    for name, mask in masks.items():
        out = io.BytesIO()
        mask.save(out, "PNG")
        write(source / "masks" / f"{name}.png", out.getvalue())
    write(source / "masks" / "6.png", (source / "masks" / "6.png").read_bytes()[:60])
    flags = ["--captions", "txt", "--masks", source / "masks", "--label", "none"]
    # Texts and masks lie among the pictures.
    assert run("images", "--input", source, *flags, "--output", tmp_path / "o") == 0
    found, rejects = records_of(tmp_path / "o"), rejects_of(tmp_path / "o")
    assert found.keys() == {"0.jpg", "1.jpg"}
    for key, record in found.items():
        texts = [f"Picture {key[0]}.".encode(), f"Number {key[0]}.".encode()]
        assert record["captions"].tolist() == texts
        expected = np.asarray(masks[key[0]]).astype(np.uint8)
        np.testing.assert_array_equal(record["mask"][..., 0], expected)
    for key, reason in {
        "2.jpg": "its mask is an image of mode RGB, expected one value a pixel",
        "3.jpg": "its mask is for an image of 31 x 40 pixels",
        "4.jpg": "its mask has values up to 300, expected 0 to 255",
        "5.jpg": "no mask found",
        "6.jpg": "its mask cannot be ",
        "7.jpg": "no caption file found",
    }.items():
        assert rejects.pop(key).startswith(reason)
    assert not rejects


def test_annotations_that_change_are_noticed_by_the_next_run(tmp_path, capsys, monkeypatch):
    for n in range(6):
        write(tmp_path / "in" / f"{n}.jpg", photo())
        write(tmp_path / "in" / f"{n}.txt", "0 0.5 0.5 0.5 0.5\n")
    arguments = ["images", "--input", tmp_path / "in", "--boxes", "yolo", "--label", "none"]
    arguments += ["--num_shards", 3, "--output", tmp_path / "o"]

    def fails(*_: object) -> None:
        raise DataError("interrupted")

    with monkeypatch.context() as patch:
        patch.setattr(commit, "check_files", fails)
        assert run(*arguments) == 1
    write(tmp_path / "in" / "0.txt", "1 0.5 0.5 1 1\n0 0.5 0.5 0.5 0.5\n")
    capsys.readouterr()
    assert run(*arguments) == 0
    assert re.search(r"^kept 2 shards", capsys.readouterr().err, re.MULTILINE)
    assert records_of(tmp_path / "o")["0.jpg"]["box_labels"].tolist() == [1, 0]
    anew = [*arguments[:-1], tmp_path / "anew"]
    assert run(*anew, "--direct_num_workers", 1) == 0
    assert files_of(tmp_path / "anew") == files_of(tmp_path / "o")


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--boxes", "voc"], r"--boxes voc: none of the first 1 images has such a file"),
        (["--masks", "m"], r"--masks: none of the first 1 images .* would be .*/m/1\.png"),
        (["--boxes", "coco:no.json"], r"no\.json: cannot be read: .*No such file"),
        (["--boxes", "coco:in/1.jpg"], r"1\.jpg: not JSON"),
        (["--class_names", "n.txt"], "add --boxes yolo"),
        (["--captions", "column:txt"], "column 'txt': files have no columns"),
    ],
)
def test_annotations_that_are_not_there_are_the_users_mistake(
    tmp_path, monkeypatch, capsys, flags, message
):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "in" / "1.jpg", photo())
    arguments = ["images", "--input", "in/*.jpg", "--label", "none", "--output", "o", *flags]
    assert run(*arguments) == 2
    error = capsys.readouterr().err
    assert re.search(message, error), error
    assert error.startswith("error: ") and error.count("\n") == 1
    assert not (tmp_path / "o").exists()
