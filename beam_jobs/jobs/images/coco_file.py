"""The images of a COCO file (the largest has 450 MB) or of a table of boxes, with their boxes and captions.

Source: cocodataset.org/#format-data.
"""

from __future__ import annotations

import codecs
import functools
import os
from array import array
from bisect import bisect_left
from collections.abc import Iterable
from itertools import pairwise
from typing import Any, Literal

import ijson
import numpy as np
import orjson

from beam_jobs import progress
from beam_jobs.columns import Ragged
from beam_jobs.errors import RejectError, UsageError, reason_of
from beam_jobs.jobs.images.annotation_files import file_status, open_annotations
from beam_jobs.jobs.images.boxes import LARGEST_FRACTION, MAX_SIDE, Boxes, MissingError
from beam_jobs.jobs.images.coco_entries import entries, is_box, table_entries
from beam_jobs.jobs.images.coco_objects import CocoObject
from beam_jobs.storage.paths import comparable

# The unit of corners in a table of boxes.
BoxUnit = Literal["auto", "pixels", "fractions"]

# The fields of objects that are read on request.
_DETAILS = ("segmentation", "keypoints")

_CROWDS = "its crowds were left out of the boxes"


class CocoFile:
    """The images of a COCO file, or of a table of boxes, by their names.

    `boxes` leaves out crowds (`iscrowd`): one stands for many objects, which a record cannot
    express. The training scripts of torchvision and Detectron2 leave them out too.

    Args:
        where: The flag and the file, for errors.
        lists: (section, entry) of its lists.
        details: Whether objects keep their segmentations and keypoints.

    Attributes:
        names: The file names of the n images with their parts reversed (`1.jpg/train` for
            `train/1.jpg`), sorted: names that end alike are neighbors.
        sizes: The (height, width) of the images in pixels, int64 [n, 2].
        category_names: The names in the order of the categories' ids.
        keypoint_names: The names of all keypoints.
        largest: The largest corner of a box, in the unit of the file.
        unsized: The unit of corners, "fractions" or "pixels", in a table whose sizes do not matter.
        remark: A remark about the unit that was assumed; empty if the file states it.

    Raises:
        UsageError: A field of an entry is missing or has a wrong type, there are no images, two have the same id or
            name, or an annotation names an image or a category that does not exist.
    """

    def __init__(
        self,
        where: str,
        lists: Iterable[tuple[str, dict[str, Any]]],
        details: bool = False,
    ) -> None:
        self._where, self._details = where, details
        self.unsized = self.remark = ""
        self.largest = 0.0
        self.keypoint_names: tuple[str, ...] = ()
        self._categories: dict[int, str] = {}
        self._category_ids: dict[str, int] = {}
        self._used = dict[int, None]()  # categories, in the order of annotations
        self._images: dict[int, tuple[str, list[int]]] = {}  # names and sizes
        self._broken: dict[int, str] = {}  # by the image's id
        # Of captions and objects: the ids of their images, and their JSON, each after a comma. Bytes objects of
        # orjson would take a page of memory each.
        self._owners, self._lengths, self._values = array("q"), array("I"), bytearray()
        add = {
            "images": self._add_image,
            "annotations": self._add_annotation,
            "categories": self._add_category,
        }
        for section, entry in lists:
            add[section](entry)
        self._sort()

    def error(self, reason: str) -> UsageError:
        """The error of the file."""
        return UsageError(f"{self._where}: {reason}")

    def _id(self, entry: dict[str, Any], field: str, what: str) -> int:
        if (id_ := _integer(entry.get(field))) is None:
            raise self.error(f"{what} has {field} {entry.get(field)!r:.80}, expected an integer")
        return id_

    def _name(self, entry: dict[str, Any], field: str, what: str) -> str:
        name = entry.get(field)
        if not isinstance(name, str) or not name:
            raise self.error(f"{what} has {field} {name!r:.80}, expected text")
        return name

    def _add_image(self, entry: dict[str, Any]) -> None:
        image = self._id(entry, "id", "an image")
        name = self._name(entry, "file_name", f"image {image}")
        if image in self._images:
            raise self.error(f"two images have the id {image}")
        size = []
        for side in ("height", "width"):
            pixels = _integer(entry.get(side)) or 0
            if not 0 < pixels < MAX_SIDE:
                reason = f"its annotations give it {side} {entry.get(side)!r:.80}"
                self._broken[image] = f"{reason}, expected a number of pixels"
                pixels = 1
            size.append(pixels)
        self._images[image] = reversed_name(name), size

    def _add_category(self, entry: dict[str, Any]) -> None:
        category = self._id(entry, "id", "a category")
        name = self._name(entry, "name", f"category {category}")
        if category in self._categories:
            raise self.error(f"two categories have the id {category}")
        if (other := self._category_ids.setdefault(name, category)) != category:
            raise self.error(
                f"the categories {other} and {category} are both {name!r:.80}: rename one, or give them one id"
            )
        self._categories[category] = name
        keypoints = entry.get("keypoints") or []
        is_list = isinstance(keypoints, list)
        names = tuple(map(str, keypoints)) if is_list else ()
        if not is_list or (names and self.keypoint_names not in ((), names)):
            raise self.error(
                f"category {category} has keypoints {keypoints!r:.80}, expected a list, the same in all "
                "categories"
            )
        self.keypoint_names = names or self.keypoint_names

    def _add_annotation(self, entry: dict[str, Any]) -> None:
        image = self._id(entry, "image_id", "an annotation")
        if error := entry.get("error"):
            self._broken[image] = error
            return
        bbox, caption = entry.get("bbox"), entry.get("caption")
        if isinstance(caption, str):
            self._keep(image, caption.encode(errors="replace").decode())
        elif bbox is None:
            raise self.error(
                f"an annotation of image {image} has neither a bbox nor a caption: expected a file "
                "of instances or captions"
            )
        if bbox is None:
            return
        category = self._id(entry, "category_id", "an annotation")
        self._used[category] = None
        if not is_box(bbox):
            found = f"its bbox {bbox!r:.80}, expected x, y, width, height in pixels"
            self._broken[image] = f"annotation {entry['id']}: {found}" if "id" in entry else found
            bbox = [0] * 4
        self.largest = max(self.largest, bbox[0] + bbox[2], bbox[1] + bbox[3])
        fields = {name: entry.get(name) for name in ("id", *_DETAILS) * self._details}
        details = orjson.dumps(fields).decode()
        self._keep(image, [category, entry.get("iscrowd") in (1, "1"), *bbox, details])

    def _keep(self, image: int, value: str | list[Any]) -> None:
        """Keeps a caption, or an object."""
        text = b"," + orjson.dumps(value)
        self._owners.append(image)
        self._lengths.append(len(text))
        self._values += text

    def _sort(self) -> None:
        """Sorts the images by name, and the captions and objects by image."""
        if not self._images:
            raise self.error("not a COCO file: it has no images")
        ids = sorted(self._images, key=self._images.__getitem__)
        rows = {image: row for row, image in enumerate(ids)}
        self.names = [self._images[image][0] for image in ids]
        self.sizes = np.array([self._images[image][1] for image in ids])
        for before, name in pairwise(self.names):
            if before == name:
                raise self.error(f"two images have the file_name {reversed_name(name)!r:.80}")
        try:
            owners = np.fromiter(map(rows.__getitem__, self._owners), np.int64)
        except KeyError as unknown:
            raise self.error(f"an annotation has image_id {unknown}, which no image has") from None
        if unknown_categories := [id_ for id_ in self._used if id_ not in self._categories]:
            raise self.error(
                f"an annotation has category_id {unknown_categories[0]}, which no category has"
            )
        order = np.argsort(owners, kind="stable")
        values = Ragged(np.array(self._lengths), bytes(self._values)).take(order)
        ends = np.concatenate(([0], values.ends))
        self._text = values.data
        self._starts = ends[np.searchsorted(owners[order], np.arange(len(ids) + 1))]
        self._broken = {rows[image]: error for image, error in self._broken.items()}
        categories = dict(sorted(self._categories.items()))
        self.category_names = tuple(categories.values())
        self._classes = {category: class_ for class_, category in enumerate(categories)}
        del self._images, self._owners, self._lengths, self._values

    def boxes(self, file_name: str) -> Boxes:
        """The boxes of an image in the order of the file.

        Args:
            file_name: The image's path. If the file has no image of this name, the image with the
                longest end of this path as its name is taken; or else the only image whose path
                ends with it.

        Raises:
            RejectError: The file has no such image, gives it no size, or a box is not valid.
        """
        row = self.row(file_name)
        if row in self._broken:
            raise RejectError(self._broken[row])
        boxes, objects = [], []
        for value in self._values_of(row):
            if isinstance(value, list):
                category, crowd, x, y, width, height, details = value
                class_ = self._classes[category]
                objects.append(CocoObject(class_, crowd, details))
                if not crowd:
                    box = y, x, y + height, x + width
                    boxes.append((self.category_names[class_], box))
        remarks = self.remark, _CROWDS if len(boxes) < len(objects) else ""
        size = None if self.unsized else tuple(self.sizes[row].tolist())
        return Boxes.of(boxes, size, tuple(filter(None, remarks)), objects)

    def captions(self, file_name: str) -> tuple[str, ...]:
        """The captions of an image, looked up as in `boxes`, in the order of the file.

        Raises:
            RejectError: The file has no such image.
        """
        values = self._values_of(self.row(file_name))
        return tuple(value for value in values if isinstance(value, str))

    def _values_of(self, row: int) -> list[Any]:
        start, end = self._starts[row : row + 2].tolist()
        found: list[Any] = orjson.loads(b"[%b]" % self._text[start + 1 : end])
        return found

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
                start = start.rpartition("/")[0]
            longer = self._rows_below(name)
            if len(longer) == 1:
                return longer[0]
        name, _, _ = reversed_name(file_name).partition("/")
        alike = self._rows_below(name) or [0]
        known = self.names[alike[0]]
        hint = ": give --input the folder above" if known.startswith(name + "/") else ""
        kind = "table" if self._where.startswith("--boxes csv") else "COCO file"
        raise MissingError(
            f"the {kind} has no image of this name; it has {reversed_name(known)!r}{hint}"
        )

    def _rows_below(self, name: str) -> range:
        """The rows of the names that end with a reversed name, after a folder."""
        # "0" is the character after "/".
        return range(bisect_left(self.names, name + "/"), bisect_left(self.names, name + "0"))


def reversed_name(name: str) -> str:
    """`1.jpg/train` for `train/1.jpg`, in its `comparable` form."""
    return "/".join(reversed(comparable(name).split("/")))


def _integer(value: Any) -> int | None:
    """The value as a 64-bit integer, or None; tables of floating-point numbers write 7.0."""
    if type(value) in (int, float) and abs(value) < 2**63 and value == int(value):
        return int(value)
    return None


def read_coco(flag: str, path: str, details: bool = False, unit: BoxUnit = "auto") -> CocoFile:
    """Reads a COCO file or a table of boxes once, from its start to its end.

    Args:
        flag: The flag and the format, such as "--boxes csv".
        path: The file.
        details: Whether to read segmentations and keypoints, which take as much memory as in the file.
        unit: The unit of corners in a table; "auto" takes them for fractions if none is above 1.01.

    Raises:
        UsageError: The file cannot be read, is not a COCO file, lacks a column, or contradicts itself.
    """
    where = f"{flag}:{path}"
    if flag == "--boxes csv":
        return _read_table(where, path, unit)
    try:
        with open_annotations(path) as file:
            mark = file.read(3)
        with open_annotations(path) as file:
            file.read(3 if mark == codecs.BOM_UTF8 else 0)
            return CocoFile(where, entries(file, _DETAILS * details), details)
    except (OSError, RejectError) as error:
        raise UsageError(f"{where}: cannot be read: {reason_of(error)}") from None
    # Some backends of ijson pass on the errors of Python's own parser.
    except (ijson.JSONError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise UsageError(f"{where}: not JSON: {reason:.200}") from None


def _read_table(where: str, path: str, unit: BoxUnit) -> CocoFile:
    found = CocoFile(where, table_entries(where, path))
    remark = ""
    if unit == "auto":
        unit = "fractions" if found.largest <= LARGEST_FRACTION else "pixels"
        remark = f"the table's corners were taken for {unit}; --box_unit says what they are"
    if unit == "fractions" or (found.sizes == 1).all():
        found.unsized, found.remark = unit, remark
    return found


def coco_file(flag: str, path: str, details: bool = False, unit: BoxUnit = "auto") -> CocoFile:
    """What `read_coco` returns; the file is read again only if it has changed."""
    return _read_unchanged(flag, path, details, unit, file_status(path))


@functools.lru_cache(maxsize=4)
def _read_unchanged(
    flag: str, path: str, details: bool, unit: BoxUnit, _: tuple[int, int] | None
) -> CocoFile:
    with progress.early("reading annotations"):
        return read_coco(flag, path, details, unit)
