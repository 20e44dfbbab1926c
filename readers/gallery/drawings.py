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
from readers.gallery import spectra
from readers.gallery.levels import finite_range
from readers.gallery.look import Look
from readers.gallery.markup import element
from readers.gallery.overlays import Marks, legend, marked
from readers.gallery.pictures import SIDE, is_picture, picture, thumbnail
from readers.gallery.signals import is_signal, lines
from readers.gallery.texts import TEXT, decoded, passage, spelled, tokenized

# Features of a record that are drawn, frames of a video, and captions.
_FEATURES, _FRAMES, _CAPTIONS = 6, 3, 5

# Steps from which the spectrogram of a recording of one channel is drawn, and the rate of sound, of which it always is.
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
    """What is drawn of a record. A value that cannot be is said to be, with the reason."""
    drawn = Drawn()
    # Captions are below pictures, and tokens below texts.
    later = ("captions", "tokens")
    for name in sorted(record, key=lambda name: look.roles.get(name) in later):
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
    feature, role = look.schema.get(name), look.roles.get(name, "")
    # What is marked in a picture is drawn with it.
    if feature is None or name in drawn.features or role in ("key", "label", "rate", *_MARKS):
        return
    if _shows_picture(name, value, look):
        _draw_picture(name, value, record, look, drawn)
    elif (feature.step is not None and feature.is_image) or _is_video(value):
        _draw_frames(name, value, look, drawn)
    elif role == "captions":
        captions = [decoded(caption, TEXT // 2) for caption in value[:_CAPTIONS]]
        rest = [f"and {len(value) - _CAPTIONS:,} more"] if len(value) > _CAPTIONS else []
        drawn.add(name, (element("div", element("bdi", spelled(c))) for c in [*captions, *rest]))
    elif role == "tokens":
        _draw_tokens(name, value, look, drawn)
    elif isinstance(value, bytes):
        drawn.add(name, [passage(value)], f"{len(value):,} bytes")
    elif role == "spectrogram" and isinstance(value, np.ndarray) and value.size:
        bands = spectra.bands(value if value.ndim == 2 else value[..., 0])
        drawn.add(name, [bands], _extent(value))
    elif is_signal(value):
        _draw_recording(name, value, record, look, drawn)


def _shows_picture(name: str, value: Any, look: Look) -> bool:
    feature, role = look.schema.get(name), look.roles.get(name, "")
    if feature is None or role in _MARKS or role == "spectrogram":
        return False
    return (feature.is_image and isinstance(value, bytes)) or is_picture(value)


def _is_video(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.ndim == 4 and is_picture(value[:1].squeeze(0))


def _draw_picture(
    name: str, value: Any, record: Mapping[str, Any], look: Look, drawn: Drawn
) -> None:
    pixels, size = _pixels(name, look.schema[name], value)
    shown = thumbnail(pixels, size, most=look.most)
    others = {role: look.feature_of(role) for role in _MARKS}
    first = not drawn.features & set(filter(None, others.values()))
    marks = _marks(record, look, others) if first else Marks()
    pictures = [marked(shown, marks) if marks else picture(shown)]
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
    labels = _array(record.get(others["box_labels"]), 1)
    mask = record.get(others["mask"])
    if isinstance(mask, bytes):
        mask = _pixels(others["mask"], look.schema[others["mask"]], mask)[0]
    mask, masks = _array(mask, 3), _array(record.get(others["instance_masks"]), 3)
    points = _array(record.get(others["keypoints"]), 3)
    if points is not None:
        points = points.reshape(-1, points.shape[2])[:, :2].astype(np.float64)
        points = points[:, ::-1] if look.is_x_first else points
    if boxes is not None and look.is_x_first:
        boxes = boxes[:, [1, 0, 3, 2]]
    return Marks(
        boxes,
        () if labels is None else labels.tolist(),
        look.names.get(others["box_labels"], ()),
        None if mask is None or not mask.size else mask[..., 0],
        look.names.get(others["mask"], ()),
        None if masks is None or not masks.size else masks,
        points,
    )


def _array(value: Any, rank: int) -> np.ndarray | None:
    return value if isinstance(value, np.ndarray) and value.ndim == rank else None


def _draw_frames(name: str, value: Sequence[Any], look: Look, drawn: Drawn) -> None:
    """The first, the middle and the last frame of a video."""
    feature = look.schema[name].step or look.schema[name]
    places = sorted({0, len(value) // 2, len(value) - 1}) if len(value) else []
    frames = []
    for place in places:
        pixels, size = _pixels(name, feature, value[place])
        shown = thumbnail(pixels, size, SIDE // 2, look.most // _FRAMES)
        words = f"frame {place + 1:,} of {len(value):,}, {shown.words}"
        frames.append(picture(shown._replace(words=words)))
    drawn.add(name, frames, f"{len(value):,} frames")


def _draw_tokens(name: str, ids: np.ndarray, look: Look, drawn: Drawn) -> None:
    words = f"{len(ids):,}"
    if look.vocabulary:
        unknown = int((ids == UNKNOWN_ID).sum())
        words += f", {unknown:,} unknown{' (dashed)' if unknown else ''}"
    drawn.add(name, [tokenized(ids, look.vocabulary)], words)


def _draw_recording(
    name: str, value: np.ndarray, record: Mapping[str, Any], look: Look, drawn: Drawn
) -> None:
    pictures, rate = [lines(value)], look.rate_of(record)
    channels = value.reshape(len(value), -1)
    if rate >= _AUDIBLE or (channels.shape[1] == 1 and len(value) >= _LONG):
        pictures.append(spectra.spectrogram(channels[:, 0]))
    seconds = f"{len(value) / rate:,.4g} s at {rate:,.6g} Hz, " if rate else ""
    drawn.add(name, pictures, seconds + _extent(value))


def _extent(array: np.ndarray) -> str:
    """The dtype, shape and range of an array that is drawn."""
    words = f"{dtype_name(array.dtype)} {format_shape(array.shape)}"
    # The range of a photograph says nothing, and takes longer than to draw it.
    if array.dtype == np.uint8 or not array.size:
        return words
    low, high = finite_range(array.astype(np.float64, copy=False))
    return f"{words}, {low:,.6g} to {high:,.6g}{_missing(array)}"


def _missing(array: np.ndarray) -> str:
    """How many numbers are NaN or infinite, if any are."""
    count = int(array.size - np.isfinite(array).sum()) if array.dtype.kind == "f" else 0
    return f", {count:,} NaN or infinite" if count else ""
