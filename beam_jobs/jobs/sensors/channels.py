"""Names and units of channels: all files of a job agree in them, in the order of the first file."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping

from beam_jobs.errors import UsageError
from beam_jobs.jobs.sensors.recording import Recording
from readers.format.display import first_names

# Array -> a text for each channel.
Texts = Mapping[str, tuple[str, ...]]

# The most channels of an array, and names in an error.
_MOST_CHANNELS, _NAMES_SHOWN = 4096, 8

_UNNAMED = (
    "its channels have no names, or those of the first file have none: they were taken in order"
)

_RENAMED = "its array has another name than that of the first file; --arrays chooses arrays by name"


def aligned(key: str, recording: Recording, example: str, first: Recording) -> Recording:
    """A recording whose channels are in the order of those of the first file.

    Args:
        key: The key of the recording's file.
        recording: Its arrays, [time, channels] if they have names of channels.
        example: The key of the first file.
        first: What that file states of itself; its arrays are not needed.

    Raises:
        UsageError: The files differ in the names of their channels, or in the unit of one.
    """
    if recording.array != first.array:
        recording = recording._replace(notes=(*recording.notes, _RENAMED))
    for name in recording.arrays.keys() & {*first.channels, *recording.channels}:
        expected, found = first.channels.get(name), recording.channels.get(name)
        if not expected or not found:
            recording = recording._replace(notes=(*recording.notes, _UNNAMED))
            continue
        if found != expected:
            if sorted(found) != sorted({*expected}):
                listed, others = (first_names(each, _NAMES_SHOWN) for each in (found, expected))
                raise UsageError(
                    f"{key}: the channels of {name!r} are {listed}, but {example} has {others}; "
                    "records of one dataset must agree: narrow --input, or choose with --columns"
                )
            order = [found.index(channel) for channel in expected]
            units = recording.units.get(name, ("",) * len(order))
            recording = recording._replace(
                arrays={**recording.arrays, name: recording.arrays[name][:, order]},
                channels={**recording.channels, name: expected},
                units={**recording.units, name: tuple(units[place] for place in order)},
            )
        both = expected, first.units.get(name, ()), recording.units.get(name, ())
        for channel, unit, other in zip(*both, strict=False):
            if unit and other and _plain(unit) != _plain(other):
                raise UsageError(
                    f"{key}: channel {channel} is in {other}, but in {example} in {unit}; records of one dataset "
                    "must agree: narrow --input, or convert the file"
                )
    return recording


def few(texts: Texts) -> dict[str, list[str]]:
    """The texts of arrays with a limited number of channels, as JSON values in UTF-8."""
    return {
        name: [text.encode("utf-8", "backslashreplace").decode() for text in each]
        for name, each in texts.items()
        if len(each) <= _MOST_CHANNELS
    }


def _plain(unit: str) -> str:
    """A unit in one spelling: the two letters for micro, and u, are the same."""
    return unicodedata.normalize("NFKC", unit).replace("\N{GREEK SMALL LETTER MU}", "u").strip()
