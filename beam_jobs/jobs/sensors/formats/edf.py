"""Physiological recordings in .edf and .bdf files."""

from __future__ import annotations

import warnings
from typing import Any

import edfio
import numpy as np

from beam_jobs.errors import RejectError
from beam_jobs.jobs.sensors.read_options import ReadOptions, column_places
from beam_jobs.jobs.sensors.recording import Recording
from beam_jobs.storage.limits import check_bytes

# About files that are cut and signals without a range, which are rejected here.
warnings.filterwarnings("ignore", module="edfio")


def read_edf(data: bytes, options: ReadOptions) -> Recording:
    """Samples [time, channels] in physical units: the chosen signals, or all; annotations are left out."""
    count, is_bdf = int(data[252:256]), data[:1] == b"\xff"
    head = data[: 256 * (1 + count)].replace(b"\0", b" ")
    plain = bytearray(head)
    # The duration of a data record, and the physical ranges.
    for numbers in slice(244, 252), slice(256 + 104 * count, 256 + 120 * count):
        plain[numbers] = head[numbers].replace(b",", b".")
    notes = ["decimal commas in its header are read as points"] if plain != head else []
    if float(plain[244:252]) == 0:
        raise RejectError(
            "its data records last 0 s, so its signals have no rate: correct its header"
        )
    parse = edfio.read_bdf if is_bdf else edfio.read_edf
    file = parse(bytes(plain) + data[len(head) :], header_encoding=_encoding(head))
    stated = int(head[236:244])
    if stated == -1:
        notes.append("its recorder was cut off (-1 data records): read to its end")
    elif stated != file.num_data_records:
        raise ValueError(f"it has {file.num_data_records} of {stated} blocks of samples")
    # The samples of a data record.
    fields = range(256 + 216 * count, 256 + 224 * count, 8)
    samples = sum(int(head[field : field + 8]) for field in fields) * file.num_data_records
    if len(data) > len(head) + samples * (3 if is_bdf else 2):
        notes.append("not read: bytes after its last whole data record")
    has_times = len(file.signals) < count  # in a signal of annotations
    if head[196:197] == b"D" and not (has_times and file.is_continuous):
        raise RejectError("its recording was interrupted (EDF+D): export its parts as files")
    if options.time_column:
        raise RejectError("it states its rate and has no column of times: drop --time_column")
    if has_times and file.annotations:
        notes.append("not read: its annotations")
    signals = _chosen(file.signals, options)
    check_bytes(sum(signal.digital.size for signal in signals) * 8, options.max_bytes)
    rates = sorted({signal.sampling_frequency for signal in signals})
    if len(rates) > 1:
        listed = ", ".join(f"{signal.label} {signal.sampling_frequency:g} Hz" for signal in signals)
        raise RejectError(
            f"its signals differ in their rates: {listed}; choose signals of one rate with --columns"
        )
    names = tuple(signal.label for signal in signals)
    return Recording(
        {"signal": np.stack([signal.data for signal in signals], 1)},
        rates[0],
        notes=tuple(notes),
        dtype="float32",  # which holds all digits of its integers
        channels={"signal": names} if any(names) else {},
        units={"signal": tuple(signal.physical_dimension for signal in signals)},
    )


def _chosen(signals: tuple[Any, ...], options: ReadOptions) -> list[Any]:
    """The signals of the channels.

    Raises:
        RejectError: There are none, or the range of one does not convert its integers.
    """
    names = [signal.label for signal in signals]
    if not names:
        raise RejectError("it has only annotations, no signals")
    column_places(names, options.drop_columns)
    places = column_places(names, options.columns)
    others = {*options.drop_columns, *options.metadata_columns}
    chosen = [signals[places[name]] for name in options.columns] or [
        signal for signal in signals if signal.label not in others
    ]
    for signal in chosen:
        try:
            ranges = signal.physical_range, signal.digital_range
            is_empty = any(low == high for low, high in ranges)
        except ValueError:
            is_empty = True
        if is_empty:
            raise RejectError(
                f"signal {signal.label!r} has no physical or no digital range, so its unit is unknown: leave it out "
                "with --drop_columns, or choose others with --columns"
            )
    return chosen


def _encoding(head: bytes) -> str:
    try:
        head.decode()
    except UnicodeDecodeError:
        return "latin-1"
    return "utf-8"
