"""Boxes, masks and keypoints over a small picture, as SVG."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from xml.etree.ElementTree import Element

import numpy as np

from readers.format.display import shortened
from readers.gallery.levels import bright, rgb
from readers.gallery.markup import data_uri, element, svg
from readers.gallery.pictures import Thumbnail, saved

# What is drawn over a picture at most, and how many boxes have their names beside them.
_BOXES, _NAMED, _POINTS = 40, 6, 200
_CLASSES = 8
_NAME = 24

# Of 255, so that the picture is seen through the mask.
_OPACITY = 90

# The class of pixels without one, which VOC puts around objects.
_VOID = 255


@dataclass(frozen=True)
class Marks:
    """What is marked in a picture.

    Attributes:
        boxes: float [n, 4], of each its upper, left, lower and right edge, as parts of the picture.
        labels: The class of each box, or none.
        names: The names of the classes of boxes.
        mask: A class for each pixel, integers [height, width]; 0 has no colour unless it has a name.
        mask_names: The names of these classes.
        masks: Pixels of objects, [n, height, width], not 0 inside.
        points: float [points, 2], y and x as parts of the picture.
    """

    boxes: np.ndarray | None = None
    labels: Sequence[int] = ()
    names: Sequence[str] = ()
    mask: np.ndarray | None = None
    mask_names: Sequence[str] = ()
    masks: np.ndarray | None = None
    points: np.ndarray | None = None

    def __bool__(self) -> bool:
        return any(each is not None for each in (self.boxes, self.mask, self.masks, self.points))

    def label(self, box: int) -> int:
        """The class of a box; its own number without classes."""
        return int(self.labels[box]) if box < len(self.labels) else box


def marked(shown: Thumbnail, marks: Marks) -> Element:
    """An `svg` of a small picture and what is marked in it. Boxes are cut off at its edges."""
    width, height = shown.width, shown.height
    layers = [_image(shown.uri, width, height)]
    for colors in (_mask_colors(marks), _object_colors(marks)):
        if colors is not None:
            layers.append(_image(_overlay(*colors, (height, width)), width, height))
    drawn, words = _drawn_boxes(marks)
    largest = sorted(drawn, key=lambda box: -np.prod(drawn[box][2:] - drawn[box][:2]))[:_NAMED]
    for number, edges in drawn.items():
        layers += _box(edges * [height, width, height, width], marks, number, number in largest)
    if marks.points is not None:
        inside = ((marks.points > 0) & (marks.points < 1)).all(axis=1)
        for y, x in marks.points[inside][:_POINTS]:
            place = {"cx": f"{x * width:.1f}", "cy": f"{y * height:.1f}"}
            layers.append(element("circle", r="2", fill="#fff", stroke="#000", **place))
    style = "max-width:100%;height:auto;image-rendering:pixelated"
    return svg(", ".join([shown.words, *words]), layers, width, height, style=style)


def legend(marks: Marks) -> Element | None:
    """A line with the colours and names of what is marked, and with how many boxes each class has."""
    parts: list[tuple[int, str]] = []
    if marks.boxes is not None:
        counts = (
            Counter(map(marks.label, range(len(marks.boxes)))) if len(marks.labels) else Counter()
        )
        for label, count in counts.most_common():
            parts.append((label, f"{_named(label, marks.names)} \N{MULTIPLICATION SIGN}{count:,}"))
    if marks.mask is not None and not parts:
        for value, _ in Counter(_small(marks.mask).reshape(-1).tolist()).most_common():
            if value or _shows_zero(marks):
                parts.append((value - 1, _named(value, marks.mask_names)))
    if not parts:
        return None
    children: list[Element | str] = []
    for label, words in parts[:_CLASSES]:
        square = f"display:inline-block;width:.7em;height:.7em;background:{bright(label)}"
        children += [element("span", style=square), f" {words}  "]
    if len(parts) > _CLASSES:
        children.append(f"and {len(parts) - _CLASSES:,} more")
    return element("div", *children)


def _drawn_boxes(marks: Marks) -> tuple[dict[int, np.ndarray], list[str]]:
    """The boxes that are drawn, by their numbers, and words on how many there are."""
    if marks.boxes is None:
        return {}, []
    edges = marks.boxes.reshape(-1, 4).astype(np.float64)
    inside = np.clip(edges, 0, 1)
    with np.errstate(invalid="ignore"):
        good = np.flatnonzero((inside[:, 2:] > inside[:, :2]).all(axis=1))
    words = [f"{len(edges):,} boxes"]
    if len(good) < len(edges):
        words.append(f"{len(edges) - len(good):,} of them empty or outside")
    if len(good) > _BOXES:
        words.append(f"the first {_BOXES} are drawn")
    return {int(number): inside[number] for number in good[:_BOXES]}, words


def _box(edges: np.ndarray, marks: Marks, number: int, is_named: bool) -> list[Element]:
    """A box in the pixels of the drawing: a coloured frame in a dark one, and its name."""
    y0, x0, y1, x1 = edges
    path = f"M{x0:.1f} {y0:.1f}H{x1:.1f}V{y1:.1f}H{x0:.1f}z"
    label = marks.label(number)
    layers = [
        element("path", d=path, fill="none", stroke="#000", stroke_opacity=".5", stroke_width="3"),
        element("path", d=path, fill="none", stroke=bright(label), stroke_width="1.5"),
    ]
    if is_named and len(marks.labels):
        name = element(
            "text",
            _named(label, marks.names),
            x=f"{x0 + 3:.1f}",
            y=f"{max(y0 + 11, 11):.1f}",
            fill="#fff",
            stroke="#000",
            style="font:11px sans-serif;paint-order:stroke;stroke-width:2.5px",
        )
        layers.append(name)
    return layers


def _named(label: int, names: Sequence[str]) -> str:
    return shortened(names[label], _NAME) if 0 <= label < len(names) else str(label)


def _image(uri: str, width: int, height: int) -> Element:
    return element(
        "image", href=uri, width=str(width), height=str(height), preserveAspectRatio="none"
    )


def _shows_zero(marks: Marks) -> bool:
    """Whether 0 is a class like others, and not the background."""
    return bool(marks.mask_names) and marks.mask_names[0] != "background"


def _small(values: np.ndarray) -> np.ndarray:
    """Every n-th pixel of a mask, so that it has 480 a side at most."""
    steps = [max(1, length // 240) for length in values.shape]
    return values[:: steps[0], :: steps[1]]


def _mask_colors(marks: Marks) -> tuple[np.ndarray, np.ndarray] | None:
    """The mask as numbers of colours, uint8 [height, width], and the colours RGBA, uint8 [256, 4]."""
    if marks.mask is None or not marks.mask.size:
        return None
    colors = np.array([(*rgb(bright(value - 1)), _OPACITY) for value in range(256)], np.uint8)
    if not _shows_zero(marks):
        colors[0, 3] = 0
    colors[_VOID] = 255, 255, 255, _OPACITY
    return np.clip(_small(marks.mask), 0, 255).astype(np.uint8), colors


def _object_colors(marks: Marks) -> tuple[np.ndarray, np.ndarray] | None:
    """The masks of objects as one mask, in which the first is on top, and the colours."""
    if marks.masks is None or not marks.masks.size:
        return None
    objects = marks.masks[:_BOXES]
    numbers = np.zeros(_small(objects[0]).shape, np.uint8)
    colors = np.zeros((256, 4), np.uint8)
    for number in reversed(range(len(objects))):
        numbers[_small(objects[number]) != 0] = number + 1
        colors[number + 1] = *rgb(bright(marks.label(number))), _OPACITY
    return numbers, colors


def _overlay(numbers: np.ndarray, colors: np.ndarray, size: tuple[int, int]) -> str:
    """A mask as the URI of a PNG with a palette, no larger than the picture."""
    from PIL import Image

    image = Image.fromarray(np.ascontiguousarray(numbers))
    if image.width > size[1] or image.height > size[0]:
        image = image.resize((size[1], size[0]), Image.Resampling.NEAREST)
    image.putpalette(colors[:, :3].tobytes())
    return data_uri("image/png", saved(image, "PNG", transparency=colors[:, 3].tobytes()))
