"""COCO's files of boxes and captions, read as a stream into arrays: the largest has 450 MB.

Source: cocodataset.org/#format-data.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np

from beam_jobs.errors import UsageError
from beam_jobs.jobs.images.boxes import MAX_SIDE
from beam_jobs.jobs.images.coco import CocoAnnotations, reversed_name
from beam_jobs.packages import require
from beam_jobs.records.ragged import Ragged
from beam_jobs.storage.files import open_file

# The lists of a COCO file, and the fields of their entries that are read.
_SECTIONS = ("images", "annotations", "categories")

_FIELDS = frozenset(
    ("id", "file_name", "height", "width", "image_id", "category_id", "bbox", "iscrowd")
    + ("caption", "name")
)

_OPENS = frozenset(("start_map", "start_array"))

_CLOSES = frozenset(("end_map", "end_array"))


def read_coco(path: str) -> CocoAnnotations:
    """Reads a file of instances or captions once, from its start to its end.

    Raises:
        UsageError: The file cannot be read, is not a COCO file, or contradicts itself.
    """
    ijson = require("ijson", "boxes", "COCO files")
    lists = _CocoLists(path)
    try:
        with open_file(path) as file:
            for section, entry in _entries(ijson.basic_parse(file, use_float=True)):
                lists.add(section, entry)
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error}") from None
    # Some backends of ijson pass on the errors of Python's own parser.
    except (ijson.JSONError, ValueError) as error:
        reason = str(error).partition("\n")[0]
        raise UsageError(f"{path}: not JSON: {reason:.80}") from None
    return lists.annotations()


# Not `ijson.items`: it keeps the path to every value, so that 60 KB of brackets take 2 GB and ten
# times as many all memory; and a pass for each list takes 1.4 times as long as this one.
def _entries(events: Iterator[tuple[str, Any]]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields (section, entry) for each entry of a file's lists; {} if the entry is not an object.

    Args:
        events: The output of `ijson.basic_parse` for a whole file.
    """
    if next(events)[0] != "start_map":
        return
    for event, section in events:
        if event == "end_map":
            continue  # to the end of the file, where ijson rejects a second value
        event, _ = next(events)
        if section not in _SECTIONS or event != "start_array":
            _values(events, event)
            continue
        for event, _ in events:
            if event == "end_array":
                break
            if event == "start_map":
                yield section, _entry(events)
            else:
                _values(events, event)
                yield section, {}


def _entry(events: Iterator[tuple[str, Any]]) -> dict[str, Any]:
    """The fields of an object whose start was read; lists are cut to their first values."""
    entry = {}
    for event, field in events:
        if event == "end_map":
            break
        event, value = next(events)
        values = _values(events, event)
        if field in _FIELDS:
            entry[field] = values if event in _OPENS else value
    return entry


def _values(events: Iterator[tuple[str, Any]], event: str) -> list[Any]:
    """Reads to the end of the value that an event starts; returns the first five values in it."""
    values: list[Any] = []
    if event not in _OPENS:
        return values
    depth = 1
    for event, value in events:
        if event != "number":  # one comparison for the corners of polygons: most of a file
            depth += (event in _OPENS) - (event in _CLOSES)
            if not depth:
                break
        if len(values) < 5:
            values.append(value)
    return values


class _CocoLists:
    """The lists of a COCO file while it is read, with a few bytes for each entry."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._names: list[bytes] = []
        self._ids, self._sizes = array("q"), array("q")
        self._broken: dict[int, str] = {}  # by the image's id
        self._categories: dict[int, str] = {}
        self._box_images, self._box_categories = array("q"), array("q")
        self._pixels = array("d")
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
        elif entry.get("iscrowd") not in (1, "1"):
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
        self._categories[category] = name

    def _add_annotation(self, entry: dict[str, Any]) -> None:
        image = self._id(entry, "image_id", "an annotation")
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
                reason = f"its bbox {bbox!r:.80}, expected x, y, width, height in pixels"
                self._broken[image] = reason
                bbox = (0, 0, 0, 0)
            self._pixels.extend(bbox)

    def annotations(self) -> CocoAnnotations:
        """The annotations of all entries, by image.

        Raises:
            UsageError: There are no images, two have the same id or name, or an annotation names
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
        numbers = {name: number for number, name in enumerate(dict.fromkeys(categories.values()))}
        classes = np.array([numbers[name] for name in categories.values()], np.int64)
        used = self._rows("category", self._box_categories, np.array([*categories], np.int64))
        broken = self._rows("image", array("q", self._broken), ids).tolist()
        return CocoAnnotations(
            category_names=tuple(numbers),
            names=names,
            sizes=sizes,
            broken=dict(zip(broken, self._broken.values(), strict=True)),
            box_starts=box_starts,
            corners=corners / np.tile(sizes[box_rows], 2),
            classes=classes[used][box_order],
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
