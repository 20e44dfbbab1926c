"""Boxes and masks over a thumbnail, as SVG."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from xml.etree.ElementTree import Element

import numpy as np

from readers.format.display import shortened
from readers.pages.cards.thumbnails import Thumbnail, saved
from readers.pages.markup import bright, data_uri, element, keys, svg

# The most boxes drawn over a picture, and classes listed below it.
_BOXES, _CLASSES = 40, 8
_NAME = 24

# The opacity of a mask, of 255.
_OPACITY = 90

# The class of unlabelled pixels, which VOC puts around objects.
_VOID = 255


@dataclass(frozen=True)
class Marks:
    """Boxes and masks of a picture, in parts of its size. Boxes are float [n, 4]: top, left, bottom, right.

    `labels` are the classes of boxes, or empty. `mask` has a class for each pixel, integers [height, width]; class 0 has no
    color unless it has a name.
    """

    boxes: np.ndarray | None = None
    labels: Sequence[int] = ()
    names: Sequence[str] = ()
    mask: np.ndarray | None = None
    mask_names: Sequence[str] = ()

    def __bool__(self) -> bool:
        return self.boxes is not None or self.mask is not None

    def label(self, box: int) -> int:
        """The class of a box; its number if boxes have no classes."""
        return int(self.labels[box]) if box < len(self.labels) else box

    @property
    def colors_zero(self) -> bool:
        """Whether class 0 in the mask is a normal class, and not the background."""
        return bool(self.mask_names) and self.mask_names[0] != "background"


def marked(shown: Thumbnail, marks: Marks) -> Element:
    """An `svg` of a thumbnail with its boxes and mask. Boxes are cut off at the edges."""
    width, height = shown.width, shown.height
    size = {"width": str(width), "height": str(height), "preserveAspectRatio": "none"}
    layers = [element("image", href=shown.uri, **size)]
    if marks.mask is not None and marks.mask.size:
        layers.append(element("image", href=_overlay(marks.mask, marks.colors_zero), **size))
    boxes, words = _drawn_boxes(marks)
    for number, (y0, x0, y1, x1) in boxes.items():
        path = f"M{x0 * width:.1f} {y0 * height:.1f}H{x1 * width:.1f}V{y1 * height:.1f}H{x0 * width:.1f}z"
        for color, stroke in (("#000", "3"), (bright(marks.label(number)), "1.5")):
            layers.append(element("path", d=path, fill="none", stroke=color, stroke_width=stroke))
    style = "max-width:100%;height:auto;image-rendering:pixelated"
    return svg(", ".join([shown.words, *words]), layers, width, height, style=style)


def legend(marks: Marks) -> list[Element]:
    """The colors and names of classes, and the number of boxes of each; empty without classes."""
    parts: list[tuple[int, str]] = []
    if marks.boxes is not None and len(marks.labels):
        for label, count in Counter(map(marks.label, range(len(marks.boxes)))).most_common():
            parts.append((label, f"{_named(label, marks.names)} \N{MULTIPLICATION SIGN}{count:,}"))
    elif marks.mask is not None:
        for value, _ in Counter(_small(marks.mask).reshape(-1).tolist()).most_common():
            if value or marks.colors_zero:
                parts.append((value - 1, _named(value, marks.mask_names)))
    more = f"and {len(parts) - _CLASSES:,} more" if len(parts) > _CLASSES else ""
    return [keys(parts[:_CLASSES], more)] if parts else []


def _drawn_boxes(marks: Marks) -> tuple[dict[int, np.ndarray], list[str]]:
    """The boxes to draw, by number, and text about how many there are."""
    if marks.boxes is None:
        return {}, []
    inside = np.clip(marks.boxes.reshape(-1, 4).astype(np.float64), 0, 1)
    good = np.flatnonzero((inside[:, 2:] > inside[:, :2]).all(axis=1))
    words = [f"{len(inside):,} boxes"]
    if len(good) < len(inside):
        words.append(f"{len(inside) - len(good):,} empty or outside")
    if len(good) > _BOXES:
        words.append(f"the first {_BOXES} drawn")
    return {int(number): inside[number] for number in good[:_BOXES]}, words


def _named(label: int, names: Sequence[str]) -> str:
    return shortened(names[label], _NAME) if 0 <= label < len(names) else str(label)


def _small(mask: np.ndarray) -> np.ndarray:
    """Every n-th pixel of a mask, so that its sides are at most 480."""
    steps = [max(1, length // 240) for length in mask.shape]
    return mask[:: steps[0], :: steps[1]]


def _overlay(mask: np.ndarray, colors_zero: bool) -> str:
    """A mask as the URI of a palette PNG."""
    from PIL import Image

    colors = [(*bytes.fromhex(bright(value - 1)[1:]), _OPACITY) for value in range(256)]
    palette = np.array(colors, np.uint8)
    palette[0, 3] = _OPACITY if colors_zero else 0
    palette[_VOID] = 255, 255, 255, _OPACITY
    image = Image.fromarray(np.clip(_small(mask), 0, 255).astype(np.uint8))
    image.putpalette(palette[:, :3].tobytes())
    return data_uri("image/png", saved(image, "PNG", transparency=palette[:, 3].tobytes()))
