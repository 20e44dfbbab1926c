"""The entries of the lists in a COCO file, from a stream of JSON events."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

# The lists of a COCO file, and the fields of their entries that are read.
_SECTIONS = ("images", "annotations", "categories")

_FIELDS = frozenset(
    ("id", "file_name", "height", "width", "image_id", "category_id", "bbox", "iscrowd")
    + ("caption", "name")
)

_OPENS = frozenset(("start_map", "start_array"))

_CLOSES = frozenset(("end_map", "end_array"))

# Values of a list that are kept: one more than a box has, and room for a thousand keypoints.
_MAX_VALUES, _MAX_KEYPOINTS = 5, 3000

# The corners of a segmentation that are kept, and how deep they are: a list of lists.
_MAX_SEGMENTATION, _SEGMENTATION_DEPTH = 1 << 20, 2

Events = Iterator[tuple[str, Any]]


# Not `ijson.items`: it keeps the path to every value, so that 60 KB of brackets take 2 GB and ten
# times as many all memory; and a pass for each list takes 1.4 times as long as this one.
def entries(events: Events, details: Collection[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields (section, entry) for each entry of a file's lists; {} if the entry is not an object.

    Args:
        events: The output of `ijson.basic_parse` for a whole file.
        details: Fields to read besides those of boxes and captions.
    """
    fields = _FIELDS.union(details)
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
                yield section, _entry(events, fields)
            else:
                _values(events, event)
                yield section, {}


def _entry(events: Events, fields: Collection[str]) -> dict[str, Any]:
    """The fields of an object whose start was read; lists are cut to their first values."""
    entry = {}
    for event, field in events:
        if event == "end_map":
            break
        event, value = next(events)
        if field == "segmentation" and field in fields:
            entry[field] = _segmentation(events, event)
            continue
        values = _values(events, event, _MAX_KEYPOINTS if field == "keypoints" else _MAX_VALUES)
        if field in fields:
            entry[field] = values if event in _OPENS else value
    return entry


def _values(events: Events, event: str, limit: int = _MAX_VALUES) -> list[Any]:
    """Reads to the end of the value that an event starts; returns the first values in it."""
    values: list[Any] = []
    if event not in _OPENS:
        return values
    depth = 1
    for event, value in events:
        if event != "number":  # one comparison for the corners of polygons: most of a file
            depth += (event in _OPENS) - (event in _CLOSES)
            if not depth:
                break
        if len(values) < limit:
            values.append(value)
    return values


def _segmentation(events: Events, event: str) -> Any:
    """Reads a segmentation to its end: lists of numbers, or an object; None if it is too large."""
    if event not in _OPENS:
        return None
    inside: list[Any] = [{} if event == "start_map" else []]
    whole, field, room = inside[0], "", _MAX_SEGMENTATION
    for event, value in events:
        if event == "map_key":
            field = value
            continue
        if event in _CLOSES:
            inside.pop()
            if not inside:
                break
            continue
        room -= 1
        kept = room >= 0 and len(inside) <= _SEGMENTATION_DEPTH
        if event in _OPENS:
            value = ({} if event == "start_map" else []) if kept else None
        if kept and isinstance(into := inside[-1], dict):
            into[field] = value
        elif kept:
            into.append(value)
        if event in _OPENS:
            inside.append(value)
    return whole if room >= 0 else None
