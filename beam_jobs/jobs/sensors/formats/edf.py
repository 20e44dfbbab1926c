"""Physiological recordings in .edf and .bdf files."""

from __future__ import annotations

import warnings

import edfio
import numpy as np

from beam_jobs.errors import RejectError
from beam_jobs.jobs.sensors.read_options import ReadOptions, lay_out
from beam_jobs.jobs.sensors.recording import Recording
from beam_jobs.storage.limits import check_bytes

# About files that are cut and signals without a range, which are rejected here.
warnings.filterwarnings("ignore", module="edfio")


def read_edf(data: bytes, options: ReadOptions) -> Recording:
    """Samples [time, channels] in physical units: the chosen signals, or all; annotations are left out."""
    count = int(data[252:256])
    head = data[: 256 * (1 + count)].replace(b"\0", b" ")
    plain = bytearray(head)
    # The duration of a data record, and the physical ranges.
    for numbers in slice(244, 252), slice(256 + 104 * count, 256 + 120 * count):
        plain[numbers] = head[numbers].replace(b",", b".")
    notes = ["decimal commas in its header are read as points"] if plain != head else []
    if not float(plain[244:252]) > 0:
        raise RejectError("its data records last 0 s, so its signals have no rate")
    parse = edfio.read_bdf if data[:1] == b"\xff" else edfio.read_edf
    file = parse(bytes(plain) + data[len(head) :], header_encoding="latin-1")
    stated = int(head[236:244])
    if stated == -1:
        notes.append("its recorder was cut off (-1 data records): read to its end")
    elif stated != file.num_data_records:
        raise ValueError(f"it has {file.num_data_records} of {stated} blocks of samples")
    if head[196:197] == b"D":
        raise RejectError("its recording was interrupted (EDF+D): export its parts as files")
    if options.time_column:
        raise RejectError("it states its rate and has no column of times: drop --time_column")
    names = [signal.label for signal in file.signals]
    if len(names) < count:
        notes.append("not read: annotations")
    layout = lay_out(names, len(names), options)
    signals = [file.signals[place] for place in layout.channels]
    check_bytes(sum(signal.digital.size for signal in signals) * 8, options.max_bytes)
    for signal in signals:
        if not np.ptp([signal.physical_range, signal.digital_range], axis=1).all():
            name = signal.label
            raise RejectError(f"signal {name!r} has an empty range: --drop_columns leaves it out")
    rates = sorted({signal.sampling_frequency for signal in signals})
    if len(rates) > 1:
        listed = ", ".join(f"{signal.label} {signal.sampling_frequency:g} Hz" for signal in signals)
        raise RejectError(f"its signals differ in their rates: {listed}; choose with --columns")
    return Recording(
        {"signal": np.stack([signal.data for signal in signals], 1)},
        rates[0],
        notes=(*layout.notes, *notes),
        dtype="float32",  # which holds all digits of its integers
        channels=layout.signal,
        units={"signal": tuple(signal.physical_dimension for signal in signals)},
    )
