"""Reads the recording of a source: of one file, or of several that are joined."""

from __future__ import annotations

import itertools

import numpy as np

from beam_jobs.errors import RejectError
from beam_jobs.jobs.sensors.formats.registry import read_recording
from beam_jobs.jobs.sensors.recording import Recording
from beam_jobs.jobs.sensors.spec import SensorSpec, format_rate
from beam_jobs.jobs.sensors.values import convert_array, note_rounded
from beam_jobs.sources.source import Source
from beam_jobs.storage.files import read_bytes


def read_source(
    spec: SensorSpec, source: Source, data: bytes | None
) -> tuple[Recording, dict[str, np.ndarray | float]]:
    """Returns the recording of a source, and the clocks for `Conditioning.segments`.

    Args:
        data: The bytes of the file if they were read already.

    Raises:
        RejectError: the source cannot be read as a recording.
    """
    if source.error:
        raise RejectError(source.error)
    if source.joined:
        return _read_joined(spec, source)
    recording = _read_file(spec, source.file, spec.inputs.read(source) if data is None else data)
    return recording, recording.clocks


def _read_joined(
    spec: SensorSpec, source: Source
) -> tuple[Recording, dict[str, np.ndarray | float]]:
    """Returns the recording that several files form, and the clocks of its arrays."""
    arrays: dict[str, np.ndarray] = {}
    clocks: dict[str, np.ndarray | float] = {}
    rates: set[float | None] = set()
    notes: list[str] = []
    for name, path, _, _ in source.joined:
        try:
            found = _read_file(spec, path, read_bytes(path))
        except OSError as error:
            raise RejectError(f"{name}: cannot be read: {error}") from None
        except RejectError as error:
            raise RejectError(f"{name}: {error}") from None
        rates.add(found.rate)
        notes += (f"{name}: {note}" for note in found.notes)
        for array, values in found.arrays.items():
            whole = name if array == "signal" else f"{name}/{array}"
            arrays[whole] = values
            if found.times is not None:
                clocks[whole] = found.times
            elif found.rate:
                clocks[whole] = found.rate
    if spec.conditioning.resample:
        return Recording(arrays, notes=tuple(notes)), clocks
    if len(rates) > 1:
        found_rates = " and ".join(sorted(map(format_rate, rates)))
        raise RejectError(f"its files have {found_rates}: --resample brings them to one rate")
    return Recording(arrays, rates.pop(), notes=tuple(notes)), clocks


def _read_file(spec: SensorSpec, name: str, data: bytes) -> Recording:
    recording = read_recording(name, data, spec.read_options)
    if recording.dtype and not spec.dtype:
        arrays = {n: convert_array(a, recording.dtype) for n, a in recording.arrays.items()}
        # Only the notes of the first file are read, before there is a schema.
        noted = () if spec.features else recording.arrays.values()
        rounded = itertools.chain.from_iterable(map(note_rounded, noted))
        recording = recording._replace(arrays=arrays, notes=(*recording.notes, *rounded))
    return recording
