"""Boxes of objects in pictures, and how they move when a picture is turned upright and resized."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from beam_jobs.errors import RejectError

# By EXIF orientation: whether the sides are swapped, then whether y and x run backwards.
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


class Boxes(NamedTuple):
    """The boxes of one picture.

    Attributes:
        corners: float64 [n, 4]: y0, x0, y1, x1 in shares of the height and width of the picture
            that was annotated. A box may reach beyond it.
        names: Of the n classes.
        size: (height, width) in pixels that the annotation gives the picture, or None.
    """

    corners: np.ndarray
    names: tuple[str, ...]
    size: tuple[int, int] | None


class Geometry(NamedTuple):
    """How a point of a picture file becomes a point of the picture that is written.

    First the EXIF orientation, then on each axis `scale * share + offset`.

    Attributes:
        stored: (height, width) of the file's pixels.
        orientation: As EXIF has it; what is none of 1 to 8 is 1, as for Pillow.
        scale: Of y and x, in shares.
        offset: Of y and x, in shares.
    """

    stored: tuple[int, int]
    orientation: int
    scale: tuple[float, float]
    offset: tuple[float, float]

    @classmethod
    def of(
        cls,
        stored: tuple[int, int],
        orientation: int,
        decoded: tuple[int, int],
        image_size: tuple[int, int] | None,
        resize: str,
    ) -> Geometry:
        """What `ImageJob` does to a picture.

        Args:
            stored: (height, width) of the file's pixels.
            orientation: As EXIF has it.
            decoded: (height, width) of the upright picture that is resized: smaller than the
                file's where the JPEG decoder has scaled it. That rounds up to whole pixels, which
                moves no point by as much as one of them.
            image_size: (height, width) of the result, or None for `decoded`.
            resize: "stretch", "fit" or "crop".
        """
        scale, offset = (1.0, 1.0), (0.0, 0.0)
        if image_size and resize == "fit":
            scale, offset = _letterboxed(decoded, image_size)
        elif image_size and resize == "crop":
            scale, offset = _cropped(decoded, image_size)
        return cls(stored, orientation, scale, offset)


def letterbox(
    size: tuple[int, int], image_size: tuple[int, int]
) -> tuple[tuple[int, int], tuple[int, int]]:
    """(height, width) of a picture that fits inside another, and its (top, left) there, in pixels.

    Args:
        size: (height, width) of the picture.
        image_size: (height, width) of the other.
    """
    (height, width), (outer_height, outer_width) = size, image_size
    scale = min(outer_width / width, outer_height / height)
    inner = max(1, round(height * scale)), max(1, round(width * scale))
    return inner, ((outer_height - inner[0]) // 2, (outer_width - inner[1]) // 2)


def _letterboxed(
    size: tuple[int, int], image_size: tuple[int, int]
) -> tuple[tuple[float, float], tuple[float, float]]:
    inner, place = letterbox(size, image_size)
    height, width = image_size
    return (inner[0] / height, inner[1] / width), (place[0] / height, place[1] / width)


def _cropped(
    size: tuple[int, int], image_size: tuple[int, int]
) -> tuple[tuple[float, float], tuple[float, float]]:
    """Scale and offset of what `PIL.ImageOps.fit` keeps: the largest middle of the right ratio."""
    (height, width), ratio = size, image_size[1] / image_size[0]
    # The share of each axis that is kept; Pillow cuts at fractions of a pixel.
    kept = min(1.0, width / ratio / height), min(1.0, ratio * height / width)
    return (1 / kept[0], 1 / kept[1]), ((1 - 1 / kept[0]) / 2, (1 - 1 / kept[1]) / 2)


def moved(boxes: Boxes, geometry: Geometry) -> tuple[np.ndarray, np.ndarray]:
    """The boxes of the picture that is written, and which of the boxes they are.

    An annotation of the size that the file's pixels have is about those pixels; one of the size of
    the upright picture, or of no size, is about the upright picture.

    Returns:
        Corners y0, x0, y1, x1, float32 [m, 4] in 0..1, and their rows in `boxes`, int64 [m]. Boxes
        end where the picture does; those of which nothing is left are dropped.

    Raises:
        RejectError: The annotation is about a picture of another size.
    """
    # Cut first, or a box that reaches beyond the picture would reach into the borders of "fit".
    corners = np.clip(boxes.corners, 0, 1)
    if is_about_stored(boxes.size, geometry, "its boxes are"):
        corners = _turned(corners, geometry.orientation)
    corners = corners * (geometry.scale * 2) + geometry.offset * 2
    result = np.clip(corners, 0, 1).astype(np.float32)
    kept = np.flatnonzero((result[:, 2:] - result[:, :2] > _NO_AREA).all(axis=1))
    return result[kept], kept


def is_about_stored(size: tuple[int, int] | None, geometry: Geometry, what: str) -> bool:
    """Whether something of a size is about a file's pixels as they are stored, or upright.

    Args:
        size: (height, width) in pixels, or None: then it is about the upright picture.
        geometry: Of the picture.
        what: That is of the size, with its verb, such as "its mask is".

    Raises:
        RejectError: It is about a picture of another size.
    """
    height, width = geometry.stored
    if size is None or size == geometry.stored:
        return size is not None
    swapped, _, _ = _TURNS.get(geometry.orientation, _UPRIGHT)
    if swapped and size == (width, height):
        return False
    turned = f", upright {width} x {height}" if swapped else ""
    raise RejectError(
        f"{what} for a picture of {size[0]} x {size[1]} pixels (height x width), "
        f"the file has {height} x {width}{turned}"
    )


def _turned(corners: np.ndarray, orientation: int) -> np.ndarray:
    """Corners [n, 4] in the picture that `PIL.ImageOps.exif_transpose` makes."""
    swapped, y_backwards, x_backwards = _TURNS.get(orientation, _UPRIGHT)
    y0, x0, y1, x1 = corners.T
    if swapped:
        y0, x0, y1, x1 = x0, y0, x1, y1
    if y_backwards:
        y0, y1 = 1 - y1, 1 - y0
    if x_backwards:
        x0, x1 = 1 - x1, 1 - x0
    return np.stack((y0, x0, y1, x1), axis=1)
