"""The boxes, captions, segmentations and keypoints of a COCO file, looked up by the names of images."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass

import numpy as np

from beam_jobs.columns import Ragged
from beam_jobs.errors import RejectError
from beam_jobs.jobs.images.boxes import Boxes, MissingError
from beam_jobs.jobs.images.coco.objects import CocoObject


@dataclass(frozen=True, eq=False)
class CocoAnnotations:
    """The boxes and captions of a COCO file, by image.

    `boxes` leaves out crowds (`iscrowd`): one stands for many objects, which a record cannot
    express. The training scripts of torchvision and Detectron2 leave them out too.

    Attributes:
        category_names: The names in the order of the categories' ids, each once.
        names: The file names of the n images with their parts reversed (`1.jpg/train` for
            `train/1.jpg`), sorted: names that end alike are neighbors.
        sizes: The (height, width) of the images in pixels, int64 [n, 2].
        broken: Why the boxes of an image are not valid, by row.
        box_starts: Where the boxes of each image begin and the last ones end, int64 [n + 1].
        corners: y0, x0, y1, x1 of the boxes as fractions of their image, float64 [boxes, 4].
        classes: The boxes' indices into `category_names`, int64 [boxes].
        crowds: Whether a box is that of a crowd, bool [boxes].
        details: The segmentation and the keypoints of each box, as JSON; empty objects unless asked for.
        keypoint_names: The names of all keypoints.
        caption_starts: Where the captions of each image begin and the last ones end, int64 [n + 1].
        all_captions: The captions of all images.
        unsized: "fractions" or "pixels", which the corners are, in a table that states no sizes.
        kind: The kind of file, for errors.
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

    def boxes(self, file_name: str) -> Boxes:
        """The boxes of an image in the order of the file.

        Args:
            file_name: The image's path. If the file has no image of this name, the image with the
                longest end of this path as its name is meant; or else the only image whose own
                path ends with it.

        Raises:
            RejectError: The file has no such image, gives it no size, or a box is not valid.
        """
        row, found = self._found(file_name)
        found = found[~self.crowds[found]]
        names = tuple(self.category_names[class_] for class_ in self.classes[found].tolist())
        height, width = self.sizes[row].tolist()
        return Boxes(self.corners[found], names, None if self.unsized else (height, width))

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
        """The captions of an image in the order of the file.

        Args:
            file_name: The image's path, looked up as in `boxes`.

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
        stem = (
            file_name[: file_name.rfind(".")] if "." in file_name.rpartition("/")[2] else file_name
        )
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
        hint = ""
        if alike := self._rows_below(reversed_name(file_name).partition(b"/")[0]):
            other = reversed_name(self.names[alike[0]].decode()).decode()
            hint = f"; it has {other!r}, name the folder above with --input"
        raise MissingError(f"the {self.kind} has no image of this name{hint}")

    def _rows_below(self, name: bytes) -> range:
        """The rows of the names that end with a reversed name, after a folder."""
        # "0" is the character after "/".
        return range(bisect_left(self.names, name + b"/"), bisect_left(self.names, name + b"0"))


def reversed_name(name: str) -> bytes:
    """`1.jpg/train` for `train/1.jpg`."""
    return b"/".join(name.encode(errors="replace").split(b"/")[::-1])
