"""Segmentations and keypoints of COCO files, and the masks that are made of them."""

import dataclasses
import io
import json
from pathlib import Path

import numpy as np
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from beam_jobs.cli.images import ImageFlags
from beam_jobs.errors import RejectError, UsageError
from beam_jobs.jobs.images import coco_entries
from beam_jobs.jobs.images.boxes import Geometry, move_keypoints
from beam_jobs.jobs.images.coco_file import read_coco
from beam_jobs.jobs.images.coco_objects import CocoObject, object_masks
from beam_jobs.jobs.images.image_job import ImageJob
from beam_jobs.sources.inputs import Inputs
from beam_jobs.sources.labels import Labels
from tests.support.commands import ONE, run
from tests.support.datasets import records_of
from tests.support.images import encoded

SIZE = (6, 8)
# What pycocotools 2.0.11 makes of these polygons, in an image of this size.
POLYGONS = [[0.5, 0.5, 6.2, 1.0, 3.0, 5.6], [6, 4, 9, 4, 9, 9, 6, 9]]
MASK = """
........
.#####..
..###...
..##....
...#..##
......##
"""
COMPRESSED = "7152N1ON2O41L0"


def array(drawing: str) -> np.ndarray:
    return np.array([[int(c == "#") for c in line] for line in drawing.split()], np.uint8)


def mask(segmentation, size=SIZE) -> np.ndarray:
    details = json.dumps({"segmentation": segmentation})
    (found,) = object_masks([CocoObject(0, False, details)], size)
    return found


def runs(pixels: np.ndarray) -> list[int]:
    """The lengths of runs, column by column, the first one of zeros."""
    flat = pixels.T.ravel()
    ends = [*np.flatnonzero(np.diff(flat)) + 1, len(flat)]
    return [0] * int(flat[0]) + np.diff(ends, prepend=0).tolist()


def test_polygons_are_filled_as_pycocotools_does():
    np.testing.assert_array_equal(mask(POLYGONS), array(MASK))
    assert mask(POLYGONS).dtype == np.uint8


def test_run_lengths_are_read_as_numbers_and_as_text():
    size = list(SIZE)
    np.testing.assert_array_equal(mask({"size": size, "counts": runs(array(MASK))}), array(MASK))
    np.testing.assert_array_equal(mask({"size": size, "counts": COMPRESSED}), array(MASK))


sides = st.integers(1, 60)
coordinates = st.one_of(st.integers(-20, 80), st.floats(-20, 80, width=32))


@given(
    sides, sides, st.lists(st.lists(st.tuples(coordinates, coordinates), min_size=3), min_size=1)
)
@settings(max_examples=60, deadline=None)
def test_every_polygon_has_the_pixels_that_pycocotools_gives(height, width, polygons):
    from pycocotools import mask as coco_mask

    flat = [[float(c) for point in polygon for c in point] for polygon in polygons]
    merged = coco_mask.merge(coco_mask.frPyObjects(flat, height, width))
    found = mask(flat, (height, width))
    np.testing.assert_array_equal(found, coco_mask.decode(merged))
    text = coco_mask.encode(np.asfortranarray(found))["counts"].decode()
    packed = mask({"size": [height, width], "counts": text}, (height, width))
    np.testing.assert_array_equal(packed, found)


@pytest.mark.parametrize(
    ("segmentation", "message"),
    [
        (None, "it has no segmentation"),
        ([[1, 2, 3, 4]], r"its polygon \[1, 2, 3, 4\], expected the x and y of 3 or more corners"),
        ([[1, 2, 3, 4, 5, "6"]], r"its polygon \[1, 2, 3, 4, 5, '6'\], expected .* numbers below"),
        (
            [[1, 1, 1e9, 4, 5, 6]],
            r"its polygon \[1, 1, 1000000000.0, 4, 5, 6\], expected .* numbers below",
        ),
        (
            [[[1, 2], [3, 4], [5, 6]]],
            r"its polygon \[\[1, 2\], .*, expected the x and y of 3 or more corners in one",
        ),
        ([1, 2, 3, 4, 5, 6], "its polygon 1, expected the x and y"),
        ([[1, 2, 3, 4, 5, 6], "..."], "its polygon '...', expected the x and y"),
        ([[-1e7, 0, 1e7, 1] * 1000], r"its polygon has an outline of \d+ pixels"),
        ("text", "its segmentation has size 'text', its image"),
        ({"counts": [48]}, r"its segmentation has size None, its image \[6, 8\]"),
        ({"size": [1 << 40, 1 << 40], "counts": [1]}, "its segmentation has size"),
        ({"size": [6, 8], "counts": [40, 9]}, "its segmentation has runs of 49 pixels"),
        (
            {"size": [6, 8], "counts": [50, -2]},
            r"its counts \[50, -2\], expected numbers of pixels",
        ),
        ({"size": [6, 8], "counts": [1 << 70]}, "its counts .*, expected numbers of pixels"),
        ({"size": [6, 8], "counts": [True] * 48}, "its counts .*, expected numbers of pixels"),
        ({"size": [6, 8], "counts": "P"}, "its counts 'P', expected pycocotools' text"),
        ({"size": [6, 8], "counts": "é0"}, "its counts 'é0', expected pycocotools' text"),
        (
            {"size": [6, 8], "counts": "ooooooo0"},
            "its counts 'ooooooo0', expected pycocotools' text",
        ),
        ({"size": [6, 8], "counts": "oooooO"}, "its segmentation has runs of"),
    ],
)
def test_hostile_segmentations_are_rejected_before_memory_is_taken(segmentation, message):
    with pytest.raises(RejectError, match=f"^object 1: {message}"):
        mask(segmentation)


# Jobs.

WIDTH, HEIGHT = 40, 24
PERSON = {
    "bbox": [4, 2, 12, 10],
    "segmentation": [[4, 2, 16, 2, 16, 12, 4, 12]],
    "keypoints": [5, 4, 2, 10, 8, 1, 0, 0, 0],
}
CROWD_RUNS = [WIDTH * HEIGHT - 48, 48]
DOG = {"bbox": [10, 6, 20, 12], "segmentation": [[10, 6, 30, 6, 30, 18, 10, 18]]}


def document(**person) -> dict:
    crowd = {"size": [HEIGHT, WIDTH], "counts": CROWD_RUNS}
    objects = [
        {"image_id": 1, "category_id": 1, "iscrowd": 1, "bbox": [0] * 4, "segmentation": crowd},
        {"image_id": 1, "category_id": 1, **PERSON, **person},
        {"image_id": 1, "category_id": 7, **DOG},
    ]
    categories = [
        {"id": 7, "name": "dog"},
        {"id": 1, "name": "person", "keypoints": ["nose", "eye", "ear"], "skeleton": [[1, 2]]},
    ]
    image = {"id": 1, "file_name": "a.png", "height": HEIGHT, "width": WIDTH}
    return {"images": [image], "annotations": objects, "categories": categories}


def job(tmp_path: Path, coco: dict | None = None, orientation: int = 0, **flags) -> ImageJob:
    path = tmp_path / "c.json"
    path.write_text(json.dumps(coco or document()))
    (tmp_path / "p").mkdir(exist_ok=True)
    pixels = np.zeros((HEIGHT, WIDTH, 3), np.uint8)
    (tmp_path / "p" / "a.png").write_bytes(encoded(pixels, "PNG", orientation))
    annotations = ImageFlags(boxes=f"coco:{path}", **flags).annotations()
    inputs = Inputs.of([str(tmp_path / "p")])
    return ImageJob(inputs, Labels.parse("none"), annotations=annotations)


def load(job: ImageJob) -> dict:
    (source,) = job.sources(job.inputs.patterns[0])
    assert not source.error, source.error
    return job.load(source)


def painted(*boxes) -> np.ndarray:
    """A mask with x, y, width, height of boxes painted over each other as 1, 2, ..."""
    found = np.zeros((HEIGHT, WIDTH), np.uint8)
    for value, (x, y, width, height) in enumerate(boxes, 1):
        found[y : y + height, x : x + width] = value
    return found


def test_each_box_has_a_mask(tmp_path):
    record = load(job(tmp_path, segmentation="instances"))
    assert record["box_labels"] == ("person", "dog")
    masks = record["instance_masks"]
    assert masks.dtype == np.uint8
    np.testing.assert_array_equal(masks, [painted(PERSON["bbox"]), painted(DOG["bbox"])])


def test_a_semantic_mask_has_crowds_and_the_smaller_object_on_top(tmp_path):
    annotated = job(tmp_path, segmentation="semantic")
    found = np.asarray(Image.open(io.BytesIO(load(annotated)["mask"])))
    expected = painted(PERSON["bbox"], DOG["bbox"])
    expected[2:12, 4:16] = 1  # The person is smaller.
    expected[expected == 0] = np.repeat([0, 1], CROWD_RUNS).reshape(WIDTH, HEIGHT).T[expected == 0]
    np.testing.assert_array_equal(found, expected)
    names = annotated.annotations.class_names_by_feature
    assert names == {"box_labels": ("person", "dog"), "mask": ("background", "person", "dog")}


@pytest.mark.parametrize("orientation", [1, 3, 6, 7])
@pytest.mark.parametrize("resize", ["stretch", "fit", "crop"])
def test_masks_and_keypoints_follow_the_boxes(tmp_path, orientation, resize):
    own = job(tmp_path, None, orientation, segmentation="instances", keypoints=True)
    record = load(dataclasses.replace(own, image_size=(120, 150), resize=resize))
    assert record["instance_masks"].shape[1:] == (120, 150)
    for box, inside in zip(record["boxes"], record["instance_masks"], strict=True):
        y, x = np.nonzero(inside)
        extent = np.array([y.min(), x.min(), y.max() + 1, x.max() + 1])
        np.testing.assert_allclose(extent, box * [120, 150, 120, 150], atol=1.01)
    # The first keypoint is a tenth of the way into its box, before the image is turned.
    low, high = record["boxes"][0, :2], record["boxes"][0, 2:]
    y, x, visible = record["keypoints"][0, 0]
    if resize != "crop":
        inside = sorted(min(part, 1 - part) for part in ((y, x) - low) / (high - low))
        np.testing.assert_allclose(inside, [1 / 12, 0.2], atol=1e-5)
        assert visible == 2
    np.testing.assert_array_equal(record["keypoints"][0, 2], 0)
    np.testing.assert_array_equal(record["keypoints"][1], 0)  # A dog has none.


def test_keypoints_are_fractions_and_their_names_are_known(tmp_path):
    annotated = job(tmp_path, keypoints=True)
    points = load(annotated)["keypoints"]
    expected = [[4 / HEIGHT, 5 / WIDTH, 2], [8 / HEIGHT, 10 / WIDTH, 1], [0, 0, 0]]
    np.testing.assert_allclose(points[0], expected, rtol=1e-6)
    assert points.dtype == np.float32
    assert annotated.schema["keypoints"].shape == (None, 3, 3)
    assert annotated.class_names["keypoints"] == ("nose", "eye", "ear")


def test_keypoints_that_a_crop_leaves_out_are_not_labelled():
    geometry = Geometry((10, 20), 1, (10, 20), (10, 10), "crop")
    points = np.array([[[0.5, 0.1, 2], [0.5, 0.5, 2], [0.2, 0.3, 0], [0.5, 1.2, 1]]])
    moved = move_keypoints(points, (10, 20), geometry)
    np.testing.assert_allclose(moved, [[[0, 0, 0], [0.5, 0.5, 2], [0, 0, 0], [0, 0, 0]]])


@pytest.mark.parametrize(
    ("person", "flags", "message"),
    [
        ({"segmentation": []}, {"segmentation": "instances"}, "object 1: it has no segmentation"),
        ({"segmentation": [[[1] * 6]]}, {"segmentation": "semantic"}, "object 2: its polygon"),
        ({"keypoints": [1, 2, 2]}, {"keypoints": True}, "object 1: its keypoints .* of 3"),
        (
            {"keypoints": ["x"] * 9},
            {"keypoints": True},
            "object 1: its keypoints .'x', .*, expected x, y",
        ),
    ],
)
def test_an_object_that_lacks_what_is_asked_for_rejects_its_image(tmp_path, person, flags, message):
    annotated = job(tmp_path, document(**person), **flags)
    (source,) = annotated.sources(annotated.inputs.patterns[0])
    with pytest.raises(RejectError, match=message):
        if source.error:
            raise RejectError(source.error)
        annotated.load(source)


def test_masks_of_too_many_pixels_are_rejected(tmp_path):
    limited = dataclasses.replace(job(tmp_path, segmentation="instances"), max_pixels=1500)
    with pytest.raises(
        RejectError, match="of its 2 objects have 1920 pixels, more than --max_pixels"
    ):
        load(limited)


def test_a_segmentation_for_another_size_is_rejected_before_it_is_drawn(tmp_path):
    coco = document()
    coco["images"][0] |= {"height": 1 << 30, "width": 1 << 30}
    with pytest.raises(RejectError, match="for an image of 1073741824 x 1073741824 pixels"):
        load(job(tmp_path, coco, segmentation="semantic"))


def test_large_and_deep_segmentations_are_cut(tmp_path, monkeypatch):
    monkeypatch.setattr(coco_entries, "_MOST", 30)
    path = tmp_path / "c.json"
    for whole, kept in (
        ([[1.5] * 40, [2]], ["..."]),
        ([[1.5] * 20, [2]], [[1.5] * 20, [2]]),
        ({"counts": [[[7]]], "size": [1, 2]}, ["..."]),
    ):
        path.write_text(json.dumps(document(segmentation=whole)))
        found = read_coco("--boxes coco", str(path), details=True)
        _, person, _ = found.boxes("a.png").objects
        assert orjson.loads(person.details)["segmentation"] == kept


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"boxes": "voc", "segmentation": "semantic"}, "add --boxes coco:FILE"),
        ({"keypoints": True}, "--keypoints: these are in COCO files: add --boxes coco:FILE"),
        ({"segmentation": "semantic", "masks": "m", "boxes": "?"}, "drop one"),
    ],
)
def test_flags_that_do_not_go_together_are_refused(tmp_path, flags, message):
    path = tmp_path / "c.json"
    path.write_text(json.dumps(document()))
    if flags.get("boxes") == "?":
        flags = flags | {"boxes": f"coco:{path}"}
    with pytest.raises(UsageError, match=message):
        ImageFlags(**flags).annotations()


def test_the_keypoints_of_a_category_must_be_a_list(tmp_path):
    coco = document()
    coco["categories"][0]["keypoints"] = 5
    with pytest.raises(UsageError, match=r"json: category \d+ has keypoints 5, expected a list"):
        job(tmp_path, coco, keypoints=True)


def test_categories_must_agree_about_keypoints(tmp_path):
    coco = document()
    coco["categories"][0]["keypoints"] = ["tail"]
    with pytest.raises(UsageError, match=r"category 1 has keypoints .*the same in all"):
        job(tmp_path, coco, keypoints=True)
    for category in coco["categories"]:
        del category["keypoints"]
    with pytest.raises(UsageError, match=r"--keypoints: no category in .* has keypoints"):
        job(tmp_path, coco, keypoints=True)
    coco["categories"] += [{"id": id_, "name": str(id_)} for id_ in range(1000, 1255)]
    with pytest.raises(UsageError, match="found 257 categories, but a mask has room for 255"):
        job(tmp_path, coco, segmentation="semantic")


def test_a_dataset_has_masks_and_keypoints(tmp_path):
    made = job(tmp_path, keypoints=True)
    flags = ["--boxes", f"coco:{tmp_path}/c.json", "--segmentation", "instances", "--keypoints"]
    output = tmp_path / "o"
    paths = ["--input", tmp_path / "p", "--output", output]
    assert run("images", *paths, "--label", "none", *flags, *ONE) == 0
    (record,) = records_of(output).values()
    np.testing.assert_array_equal(record["keypoints"], load(made)["keypoints"])
    assert record["instance_masks"].sum() == 120 + 240
    manifest = json.loads((output / "manifest.json").read_text())
    assert manifest["class_names"]["keypoints"] == ["nose", "eye", "ear"]
    assert manifest["options"]["segmentation"] == "instances"
