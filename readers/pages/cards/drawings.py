"""What is drawn of a record: pictures and what is marked in them, recordings, and texts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from xml.etree.ElementTree import Element

import numpy as np

from readers.format.decode.images import EncodedImage
from readers.format.display import shortened
from readers.format.dtypes import dtype_name
from readers.format.manifest import UNKNOWN_ID
from readers.format.schema import Feature, format_shape
from readers.pages.cards.lines import channel_keys, lines
from readers.pages.cards.look import Look
from readers.pages.cards.overlays import Marks, legend, marked, mask_of_objects
from readers.pages.cards.texts import TEXT, decoded, passage, spelled, tokenized
from readers.pages.cards.thumbnails import SIDE, bands, spectrogram, thumbnail
from readers.pages.markup import element, finite_range, keys

# Features of a record that are drawn, frames of a video, and captions.
_FEATURES, _FRAMES, _CAPTIONS = 6, 3, 5

# A recording of one channel and as many steps, or of as many samples a second, has a spectrogram.
_LONG, _AUDIBLE = 2048, 8_000

_MARKS = ("boxes", "box_labels", "mask", "instance_masks", "keypoints")


@dataclass
class Drawn:
    """What is drawn of a record.

    Attributes:
        pictures: The drawings.
        words: Feature -> what is said of it below the drawings.
        features: All features of which something is shown.
    """

    pictures: list[Element] = field(default_factory=list)
    words: dict[str, str] = field(default_factory=dict)
    features: set[str] = field(default_factory=set)

    def add(self, name: str, pictures: Iterable[Element], words: str = "") -> None:
        """Adds the drawings of a feature, and what is said of it."""
        self.features.add(name)
        self.pictures += pictures
        if words:
            self.words[name] = words


def drawings_of(record: Mapping[str, Any], look: Look) -> Drawn:
    """What is drawn of a record; of a value that cannot be drawn, the reason."""
    drawn = Drawn()
    # Captions are below pictures, and tokens below texts.
    later = ("captions", "tokens")
    for name in sorted(record, key=lambda name: look.features.roles.get(name) in later):
        if len(drawn.features) >= _FEATURES:
            break
        try:
            # Differences and squares of the largest floats are infinite.
            with np.errstate(all="ignore"):
                _draw(name, record[name], record, look, drawn)
        except (ValueError, OSError, ImportError) as error:
            drawn.add(name, (), shortened(spelled(f"cannot be drawn: {error}"), TEXT))
    return drawn


def _draw(name: str, value: Any, record: Mapping[str, Any], look: Look, drawn: Drawn) -> None:
    feature, role = look.features.schema[name], look.features.roles.get(name, "")
    kind = look.features.kinds.get(name)
    # What is marked in a picture is drawn with it.
    if name in drawn.features or role in ("key", "label", "rate", *_MARKS) or _is_empty(value):
        return
    if role == "captions":
        _draw_captions(name, value, drawn)
    elif role == "tokens":
        _draw_tokens(name, value, look, drawn)
    elif role == "spectrogram":
        levels = value if value.ndim == 2 else value[..., 0]
        drawn.add(name, [bands(levels).element()], _extent(value))
    elif feature.step and feature.is_image:
        _draw_frames(name, feature.step, value, drawn)
    elif kind == "picture":
        _draw_picture(name, feature, value, record, look, drawn)
    elif kind == "text":
        drawn.add(name, [passage(value)], f"{len(value):,} bytes")
    elif kind == "signal" and isinstance(value, np.ndarray):
        _draw_recording(name, value, record, look, drawn)


def _is_empty(value: Any) -> bool:
    return (
        not value.size if isinstance(value, np.ndarray) else isinstance(value, list) and not value
    )


def _draw_picture(
    name: str, feature: Feature, value: Any, record: Mapping[str, Any], look: Look, drawn: Drawn
) -> None:
    shown = thumbnail(*_pixels(name, feature, value))
    others = {role: look.features.named(role) for role in _MARKS}
    first = not drawn.features & set(filter(None, others.values()))
    marks = _marks(record, look, others) if first else Marks()
    pictures = [marked(shown, marks) if marks else shown.element()]
    if marks:
        drawn.features |= {other for other in others.values() if other in record}
        below = legend(marks)
        pictures += [] if below is None else [below]
    drawn.add(name, pictures, _extent(value) if isinstance(value, np.ndarray) else shown.words)


def _pixels(name: str, feature: Feature, value: Any) -> tuple[np.ndarray, tuple[int, int]]:
    """The pixels of a picture, perhaps of fewer than it has, and its height and width."""
    if isinstance(value, np.ndarray):
        return value, (value.shape[0], value.shape[1])
    image = EncodedImage(name, feature, value)
    height, width = image.shape[:2]
    factor = next(f for f in (8, 4, 2, 1) if f == 1 or max(height, width) >= 2 * f * SIDE)
    return image.reduced(factor)[0], (height, width)


def _marks(record: Mapping[str, Any], look: Look, others: Mapping[str, str]) -> Marks:
    """What the record says of its picture."""
    boxes = _array(record.get(others["boxes"]), 2)
    ids = _array(record.get(others["box_labels"]), 1)
    labels = () if ids is None else ids.tolist()
    mask = record.get(others["mask"])
    if isinstance(mask, bytes):
        mask = _pixels(others["mask"], look.features.schema[others["mask"]], mask)[0]
    mask = _array(mask, 3)
    mask = None if mask is None or not mask.size else mask[..., 0]
    objects = _array(record.get(others["instance_masks"]), 3)
    if mask is None and objects is not None and objects.size:
        mask = mask_of_objects(objects, labels)
    points = _array(record.get(others["keypoints"]), 3)
    if points is not None:
        points = points.reshape(-1, points.shape[2])[:, :2].astype(np.float64)
        points = points[:, ::-1] if look.is_x_first else points
    if boxes is not None and look.is_x_first:
        boxes = boxes[:, [1, 0, 3, 2]]
    names, mask_names = (look.features.classes.get(others[r], ()) for r in ("box_labels", "mask"))
    return Marks(boxes, labels, names, mask, mask_names, points)


def _array(value: Any, rank: int) -> np.ndarray | None:
    return value if isinstance(value, np.ndarray) and value.ndim == rank else None


def _draw_frames(name: str, feature: Feature, value: Sequence[Any], drawn: Drawn) -> None:
    """Draws the first, the middle and the last frame of a video."""
    frames = []
    for place in sorted({0, len(value) // 2, len(value) - 1}):
        shown = thumbnail(*_pixels(name, feature, value[place]), SIDE // 2)
        words = f"frame {place + 1:,} of {len(value):,}, {shown.words}"
        frames.append(shown._replace(words=words).element())
    drawn.add(name, frames, f"{len(value):,} frames")


def _draw_captions(name: str, value: Sequence[bytes], drawn: Drawn) -> None:
    captions = [spelled(decoded(caption, TEXT // 2)) for caption in value[:_CAPTIONS]]
    if len(value) > _CAPTIONS:
        captions.append(f"and {len(value) - _CAPTIONS:,} more")
    drawn.add(name, (element("div", element("bdi", caption)) for caption in captions))


def _draw_tokens(name: str, ids: np.ndarray, look: Look, drawn: Drawn) -> None:
    words = f"{len(ids):,}, every second one is shaded"
    if look.vocabulary:
        unknown = int((ids == UNKNOWN_ID).sum())
        words += f", {unknown:,} unknown{' (dashed)' if unknown else ''}"
    drawn.add(name, [tokenized(ids, look.vocabulary)], words)


def _draw_recording(
    name: str, value: np.ndarray, record: Mapping[str, Any], look: Look, drawn: Drawn
) -> None:
    if value.dtype.kind == "V":  # NumPy has no functions of bfloat16.
        value = value.astype(np.float32)
    pictures, rate = [lines(value)], look.rate_of(record)
    if channels := channel_keys(value):
        pictures.append(keys(channels))
    first = value.reshape(len(value), -1)[:, 0]
    if len(first) > 1 and (rate >= _AUDIBLE or (not channels and len(first) >= _LONG)):
        pictures.append(spectrogram(first).element())
    seconds = f"{len(value) / rate:,.4g} s at {rate:,.6g} Hz, " if rate else ""
    drawn.add(name, pictures, seconds + _extent(value))


def _extent(array: np.ndarray) -> str:
    """The dtype, shape and range of an array that is drawn."""
    words = f"{dtype_name(array.dtype)} {format_shape(array.shape)}"
    # The range of a photograph says nothing, and takes longer than to draw it.
    if array.dtype == np.uint8:
        return words
    numbers = array.astype(np.float64)
    low, high = finite_range(numbers)
    missing = numbers.size - int(np.isfinite(numbers).sum())
    unknown = f", {missing:,} NaN or infinite" if missing else ""
    return f"{words}, {low:,.6g} to {high:,.6g}{unknown}"
