"""Reads the boxes of one image from files of Pascal VOC and YOLO, and class names from files."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any, Literal
from xml.etree import ElementTree

import numpy as np

from beam_jobs.errors import RejectError, UsageError
from beam_jobs.jobs.images.boxes import LARGEST_FRACTION, MAX_SIDE, Boxes, number_of
from beam_jobs.packages import require

# The limit of one annotation file or file of class names: room for ten thousand objects. A tree of
# XML can take 40 times the memory of its text.
MAX_BYTES = 4 << 20

_SIDES = ("ymin", "xmin", "ymax", "xmax")

# How far outside 0..1 Ultralytics accepts a fraction, because other tools round.
_TOLERANCE = 0.01

_MAX_CLASS = 1 << 31

# What lines of more than five values in YOLO files are; "auto" looks at the first files.
YoloLines = Literal["auto", "polygons", "poses"]

_TAKEN = "its lines of more than five values were taken for {}; --yolo_lines says what they are"

# How many lines show what all are, and the share of them whose box has to hold its keypoints.
_LINES_CHECKED, _SHARE = 1000, 0.9


def text_lines(data: bytes) -> list[str]:
    """The lines of a text file.

    Raises:
        RejectError: It is not UTF-8.
    """
    try:
        return data.decode("utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        raise RejectError(f"not UTF-8: {error}") from None


class _NoEntities(ElementTree.TreeBuilder):
    """Rejects document types: their entities may expand without limit or name other files."""

    def doctype(self, name: str, pubid: str | None, system: str | None) -> None:
        raise RejectError("it has a document type (DOCTYPE), which no annotation needs")


def voc_boxes(data: bytes) -> Boxes:
    """The boxes in the contents of a Pascal VOC file.

    VOC counts pixels from 1 and includes the last one. As in TensorFlow Datasets
    (`object_detection/voc.py`), corners are divided by the sides of the image without a correction,
    so the upper and the left edge of a box are one pixel inside it. Names are taken as written.

    Raises:
        RejectError: The file is not XML, has no size, or an object has no name or no box.
    """
    try:
        root = ElementTree.fromstring(data, ElementTree.XMLParser(target=_NoEntities()))
    # The parser raises other errors for unknown encodings.
    except (ElementTree.ParseError, ValueError, LookupError) as error:
        raise RejectError(f"not XML: {error}") from None
    height, width = _voc_side(root, "height"), _voc_side(root, "width")
    objects = [_voc_object(*found) for found in enumerate(root.findall("object"), 1)]
    largest = max((side for _, box in objects for side in box), default=0)
    if 0 < largest <= LARGEST_FRACTION < max(height, width):
        raise RejectError("all boxes lie in one pixel: are they fractions of the image?")
    return Boxes.of(objects, (height, width))


def _voc_side(root: ElementTree.Element, side: str) -> int:
    text = root.findtext(f"size/{side}")
    value = number_of(text)
    if not (1 <= value < MAX_SIDE and value.is_integer()):
        raise RejectError(f"its size has {side} {text!r:.80}, expected a number of pixels")
    return int(value)


def _voc_object(number: int, object_: ElementTree.Element) -> tuple[str, list[float]]:
    name = (object_.findtext("name") or "").strip()
    if not name:
        raise RejectError(f"object {number} has no name")
    texts = {side: object_.findtext(f"bndbox/{side}") for side in _SIDES}
    y0, x0, y1, x1 = box = list(map(number_of, texts.values()))
    if not (y0 <= y1 and x0 <= x1):
        found = ", ".join(f"{side} {text!r:.20}" for side, text in texts.items())
        raise RejectError(f"object {number} {name!r:.80} has {found}, expected a box")
    return name, box


def yolo_lines_of(files: Iterable[bytes]) -> YoloLines:
    """The meaning of lines with more than five values in YOLO files.

    They are poses if all have the same number of values, and the first four are a box in the image that holds the
    rest: keypoints x and y, zeros for those that are not labelled, perhaps with a visibility of 0, 1 or 2.
    """
    lines = (
        line.split() for data in files for line in data.decode("utf-8", "replace").splitlines()
    )
    fields = list(islice((line for line in lines if len(line) > 5), _LINES_CHECKED))
    if len({len(line) for line in fields}) != 1:
        return "polygons"
    values = np.array([[number_of(field) for field in line[1:]] for line in fields])
    return "poses" if any(_are_poses(values, step) for step in (2, 3)) else "polygons"


def _are_poses(values: np.ndarray, step: int) -> bool:
    """Whether rows of numbers are boxes and keypoints of `step` numbers each."""
    center, size, rest = values[:, None, :2], values[:, None, 2:4], values[:, 4:]
    if rest.shape[1] % step:
        return False
    keypoints = rest.reshape(len(rest), -1, step)
    points, visibility = keypoints[..., :2], keypoints[..., 2:]
    in_image = abs(center - 0.5) + size / 2 <= 0.5 + _TOLERANCE
    in_box = (abs(points - center) <= size / 2 + _TOLERANCE).all(-1) | (points == 0).all(-1)
    held = in_image.all((1, 2)) & in_box.all(1)
    return bool(held.mean() >= _SHARE and np.isin(visibility, (0, 1, 2)).all())


def yolo_boxes(data: bytes, names: Sequence[str], lines_are: YoloLines = "auto") -> Boxes:
    """The boxes of a YOLO file with lines `class x_center y_center width height`, in fractions.

    A line `class x1 y1 x2 y2 x3 y3 ...` is a polygon, which gives the box around it, or a pose, which begins with
    its box.

    Args:
        names: The names of the classes; if empty, their numbers are their names.
        lines_are: What lines of more than five values are; "auto" takes them for polygons.

    Raises:
        RejectError: A line is not valid, its class has no name, or a number is not a fraction.
    """
    kind = "poses" if lines_are == "poses" else "polygons"
    boxes, longest = [], 0
    for number, line in enumerate(text_lines(data), 1):
        if fields := line.split():
            class_ = _yolo_class(number, fields[0], names)
            boxes.append((class_, _yolo_box(number, fields[1:], kind == "poses")))
            longest = max(longest, len(fields))
    return Boxes.of(boxes, None, (_TAKEN.format(kind),) if longest > 5 else ())


def _yolo_class(number: int, text: str, names: Sequence[str]) -> str:
    is_number = text.isascii() and text.isdecimal() and len(text) < 11
    class_ = int(text) if is_number else -1
    if not 0 <= class_ < (len(names) or _MAX_CLASS):
        classes = f"0 to {len(names) - 1}" if names else "a whole number"
        raise RejectError(f"line {number}: class {text!r:.80}, expected {classes}")
    return names[class_] if names else str(class_)


def _yolo_box(number: int, fields: list[str], is_pose: bool) -> tuple[float, float, float, float]:
    if len(fields) != 4 and (len(fields) < 6 or (len(fields) % 2 and not is_pose)):
        raise RejectError(
            f"line {number}: {len(fields) + 1} values, expected a class and 4 numbers, or a class "
            "and the x and y of 3 or more points; for boxes and keypoints add --yolo_lines poses"
        )
    fields = fields[:4] if is_pose else fields
    values = [number_of(field) for field in fields]
    for field, value in zip(fields, values, strict=True):
        if not -_TOLERANCE <= value <= 1 + _TOLERANCE:
            raise RejectError(
                f"line {number}: {field!r:.80}, expected a fraction of the image from 0 to 1"
            )
    if len(values) == 4:
        x, y, width, height = values
        return y - height / 2, x - width / 2, y + height / 2, x + width / 2
    xs, ys = values[::2], values[1::2]
    return min(ys), min(xs), max(ys), max(xs)


def read_class_names(data: bytes, path: str) -> tuple[str, ...]:
    """The class names, by number, in a text file with a name per line or in a `data.yaml`.

    Args:
        path: The file's name; `.yaml` and `.yml` files are read as Ultralytics writes them.

    Raises:
        UsageError: The file names no class, a name is empty, or two classes have the same name.
    """
    if len(data) > MAX_BYTES:
        raise UsageError(f"{path}: {len(data)} bytes, expected a list of class names")
    try:
        lines = text_lines(data.rstrip())
    except RejectError as error:
        raise UsageError(f"{path}: {error}") from None
    if path.lower().endswith((".yaml", ".yml")):
        names = _yaml_names("\n".join(lines), path)
    else:
        names = [line.strip() for line in lines]
    if not names:
        raise UsageError(f"{path}: it has no class names, expected one per line")
    numbers: dict[str, int] = {}
    for number, name in enumerate(names):
        if not name:
            raise UsageError(f"{path}: class {number} has no name, expected a name for each number")
        if numbers.setdefault(name, number) != number:
            raise UsageError(f"{path}: classes {numbers[name]} and {number} are both {name!r:.80}")
    return tuple(names)


def _yaml_names(text: str, path: str) -> list[str]:
    """The `names` of a `data.yaml`: a list, or a mapping from 0, 1, 2 and so on.

    All names are text, even `no` and `7`.
    """
    yaml = require("yaml", "beam", ".yaml files")
    try:
        names: Any = next(yaml.load_all(text, yaml.BaseLoader))["names"]
        if isinstance(names, dict):
            names = [names[str(number)] for number in range(len(names))]
        if isinstance(names, list) and names and all(isinstance(name, str) for name in names):
            return names
    except (yaml.YAMLError, LookupError, TypeError, RecursionError, StopIteration):
        pass
    raise UsageError(
        f"{path}: no `names` that are a list, or a mapping from 0, 1, 2 and so on; or name the "
        "classes in a text file, a name per line"
    )
