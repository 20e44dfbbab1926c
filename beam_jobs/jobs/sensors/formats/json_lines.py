"""Recordings in .jsonl files, whose lines are arrays or objects of numbers."""

from __future__ import annotations

import io
import itertools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow

from beam_jobs.errors import RejectError
from beam_jobs.jobs.sensors.channels import choose_channels, column_index, note_left_out, note_twice
from beam_jobs.jobs.sensors.formats.cells import text_seconds
from beam_jobs.jobs.sensors.inside.columns import Column
from beam_jobs.jobs.sensors.recording import (
    TEXT_DTYPE,
    ReadOptions,
    Recording,
    check_size,
    single_signal,
)
from beam_jobs.jobs.sensors.tables import METADATA, as_text, seconds
from beam_jobs.sources.rows import numbered_lines, parse_json


def read_jsonl(data: bytes, options: ReadOptions) -> Recording:
    """Reads float64 [lines, channels]; null and missing names are NaN, true is 1.

    The first line states the columns; those in which it has neither a number nor null are no channels.
    """
    text = as_text(data, options)
    check_size(8 * (1 + text.count(b",") + text.count(b"\n")))
    lines = _lines(text)
    first = next(lines, None)
    if first is None:
        raise RejectError("the file is empty")
    names = list(first[1]) if isinstance(first[1], dict) else []
    if not names and (options.columns or options.drop_columns or options.time_column):
        raise RejectError("its lines have no names for --columns, --drop_columns or --time_column")
    top = _cells(first[1], names)
    places, left_out = choose_channels(names, options) if names else (range(len(top)), [])
    if not options.columns:
        places = [place for place in places if _is_number(top[place])]
    if not places:
        raise RejectError(f"none of its columns {', '.join(names)} has numbers")
    time = column_index(names, options.time_column) if options.time_column else None
    inside = {name: column_index(names, name, METADATA) for name in options.inside}
    kept: dict[str, list[Any]] = {name: [] for name in inside}
    rows, times = [], []
    for number, values in itertools.chain([first], lines):
        cells = _cells(values, names)
        if isinstance(values, dict) != bool(names) or len(cells) != len(top):
            raise RejectError(f"line {number} has other columns than line {first[0]}")
        for place in places:
            if not _is_number(cells[place]):
                column = f" of {names[place]!r}" if names else ""
                raise RejectError(f"line {number}: {cells[place]!r:.80}{column} is not a number")
        rows.append(np.array([cells[place] for place in places], np.float64))  # None becomes NaN
        if time is not None:
            times.append(cells[time])
        for name, place in inside.items():
            kept[name].append(cells[place])
    return single_signal(
        np.stack(rows),
        options,
        times=None if time is None else _seconds(times, options.time_unit),
        notes=(*note_left_out(left_out), *note_twice(names, options)),
        columns={name: Column.of_cells([pyarrow.array(v)]) for name, v in kept.items()},
        dtype=TEXT_DTYPE,
    )


def _lines(text: bytes) -> Iterator[tuple[int, Any]]:
    """Yields the number and the value of each line that is not blank."""
    for number, line in numbered_lines(io.BytesIO(text)):
        if line is None:
            raise RejectError(f"line {number} is too long")
        try:
            yield number, parse_json(line)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"line {number} is not JSON: {error}") from None


def _cells(values: Any, names: list[str]) -> list[Any]:
    """Returns the values of a line in the order of the names; those without a name follow."""
    if isinstance(values, dict):
        others = values.keys() - set(names)
        return [values.get(name) for name in names] + [values[name] for name in others]
    return values if isinstance(values, list) else [values]


def _is_number(value: Any) -> bool:
    return value is None or isinstance(value, (bool, int, float))


def _seconds(times: list[Any], unit: str) -> np.ndarray:
    if all(map(_is_number, times)):
        ticks = np.array([math.nan if time is None else time for time in times])
        return seconds(ticks, unit)
    return text_seconds(pyarrow.array(map(str, times)), 1, unit)
