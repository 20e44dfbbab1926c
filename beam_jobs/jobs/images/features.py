"""The features that annotations give a record, moved to where its image has them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from beam_jobs.jobs.images.annotations import ImageAnnotations
from beam_jobs.jobs.images.boxes import AnnotationsOf, Boxes, in_order, move_boxes, move_keypoints
from beam_jobs.jobs.images.coco.objects import keypoints_of
from beam_jobs.jobs.images.masks import MaskMover, read_mask
from beam_jobs.jobs.record import UNANNOTATED
from beam_jobs.sources.source import Source

_MISSING = {UNANNOTATED: True}


@dataclass(frozen=True)
class AnnotationReader:
    """Reads the annotations of one image.

    Attributes:
        annotations: Where they are.
        source: The image.
        mover: Moves masks, and knows the geometry of the image.
        max_pixels: The most pixels of a mask file, and of the masks of all objects.
    """

    annotations: ImageAnnotations
    source: Source
    mover: MaskMover
    max_pixels: int

    def features(self) -> dict[str, Any]:
        """The features of a record besides its image, a mask as an image; `UNANNOTATED` if one was missing.

        Raises:
            RejectError: An annotation is missing or broken, or does not fit the image.
        """
        annotations = self.annotations
        features = self._objects() if annotations.boxes else {}
        if annotations.captions:
            captions = annotations.found(annotations.captions_of, self.source)
            features |= {"captions": captions or [], **(_MISSING if captions is None else {})}
        if annotations.masks:
            features |= self._mask()
        return features

    def _mask(self) -> dict[str, Any]:
        opened = self.annotations.found(self.annotations.open_mask, self.source)
        if opened is None:
            return {"mask": self.mover.empty(), **_MISSING}
        mask = read_mask(opened, self.max_pixels)
        # YOLO's boxes state no size and are about the upright image, so a mask beside them is, too.
        tie: AnnotationsOf = "upright" if self.annotations.boxes == "yolo" else "stored"
        return {"mask": self.mover.moved(mask, tie)}

    def _objects(self) -> dict[str, Any]:
        """The boxes of the objects in an image, and what is asked for besides."""
        annotations, geometry = self.annotations, self.mover.geometry
        found = annotations.found(annotations.boxes_of, self.source)
        boxes = found or Boxes.none()
        if annotations.in_pixels:
            stored = annotations.about == "stored"
            boxes = boxes.divided(geometry.stored if stored else geometry.upright)
        corners, rows = move_boxes(boxes, geometry, annotations.about)
        kept = rows.tolist()
        names = tuple(boxes.names[row] for row in kept)
        corners = in_order(corners, annotations.box_order)
        features = {"boxes": corners, "box_labels": names, **({} if found else _MISSING)}
        return features | self._details(boxes.size, kept) if annotations.details else features

    def _details(self, size: tuple[int, int] | None, kept: list[int]) -> dict[str, Any]:
        """The masks and keypoints of COCO's objects.

        Args:
            size: (height, width) of the annotated image; None if it is not annotated.
            kept: Which of the boxes are in the record.
        """
        annotations, geometry = self.annotations, self.mover.geometry
        size = size or (geometry.upright if annotations.about == "upright" else geometry.stored)
        objects = annotations.objects_of(self.source)
        with_boxes = [found for found in objects if not found.crowd]
        boxed = [with_boxes[row] for row in kept]
        features: dict[str, Any] = {}
        if names := annotations.keypoints:
            points = keypoints_of(boxed, len(names), size)
            moved = move_keypoints(points, size, geometry, annotations.about)
            features["keypoints"] = in_order(moved, annotations.box_order)
        if annotations.segmentation == "instances":
            features["instance_masks"] = self.mover.of_objects(boxed, size, self.max_pixels)
        if annotations.segmentation == "semantic":
            features["mask"] = self.mover.of_classes(objects, size)
        return features
