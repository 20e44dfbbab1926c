"""The entries of COCO's lists: of a COCO file, from a stream of JSON events; or of a table with a row for each box.

It knows the tables of TensorFlow's object detection tutorials, of Open Images, and similar ones.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, BinaryIO

import ijson

from beam_jobs.errors import RejectError, UsageError, reason_of
from beam_jobs.jobs.images.boxes import MAX_SIDE, number_of
from beam_jobs.sources.labels import whole_number
from beam_jobs.sources.rows import Row
from beam_jobs.sources.tables import EXPECTED, column_names, read_rows, table_kind
from beam_jobs.storage.files import open_seekable
from beam_jobs.storage.paths import comparable

# The lists of a COCO file, and the fields of their entries that are read.
_SECTIONS = ("images", "annotations", "categories")

_FIELDS = frozenset(
    ("id", "file_name", "height", "width", "image_id", "category_id", "bbox", "iscrowd")
    + ("caption", "name")
)

_OPENS = frozenset(("start_map", "start_array"))

_CLOSES = frozenset(("end_map", "end_array"))

# How many parts of a value are kept, room for the corners of a coastline; and how deep they are nested.
_MOST, _DEPTH = 1 << 20, 3

Events = Iterator[tuple[str, Any]]


# Not `ijson.items`: it keeps the path to every value, so that 60 KB of brackets take 2 GB and 600 KB
# exhaust memory; and a pass for each list takes 1.4 times as long as this one.
def entries(file: BinaryIO, details: Collection[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields (section, entry) for each entry of a file's lists; {} if the entry is not an object.

    Args:
        file: A COCO file, from its first bracket.
        details: Fields to read besides those of boxes and captions.
    """
    events = ijson.basic_parse(file, use_float=True)
    fields = _FIELDS.union(details)
    if next(events)[0] != "start_map":
        return
    for event, section in events:
        if event == "end_map":
            continue  # to the end of the file, where ijson rejects a second value
        event, _ = next(events)
        if section not in _SECTIONS or event != "start_array":
            _value(events, event)
            continue
        for event, _ in events:
            if event == "end_array":
                break
            if event == "start_map":
                yield section, _entry(events, fields)
            else:
                _value(events, event)
                yield section, {}


def _entry(events: Events, fields: Collection[str]) -> dict[str, Any]:
    """The fields of an object whose start was read."""
    entry = {}
    for event, field in events:
        if event == "end_map":
            break
        event, value = next(events)
        value = _value(events, event, value, _MOST * (field in fields))
        if field in fields:
            entry[field] = value
    return entry


def _value(events: Events, event: str, value: Any = None, most: int = 0) -> Any:
    """The value that an event starts; ["..."] if it has `most` parts or more, or is nested too deep."""
    if event not in _OPENS:
        return value
    builder, depth = ijson.ObjectBuilder(), 1
    builder.event(event, value)
    while depth:
        event, value = next(events)
        if most <= 0 and event == "number":
            continue  # one comparison for the corners of polygons: most of a file
        depth += (event in _OPENS) - (event in _CLOSES)
        most = most - 1 if depth <= _DEPTH else 0
        if most > 0:
            builder.event(event, value)
    return builder.value if most > 0 else ["..."]


# The known names of columns, in lower case and without separators.
_NAMES = {
    "file": "filename file imageid image imagename imagepath filepath path",
    "class": "class label labelname classname category categoryname",
    "x0": "xmin x1 left bboxx x",
    "y0": "ymin y1 top bboxy y",
    "x1": "xmax x2 right",
    "y1": "ymax y2 bottom",
    "box_width": "bboxwidth boxwidth w",
    "box_height": "bboxheight boxheight h",
    "width": "imagewidth imgwidth width",
    "height": "imageheight imgheight height",
    "iscrowd": "iscrowd isgroupof",
}

_BOX = ("x0", "y0", "x1", "y1", "box_width", "box_height")

_EXAMPLE = "filename,xmin,ymin,xmax,ymax,class"

_HEADER = f"a table without a header needs a first line such as {_EXAMPLE}"


def is_box(value: Any) -> bool:
    """Whether a value is x, y, width and height."""
    return (
        isinstance(value, list)
        and len(value) == 4
        and all(type(number) in (int, float) and abs(number) < MAX_SIDE for number in value)
        and min(value[2:]) >= 0
    )


def table_entries(where: str, path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields (section, entry) as `entries` does for a COCO file: images, annotations, then categories.

    Images whose size the table does not state have a height and a width of 1. An annotation that is not valid has
    only an `error`.

    Raises:
        UsageError: The file cannot be read, or lacks a column.
    """
    if not (kind := table_kind(path)):
        raise UsageError(f"{where}: {EXPECTED}")
    try:
        with open_seekable(path) as file:
            names = column_names(file, *kind)
        columns = _columns(names, where)
        with open_seekable(path) as file:
            yield from _entries(read_rows(file, *kind, [*columns.values()]), columns, where)
    except UsageError as error:
        known = error.message.startswith(where)
        raise error if known else UsageError(f"{where}: {error.message}; {_HEADER}") from None
    except (OSError, RejectError) as error:
        raise UsageError(f"{where}: cannot be read: {reason_of(error)}") from None


def _columns(names: Sequence[str], where: str) -> dict[str, str]:
    """The columns by their meaning."""
    plain = {re.sub(r"[\W_]", "", name).lower(): name for name in reversed(names)}
    found = {
        meaning: next((plain[name] for name in known.split() if name in plain), "")
        for meaning, known in _NAMES.items()
    }
    if not found["x1"] and not found["box_width"]:  # Then width and height are those of the box.
        for side in ("width", "height"):
            found[f"box_{side}"], found[side] = found[side], ""
    ends = ("x1", "y1") if found["x1"] else ("box_width", "box_height")
    if not all(found[meaning] for meaning in ("file", "class", "x0", "y0", *ends)):
        raise UsageError(
            f"{where}: its columns {', '.join(names)} are not those of boxes; {_HEADER}"
        )
    return {meaning: name for meaning, name in found.items() if name}


def _entries(
    rows: Iterable[Row], columns: Mapping[str, str], where: str
) -> Iterator[tuple[str, dict[str, Any]]]:
    images: dict[str, dict[str, Any]] = {}
    classes: dict[str, int] = {}
    for row in rows:
        if row.values is None:
            raise UsageError(f"{where}: row {row.number}: {row.error}")
        values = {meaning: row.values.get(name) for meaning, name in columns.items()}
        name = comparable(str(values["file"]))
        size = {side: number_of(values.get(side, 1)) for side in ("height", "width")}
        if name not in images:
            images[name] = {"id": len(images), "file_name": name, **size}
            yield "images", images[name]
        image = images[name]
        if all(values.get(meaning) in ("", None) for meaning in ("class", *_BOX)):
            continue  # An image without objects.
        box = {side: number_of(values[side]) for side in _BOX if side in values}
        x, y = box["x0"], box["y0"]
        width = box["x1"] - x if "x1" in box else box["box_width"]
        height = box["y1"] - y if "y1" in box else box["box_height"]
        bbox = [x, y, width, height]
        entry = {"image_id": image["id"], "bbox": bbox}
        fits = all(math.isnan(size[side]) or size[side] == image[side] for side in size)
        if is_box(bbox) and fits and values["class"] not in ("", None):
            label = str(values["class"])
            number = whole_number(label)
            label = label if number is None else str(number)
            entry["category_id"] = classes.setdefault(label, len(classes))
            entry["iscrowd"] = int(number_of(values.get("iscrowd", 0)) == 1)
        else:
            found = [f"{columns[meaning]} {value!r:.20}" for meaning, value in values.items()]
            entry["error"] = (
                f"its row {row.number} has {', '.join(found)}, expected a class, a box, and one size for all "
                "boxes of an image"
            )
        yield "annotations", entry
    if not images:
        raise UsageError(f"{where}: the table has no rows")
    for name, id_ in classes.items():
        yield "categories", {"id": id_, "name": name}
