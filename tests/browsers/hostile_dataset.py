"""A dataset whose every name and value is hostile, as far as its format permits."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from readers.format.schema import Schema
from tests.support.datasets import Record, manifest_bytes, write_dataset

# A gallery shows this many records, and features of each.
_RECORDS, _FEATURES = 10, 12
_CLASSES = 5


def write_hostile(folder: Path, strings: Sequence[str]) -> Path:
    """Writes the dataset into a folder of its own; returns its directory, whose name is hostile, too.

    Args:
        folder: A folder.
        strings: The strings. Each is a value that the first ten records hold, a name of a class, and the
            name and the value of an option; those that may be are names of features.
    """
    names = [text for text in strings if _is_name(text)]
    own = ["key", "text", "caption", "label", "box_labels", "words"]
    shown = names[: _FEATURES - len(own)]
    dtypes: dict[str, Any] = dict.fromkeys(own[:3], ("string", ()))
    dtypes |= {
        "label": ("int64", ()),
        "box_labels": ("int64", (None,)),
        "words": ("string", (None,)),
    }
    dtypes |= dict.fromkeys(names, ("string", ()))
    dtypes |= {"image": ("uint8", (16, 16, 3)), "signal": ("float32", (None,))}
    values = [text.encode("utf-8", "replace") for text in strings]
    # A list of strings may hold any bytes.
    raw = [text.encode("utf-8", "surrogatepass") for text in strings]
    records = []
    for number in range(_RECORDS):
        mine = values[number::_RECORDS]
        record: Record = {
            name: values[(number + place) % len(values)] for place, name in enumerate(names)
        }
        record |= {name: mine[place % len(mine)] for place, name in enumerate([*own[:3], *shown])}
        record |= {
            "label": number % len(strings),
            "box_labels": np.arange(number * _CLASSES, (number + 1) * _CLASSES) % len(strings),
            "words": np.array([*raw[number::_RECORDS], b"\xff\xfe<script>\x00"], object),
            "image": np.random.default_rng(number).integers(0, 256, (16, 16, 3), dtype=np.uint8),
            "signal": np.sin(np.arange(50 + number, dtype=np.float32)),
        }
        records.append(record)
    directory = folder / "<svg onload=(window.__ran=window.__ran||[]).push(1000)> &amp; {{7*7}}"
    splits = {"train": [records[:6], records[6:]], "__proto__": [records], "1.e5": [records[:1]]}
    write_dataset(directory, Schema(dtypes), splits)
    _make_hostile(directory / "manifest.json", strings)
    return directory


def _is_name(text: str) -> bool:
    try:
        Schema({text: ("string", ())})
    except ValueError:
        return False
    return bool(text.strip())


def _make_hostile(path: Path, strings: Sequence[str]) -> None:
    manifest = json.loads(path.read_text("utf-8"))
    manifest["label_names"] = list(strings)
    manifest["class_names"] = {"label": list(strings), "box_labels": list(reversed(strings))}
    manifest["options"] = {"job": "images", "input": list(strings), "nested": [{"x": strings[0]}]}
    manifest["options"] |= {text: text for text in strings}
    manifest["versions"] = {text: text for text in strings}
    for split in manifest["splits"].values():
        counts = {str(number): 1 for number in range(split["records"])}
        split["statistics"] = {"label": {"values": counts}}
    # Escaped, halves of surrogate pairs are valid JSON.
    path.write_bytes(manifest_bytes(manifest))
