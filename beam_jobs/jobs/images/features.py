"""The features of annotations, moved to their places in the record's image; masks are never interpolated."""

from __future__ import annotations

import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from PIL import Image

from beam_jobs.errors import RejectError
from beam_jobs.jobs.images.annotations import ImageAnnotations
from beam_jobs.jobs.images.boxes import (
    AnnotationsOf,
    Boxes,
    Geometry,
    in_order,
    is_about_stored,
    move_boxes,
    move_keypoints,
)
from beam_jobs.jobs.images.coco_objects import CocoObject, keypoints_of, object_masks, semantic_mask
from beam_jobs.jobs.images.image_files import check_decodable, decoding
from beam_jobs.jobs.images.pixels import resized, turned
from beam_jobs.jobs.record import Record
from beam_jobs.sources.source import Source

_UNANNOTATED = "it has no annotations, and was kept"

_TURNED = (
    "EXIF turns it without changing its size: its boxes and masks were taken to refer to the stored pixels; if "
    "viewers show them in the right places, add --annotations_of upright, else --annotations_of stored"
)

_NO_BOX = "boxes outside of the image, or without an area, were left out"

_CUT_BOX = "boxes that extend beyond the image were cut at its edges"

# The fraction of an image by which boxes extend beyond it because tools round.
_ROUNDING = 0.01


def _true(remarks: Mapping[str, bool]) -> tuple[str, ...]:
    return tuple(text for text, applies in remarks.items() if applies)


@dataclass(frozen=True)
class AnnotationReader:
    """Reads the annotations of one image.

    Attributes:
        annotations: Where they are.
        source: The image.
        geometry: Maps its points.
        max_pixels: The most pixels of a mask file, and of the masks of all objects.
    """

    annotations: ImageAnnotations
    source: Source
    geometry: Geometry
    max_pixels: int

    def add_to(self, record: Record) -> None:
        """Adds the features of annotations to a record, a mask as an image.

        Raises:
            RejectError: An annotation is missing or broken, or does not fit the image.
        """
        annotations = self.annotations
        unannotated = bool(annotations.boxes) and not self._add_objects(record)
        if annotations.captions:
            captions = annotations.found(annotations.captions_of, self.source)
            record["captions"] = captions or []
            unannotated |= captions is None
        if annotations.masks:
            file = annotations.found(annotations.mask_of, self.source)
            record["mask"] = self._mask(file)
            unannotated |= file is None
        auto = annotations.about == "auto" and annotations.boxes != "yolo"
        guessed = auto and bool(annotations.boxes or annotations.masks) and self.geometry.keeps_size
        record.remarks += _true({_UNANNOTATED: unannotated, _TURNED: guessed})

    def _mask(self, data: bytes | None) -> Image.Image:
        if data is None:
            return Image.new("L", self.geometry.written[::-1])
        mask = read_mask(data, self.max_pixels)
        # YOLO's boxes state no size and refer to the upright image, so a mask with them does too.
        tie: AnnotationsOf = "upright" if self.annotations.boxes == "yolo" else "stored"
        return self._moved(mask, tie)

    def _add_objects(self, record: Record) -> bool:
        """Adds the boxes of the objects in an image, and their masks and keypoints if requested.

        Returns whether it is annotated.
        """
        annotations, geometry = self.annotations, self.geometry
        annotated = annotations.found(annotations.boxes_of, self.source)
        boxes = annotated or Boxes.of([])
        if annotations.in_pixels:
            size = geometry.stored if annotations.about == "stored" else geometry.upright
            boxes = boxes._replace(corners=boxes.corners / (size * 2))
        beyond = abs(boxes.corners - 0.5).max(initial=0) > 0.5 + _ROUNDING
        inside = np.clip(boxes.corners, 0, 1)
        lost = not (inside[:, 2:] > inside[:, :2]).all()
        record.remarks += boxes.remarks + _true({_NO_BOX: lost, _CUT_BOX: beyond and not lost})
        corners, rows = move_boxes(boxes, geometry)
        kept = rows.tolist()
        record["boxes"] = in_order(corners, annotations.box_order)
        record["box_labels"] = tuple(boxes.names[row] for row in kept)
        if annotations.details:
            record.update(self._details(boxes, kept))
        return annotated is not None

    def _details(self, boxes: Boxes, kept: list[int]) -> dict[str, Any]:
        """The masks and keypoints of COCO's objects; `kept` are the boxes in the record."""
        annotations, geometry = self.annotations, self.geometry
        # An image that is not annotated states no size.
        own = geometry.upright if annotations.about == "upright" else geometry.stored
        size, objects = boxes.size or own, boxes.objects
        with_boxes = [each for each in objects if not each.crowd]
        boxed = [with_boxes[row] for row in kept]
        features: dict[str, Any] = {}
        if names := annotations.keypoints:
            points = keypoints_of(boxed, len(names), size)
            moved = move_keypoints(points, size, geometry)
            features["keypoints"] = in_order(moved, annotations.box_order)
        if annotations.segmentation == "instances":
            features["instance_masks"] = self._instance_masks(boxed, size)
        if annotations.segmentation == "semantic":
            features["mask"] = self._moved(Image.fromarray(semantic_mask(objects, size)))
        return features

    def _instance_masks(self, objects: Sequence[CocoObject], size: tuple[int, int]) -> np.ndarray:
        """The mask of each of n objects, uint8 [n, height, width]: 1 inside, 0 outside."""
        shape = len(objects), *self.geometry.written
        if (pixels := math.prod(shape)) > self.max_pixels:
            raise RejectError(
                f"the masks of its {len(objects)} objects have {pixels} pixels, more than "
                f"--max_pixels {self.max_pixels}: use --segmentation semantic, or a smaller --image_size"
            )
        result = np.empty(shape, np.uint8)
        for number, mask in enumerate(object_masks(objects, size)):
            result[number] = np.asarray(self._moved(Image.fromarray(mask)))
        return result

    def _moved(self, mask: Image.Image, tie: AnnotationsOf = "stored") -> Image.Image:
        """A mask, turned and resized like its image; `tie` are its pixels if its size fits both."""
        geometry, size = self.geometry, (mask.height, mask.width)
        if is_about_stored(size, geometry, "its mask is", tie):
            mask = turned(mask, geometry.orientation)
        return resized(mask, geometry.image_size, geometry.resize, Image.Resampling.NEAREST)


def read_mask(data: bytes, max_pixels: int) -> Image.Image:
    """A mask file as 8-bit grayscale: the indices of a palette (VOC, ADE20K), never its colors; 0 and 1 for one bit.

    Raises:
        RejectError: The file cannot be decoded, is too large, or its values are colors, negative, or larger than 255.
    """
    file = io.BytesIO(data)
    try:
        with decoding(file, max_pixels) as mask:
            check_decodable(mask, file)
            if mask.format in ("JPEG", "MPO"):
                raise RejectError("it is a JPEG, which changes class ids; save it as PNG")
            if mask.mode not in ("1", "L", "P") and not mask.mode.startswith("I"):
                raise RejectError(
                    f"an image of mode {mask.mode}, expected one value per pixel: gray or a palette; replace each "
                    "color by its class id"
                )
            values = np.asarray(mask)
            if values.min(initial=0) < 0 or values.max(initial=0) > 255:
                raise RejectError(f"values up to {values.max()}, expected 0 to 255")
            return Image.fromarray(values.astype(np.uint8))
    except RejectError as error:
        raise RejectError(f"its mask: {error}") from None
