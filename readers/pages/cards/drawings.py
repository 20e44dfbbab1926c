"""The drawings of a record: pictures with their boxes and masks, recordings, and texts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from xml.etree.ElementTree import Element

import numpy as np

from readers.format.decode.images import EncodedImage
from readers.format.display import counted, shortened
from readers.format.dtypes import dtype_name
from readers.format.manifest import UNKNOWN_ID
from readers.format.schema import Feature, format_shape
from readers.head import value_range
from readers.pages.cards.lines import channel_keys, lines
from readers.pages.cards.look import Look
from readers.pages.cards.overlays import Marks, legend, marked
from readers.pages.cards.thumbnails import SIDE, thumbnail
from readers.pages.markup import element
from readers.pages.numbers import short

# The most characters of a text.
TEXT = 400

# The most features of a record that are drawn, and captions.
_FEATURES, _CAPTIONS = 6, 5

_MARKS = ("boxes", "box_labels", "mask")


@dataclass
class Drawn:
    """The drawings of a record; text about features below the drawings; and all features that are shown."""

    pictures: list[Element] = field(default_factory=list)
    words: dict[str, str] = field(default_factory=dict)
    features: set[str] = field(default_factory=set)

    def add(self, name: str, pictures: Iterable[Element], words: str = "") -> None:
        """Adds the drawings of a feature and text about it."""
        self.features.add(name)
        self.pictures += pictures
        if words:
            self.words[name] = words


def drawings_of(record: Mapping[str, Any], look: Look) -> Drawn:
    """Draws a record, with the reason for each value that cannot be drawn."""
    drawn, roles = Drawn(), look.features.roles
    # Captions go below pictures, and tokens below texts.
    for name in sorted(record, key=lambda name: roles.get(name) in ("captions", "tokens")):
        # Boxes and masks are drawn with their picture.
        is_left_out = roles.get(name) in ("key", "label", "rate", *_MARKS)
        if is_left_out or name in drawn.features or _is_empty(record[name]):
            continue
        if len(drawn.features) >= _FEATURES:
            break
        try:
            # Differences and squares of the largest floats are infinite.
            with np.errstate(all="ignore"):
                _draw(name, record, look, drawn)
        except (ValueError, OSError, ImportError) as error:
            drawn.add(name, (), shortened(f"cannot be drawn: {error}", TEXT))
    return drawn


def decoded(data: bytes, most: int) -> str:
    """The first characters of a text in UTF-8; bytes that are not UTF-8 are written as `\\xff`."""
    return shortened(data[: 4 * most + 4].decode("utf-8", "backslashreplace"), most)


def _passage(text: str) -> Element:
    style = "white-space:pre-wrap;overflow-wrap:anywhere;margin:0"
    return element("p", text or "(empty)", dir="auto", style=style)


def _is_empty(value: Any) -> bool:
    return not value if isinstance(value, list) else np.size(value) == 0


def _draw(name: str, record: Mapping[str, Any], look: Look, drawn: Drawn) -> None:
    value, feature, role = record[name], look.features.schema[name], look.features.roles.get(name)
    kind = look.features.kinds.get(name)
    if role == "captions":
        captions = [decoded(caption, TEXT // 2) for caption in value[:_CAPTIONS]]
        if len(value) > _CAPTIONS:
            captions.append(f"and {len(value) - _CAPTIONS:,} more")
        drawn.add(name, (element("div", element("bdi", caption)) for caption in captions))
    elif role == "tokens":
        words = " ".join(look.vocabulary.get(id_, str(id_)) for id_ in value[:TEXT].tolist())
        unknown = int((value == UNKNOWN_ID).sum()) if look.vocabulary else 0
        count = f"{len(value):,}, {unknown:,} unknown" if unknown else f"{len(value):,}"
        drawn.add(name, [_passage(shortened(words, TEXT))], count)
    elif role == "spectrogram":
        levels = value if value.ndim == 2 else value[..., 0]
        # Time goes right, frequency up.
        drawn.add(name, [thumbnail(levels.T[::-1]).element()], _extent(value))
    elif feature.step and feature.is_image:
        drawn.add(name, _frames(name, feature.step, value), counted(len(value), "frame"))
    elif kind == "picture":
        _draw_picture(name, record, look, drawn)
    elif kind == "text":
        drawn.add(name, [_passage(decoded(value, TEXT))], counted(len(value), "byte"))
    elif kind == "signal" and isinstance(value, np.ndarray):
        # NumPy has no functions of bfloat16.
        value = value.astype(np.float32) if value.dtype.kind == "V" else value
        legend_of = channel_keys(value, look.channels.get(name, ()))
        rate = look.rate_of(record)
        seconds = f"{len(value) / rate:,.4g} s at {rate:,.6g} Hz, " if rate else ""
        drawn.add(name, [lines(value), *legend_of], seconds + _extent(value))


def _draw_picture(name: str, record: Mapping[str, Any], look: Look, drawn: Drawn) -> None:
    """Draws a picture; the first one with its boxes and mask."""
    shown = thumbnail(*_pixels(name, look.features.schema[name], record[name]))
    others = {role: look.features.named(role) for role in _MARKS}
    marks = Marks() if drawn.features & {*others.values()} else _marks(record, look, others)
    pictures = [shown.element()]
    if marks:
        drawn.features |= {other for other in others.values() if other in record}
        pictures = [marked(shown, marks), *legend(marks)]
    drawn.add(name, pictures, shown.words)


def _pixels(name: str, feature: Feature, value: Any) -> tuple[np.ndarray, tuple[int, int]]:
    """The pixels of a picture, reduced if there are many, and its height and width."""
    if isinstance(value, np.ndarray):
        return value, (value.shape[0], value.shape[1])
    image = EncodedImage(name, feature, value)
    height, width = image.shape[:2]
    factor = next(f for f in (8, 4, 2, 1) if f == 1 or max(height, width) >= 2 * f * SIDE)
    return image.reduced(factor)[0], (height, width)


def _marks(record: Mapping[str, Any], look: Look, others: Mapping[str, str]) -> Marks:
    found = {role: record.get(name) for role, name in others.items()}
    if isinstance(found["mask"], bytes):
        name = others["mask"]
        found["mask"] = _pixels(name, look.features.schema[name], found["mask"])[0]
    boxes, ids, mask = (
        value if isinstance(value, np.ndarray) and value.ndim == rank else None
        for value, rank in zip(found.values(), (2, 1, 3), strict=True)
    )
    labels = () if ids is None else ids.tolist()
    mask = None if mask is None or not mask.size else mask[..., 0]
    if boxes is not None and look.is_x_first:
        boxes = boxes[:, [1, 0, 3, 2]]
    names, mask_names = (look.features.classes.get(others[r], ()) for r in ("box_labels", "mask"))
    return Marks(boxes, labels, names, mask, mask_names)


def _frames(name: str, feature: Feature, value: Sequence[Any]) -> list[Element]:
    """The first, the middle and the last frame of a video."""
    frames = []
    for place in sorted({0, len(value) // 2, len(value) - 1}):
        shown = thumbnail(*_pixels(name, feature, value[place]), SIDE // 2)
        words = f"frame {place + 1:,} of {len(value):,}, {shown.words}"
        frames.append(shown._replace(words=words).element())
    return frames


def _extent(array: np.ndarray) -> str:
    return f"{dtype_name(array.dtype)} {format_shape(array.shape)}, {value_range(array, short)}"
