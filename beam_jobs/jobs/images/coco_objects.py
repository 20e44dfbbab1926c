"""The annotations of images in a COCO file, by the images' names: boxes, captions, keypoints, and masks.

pycocotools makes the masks of polygons, but would take memory or crash for damaged run lengths.
"""

from __future__ import annotations

import os
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import orjson

from beam_jobs.columns import Ragged
from beam_jobs.errors import RejectError
from beam_jobs.jobs.images.boxes import Boxes, MissingError
from beam_jobs.packages import require
from beam_jobs.storage.paths import comparable

# A mask for each object, or one of all classes.
Segmentation = Literal["none", "instances", "semantic"]

# The longest outline of a polygon, in pixels, which takes 100 MB.
_MAX_OUTLINE = 800_000

_MAX_COORDINATE = 1 << 24

# Six characters of five bits hold any number of pixels.
_MAX_CHARACTERS = 6


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


_CROWDS = "its crowds were left out of the boxes"


@dataclass(frozen=True, eq=False)
class CocoAnnotations:
    """The boxes and captions of a COCO file, by image.

    `boxes` leaves out crowds (`iscrowd`): one stands for many objects, which a record cannot
    express. The training scripts of torchvision and Detectron2 leave them out too.

    Attributes:
        category_names: The names in the order of the categories' ids.
        names: The file names of the n images with their parts reversed (`1.jpg/train` for
            `train/1.jpg`), sorted: names that end alike are neighbors.
        sizes: The (height, width) of the images in pixels, int64 [n, 2].
        broken: Why the boxes of an image are not valid, by row.
        box_starts: Where the boxes of each image begin and the last ones end, int64 [n + 1].
        corners: y0, x0, y1, x1 of the boxes as fractions of their image, float64 [boxes, 4].
        classes: The boxes' indices into `category_names`, int64 [boxes].
        crowds: Whether a box is that of a crowd, bool [boxes].
        details: The segmentation and the keypoints of each box, as JSON; empty objects unless requested.
        keypoint_names: The names of all keypoints.
        caption_starts: Where the captions of each image begin and the last ones end, int64 [n + 1].
        all_captions: The captions of all images.
        unsized: The unit of corners, "fractions" or "pixels", in a table whose sizes do not matter.
        kind: The kind of file, for errors.
        remark: A remark about the unit that was assumed; empty if the file states it.
    """

    category_names: tuple[str, ...]
    names: Ragged
    sizes: np.ndarray
    broken: dict[int, str]
    box_starts: np.ndarray
    corners: np.ndarray
    classes: np.ndarray
    crowds: np.ndarray
    details: Ragged
    keypoint_names: tuple[str, ...]
    caption_starts: np.ndarray
    all_captions: Ragged
    unsized: str = ""
    kind: str = "COCO file"
    remark: str = ""

    def boxes(self, file_name: str) -> Boxes:
        """The boxes of an image in the order of the file.

        Args:
            file_name: The image's path. If the file has no image of this name, the image with the
                longest end of this path as its name is taken; or else the only image whose path
                ends with it.

        Raises:
            RejectError: The file has no such image, gives it no size, or a box is not valid.
        """
        row, found = self._found(file_name)
        crowds = self.crowds[found]
        remarks = self.remark, _CROWDS if crowds.any() else ""
        found = found[~crowds]
        names = tuple(self.category_names[class_] for class_ in self.classes[found].tolist())
        height, width = self.sizes[row].tolist()
        size = None if self.unsized else (height, width)
        return Boxes(self.corners[found], names, size, tuple(filter(None, remarks)))

    @property
    def pixels(self) -> np.ndarray:
        """The corners of all boxes in the unit of the file, float64 [boxes, 4]."""
        sizes = np.repeat(self.sizes, np.diff(self.box_starts), axis=0)
        return self.corners * np.tile(sizes, 2)

    def objects(self, file_name: str) -> list[CocoObject]:
        """All objects of an image, crowds included; arguments and errors as for `boxes`."""
        _, found = self._found(file_name)
        columns = self.classes[found].tolist(), self.crowds[found].tolist(), found.tolist()
        return [
            CocoObject(c, crowd, self.details[n].decode())
            for c, crowd, n in zip(*columns, strict=True)
        ]

    def _found(self, file_name: str) -> tuple[int, np.ndarray]:
        """The row of an image, and the numbers of its boxes."""
        row = self.row(file_name)
        if row in self.broken:
            raise RejectError(self.broken[row])
        return row, np.arange(self.box_starts[row], self.box_starts[row + 1])

    def captions(self, file_name: str) -> tuple[str, ...]:
        """The captions of an image, looked up as in `boxes`, in the order of the file.

        Raises:
            RejectError: The file has no such image.
        """
        row = self.row(file_name)
        found = range(self.caption_starts[row], self.caption_starts[row + 1])
        return tuple(self.all_captions[number].decode() for number in found)

    def row(self, file_name: str) -> int:
        """The number of an image in `names`, looked up as in `boxes`.

        Raises:
            MissingError: The file has no such image.
        """
        stem, _ = os.path.splitext(file_name)
        for name in (reversed_name(file_name), reversed_name(stem)):  # Some tables name the stems.
            start = name
            while start:
                row = bisect_left(self.names, start)
                if row < len(self.names) and self.names[row] == start:
                    return row
                start = start.rpartition(b"/")[0]
            longer = self._rows_below(name)
            if len(longer) == 1:
                return longer[0]
        name, _, _ = reversed_name(file_name).partition(b"/")
        alike = self._rows_below(name) or [0]
        known = self.names[alike[0]]
        hint = ": give --input the folder above" if known.startswith(name + b"/") else ""
        raise MissingError(
            f"the {self.kind} has no image of this name; it has {reversed_name(known.decode()).decode()!r}{hint}"
        )

    def _rows_below(self, name: bytes) -> range:
        """The rows of the names that end with a reversed name, after a folder."""
        # "0" is the character after "/".
        return range(bisect_left(self.names, name + b"/"), bisect_left(self.names, name + b"0"))


def reversed_name(name: str) -> bytes:
    """`1.jpg/train` for `train/1.jpg`, in its `comparable` form."""
    return b"/".join(comparable(name).encode(errors="replace").split(b"/")[::-1])


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
            mask |= _polygon_mask(_points(polygon), size)
        return mask
    if not isinstance(value, dict) or value.get("size") != list(size):
        found = value.get("size") if isinstance(value, dict) else value
        raise RejectError(f"its segmentation has size {found!r:.80}, its image {list(size)}")
    counts = value.get("counts")
    return _filled(_from_text(counts) if isinstance(counts, str) else _from_list(counts), size)


def _filled(counts: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """The mask of run lengths, alternately outside and inside, column by column."""
    height, width = size
    if counts.min(initial=0) < 0 or counts.sum() != height * width:
        raise RejectError(
            f"its segmentation has runs of {counts.sum()} pixels, its image {height * width}"
        )
    inside = (np.arange(len(counts)) % 2).astype(np.uint8)
    return np.repeat(inside, counts).reshape(width, height).T


def _from_list(counts: Any) -> np.ndarray:
    # Above 32 bits, a sum could overflow.
    if isinstance(counts, list) and all(type(c) is int and 0 <= c < 1 << 32 for c in counts):
        return np.array(counts, np.int64)
    raise RejectError(f"its counts {counts!r:.80}, expected numbers of pixels")


def _from_text(text: str) -> np.ndarray:
    """The run lengths in a text: five bits a character, from the third on as differences."""
    codes = np.frombuffer(text.encode("utf-8", "replace"), np.uint8).astype(np.int64) - 48
    ends = np.flatnonzero(codes & 32 == 0)
    lengths = np.diff(ends, prepend=-1)
    whole = len(ends) and ends[-1] == len(codes) - 1
    if not whole or (codes >> 6).any() or lengths.max() > _MAX_CHARACTERS:
        raise RejectError(f"its counts {text!r:.80}, expected pycocotools' text of run lengths")
    starts = ends - lengths + 1
    place = np.arange(len(codes)) - np.repeat(starts, lengths)
    counts = np.add.reduceat((codes & 31) << 5 * place, starts)
    counts -= (codes[ends] & 16 != 0) * (1 << 5 * lengths)
    counts[1::2] = counts[1::2].cumsum()
    counts[2::2] = counts[2::2].cumsum()
    return counts


def _are_coordinates(values: list[Any]) -> bool:
    return all(type(value) in (int, float) and abs(value) < _MAX_COORDINATE for value in values)


def _points(polygon: Any) -> np.ndarray:
    """The x and y of a polygon's corners, float64 [k, 2]."""
    is_list = isinstance(polygon, list) and len(polygon) >= 6 and not len(polygon) % 2
    if not is_list or not _are_coordinates(polygon):
        raise RejectError(
            f"its polygon {polygon!r:.80}, expected the x and y of 3 or more corners in one list, "
            f"numbers below {_MAX_COORDINATE}"
        )
    return np.array(polygon, np.float64).reshape(-1, 2)


def _polygon_mask(points: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """The mask of a polygon, uint8 `size`."""
    outline = abs(points - np.roll(points, -1, axis=0)).max(axis=1).sum()
    if outline > _MAX_OUTLINE:
        raise RejectError(f"its polygon has an outline of {outline:.0f} pixels")
    masks = require("pycocotools.mask", "beam", "polygons of COCO files")
    decoded: np.ndarray = masks.decode(masks.frPyObjects([points.ravel().tolist()], *size))
    return decoded[..., 0]
