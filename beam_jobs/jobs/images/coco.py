"""COCO's files of boxes and captions, read as a stream into arrays: the largest has 450 MB.

Source: cocodataset.org/#format-data.
"""

from __future__ import annotations

import itertools
from array import array
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from beam_jobs.errors import RejectError, UsageError
from beam_jobs.jobs.images.boxes import Boxes
from beam_jobs.packages import require
from beam_jobs.records.ragged import Ragged
from beam_jobs.storage.files import open_file

_MAX_SIDE = 1 << 31  # in pixels


@dataclass(frozen=True, eq=False)
class CocoAnnotations:
    """The boxes and captions of a COCO file by picture (cocodataset.org/#format-data).

    Boxes of crowds (`iscrowd`) are left out: one stands for many objects, and a record has no place
    to say so. The training scripts of torchvision and Detectron2 leave them out too.

    Attributes:
        category_names: In the order of the categories' ids, each name once.
        files: The names of the n pictures.
        by_name: The order of their names, int64 [n].
        by_base: The order of what follows the last slash in their names, int64 [n].
        sizes: Their (height, width) in pixels, int64 [n, 2].
        broken: By picture, why its boxes cannot be had.
        box_starts: Where the boxes of each picture begin and the last ones end, int64 [n + 1].
        corners: y0, x0, y1, x1 in shares of the picture, float64 [boxes, 4].
        classes: Of the boxes: places in `category_names`, int64 [boxes].
        text_starts: As `box_starts`, of captions.
        texts: The captions.
    """

    category_names: tuple[str, ...]
    files: Ragged
    by_name: np.ndarray
    by_base: np.ndarray
    sizes: np.ndarray
    broken: dict[int, str]
    box_starts: np.ndarray
    corners: np.ndarray
    classes: np.ndarray
    text_starts: np.ndarray
    texts: Ragged

    @classmethod
    def read(cls, path: str) -> CocoAnnotations:
        """What a file of instances or captions holds, read once from its front to its end.

        Raises:
            UsageError: It cannot be read, is no COCO file, or contradicts itself.
        """
        ijson = require("ijson", "boxes", "COCO files")
        lists = _CocoLists(path)
        try:
            with open_file(path) as file:
                for section, entry in _entries(ijson.basic_parse(file, use_float=True)):
                    lists.add(section, entry)
        except OSError as error:
            raise UsageError(f"{path}: cannot be read: {error}") from None
        # Some of its backends let errors of Python's own parser through.
        except (ijson.JSONError, ValueError) as error:
            reason = str(error).partition("\n")[0]
            raise UsageError(f"{path}: not JSON to its end: {reason:.80}") from None
        return lists.joined()

    def boxes(self, file_name: str) -> Boxes | None:
        """The boxes of a picture in the order of the file, or None if it has no such picture.

        Args:
            file_name: Of the picture. Where the file does not have it, the picture is meant that
                has the longest end of its path for a name; or the only one whose own path ends so.

        Raises:
            RejectError: The file has no size for the picture, or a box of it is none.
        """
        if (row := self._row(file_name)) is None:
            return None
        if row in self.broken:
            raise RejectError(self.broken[row])
        found = slice(self.box_starts[row], self.box_starts[row + 1])
        names = tuple(self.category_names[class_] for class_ in self.classes[found].tolist())
        height, width = self.sizes[row].tolist()
        return Boxes(self.corners[found], names, (height, width))

    def captions(self, file_name: str) -> tuple[str, ...] | None:
        """The captions of a picture in the order of the file, or None if it has no such picture.

        Args:
            file_name: As for `boxes`.
        """
        if (row := self._row(file_name)) is None:
            return None
        found = range(self.text_starts[row], self.text_starts[row + 1])
        return tuple(self.texts[caption].decode() for caption in found)

    def _row(self, file_name: str) -> int | None:
        name = file_name.encode(errors="replace")
        suffix = name
        while True:
            at = bisect_left(self.by_name, suffix, key=self.files.__getitem__)
            if at < len(self.files) and self.files[self.by_name[at]] == suffix:
                return int(self.by_name[at])
            _, slash, suffix = suffix.partition(b"/")
            if not slash:
                break
        same = [row for row in self._called_alike(name) if self.files[row].endswith(b"/" + name)]
        return same[0] if len(same) == 1 else None

    def called_alike(self, file_name: str) -> str:
        """The file_name of a picture in another folder; empty if there is none."""
        rows = self._called_alike(file_name.encode(errors="replace"))
        return next((self.files[row].decode() for row in rows), "")

    def _called_alike(self, name: bytes) -> Iterator[int]:
        """Yields the rows of pictures whose name is the same after the last slash."""
        base = _base(name)
        at = bisect_left(self.by_base, base, key=self._base_of)
        return itertools.takewhile(
            lambda row: self._base_of(row) == base,
            map(int, itertools.islice(self.by_base, at, None)),
        )

    def _base_of(self, row: int) -> bytes:
        return _base(self.files[row])


def _base(name: bytes) -> bytes:
    return name.rsplit(b"/", 1)[-1]


# The lists of a COCO file, and what is taken of their entries.
_SECTIONS = ("images", "annotations", "categories")

_FIELDS = frozenset(
    ("id", "file_name", "height", "width", "image_id", "category_id", "bbox", "iscrowd")
    + ("caption", "name")
)

_OPENS = frozenset(("start_map", "start_array"))

_CLOSES = frozenset(("end_map", "end_array"))


# Not `ijson.items`: it keeps the path to every value, so that 400 KB of brackets take all memory,
# and each of the lists would need a pass of its own.
def _entries(events: Iterator[tuple[str, Any]]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields each entry of a file's lists after the name of its list; {} where it is no object.

    Args:
        events: As `ijson.basic_parse` yields them, of a whole file.
    """
    if next(events)[0] != "start_map":
        return
    for event, section in events:
        if event == "end_map":
            continue  # to the end of the file: more than one value is no JSON
        event, _ = next(events)
        if section not in _SECTIONS or event != "start_array":
            _rest(events, event)
            continue
        for event, _ in events:
            if event == "end_array":
                break
            if event == "start_map":
                yield section, _entry(events)
            else:
                _rest(events, event)
                yield section, {}


def _entry(events: Iterator[tuple[str, Any]]) -> dict[str, Any]:
    """The fields of an object that is open; lists are cut to their first values."""
    entry = {}
    for event, field in events:
        if event == "end_map":
            break
        event, value = next(events)
        values = _rest(events, event)
        if field in _FIELDS:
            entry[field] = values if event in _OPENS else value
    return entry


def _rest(events: Iterator[tuple[str, Any]], event: str) -> list[Any]:
    """The first five values of what an event opens, all of which is taken from the events."""
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
    """The lists of a COCO file while it is read, in a few bytes for each entry."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.files: list[bytes] = []
        self.ids, self.sizes = array("q"), array("q")
        self.broken: dict[int, str] = {}  # by the picture's id
        self.categories: dict[int, str] = {}
        self.box_images, self.box_categories = array("q"), array("q")
        self.pixels = array("d")
        self.text_images, self.text_lengths = array("q"), array("I")
        self.text = bytearray()

    def add(self, section: str, entry: dict[str, Any]) -> None:
        """Takes an entry of one of the lists.

        Raises:
            UsageError: It is not what COCO says it is.
        """
        if section == "images":
            self._add_image(entry)
        elif section == "categories":
            self._add_category(entry)
        elif entry.get("iscrowd") not in (1, "1"):
            self._add_annotation(entry)

    def _id(self, entry: dict[str, Any], field: str, what: str) -> int:
        if (id_ := _integer(entry.get(field))) is None:
            raise UsageError(
                f"{self.path}: {what} has {field} {entry.get(field)!r:.80}, expected an integer"
            )
        return id_

    def _add_image(self, entry: dict[str, Any]) -> None:
        image, name = self._id(entry, "id", "an image"), entry.get("file_name")
        if not isinstance(name, str) or not name:
            raise UsageError(
                f"{self.path}: image {image} has file_name {name!r:.80}, expected text"
            )
        for side in ("height", "width"):
            pixels = _integer(entry.get(side)) or 0
            if not 0 < pixels < _MAX_SIDE:
                found = f"its annotations give it {side} {entry.get(side)!r:.80}"
                self.broken[image] = f"{found}, expected a number of pixels"
                pixels = 1
            self.sizes.append(pixels)
        self.ids.append(image)
        self.files.append(name.encode(errors="replace"))

    def _add_category(self, entry: dict[str, Any]) -> None:
        category, name = self._id(entry, "id", "a category"), entry.get("name")
        if not isinstance(name, str) or not name:
            raise UsageError(
                f"{self.path}: category {category} has name {name!r:.80}, expected text"
            )
        if category in self.categories:
            raise UsageError(f"{self.path}: two categories have the id {category}")
        self.categories[category] = name

    def _add_annotation(self, entry: dict[str, Any]) -> None:
        image = self._id(entry, "image_id", "an annotation")
        bbox, caption = entry.get("bbox"), entry.get("caption")
        if bbox is None and not isinstance(caption, str):
            raise UsageError(
                f"{self.path}: an annotation of image {image} has neither a bbox nor a caption: "
                "expected a file of instances or captions"
            )
        if isinstance(caption, str):
            text = caption.encode(errors="replace")
            self.text_images.append(image)
            self.text_lengths.append(len(text))
            self.text += text
        if bbox is not None:
            self.box_images.append(image)
            self.box_categories.append(self._id(entry, "category_id", "an annotation"))
            if not _is_box(bbox):
                self.broken[image] = (
                    f"its bbox {bbox!r:.80}, expected x, y, width, height in pixels"
                )
                bbox = (0, 0, 0, 0)
            self.pixels.extend(bbox)

    def joined(self) -> CocoAnnotations:
        """The annotations by picture.

        Raises:
            UsageError: There are no images, two of one id or name, or some that are missing.
        """
        if not self.ids:
            raise UsageError(f"{self.path}: no COCO file: it has no images")
        order = np.argsort(np.array(self.ids), kind="stable")
        ids = np.array(self.ids)[order]
        if len(twice := ids[1:][ids[1:] == ids[:-1]]):
            raise UsageError(f"{self.path}: two images have the id {twice[0]}")
        files = [self.files[row] for row in order.tolist()]
        by_name = sorted(range(len(files)), key=files.__getitem__)
        for before, row in pairwise(by_name):
            if files[before] == files[row]:
                name = files[row].decode()
                raise UsageError(f"{self.path}: two images have the file_name {name!r:.80}")
        bases = list(map(_base, files))
        sizes = np.array(self.sizes).reshape(-1, 2)[order]
        box_order, box_images, box_starts = self._by_image(self.box_images, ids)
        text_order, _, text_starts = self._by_image(self.text_images, ids)
        x, y, width, height = np.array(self.pixels).reshape(-1, 4)[box_order].T
        corners = np.stack((y, x, y + height, x + width), axis=1)
        categories = sorted(self.categories)
        by_id = [self.categories[category] for category in categories]
        names = {name: place for place, name in enumerate(dict.fromkeys(by_id))}
        classes = np.array([names[name] for name in by_id], np.int64)
        used = self._places("category", self.box_categories, np.array(categories, np.int64))
        return CocoAnnotations(
            category_names=tuple(names),
            files=Ragged.of(files),
            by_name=np.array(by_name),
            by_base=np.array(sorted(range(len(files)), key=bases.__getitem__)),
            sizes=sizes,
            broken={int(np.searchsorted(ids, image)): why for image, why in self.broken.items()},
            box_starts=box_starts,
            corners=corners / np.tile(sizes[box_images], 2),
            classes=classes[used][box_order],
            text_starts=text_starts,
            texts=Ragged(np.array(self.text_lengths), bytes(self.text)).take(text_order),
        )

    def _by_image(
        self, images: array[int], ids: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The order by image of annotations, their images' rows in it, and where each row starts."""
        rows = self._places("image", images, ids)
        order = np.argsort(rows, kind="stable")
        return order, rows[order], np.searchsorted(rows[order], np.arange(len(ids) + 1))

    def _places(self, what: str, wanted: array[int], ids: np.ndarray) -> np.ndarray:
        """Where ids stand among all of a kind, which are sorted."""
        found = np.array(wanted)
        if len(unknown := found[~np.isin(found, ids)]):
            raise UsageError(
                f"{self.path}: an annotation has {what}_id {unknown[0]}, which no {what} has"
            )
        return np.searchsorted(ids, found)


def _integer(value: Any) -> int | None:
    """An integer of 64 bits, None where it is none; tables of floating-point numbers write 7.0."""
    if type(value) in (int, float) and abs(value) < 2**63 and value == int(value):
        return int(value)
    return None


def _is_box(value: Any) -> bool:
    return (
        isinstance(value, list)
        and len(value) == 4
        and all(type(number) in (int, float) and abs(number) < _MAX_SIDE for number in value)
        and min(value[2:]) >= 0
    )
