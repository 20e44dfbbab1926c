"""Records as figures of HTML."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from xml.etree.ElementTree import Element

import numpy as np

from readers.describe import named
from readers.format.display import shortened
from readers.format.dtypes import dtype_name
from readers.format.schema import format_shape
from readers.gallery.markup import element
from readers.gallery.pictures import is_picture, thumbnail
from readers.gallery.signals import is_signal, lines
from readers.head import summary, value_range

# Characters of a text, and of any other value; features of a record.
_TEXT, _VALUE, _FEATURES = 300, 120, 12

_GRID = "display: grid; grid-template-columns: repeat(auto-fill, minmax(240px, 1fr)); gap: 1em"


def gallery(records: Iterable[Mapping[str, Any]], names: Mapping[str, Sequence[str]]) -> Element:
    """Records beside each other: of each its pictures and signals, and a line for each feature.

    Args:
        records: The values by feature name.
        names: The names of classes by id, of features that hold such ids.
    """
    return element("div", *(_figure(record, names) for record in records), style=_GRID)


def _figure(record: Mapping[str, Any], names: Mapping[str, Sequence[str]]) -> Element:
    drawings, described = [], []
    for name, value in list(record.items())[:_FEATURES]:
        drawing = _drawing(value)
        if drawing is not None:
            drawings.append(drawing)
        words = _words(value, names.get(name, ())) if drawing is None else _extent(value)
        described.append(element("div", element("b", shortened(name, _VALUE)), f" {words}"))
    if len(record) > _FEATURES:
        described.append(element("div", f"and {len(record) - _FEATURES:,} more features"))
    caption = element("figcaption", *described, style="font-size: smaller")
    return element("figure", *drawings, caption, style="margin: 0; overflow-wrap: anywhere")


def _drawing(value: Any) -> Element | None:
    """A picture or a signal; None of other values, and of pictures without Pillow."""
    if is_picture(value):
        try:
            return thumbnail(value)
        except ImportError:
            return None
    return lines(value) if is_signal(value) else None


def _extent(array: np.ndarray) -> str:
    """The dtype, shape and range of an array that is drawn."""
    return f"{dtype_name(array.dtype)} {format_shape(array.shape)}, {value_range(array)}"


def _words(value: Any, names: Sequence[str]) -> str:
    if isinstance(value, bytes):
        return shortened(value[: 4 * _TEXT].decode("utf-8", "replace"), _TEXT)
    if isinstance(value, np.integer) and names:
        return shortened(named(int(value), names), _VALUE)
    if isinstance(value, np.generic):
        return str(value)
    return shortened(summary(_array(value), names), _VALUE)


def _array(value: Any) -> Any:
    """A value of a record as `summary` takes it: an array, or a list of arrays."""
    if isinstance(value, list) and not all(isinstance(item, np.ndarray) for item in value):
        return np.array(value, object)
    return value
