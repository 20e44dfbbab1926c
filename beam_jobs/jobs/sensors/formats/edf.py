"""Physiological recordings in .edf and .bdf files."""

from __future__ import annotations

import warnings
from typing import Any

import edfio
import numpy as np

from beam_jobs.errors import RejectError
from beam_jobs.jobs.sensors.read_options import ReadOptions, lay_out
from beam_jobs.jobs.sensors.recording import Recording

# About files that are cut, which `_read` rejects, and signals without a range, which stay integers.
warnings.filterwarnings("ignore", module="edfio")


def read_edf(data: bytes, options: ReadOptions) -> Recording:
    """Samples [time, channels] in physical units: the chosen signals, or all; annotations are left out."""
    return _read(data, edfio.read_edf(data, header_encoding="latin-1"), options)


def read_bdf(data: bytes, options: ReadOptions) -> Recording:
    """The same, of a file of 24 bits."""
    return _read(data, edfio.read_bdf(data, header_encoding="latin-1"), options)


def _read(data: bytes, file: Any, options: ReadOptions) -> Recording:
    stated = int(data[236:244])
    if stated != file.num_data_records:
        raise ValueError(f"it has {file.num_data_records} of {stated} blocks of samples")
    if data[196:197] == b"D":
        raise RejectError("its recording was interrupted (EDF+D): export its parts as files")
    if options.time_column:
        raise RejectError("it states its rate and has no column of times: drop --time_column")
    names = [signal.label for signal in file.signals]
    if not names:
        raise RejectError("it has only annotations, no signals")
    layout = lay_out(names, len(names), options)
    signals = [file.signals[place] for place in layout.channels]
    rates = sorted({signal.sampling_frequency for signal in signals})
    if len(rates) > 1:
        listed = ", ".join(f"{signal.label} {signal.sampling_frequency:g} Hz" for signal in signals)
        raise RejectError(
            f"its signals differ in their rates: {listed}; choose signals of one rate with --columns"
        )
    signal = np.stack([signal.data for signal in signals], 1)
    # This dtype holds all digits of its integers.
    units = {"signal": tuple(signal.physical_dimension for signal in signals)}
    return Recording(
        {"signal": signal}, rates[0], dtype="float32", channels=layout.signal, units=units
    )
