"""COCO's files, read as a stream into arrays (the largest has 450 MB), and looked up by the names of images.

Source: cocodataset.org/#format-data.
"""

from __future__ import annotations

import codecs
import functools
import unicodedata
from array import array
from bisect import bisect_left
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Literal

import numpy as np
import orjson

from beam_jobs import progress
from beam_jobs.columns import Ragged
from beam_jobs.errors import RejectError, UsageError, reason_of
from beam_jobs.jobs.images.annotation_files import file_status, open_annotations
from beam_jobs.jobs.images.boxes import MAX_SIDE, Boxes, MissingError
from beam_jobs.jobs.images.coco_entries import entries, table_entries
from beam_jobs.jobs.images.coco_objects import CocoObject
from beam_jobs.packages import require


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
        rotated: Whether a box states a rotation, bool [boxes].
        details: The segmentation and the keypoints of each box, as JSON; empty objects unless requested.
        keypoint_names: The names of all keypoints.
        caption_starts: Where the captions of each image begin and the last ones end, int64 [n + 1].
        all_captions: The captions of all images.
        unsized: The unit of corners, "fractions" or "pixels", in a table whose sizes do not matter.
        kind: The kind of file, for errors.
        remark: What the unit was taken for; empty if it is stated.
    """

    category_names: tuple[str, ...]
    names: Ragged
    sizes: np.ndarray
    broken: dict[int, str]
    box_starts: np.ndarray
    corners: np.ndarray
    classes: np.ndarray
    crowds: np.ndarray
    rotated: np.ndarray
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
        remarks = (
            self.remark,
            _CROWDS if crowds.any() else "",
            _ROTATED if self.rotated[found].any() else "",
        )
        found = found[~crowds]
        names = tuple(self.category_names[class_] for class_ in self.classes[found].tolist())
        height, width = self.sizes[row].tolist()
        size = None if self.unsized else (height, width)
        return Boxes(self.corners[found], names, size, tuple(filter(None, remarks)))

    @property
    def unused_names(self) -> list[str]:
        """The categories without a box."""
        counts = np.bincount(self.classes, minlength=len(self.category_names))
        return [name for name, count in zip(self.category_names, counts, strict=True) if not count]

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
        name, _, _ = reversed_name(file_name).partition(b"/")
        other, hint = 0, ""
        if alike := self._rows_below(name):
            other, hint = alike[0], ": give --input the folder above"
        # "/" is the character after ".".
        elif alike := self._rows_between(*(name.rpartition(b".")[0] + end for end in (b".", b"/"))):
            other = alike[0]
        known = reversed_name(self.names[other].decode()).decode()
        raise MissingError(f"the {self.kind} has no image of this name; it has {known!r}{hint}")

    def _rows_below(self, name: bytes) -> range:
        """The rows of the names that end with a reversed name, after a folder."""
        # "0" is the character after "/".
        return self._rows_between(name + b"/", name + b"0")

    def _rows_between(self, first: bytes, end: bytes) -> range:
        return range(bisect_left(self.names, first), bisect_left(self.names, end))


def reversed_name(name: str) -> bytes:
    r"""`1.jpg/train` for `train/1.jpg`, and for `train\1.jpg`, as Windows writes it; letters are composed."""
    name = unicodedata.normalize("NFC", name).replace("\\", "/")
    return b"/".join(name.encode(errors="replace").split(b"/")[::-1])


# The unit of corners in a table of boxes.
BoxUnit = Literal["auto", "pixels", "fractions"]

# Tools round fractions, also above 1.
_LARGEST_FRACTION = 1.01

_CROWDS = "its crowds were left out of the boxes"

_ROTATED = "its annotations state a rotation of boxes, which was ignored"


# The fields of objects that are read on request.
_DETAILS = ("segmentation", "keypoints")


def read_coco(path: str, details: bool = False) -> CocoAnnotations:
    """Reads a file of instances or captions once, from its start to its end.

    Args:
        path: The file.
        details: Whether to read segmentations and keypoints, which take as much memory as in the file.

    Raises:
        UsageError: The file cannot be read, is not a COCO file, or contradicts itself.
    """
    ijson = require("ijson", "beam", "COCO files")
    lists = _CocoLists(path, details)
    try:
        with open_annotations(path) as file:
            mark = file.read(3)
        if mark[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
            raise UsageError(f"{path}: it is UTF-16, save it as UTF-8")
        with open_annotations(path) as file:
            file.read(3 if mark == codecs.BOM_UTF8 else 0)
            for section, entry in entries(
                ijson.basic_parse(file, use_float=True), _DETAILS * details
            ):
                lists.add(section, entry)
    except (OSError, RejectError) as error:
        raise UsageError(f"{path}: cannot be read: {reason_of(error)}") from None
    # Some backends of ijson pass on the errors of Python's own parser.
    except (ijson.JSONError, ValueError) as error:
        raise UsageError(f"{path}: not JSON: {_reason(error)}") from None
    return lists.annotations()


def _reason(error: Exception) -> str:
    """The message of ijson, which shows the place on a second line."""
    message = error.args[0] if error.args else ""
    if isinstance(message, bytes):
        message = message.decode("utf-8", "replace")
    return " ".join(str(message).replace("(right here) ------^", "").split())[:200]


def read_table(path: str, unit: BoxUnit = "auto") -> CocoAnnotations:
    """Reads a table with a row for each box; classes are in sorted order.

    Args:
        path: The file.
        unit: The unit of corners; "auto" takes them for fractions if none is above 1.01.

    Raises:
        UsageError: The file cannot be read, or lacks a column.
    """
    lists = _CocoLists(path, details=False)
    for section, entry in table_entries(path):
        lists.add(section, entry)
    found = lists.annotations()
    order = np.argsort(found.category_names)
    written = found.corners * np.tile(np.repeat(found.sizes, np.diff(found.box_starts), axis=0), 2)
    stated = unit
    if unit == "auto":
        unit = "fractions" if written.max(initial=0) <= _LARGEST_FRACTION else "pixels"
    unsized = unit if unit == "fractions" or (found.sizes == 1).all() else ""
    remark = f"the table's corners were taken for {unit}; --box_unit says what they are"
    return replace(
        found,
        category_names=tuple(sorted(found.category_names)),
        classes=np.argsort(order)[found.classes],
        corners=written if unsized else found.corners,
        unsized=unsized,
        kind="table",
        remark=remark if unsized and stated == "auto" else "",
    )


@functools.lru_cache(maxsize=4)
def _read_unchanged(
    path: str, details: bool, table: bool, unit: BoxUnit, _: tuple[int, int] | None
) -> CocoAnnotations:
    with progress.early("reading annotations"):
        return read_table(path, unit) if table else read_coco(path, details)


def coco_file(
    flag: str, path: str, details: bool = False, table: bool = False, unit: BoxUnit = "auto"
) -> CocoAnnotations:
    """The contents of a COCO file or a table of boxes, read again only if the file has changed.

    Arguments and errors as for `read_coco` and `read_table`; errors name the flag.
    """
    try:
        return _read_unchanged(path, details, table, unit, file_status(path))
    except UsageError as error:
        raise UsageError(f"{flag}:{error.message}") from None


class _CocoLists:
    """The lists of a COCO file while it is read, with a few bytes for each entry."""

    def __init__(self, path: str, details: bool) -> None:
        self._path = path
        self._details = details
        self._names: list[bytes] = []
        self._ids, self._sizes = array("q"), array("q")
        self._broken: dict[int, str] = {}  # by the image's id
        self._categories: dict[int, str] = {}
        self._category_ids: dict[str, int] = {}
        self._box_images, self._box_categories = array("q"), array("q")
        self._pixels = array("d")
        self._crowds, self._rotated = array("b"), array("b")
        self._box_details: list[bytes] = []
        self._keypoint_names: tuple[str, ...] = ()
        self._caption_images = array("q")
        self._captions: list[bytes] = []

    def add(self, section: str, entry: dict[str, Any]) -> None:
        """Adds an entry of one of the lists.

        Raises:
            UsageError: A field of the entry is missing or has a wrong type.
        """
        if section == "images":
            self._add_image(entry)
        elif section == "categories":
            self._add_category(entry)
        else:
            self._add_annotation(entry)

    def _error(self, reason: str) -> UsageError:
        return UsageError(f"{self._path}: {reason}")

    def _id(self, entry: dict[str, Any], field: str, what: str) -> int:
        if (id_ := _integer(entry.get(field))) is None:
            raise self._error(f"{what} has {field} {entry.get(field)!r:.80}, expected an integer")
        return id_

    def _name(self, entry: dict[str, Any], field: str, what: str) -> str:
        name = entry.get(field)
        if not isinstance(name, str) or not name:
            raise self._error(f"{what} has {field} {name!r:.80}, expected text")
        return name

    def _add_image(self, entry: dict[str, Any]) -> None:
        image = self._id(entry, "id", "an image")
        name = self._name(entry, "file_name", f"image {image}")
        for side in ("height", "width"):
            pixels = _integer(entry.get(side)) or 0
            if not 0 < pixels < MAX_SIDE:
                reason = f"its annotations give it {side} {entry.get(side)!r:.80}"
                self._broken[image] = f"{reason}, expected a number of pixels"
                pixels = 1
            self._sizes.append(pixels)
        self._ids.append(image)
        self._names.append(reversed_name(name))

    def _add_category(self, entry: dict[str, Any]) -> None:
        category = self._id(entry, "id", "a category")
        name = self._name(entry, "name", f"category {category}")
        if category in self._categories:
            raise self._error(f"two categories have the id {category}")
        if (other := self._category_ids.setdefault(name, category)) != category:
            raise self._error(
                f"the categories {other} and {category} are both {name!r:.80}: rename one, or give them one id"
            )
        self._categories[category] = name
        keypoints = entry.get("keypoints") or []
        if not isinstance(keypoints, list):
            raise self._error(
                f"category {category} has keypoints {keypoints!r:.80}, expected a list"
            )
        if names := tuple(map(str, keypoints)):
            if self._keypoint_names not in ((), names):
                raise self._error(
                    f"category {category} has other keypoints than earlier categories; a dataset "
                    "has one list of keypoints"
                )
            self._keypoint_names = names

    def _add_annotation(self, entry: dict[str, Any]) -> None:
        image = self._id(entry, "image_id", "an annotation")
        if error := entry.get("error"):
            self._broken[image] = error
            return
        bbox, caption = entry.get("bbox"), entry.get("caption")
        if bbox is None and not isinstance(caption, str):
            raise self._error(
                f"an annotation of image {image} has neither a bbox nor a caption: expected a file "
                "of instances or captions"
            )
        if isinstance(caption, str):
            self._caption_images.append(image)
            self._captions.append(caption.encode(errors="replace"))
        if bbox is not None:
            self._box_images.append(image)
            self._box_categories.append(self._id(entry, "category_id", "an annotation"))
            if not _is_box(bbox):
                found = f"its bbox {bbox!r:.80}, expected x, y, width, height in pixels"
                self._broken[image] = (
                    f"annotation {entry['id']}: {found}" if "id" in entry else found
                )
                bbox = (0, 0, 0, 0)
            self._pixels.extend(bbox)
            self._crowds.append(entry.get("iscrowd") in (1, "1"))
            attributes = entry.get("attributes")
            self._rotated.append(isinstance(attributes, dict) and bool(attributes.get("rotation")))
            fields = {name: entry.get(name) for name in ("id", *_DETAILS) * self._details}
            self._box_details.append(orjson.dumps(fields))

    def annotations(self) -> CocoAnnotations:
        """The annotations of all entries, by image.

        Raises:
            UsageError: The file has no images, two have the same id or name, or an annotation names
                an image or a category that does not exist.
        """
        if not self._ids:
            raise self._error("not a COCO file: it has no images")
        order = sorted(range(len(self._names)), key=self._names.__getitem__)
        names = Ragged.of([self._names[image] for image in order])
        ids, sizes = np.array(self._ids)[order], np.array(self._sizes).reshape(-1, 2)[order]
        for before, name in pairwise(names):
            if before == name:
                text = reversed_name(name.decode()).decode()
                raise self._error(f"two images have the file_name {text!r:.80}")
        in_order = np.sort(ids)
        if len(twice := in_order[1:][in_order[1:] == in_order[:-1]]):
            raise self._error(f"two images have the id {twice[0]}")
        box_order, box_rows, box_starts = self._by_image(self._box_images, ids)
        caption_order, _, caption_starts = self._by_image(self._caption_images, ids)
        x, y, width, height = np.array(self._pixels).reshape(-1, 4)[box_order].T
        corners = np.stack((y, x, y + height, x + width), axis=1)
        categories = dict(sorted(self._categories.items()))
        used = self._rows("category", self._box_categories, np.array([*categories], np.int64))
        broken = self._rows("image", array("q", self._broken), ids).tolist()
        return CocoAnnotations(
            category_names=tuple(categories.values()),
            names=names,
            sizes=sizes,
            broken=dict(zip(broken, self._broken.values(), strict=True)),
            box_starts=box_starts,
            corners=corners / np.tile(sizes[box_rows], 2),
            classes=used[box_order],
            crowds=np.array(self._crowds, bool)[box_order],
            rotated=np.array(self._rotated, bool)[box_order],
            details=Ragged.of([self._box_details[number] for number in box_order.tolist()]),
            keypoint_names=self._keypoint_names,
            caption_starts=caption_starts,
            all_captions=Ragged.of([self._captions[number] for number in caption_order.tolist()]),
        )

    def _by_image(
        self, images: array[int], ids: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The order of annotations by image, their images' rows in it, and each row's start."""
        rows = self._rows("image", images, ids)
        order = np.argsort(rows, kind="stable")
        return order, rows[order], np.searchsorted(rows[order], np.arange(len(ids) + 1))

    def _rows(self, what: str, wanted: array[int], ids: np.ndarray) -> np.ndarray:
        """The indices in `ids` of the wanted ids."""
        found = np.array(wanted)
        if len(unknown := found[~np.isin(found, ids)]):
            raise self._error(f"an annotation has {what}_id {unknown[0]}, which no {what} has")
        order = np.argsort(ids)
        return order[np.searchsorted(ids, found, sorter=order)]


def _integer(value: Any) -> int | None:
    """The value as a 64-bit integer, or None; tables of floating-point numbers write 7.0."""
    if type(value) in (int, float) and abs(value) < 2**63 and value == int(value):
        return int(value)
    return None


def _is_box(value: Any) -> bool:
    return (
        isinstance(value, list)
        and len(value) == 4
        and all(type(number) in (int, float) and abs(number) < MAX_SIDE for number in value)
        and min(value[2:]) >= 0
    )
