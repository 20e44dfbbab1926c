"""The flags of annotations: their values are parsed, and the files that they name are checked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast, get_args

from beam_jobs.errors import UsageError
from beam_jobs.jobs.images.annotations import BoxFormat, CaptionFormat, ImageAnnotations
from beam_jobs.jobs.images.boxes import AnnotationsOf
from beam_jobs.jobs.images.coco.lookup import CocoAnnotations
from beam_jobs.jobs.images.coco.reading import coco_file, details_of
from beam_jobs.jobs.images.coco.segmentation import Segmentation
from beam_jobs.jobs.images.voc_yolo import read_class_names
from beam_jobs.sources.source import COLUMN
from beam_jobs.storage.files import read_bytes
from beam_jobs.storage.paths import absolute_path

_MAX_MASK_CLASSES = 255


@dataclass(frozen=True)
class AnnotationFlags:
    """The values of the flags for annotations, as they are typed.

    Attributes:
        boxes, class_names, captions, masks, about, segmentation, keypoints: The values.
    """

    boxes: str = ""
    class_names: str = ""
    captions: str = ""
    masks: str = ""
    about: AnnotationsOf = "auto"
    segmentation: Segmentation = "none"
    keypoints: bool = False

    def parsed(self) -> ImageAnnotations:
        """The annotations that the flags ask for.

        Raises:
            UsageError: A value has no valid form, or its file cannot be read.
        """
        box_format, _, boxes_path = self.boxes.partition(":")
        if box_format not in get_args(BoxFormat) or (box_format == "coco" and not boxes_path):
            raise UsageError(
                f"--boxes {self.boxes}: expected coco:FILE, voc, voc:DIR, yolo or yolo:DIR"
            )
        caption_format, _, captions_path = self.captions.partition(":")
        if caption_format not in get_args(CaptionFormat) or (
            caption_format in ("coco", "column") and not captions_path
        ):
            raise UsageError(
                f"--captions {self.captions}: expected coco:FILE, txt, txt:DIR or {COLUMN}NAME"
            )
        boxes_path = absolute_path(boxes_path) if boxes_path else ""
        if captions_path and caption_format != "column":
            captions_path = absolute_path(captions_path)
        if caption_format == "coco":
            coco_file(captions_path)
        return ImageAnnotations(
            boxes=cast(BoxFormat, box_format),
            boxes_path=boxes_path,
            class_names=self._class_names(box_format, boxes_path),
            captions=cast(CaptionFormat, caption_format),
            captions_path=captions_path,
            masks=absolute_path(self.masks) if self.masks else "",
            about=self.about,
            segmentation=self.segmentation,
            keypoints=self._keypoints(boxes_path),
        )

    def _coco(self, path: str) -> CocoAnnotations:
        return coco_file(path, details_of(self.segmentation, self.keypoints))

    def _class_names(self, box_format: str, boxes_path: str) -> tuple[str, ...]:
        """The names of the boxes' classes, as far as they are known before any image."""
        if (self.keypoints or self.segmentation != "none") and box_format != "coco":
            flag = "--keypoints" if self.keypoints else f"--segmentation {self.segmentation}"
            raise UsageError(f"{flag}: these are in COCO files: add --boxes coco:FILE")
        if self.class_names and box_format != "yolo":
            raise UsageError("--class_names names the classes in YOLO files: add --boxes yolo")
        if self.class_names:
            try:
                return read_class_names(
                    read_bytes(absolute_path(self.class_names)), self.class_names
                )
            except OSError as error:
                raise UsageError(
                    f"--class_names {self.class_names}: cannot be read: {error}"
                ) from None
        if box_format != "coco":
            return ()
        names = self._coco(boxes_path).category_names
        if not names:
            raise UsageError(
                f"--boxes {self.boxes}: the file has no categories: are these captions?"
            )
        if self.segmentation == "semantic":
            self._check_mask(len(names))
        return names

    def _check_mask(self, classes: int) -> None:
        if self.masks:
            raise UsageError(
                "--segmentation semantic: --masks gives a feature `mask`, too; drop one of them"
            )
        if classes > _MAX_MASK_CLASSES:
            raise UsageError(
                f"--segmentation semantic: {classes} categories, and a mask has room for "
                f"{_MAX_MASK_CLASSES}; use --segmentation instances"
            )

    def _keypoints(self, boxes_path: str) -> tuple[str, ...]:
        if not self.keypoints:
            return ()
        names = self._coco(boxes_path).keypoint_names
        if not names:
            raise UsageError(
                f"--keypoints: no category in {boxes_path} names keypoints; name a file such as "
                "person_keypoints_train2017.json with --boxes coco:FILE"
            )
        return names
