"""The values of the flags of annotations, and the files that they name."""

from __future__ import annotations

from dataclasses import replace
from typing import cast, get_args

from beam_jobs.errors import UsageError, reason_of
from beam_jobs.jobs.images.annotations import BoxFormat, CaptionFormat, ImageAnnotations
from beam_jobs.jobs.images.coco.reading import coco_file
from beam_jobs.jobs.images.voc_yolo import read_class_names
from beam_jobs.sources.classes import label_names
from beam_jobs.sources.source import COLUMN
from beam_jobs.storage.files import read_bytes
from beam_jobs.storage.paths import absolute_path

_MAX_MASK_CLASSES = 255


def parse_boxes(boxes: str) -> tuple[BoxFormat, str]:
    """The format of boxes, and the absolute path of their file or folder; empty without one.

    Raises:
        UsageError: `--boxes` has another form.
    """
    kind, _, path = boxes.partition(":")
    if kind not in get_args(BoxFormat) or (kind in ("coco", "csv") and not path):
        raise UsageError(
            f"--boxes {boxes}: expected coco:FILE, csv:FILE, voc, voc:DIR, yolo or yolo:DIR"
        )
    return cast(BoxFormat, kind), absolute_path(path) if path else ""


def parse_captions(captions: str) -> tuple[CaptionFormat, str]:
    """The format of captions, and the absolute path of their file or folder, or their column.

    Raises:
        UsageError: `--captions` has another form, or its file cannot be read.
    """
    kind, _, path = captions.partition(":")
    if kind not in get_args(CaptionFormat) or (kind in ("coco", "column") and not path):
        raise UsageError(f"--captions {captions}: expected coco:FILE, txt, txt:DIR or {COLUMN}NAME")
    if path and kind != "column":
        path = absolute_path(path)
    if kind == "coco":
        coco_file(path)
    return cast(CaptionFormat, kind), path


def yolo_names(path: str) -> tuple[str, ...]:
    """The names in the file of `--class_names`.

    Raises:
        UsageError: The file cannot be read, or names no classes.
    """
    try:
        return read_class_names(read_bytes(absolute_path(path)), path)
    except OSError as error:
        raise UsageError(f"--class_names {path}: cannot be read: {reason_of(error)}") from None


def with_names(annotations: ImageAnnotations, keypoints: bool) -> ImageAnnotations:
    """The annotations with the names of classes, and of keypoints, in their COCO file or table of boxes.

    Raises:
        UsageError: The file cannot be read, or lacks what is asked for.
    """
    path, segmentation = annotations.boxes_path, annotations.segmentation
    if annotations.boxes == "csv":
        table = coco_file(path, table=True)
        names, in_pixels = label_names(table.category_names), table.unsized == "pixels"
        return replace(annotations, class_names=names, in_pixels=in_pixels)
    if annotations.boxes != "coco":
        return annotations
    coco = coco_file(path, keypoints or segmentation != "none")
    names = coco.category_names
    if not names:
        raise UsageError(f"--boxes coco:{path}: the file has no categories: are these captions?")
    if segmentation == "semantic" and len(names) > _MAX_MASK_CLASSES:
        raise UsageError(
            f"--segmentation semantic: {len(names)} categories, and a mask has room for "
            f"{_MAX_MASK_CLASSES}; use --segmentation instances"
        )
    if keypoints and not coco.keypoint_names:
        raise UsageError(
            f"--keypoints: no category in {path} names keypoints; name a file such as "
            "person_keypoints_train2017.json with --boxes coco:FILE"
        )
    return replace(
        annotations, class_names=names, keypoints=coco.keypoint_names if keypoints else ()
    )
