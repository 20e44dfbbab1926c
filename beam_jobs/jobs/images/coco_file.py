"""Reads COCO's files as a stream into arrays (the largest has 450 MB), and tables of boxes like them.

Source: cocodataset.org/#format-data.
"""

from __future__ import annotations

import codecs
import functools
from array import array
from dataclasses import replace
from itertools import pairwise
from typing import Any, Literal

import ijson
import numpy as np
import orjson

from beam_jobs import progress
from beam_jobs.columns import Ragged
from beam_jobs.errors import RejectError, UsageError, reason_of
from beam_jobs.jobs.images.annotation_files import file_status, open_annotations
from beam_jobs.jobs.images.boxes import LARGEST_FRACTION, MAX_SIDE
from beam_jobs.jobs.images.coco_entries import entries, table_entries
from beam_jobs.jobs.images.coco_objects import CocoAnnotations, reversed_name

# The unit of corners in a table of boxes.
BoxUnit = Literal["auto", "pixels", "fractions"]


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
    lists = _CocoLists(path, details)
    try:
        with open_annotations(path) as file:
            mark = file.read(3)
        with open_annotations(path) as file:
            file.read(3 if mark == codecs.BOM_UTF8 else 0)
            for section, entry in entries(file, _DETAILS * details):
                lists.add(section, entry)
    except (OSError, RejectError) as error:
        raise UsageError(f"{path}: cannot be read: {reason_of(error)}") from None
    # Some backends of ijson pass on the errors of Python's own parser.
    except (ijson.JSONError, ValueError) as error:
        raise UsageError(f"{path}: not JSON: {' '.join(str(error).split()):.200}") from None
    return lists.annotations()


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
    written, stated = found.pixels, unit
    if unit == "auto":
        unit = "fractions" if written.max(initial=0) <= LARGEST_FRACTION else "pixels"
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
        self._crowds = array("b")
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
        is_list = isinstance(keypoints, list)
        names = tuple(map(str, keypoints)) if is_list else ()
        if not is_list or (names and self._keypoint_names not in ((), names)):
            raise self._error(
                f"category {category} has keypoints {keypoints!r:.80}, expected a list, the same in all "
                "categories"
            )
        self._keypoint_names = names or self._keypoint_names

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
