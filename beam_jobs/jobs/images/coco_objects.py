"""The objects in an image of a COCO file: their keypoints and masks.

pycocotools makes the masks of polygons, but would take memory or crash for damaged run lengths.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
import orjson

from beam_jobs.errors import RejectError
from beam_jobs.packages import require

# A mask for each object, or one of all classes.
Segmentation = Literal["none", "instances", "semantic"]

# The longest outline of a polygon, in pixels, which takes 100 MB.
_MAX_OUTLINE = 800_000

_MAX_COORDINATE = 1 << 24

# What no text of numbers has: each is up to six characters of five bits, of which all but the last are from P on.
_NO_NUMBERS = re.compile(r"[^0-o]|[P-o]{6}|[P-o]\Z|\A\Z")


class CocoObject(NamedTuple):
    """An object of a COCO file.

    Attributes:
        class_: The index of its class.
        crowd: Whether it stands for many objects.
        details: Its `id`, `segmentation` and `keypoints` as JSON.
    """

    class_: int
    crowd: bool
    details: str


def keypoints_of(objects: Sequence[CocoObject], count: int, size: tuple[int, int]) -> np.ndarray:
    """Keypoints, float64 [n, count, 3]: y and x as fractions, visibility; zeros for an object without any.

    Raises:
        RejectError: The keypoints of an object are not valid.
    """
    rows = [orjson.loads(found.details)["keypoints"] or [0] * 3 * count for found in objects]
    for number, row in enumerate(rows, 1):
        if not (isinstance(row, list) and len(row) == 3 * count and _are_coordinates(row)):
            raise RejectError(
                f"{_name(objects, number)}: its keypoints {row!r:.80}, expected x, y and visibility of {count}"
            )
    return np.array(rows, np.float64).reshape(-1, count, 3)[..., [1, 0, 2]] / (*size, 1)


def object_masks(objects: Sequence[CocoObject], size: tuple[int, int]) -> Iterator[np.ndarray]:
    """Yields the mask of each object, uint8 `size`, 1 inside.

    Raises:
        RejectError: A segmentation is missing or not valid.
    """
    for number, found in enumerate(objects, 1):
        try:
            yield _mask(orjson.loads(found.details)["segmentation"], size)
        except RejectError as error:
            raise RejectError(f"{_name(objects, number)}: {error}") from None


def _name(objects: Sequence[CocoObject], number: int) -> str:
    """The name of the object of a number from 1 on: its id, if it has one."""
    id_ = orjson.loads(objects[number - 1].details).get("id")
    return f"object {number}" if id_ is None else f"annotation {id_}"


def semantic_mask(objects: Sequence[CocoObject], size: tuple[int, int]) -> np.ndarray:
    """The class of each pixel plus 1, uint8 `size`; 0 is background. The smaller object is on top."""
    result, smallest = np.zeros(size, np.uint8), np.full(size, np.iinfo(np.int64).max)
    for found, mask in zip(objects, object_masks(objects, size), strict=True):
        area = np.count_nonzero(mask)
        on_top = (mask != 0) & (area < smallest)
        result[on_top], smallest[on_top] = found.class_ + 1, area
    return result


def _mask(value: Any, size: tuple[int, int]) -> np.ndarray:
    if not value:
        raise RejectError("it has no segmentation")
    if isinstance(value, list):
        mask = np.zeros(size, np.uint8)
        for polygon in value:
            mask |= _polygon_mask(polygon, size)
        return mask
    if not isinstance(value, dict) or value.get("size") != list(size):
        found = value.get("size") if isinstance(value, dict) else value
        raise RejectError(f"its segmentation has size {found!r:.80}, its image {list(size)}")
    counts = value.get("counts")
    if isinstance(counts, str):
        return _filled(_from_text(counts), size)
    # Above 32 bits, a sum could overflow.
    if isinstance(counts, list) and all(type(c) is int and 0 <= c < 1 << 32 for c in counts):
        return _filled(np.array(counts, np.int64), size)
    raise RejectError(f"its counts {counts!r:.80}, expected numbers of pixels")


def _filled(counts: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """The mask of run lengths, alternately outside and inside, column by column."""
    height, width = size
    if counts.min(initial=0) < 0 or counts.sum() != height * width:
        raise RejectError(
            f"its segmentation has runs of {counts.sum()} pixels, its image {height * width}"
        )
    inside = (np.arange(len(counts)) % 2).astype(np.uint8)
    return np.repeat(inside, counts).reshape(width, height).T


def _from_text(text: str) -> np.ndarray:
    """The run lengths in a text of numbers, from the third on as differences."""
    if _NO_NUMBERS.search(text):
        raise RejectError(f"its counts {text!r:.80}, expected pycocotools' text of run lengths")
    codes = np.frombuffer(text.encode(), np.uint8).astype(np.int64) - 48
    ends = np.flatnonzero(codes & 32 == 0)
    lengths = np.diff(ends, prepend=-1)
    starts = ends - lengths + 1
    place = np.arange(len(codes)) - np.repeat(starts, lengths)
    counts = np.add.reduceat((codes & 31) << 5 * place, starts)
    counts -= (codes[ends] & 16 != 0) * (1 << 5 * lengths)
    counts[1::2] = counts[1::2].cumsum()
    counts[2::2] = counts[2::2].cumsum()
    return counts


def _are_coordinates(values: list[Any]) -> bool:
    return all(type(value) in (int, float) and abs(value) < _MAX_COORDINATE for value in values)


def _polygon_mask(polygon: Any, size: tuple[int, int]) -> np.ndarray:
    """The mask of a polygon, uint8 `size`."""
    is_list = isinstance(polygon, list) and len(polygon) >= 6 and not len(polygon) % 2
    if not is_list or not _are_coordinates(polygon):
        raise RejectError(
            f"its polygon {polygon!r:.80}, expected the x and y of 3 or more corners in one list, "
            f"numbers below {_MAX_COORDINATE}"
        )
    points = np.array(polygon, np.float64).reshape(-1, 2)
    outline = abs(points - np.roll(points, -1, axis=0)).max(axis=1).sum()
    if outline > _MAX_OUTLINE:
        raise RejectError(f"its polygon has an outline of {outline:.0f} pixels")
    masks = require("pycocotools.mask", "beam", "polygons of COCO files")
    decoded: np.ndarray = masks.decode(masks.frPyObjects([points.ravel().tolist()], *size))
    return decoded[..., 0]
