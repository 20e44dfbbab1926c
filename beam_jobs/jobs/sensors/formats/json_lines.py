"""Recordings in .jsonl files, whose lines are arrays or objects."""

from __future__ import annotations

import io
import itertools
import math
from array import array
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow

from beam_jobs.errors import RejectError
from beam_jobs.jobs.sensors.formats.cells import seconds, text_seconds, unit_of_times
from beam_jobs.jobs.sensors.formats.text_tables import DTYPE, text_of
from beam_jobs.jobs.sensors.read_options import Layout, ReadOptions, counters, lay_out
from beam_jobs.jobs.sensors.recording import Column, Recording
from beam_jobs.sources.rows import numbered_lines, parse_json
from beam_jobs.storage.limits import check_bytes

# Lines in memory as Python objects at a time.
_BLOCK_LINES = 4096

_TYPES: dict[type, str] = {str: "text", list: "list", dict: "object"}


def read_jsonl(data: bytes, options: ReadOptions) -> Recording:
    """A signal float64 [lines, channels]; null and missing names are NaN, true is 1.

    The first line states the columns; those in which it has neither a number nor null are not channels.
    """
    text = text_of(data, options)
    check_bytes(8 * (1 + text.count(b",") + text.count(b"\n")), options.max_bytes)
    lines = _lines(text)
    first = next(lines, None)
    if first is None:
        raise RejectError("the file is empty")
    names = list(first[1]) if isinstance(first[1], dict) else []
    top = _cells(first[1], names)
    kinds = ["" if _is_json_number(value) else _TYPES[type(value)] for value in top]
    if names and "list" in kinds and "" not in kinds:
        raise RejectError(
            "its lines hold lists: a line is one sample, so write a line for each, such as "
            '{"x": 1, "y": 4}, or save each recording as .npz'
        )
    layout = lay_out(names, len(top), options, kinds)
    unit, note = unit_of_times(options.time_unit, options.time_column)
    signal, times = [], []
    # The code of each value, and those of all lines. Python takes True for 1.
    codes: dict[str, dict[tuple[bool, Any], int]] = {name: {} for name in layout.own_columns}
    columns: dict[str, array[int]] = {name: array("q") for name in layout.own_columns}
    lines = itertools.chain([first], lines)
    while block := list(itertools.islice(lines, _BLOCK_LINES)):
        rows = [_row(line, names, len(top), layout) for line in block]
        # None becomes NaN.
        signal.append(np.array([[row[i] for i in layout.channels] for row in rows], np.float64))
        if layout.time is not None:
            cells = [row[layout.time] for row in rows]
            times.append(_json_seconds(cells, block[0][0], unit))
        for name, place in layout.own_columns.items():
            values = ((isinstance(row[place], bool), row[place]) for row in rows)
            code_of = codes[name]
            columns[name].extend(code_of.setdefault(value, len(code_of)) for value in values)
    joined, chosen = np.concatenate(signal), [layout.titles[place] for place in layout.channels]
    return Recording(
        {"signal": joined},
        times=np.concatenate(times) if times else None,
        notes=(*layout.notes, *filter(None, [note]), *counters(joined, chosen)),
        columns={
            name: Column([value for _, value in codes[name]], np.array(column, np.int64))
            for name, column in columns.items()
        },
        dtype=DTYPE,
        channels=layout.signal,
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


def _row(line: tuple[int, Any], names: list[str], width: int, layout: Layout) -> list[Any]:
    """The values of a line, checked."""
    number, values = line
    row = _cells(values, names)
    if isinstance(values, dict) != bool(names) or len(row) != width:
        raise RejectError(f"line {number} has other columns than the first")
    for place in layout.channels:
        if not _is_json_number(row[place]):
            column = f" of {names[place]!r}" if names else ""
            raise RejectError(f"line {number}: {row[place]!r:.80}{column} is not a number")
    for name, place in layout.own_columns.items():
        if not isinstance(row[place], str) and not _is_json_number(row[place]):
            raise RejectError(
                f"line {number}: {row[place]!r:.80} of {name!r} is not text or a number"
            )
    return row


def _cells(values: Any, names: list[str]) -> list[Any]:
    """The values of a line in the order of the names; unnamed ones follow."""
    if isinstance(values, dict):
        others = values.keys() - set(names)
        return [values.get(name) for name in names] + [values[name] for name in others]
    return values if isinstance(values, list) else [values]


def _is_json_number(value: Any) -> bool:
    return value is None or isinstance(value, (bool, int, float))


def _json_seconds(times: list[Any], row: int, unit: str) -> np.ndarray:
    if all(map(_is_json_number, times)):
        ticks = np.array([math.nan if time is None else time for time in times])
        return seconds(ticks, unit)
    return text_seconds(pyarrow.array(map(str, times)), row, unit)
