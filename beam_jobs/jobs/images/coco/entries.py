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

# How many values of each field are kept: one more than a box has, room for a thousand keypoints, and for
# the corners of a coastline. Those of a segmentation are lists in a list.
_MOST = {"keypoints": 3000, "segmentation": 1 << 20}
_MOST_OF_OTHERS, _DEPTH = 5, 2

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
        read = field in fields
        values = _values(events, event, _MOST.get(field, _MOST_OF_OTHERS) if read else 0)
        if read:
            entry[field] = values if event in _OPENS else value
    return entry


def _values(events: Events, event: str, room: int = 0) -> Any:
    """The first `room` values of the list or object that an event starts, and "..." if a list has more."""
    if event not in _OPENS:
        return None
    inside: list[Any] = [{} if event == "start_map" else []]
    whole, field = inside[0], ""
    for event, value in events:
        if room <= 0 and event == "number":
            continue  # one comparison for the corners of polygons: most of a file
        if event in _CLOSES:
            inside.pop()
            if not inside:
                break
        elif event == "map_key":
            field = value
        else:
            kept = room > 0 and len(inside) <= _DEPTH
            room -= 1
            if event in _OPENS:
                value = ({} if event == "start_map" else []) if kept else None
            if kept and isinstance(into := inside[-1], dict):
                into[field] = value
            elif kept:
                into.append(value)
            if event in _OPENS:
                inside.append(value)
    return [*whole, "..."] if room < 0 and isinstance(whole, list) else whole
