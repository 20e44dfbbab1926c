"""Annotations of images: COCO files, tables of boxes, VOC, YOLO, captions, and lists of classes."""

from __future__ import annotations

import contextlib
import functools
import json

import numpy as np

from beam_jobs.errors import RejectError, UsageError
from beam_jobs.jobs.images.boxes import Boxes, Geometry, move_boxes, move_keypoints
from beam_jobs.jobs.images.coco_file import CocoFile, read_coco
from beam_jobs.jobs.images.coco_objects import keypoints_of, object_masks, semantic_mask
from beam_jobs.jobs.images.voc_yolo import read_class_names, voc_boxes, yolo_boxes
from tests.campaigns.fuzz.limits import Limits
from tests.campaigns.fuzz.mutations import json_values
from tests.campaigns.fuzz.target import Target, written

# Masks are made for images of a size that is nothing beside the limit of memory.
_MOST_PIXELS = 1 << 16


def _check_boxes(boxes: Boxes) -> None:
    assert boxes.corners.shape == (len(boxes.names), 4) and boxes.corners.dtype == np.float64
    assert np.isfinite(boxes.corners).all(), "a corner is no number"
    size = boxes.size or (30, 40)
    for orientation in (1, 6):
        geometry = Geometry(size, orientation)
        with contextlib.suppress(RejectError):
            corners, rows = move_boxes(boxes, geometry)
            assert ((corners >= 0) & (corners <= 1)).all() and corners.dtype == np.float32
            assert len(corners) == len(rows) and (corners[:, :2] <= corners[:, 2:]).all()


def _check_annotations(found: CocoFile, details: bool) -> None:
    keypoints = len(found.keypoint_names)
    for row in range(min(len(found.names), 8)):
        name = "/".join(reversed(found.names[row].split("/")))
        with contextlib.suppress(RejectError):
            _check_boxes(found.boxes(name))
        with contextlib.suppress(RejectError):
            for caption in found.captions(name):
                caption.encode()
        if not details:
            continue
        with contextlib.suppress(RejectError):
            objects = found.boxes(name).objects
            height, width = found.sizes[row].tolist()
            if keypoints:
                with contextlib.suppress(RejectError):
                    points = keypoints_of(objects, keypoints, (height, width))
                    move_keypoints(points, (height, width), Geometry((height, width), 1))
            if height * width <= _MOST_PIXELS:
                with contextlib.suppress(RejectError):
                    for mask in object_masks(objects, (height, width)):
                        assert mask.shape == (height, width) and mask.max(initial=0) <= 1
                with contextlib.suppress(RejectError):
                    semantic_mask(objects, (height, width))


def _examine_file(flag: str, name: str, data: bytes, details: bool = False) -> None:
    path = written(data, name)
    try:
        found = read_coco(flag, path, details)
    except UsageError as error:
        assert path in error.message, f"the error does not name the file: {error.message}"
        return
    _check_annotations(found, details)


def _examine_coco(data: bytes) -> None:
    _examine_file("--boxes coco", "a.json", data, details=True)
    _examine_file("--boxes coco", "a.json", data)


def _examine_voc(data: bytes) -> None:
    with contextlib.suppress(RejectError):
        _check_boxes(voc_boxes(data))


def _examine_yolo(data: bytes) -> None:
    for names in ((), ("cat", "dog")):
        with contextlib.suppress(RejectError):
            _check_boxes(yolo_boxes(data, names))


def _examine_classes(data: bytes) -> None:
    for path in ("names.txt", "data.yaml"):
        try:
            names = read_class_names(data, path)
        except UsageError as error:
            assert error.message.startswith(path), error.message
            continue
        assert names and len(set(names)) == len(names) and all(names)


def _cocos() -> list[bytes]:
    annotations = [
        {"id": 1, "image_id": 7, "category_id": 3, "bbox": [1, 2.5, 3, 4], "iscrowd": 0,
         "segmentation": [[1, 1, 4, 1, 4, 4.5]], "keypoints": [1, 2, 2, 3, 4, 1], "area": 12.0},
        {"id": 2, "image_id": 7, "category_id": 3, "bbox": [0, 0, 2, 2], "iscrowd": 1,
         "segmentation": {"size": [5, 6], "counts": [3, 4, 23]}},
        {"id": 3, "image_id": 8, "category_id": 4, "bbox": [0, 0, 1, 1],
         "segmentation": {"size": [4, 4], "counts": "22<"}},
    ]  # fmt: skip
    images = [
        {"id": 7, "file_name": "train/a.jpg", "height": 5, "width": 6},
        {"id": 8, "file_name": "b.png", "height": 4, "width": 4},
    ]
    categories = [
        {"id": 3, "name": "cat", "keypoints": ["nose", "tail"], "skeleton": [[1, 2]]},
        {"id": 4, "name": "dog"},
    ]
    full = {"info": {}, "images": images, "annotations": annotations, "categories": categories}
    captions = {"images": images, "annotations": [{"id": 1, "image_id": 7, "caption": "a cat"}]}
    return [json.dumps(value).encode() for value in (full, captions, {"images": images[:1]})]


def _tables() -> list[bytes]:
    return [
        b"filename,width,height,class,xmin,ymin,xmax,ymax\na.jpg,40,30,cat,1,2,3,4\nb.jpg,40,30,,,,,\n",
        b"ImageID,LabelName,XMin,XMax,YMin,YMax,IsGroupOf\na,/m/1,0.1,0.5,0.2,0.9,1\n",
        b"image,label,x,y,width,height\na/b.jpg,dog,1,2,3,4\n",
    ]


def _vocs() -> list[bytes]:
    return [
        b"<annotation><size><width>40</width><height>30</height><depth>3</depth></size><object><name>cat</name>"
        b"<bndbox><xmin>1</xmin><ymin>2.5</ymin><xmax>30</xmax><ymax>4</ymax></bndbox></object></annotation>",
        b'<?xml version="1.0" encoding="utf-8"?><annotation><size><width>1</width><height>1</height></size></annotation>',
        b'<!DOCTYPE a [<!ENTITY b "c">]><annotation>&b;</annotation>',
    ]


_XML = b"<object> </object> <xmin> <name> <!DOCTYPE <!ENTITY &lt; &#0; <![CDATA[ 1e308 nan".split()
_NUMBERS = rb"0.5 nan 1_0 -0.01 1e-400".split() + [b"\xef\xbb\xbf", b"\xd9\xa1", b"\xe2\x80\xa8"]
_YAML = [
    b"\n- ",
    b"\n  0: ",
    b"&a ",
    b"*a",
    b"!!python/object:os.system",
    b"<<: *a",
    b"? ",
    b"---\n",
]
_LIMITS = Limits(memory=32 << 20)

TARGETS = (
    Target("coco", _cocos, _examine_coco, json_values.mutate, (b'"counts"', b'"iscrowd"'), 2048, _LIMITS),
    Target("boxes_csv", _tables, functools.partial(_examine_file, "--boxes csv", "a.csv"), None, _NUMBERS, 512, _LIMITS),
    Target("voc", _vocs, _examine_voc, None, _XML, 1024, _LIMITS),
    Target("yolo", lambda: [b"0 0.5 0.5 0.25 0.2\r\n1 0 0 1 0 1 1\n", b"7 0.1 0.2 0.3 0.4"],
           _examine_yolo, None, _NUMBERS, 256, _LIMITS),
    Target("class_names", lambda: [b"cat\ndog\n", b"names:\n  0: cat\n  1: dog\nnc: 2\n", b"names: [a, b]"],
           _examine_classes, None, _YAML, 512, _LIMITS),
)  # fmt: skip
