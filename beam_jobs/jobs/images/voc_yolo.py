"""Files that say what one picture shows, boxes of Pascal VOC and YOLO, and names of classes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any
from xml.etree import ElementTree

import numpy as np

from beam_jobs.errors import RejectError, UsageError
from beam_jobs.jobs.images.boxes import Boxes
from beam_jobs.packages import require

# Of an annotation of one picture, and of a file of class names: room for ten thousand objects. A
# tree of XML can take 40 times the memory of its text.
MAX_BYTES = 4 << 20

_SIDES = ("ymin", "xmin", "ymax", "xmax")

# As far as Ultralytics lets a share lie outside 0..1, for what other tools have rounded.
_TOLERANCE = 0.01

_MAX_CLASS = 1 << 31

_MAX_SIDE = 1 << 31  # in pixels


class _Tree(ElementTree.TreeBuilder):
    """A tree of XML without entities, which may unpack to anything or name other files."""

    def doctype(self, name: str, pubid: str | None, system: str | None) -> None:
        raise RejectError("it has a document type (DOCTYPE), which no annotation needs")


def voc_boxes(data: bytes) -> Boxes:
    """The boxes of a Pascal VOC file.

    VOC counts pixels from 1 and includes the last one. Corners are divided by the sides of the
    picture as they are, as in TensorFlow Datasets (`object_detection/voc.py`), so the upper and the
    left edge of a box lie one pixel inside it. Names are taken as they are written.

    Raises:
        RejectError: It is no XML, has no size, or an object of it has no name or no box.
    """
    _check_size(data)
    try:
        root = ElementTree.fromstring(data, ElementTree.XMLParser(target=_Tree()))
    except RejectError:
        raise
    # Beside its own error the parser has others for encodings that it does not know.
    except (ElementTree.ParseError, ValueError, LookupError) as error:
        raise RejectError(f"not an annotation in XML: {error}") from None
    height, width = _voc_side(root, "height"), _voc_side(root, "width")
    objects = root.findall("object")
    found = [_voc_object(number, object_) for number, object_ in enumerate(objects, 1)]
    corners = _corners([box for _, box in found]) / (height, width, height, width)
    return Boxes(corners, tuple(name for name, _ in found), (height, width))


def _corners(rows: Sequence[Sequence[float]]) -> np.ndarray:
    return np.array(rows, np.float64).reshape(len(rows), 4)


def _check_size(data: bytes) -> None:
    if len(data) > MAX_BYTES:
        raise RejectError(f"an annotation of {len(data)} bytes, expected at most {MAX_BYTES}")


def _number(text: str | None) -> float:
    """A number, NaN where it is none or infinite."""
    try:
        value = float(text or "")
    except ValueError:
        return math.nan
    return value if math.isfinite(value) else math.nan


def _voc_side(root: ElementTree.Element, side: str) -> int:
    text = root.findtext(f"size/{side}")
    value = _number(text)
    if not (1 <= value < _MAX_SIDE and value.is_integer()):
        raise RejectError(f"its size has {side} {text!r:.80}, expected a number of pixels")
    return int(value)


def _voc_object(number: int, object_: ElementTree.Element) -> tuple[str, list[float]]:
    name = (object_.findtext("name") or "").strip()
    if not name:
        raise RejectError(f"object {number} has no name")
    box = []
    for side in _SIDES:
        text = object_.findtext(f"bndbox/{side}")
        box.append(_number(text))
        if math.isnan(box[-1]):
            raise RejectError(f"object {number} {name!r:.80} has {side} {text!r:.80}, no number")
    for low, high in ((0, 2), (1, 3)):
        if box[high] < box[low]:
            raise RejectError(
                f"object {number} {name!r:.80} has {_SIDES[high]} {box[high]:g} below "
                f"{_SIDES[low]} {box[low]:g}"
            )
    return name, box


def yolo_boxes(data: bytes, names: Sequence[str]) -> Boxes:
    """The boxes of a YOLO file: `class x_center y_center width height` a line, in shares.

    A line `class x1 y1 x2 y2 x3 y3 ...` is a polygon, and stands for the box around it.

    Args:
        data: The file.
        names: Of the classes, or empty: then their numbers are their names.

    Raises:
        RejectError: A line is no box, its class has no name, or its numbers are no shares.
    """
    _check_size(data)
    try:
        lines = data.decode("utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        raise RejectError(f"not UTF-8: {error}") from None
    classes, corners = [], []
    for number, line in enumerate(lines, 1):
        if fields := line.split():
            classes.append(_yolo_class(number, fields[0], names))
            corners.append(_yolo_box(number, fields[1:]))
    return Boxes(_corners(corners), tuple(classes), None)


def _yolo_class(number: int, text: str, names: Sequence[str]) -> str:
    try:
        class_ = int(text)
    except ValueError:
        class_ = -1
    if not 0 <= class_ < (len(names) or _MAX_CLASS):
        classes = f"0 to {len(names) - 1}" if names else "a whole number"
        raise RejectError(f"line {number}: class {text!r:.80}, expected {classes}")
    return names[class_] if names else str(class_)


def _yolo_box(number: int, fields: list[str]) -> tuple[float, float, float, float]:
    if len(fields) != 4 and (len(fields) < 6 or len(fields) % 2):
        raise RejectError(
            f"line {number}: {len(fields) + 1} values, expected a class and 4 numbers, or a class "
            "and the x and y of 3 points or more"
        )
    shares = [_number(field) for field in fields]
    for field, share in zip(fields, shares, strict=True):
        if not -_TOLERANCE <= share <= 1 + _TOLERANCE:
            raise RejectError(
                f"line {number}: {field!r:.80}, expected a share of the picture from 0 to 1"
            )
    if len(shares) == 4:
        x, y, width, height = shares
        return y - height / 2, x - width / 2, y + height / 2, x + width / 2
    xs, ys = shares[::2], shares[1::2]
    return min(ys), min(xs), max(ys), max(xs)


def read_class_names(data: bytes, path: str) -> tuple[str, ...]:
    """The names of classes by number: of a text file with a name a line, or of a `data.yaml`.

    Args:
        data: The file.
        path: Its name: one that ends in `.yaml` or `.yml` is read as Ultralytics writes them.

    Raises:
        UsageError: It names no class, a class without a name, or two by the same name.
    """
    if len(data) > MAX_BYTES:
        raise UsageError(f"{path}: {len(data)} bytes, expected a list of names of classes")
    try:
        text = data.decode("utf-8-sig").rstrip().replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: not UTF-8: {error}") from None
    if path.lower().endswith((".yaml", ".yml")):
        names = _yaml_names(text, path)
    else:
        names = [line.strip() for line in text.splitlines()]
    if not names:
        raise UsageError(f"{path}: it names no class, expected a name a line")
    numbers: dict[str, int] = {}
    for number, name in enumerate(names):
        if not name:
            raise UsageError(f"{path}: class {number} has no name, expected a name for each number")
        if numbers.setdefault(name, number) != number:
            raise UsageError(f"{path}: classes {numbers[name]} and {number} are both {name!r:.80}")
    return tuple(names)


def _yaml_names(text: str, path: str) -> list[str]:
    """The `names` of a `data.yaml`: a list, or a mapping from 0, 1, 2 and so on.

    All names are taken as text: a class called `no` or `7` is called so.
    """
    yaml = require("yaml", "beam", ".yaml files")
    try:
        document: Any = next(yaml.load_all(text, yaml.BaseLoader), None)
        names = document["names"]
        if isinstance(names, dict):
            names = [names[str(number)] for number in range(len(names))]
        if isinstance(names, list) and names and all(isinstance(name, str) for name in names):
            return names
        reason = f"`names` is {str(names)[:80]!r}"
    except yaml.YAMLError as error:
        reason = " ".join(str(error).split())[:200]
    except (LookupError, TypeError, RecursionError) as error:
        reason = f"{type(error).__name__}: {error}"
    raise UsageError(
        f"{path}: no `names` that are a list, or a mapping from 0, 1, 2 and so on ({reason}); or "
        "name the classes in a text file, a name a line"
    )
