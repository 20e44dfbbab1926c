"""Boxes of objects in images; moves them when an image is turned upright and resized."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from beam_jobs.errors import RejectError
from beam_jobs.jobs.images.coco_objects import CocoObject

Resize = Literal["stretch", "fit", "crop"]

# The pixels to which annotations refer: those of the file, or of the image after its EXIF rotation;
# "auto" compares the size that an annotation states.
AnnotationsOf = Literal["auto", "stored", "upright"]

# The order of the corners of a box; keypoints have the same axis first.
BoxOrder = Literal["yxyx", "xyxy"]

# Tools round fractions of an image, also above 1.
LARGEST_FRACTION = 1.01

# The limit of a height or width that an annotation gives, in pixels.
MAX_SIDE = 1 << 31

# By EXIF orientation: whether the sides are swapped, then whether y and x are reversed.
_TURNS = {
    2: (False, False, True),
    3: (False, True, True),
    4: (False, True, False),
    5: (True, False, False),
    6: (True, False, True),
    7: (True, True, True),
    8: (True, True, False),
}

_UPRIGHT = (False, False, False)

# Rounding leaves slivers where a box ends at the edge of a crop; no pixel is this small.
_NO_AREA = 1e-6


class MissingError(RejectError):
    """An image lacks an annotation that a flag asks for."""


class Boxes(NamedTuple):
    """The boxes of one image.

    Attributes:
        corners: float64 [n, 4]: y0, x0, y1, x1 as fractions of the height and width of the image
            that was annotated. A box may extend beyond it.
        names: The class names of the n boxes.
        size: The (height, width) of the image in pixels according to the annotation, or None.
        remarks: What was not read, and what was taken for what.
        objects: All objects of a COCO file, crowds included.
    """

    corners: np.ndarray
    names: tuple[str, ...]
    size: tuple[int, int] | None
    remarks: tuple[str, ...] = ()
    objects: Sequence[CocoObject] = ()

    @classmethod
    def of(
        cls,
        boxes: Sequence[tuple[str, Sequence[float]]],
        size: tuple[int, int] | None = None,
        remarks: tuple[str, ...] = (),
        objects: Sequence[CocoObject] = (),
    ) -> Boxes:
        """The boxes of names and corners, which are in pixels if there is a size."""
        corners = np.array([box for _, box in boxes], np.float64).reshape(-1, 4)
        if size:
            corners /= size * 2
        return cls(corners, tuple(name for name, _ in boxes), size, remarks, objects)


def number_of(value: Any) -> float:
    """A finite number, or that of a text; NaN for any other value, such as 1_000, which Python takes for a number."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        return math.nan
    is_text_of_python = isinstance(value, str) and ("_" in value or not value.isascii())
    return number if math.isfinite(number) and not is_text_of_python else math.nan


class Geometry(NamedTuple):
    """Maps points of an image file to points of the image that is written.

    Attributes:
        stored: (height, width) of the file's pixels.
        orientation: The EXIF orientation; any value but 1 to 8 means 1, as in Pillow.
        decoded: (height, width) of the upright image that is resized: smaller than the file's
            if the JPEG decoder has scaled it. The decoder rounds up to whole pixels, which
            moves each point by less than one of them.
        image_size: (height, width) of the image that is written; None if it is not resized.
        resize: How it gets its size.
        about: The pixels to which annotations refer.
    """

    stored: tuple[int, int]
    orientation: int = 1
    decoded: tuple[int, int] = (1, 1)
    image_size: tuple[int, int] | None = None
    resize: Resize = "stretch"
    about: AnnotationsOf = "auto"

    @property
    def upright(self) -> tuple[int, int]:
        """(height, width) of the file's pixels after the EXIF rotation."""
        swapped, _, _ = _TURNS.get(self.orientation, _UPRIGHT)
        return self.stored[::-1] if swapped else self.stored

    @property
    def keeps_size(self) -> bool:
        """Whether the EXIF rotation moves pixels, but leaves the size as it is."""
        return self.orientation in _TURNS and self.upright == self.stored

    @property
    def written(self) -> tuple[int, int]:
        """(height, width) of the image that is written."""
        return self.image_size or self.upright

    @property
    def scale_and_offset(self) -> tuple[tuple[float, float], tuple[float, float]]:
        """Those that map fractions of y and x in the upright image to the image that is written."""
        if not self.image_size or self.resize == "stretch":
            return (1, 1), (0, 0)
        (height, width), (outer_height, outer_width) = self.decoded, self.image_size
        if self.resize == "fit":
            inner, (top, left) = letterbox(self.decoded, self.image_size)
            scale = inner[0] / outer_height, inner[1] / outer_width
            return scale, (top / outer_height, left / outer_width)
        # The fraction of each axis that `PIL.ImageOps.fit` keeps; it cuts at fractions of a pixel.
        ratio = outer_width / outer_height
        kept = min(1.0, width / ratio / height), min(1.0, ratio * height / width)
        scale = 1 / kept[0], 1 / kept[1]
        return scale, ((1 - scale[0]) / 2, (1 - scale[1]) / 2)


def letterbox(
    size: tuple[int, int], image_size: tuple[int, int]
) -> tuple[tuple[int, int], tuple[int, int]]:
    """(height, width) of an image that fits inside another, and its (top, left) there, in pixels.

    Args:
        size: (height, width) of the image.
        image_size: (height, width) of the other image.
    """
    (height, width), (outer_height, outer_width) = size, image_size
    scale = min(outer_width / width, outer_height / height)
    inner = max(1, round(height * scale)), max(1, round(width * scale))
    return inner, ((outer_height - inner[0]) // 2, (outer_width - inner[1]) // 2)


def move_boxes(boxes: Boxes, geometry: Geometry) -> tuple[np.ndarray, np.ndarray]:
    """Moves boxes to the places of their objects in the image that is written.

    Boxes without a size refer to the upright image if `geometry.about` is "auto".

    Returns:
        Corners y0, x0, y1, x1, float32 [m, 4] in 0..1, and their rows in `boxes`, int64 [m]. Boxes
        are clipped to the image, and dropped if nothing is left of them.

    Raises:
        RejectError: The annotation is about an image of another size.
    """
    # Clip first, or a box that extends beyond the image would extend into the borders of "fit".
    inside = np.clip(boxes.corners, 0, 1)
    corners = _moved(inside, boxes.size, geometry, "its boxes are")
    result = np.clip(corners, 0, 1).astype(np.float32)
    kept = np.flatnonzero((result[:, 2:] - result[:, :2] > _NO_AREA).all(axis=1))
    return result[kept], kept


def move_keypoints(
    keypoints: np.ndarray, size: tuple[int, int] | None, geometry: Geometry
) -> np.ndarray:
    """Moves keypoints to their places in the image that is written.

    Args:
        keypoints: y and x as fractions, and visibility, float64 [n, k, 3].
        size: The (height, width) of the annotated image in pixels.
        geometry: The image's geometry.

    Returns:
        The same, float32 [n, k, 3]. Keypoints that are not labelled (visibility 0) or not in the image
        are zeros.

    Raises:
        RejectError: The annotation is about an image of another size.
    """
    points = keypoints[..., :2].reshape(-1, 2)
    moved = _moved(np.tile(points, 2), size, geometry, "its keypoints are")[:, :2]
    both = np.concatenate((points, moved), axis=1)
    result = np.concatenate((moved, keypoints[..., 2].reshape(-1, 1)), axis=1)
    result[((both < 0) | (both > 1)).any(axis=1) | (result[:, 2] <= 0)] = 0
    return result.astype(np.float32).reshape(keypoints.shape)


def in_order(points: np.ndarray, order: BoxOrder) -> np.ndarray:
    """Reorders corners [..., 4] or keypoints [..., 3], which have y first."""
    if order == "yxyx":
        return points
    return points[..., [1, 0, 3, 2] if points.shape[-1] == 4 else [1, 0, 2]]


def is_about_stored(
    size: tuple[int, int] | None,
    geometry: Geometry,
    subject: str,
    if_both_fit: AnnotationsOf = "stored",
) -> bool:
    """Whether an annotation refers to a file's pixels as stored, not to the upright image.

    Args:
        size: The (height, width) of the annotation in pixels; None if it states none.
        geometry: The image's geometry.
        subject: The annotation and its verb in the error, such as "its mask is".
        if_both_fit: The answer if `geometry.about` is "auto" and both have this size.

    Raises:
        RejectError: The annotation is about an image of another size.
    """
    about, stored, upright = geometry.about, geometry.stored, geometry.upright
    if size is None:
        return about == "stored"
    allowed = {"auto": (stored, upright), "stored": (stored,), "upright": (upright,)}[about]
    if size not in allowed:
        sizes = ", upright ".join(f"{height} x {width}" for height, width in dict.fromkeys(allowed))
        who = "the file has" if about == "auto" else f"--annotations_of {about} expects"
        raise RejectError(
            f"{subject} for an image of {size[0]} x {size[1]} pixels (height x width), {who} {sizes}"
        )
    if about == "auto":
        about = if_both_fit if stored == upright else "stored" if size == stored else "upright"
    return about == "stored"


def _moved(
    corners: np.ndarray, size: tuple[int, int] | None, geometry: Geometry, subject: str
) -> np.ndarray:
    """Corners [n, 4], turned as `PIL.ImageOps.exif_transpose` does and resized; arguments as for `is_about_stored`."""
    if is_about_stored(size, geometry, subject):
        swapped, y_reversed, x_reversed = _TURNS.get(geometry.orientation, _UPRIGHT)
        y0, x0, y1, x1 = corners.T
        if swapped:
            y0, x0, y1, x1 = x0, y0, x1, y1
        if y_reversed:
            y0, y1 = 1 - y1, 1 - y0
        if x_reversed:
            x0, x1 = 1 - x1, 1 - x0
        corners = np.stack((y0, x0, y1, x1), axis=1)
    scale, offset = geometry.scale_and_offset
    return corners * (scale * 2) + offset * 2
