"""The flags of annotations: their values are parsed, and the files that they name are checked."""

from __future__ import annotations

from dataclasses import replace
from typing import cast, get_args

from beam_jobs.errors import UsageError
from beam_jobs.jobs.images.annotations import (
    BoxFormat,
    CaptionFormat,
    ImageAnnotations,
    Unannotated,
)
from beam_jobs.jobs.images.boxes import AnnotationsOf, BoxOrder
from beam_jobs.jobs.images.coco.objects import Segmentation
from beam_jobs.jobs.images.coco.reading import coco_file
from beam_jobs.jobs.images.voc_yolo import read_class_names
from beam_jobs.sources.classes import label_names
from beam_jobs.sources.source import COLUMN
from beam_jobs.storage.files import read_bytes
from beam_jobs.storage.paths import absolute_path

_MAX_MASK_CLASSES = 255


def parse_annotations(
    boxes: str = "",
    class_names: str = "",
    captions: str = "",
    masks: str = "",
    about: AnnotationsOf = "auto",
    segmentation: Segmentation = "none",
    keypoints: bool = False,
    unannotated: Unannotated = "auto",
    box_order: BoxOrder = "yxyx",
) -> ImageAnnotations:
    """The annotations that flags ask for; the arguments are their values.

    Raises:
        UsageError: A value has no valid form, or its file cannot be read.
    """
    box_format, boxes_path = _parse_boxes(boxes)
    if class_names and box_format != "yolo":
        raise UsageError("--class_names names the classes in YOLO files: add --boxes yolo")
    if segmentation == "semantic" and masks:
        raise UsageError("--segmentation semantic: --masks gives a feature `mask`, too; drop one")
    if (keypoints or segmentation != "none") and box_format != "coco":
        flag = "--keypoints" if keypoints else f"--segmentation {segmentation}"
        raise UsageError(f"{flag}: these are in COCO files: add --boxes coco:FILE")
    caption_format, captions_path = _parse_captions(captions)
    annotations = ImageAnnotations(
        boxes=box_format,
        boxes_path=boxes_path,
        class_names=_yolo_names(class_names) if class_names else (),
        captions=caption_format,
        captions_path=captions_path,
        masks=absolute_path(masks) if masks else "",
        about=about,
        segmentation=segmentation,
        unannotated=unannotated,
        box_order=box_order,
    )
    if box_format == "csv":
        table = coco_file(annotations.boxes_path, table=True)
        names, in_pixels = label_names(table.category_names), table.unsized == "pixels"
        return replace(annotations, class_names=names, in_pixels=in_pixels)
    return _with_names(annotations, keypoints) if box_format == "coco" else annotations


def _parse_boxes(boxes: str) -> tuple[BoxFormat, str]:
    """The format of boxes, and the absolute path of their file or folder; empty without one."""
    kind, _, path = boxes.partition(":")
    if kind not in get_args(BoxFormat) or (kind in ("coco", "csv") and not path):
        raise UsageError(
            f"--boxes {boxes}: expected coco:FILE, csv:FILE, voc, voc:DIR, yolo or yolo:DIR"
        )
    return cast(BoxFormat, kind), absolute_path(path) if path else ""


def _parse_captions(captions: str) -> tuple[CaptionFormat, str]:
    """The format of captions, and the absolute path of their file or folder, or their column."""
    kind, _, path = captions.partition(":")
    if kind not in get_args(CaptionFormat) or (kind in ("coco", "column") and not path):
        raise UsageError(f"--captions {captions}: expected coco:FILE, txt, txt:DIR or {COLUMN}NAME")
    if path and kind != "column":
        path = absolute_path(path)
    if kind == "coco":
        coco_file(path)
    return cast(CaptionFormat, kind), path


def _yolo_names(path: str) -> tuple[str, ...]:
    try:
        return read_class_names(read_bytes(absolute_path(path)), path)
    except OSError as error:
        raise UsageError(f"--class_names {path}: cannot be read: {error}") from None


def _with_names(annotations: ImageAnnotations, keypoints: bool) -> ImageAnnotations:
    """Annotations of a COCO file with the names of its classes and keypoints."""
    path, segmentation = annotations.boxes_path, annotations.segmentation
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
