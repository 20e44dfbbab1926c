"""Signals: levels, faults, gaps and spectra of each channel."""

from __future__ import annotations

from typing import Any
from xml.etree.ElementTree import Element

import numpy as np

from readers.measures.channels import GAP, MOST_CHANNELS, WINDOW, Channels
from readers.page import charts
from readers.page.distributions.drawings import histograms
from readers.page.numbers import percent, short
from readers.page.section import Section
from readers.page.study import Study

# Fewer steps of a fixed number are a vector, not a signal.
_FEWEST_STEPS = 32

_FEATURES = 12

_COLUMNS = (
    *("min", "max", "mean", "std", "RMS", "missing"),
    *("constant", "dead", "clipped", "in gaps", "longest gap"),
)


def section(study: Study) -> Section | None:
    """The channels of each signal."""
    names = [name for name in study.facts.features.of_kind("signal") if _is_signal(study, name)]
    found = [_signal(study, name) for name in names[:_FEATURES] if study.channels(name)]
    if not found:
        return None
    return Section.filled(
        "signals",
        shown=found,
        columns=_COLUMNS,
        gap=GAP,
        rate=study.manifest.sample_rate,
        left=len(names) - len(names[:_FEATURES]),
    )


def _is_signal(study: Study, name: str) -> bool:
    steps = study.manifest.schema[name].shape[0]
    return steps is None or steps >= _FEWEST_STEPS


def _signal(study: Study, name: str) -> dict[str, Any]:
    parts = list(study.channels(name).values())
    found = parts[0].merge(parts[1:])
    shape = study.manifest.schema[name].shape
    anchor = study.anchor(name, kind="signal")
    measures = {split: sample.measures[name] for split, sample in study.samples.items()}
    levels = {split: each["rms"] for split, each in measures.items() if "rms" in each}
    drawings = [
        histograms(levels, anchor, "Records by RMS"),
        _spectrum(found, study.manifest.sample_rate),
    ]
    more = (
        ""
        if len(shape) < 2 or (shape[1] or 0) <= MOST_CHANNELS
        else f" The first {MOST_CHANNELS} channels."
    )
    return {
        "feature": name,
        "anchor": anchor,
        "source": f"Of {found.records:,} records of the sample with two steps or more, the middle {WINDOW:,} steps of each at "
        f"most.{more}",
        "rows": _rows(found),
        "drawings": [drawing for drawing in drawings if drawing is not None],
    }


def _rows(found: Channels) -> list[tuple[str, list[str]]]:
    """The figures of each channel."""
    known = found.steps - found.missing
    rows = []
    for channel in range(len(found.steps)):
        count = int(known[channel])
        cells = ["-"] * 5
        if count:
            with np.errstate(all="ignore"):  # Squares of the largest floats are infinite.
                mean, square = found.total[channel] / count, found.squares[channel] / count
                levels = (
                    *(found.low[channel], found.high[channel], mean),
                    *(np.sqrt(max(0.0, square - mean**2)), np.sqrt(square)),
                )
            cells = [short(float(level)) for level in levels]
        steps, records = int(found.steps[channel]), found.records
        faults = (found.constant[channel], found.dead[channel], found.clipped[channel])
        cells += [
            _share(int(found.missing[channel]), steps),
            *(_share(int(fault), records) for fault in faults),
            _share(int(found.gap_steps[channel]), steps),
            f"{int(found.longest_gap[channel]):,}",
        ]
        rows.append((str(channel), cells))
    return rows


def _share(count: int, total: int) -> str:
    return percent(count / total) if total else "-"


def _spectrum(found: Channels, rate: float) -> Element | None:
    """The mean power spectrum of the first channels; None if no record is long enough."""
    spectrum = found.spectrum()
    if spectrum is None:
        return None
    size, power = spectrum
    # Without the mean, which was taken away.
    across = np.fft.rfftfreq(size, 1 / rate if rate else 1.0)[1:]
    series = {
        f"channel {channel}": (across, np.where(up > 0, up, np.nan))
        for channel, up in enumerate(power[1:].T[: charts.SERIES])
        if np.isfinite(up).all() and (up > 0).any()
    }
    unit = "Hz" if rate else "cycles a step"
    caption = f"Mean power by frequency in {unit}, of segments of {size:,} steps"
    return charts.lines(series, caption, log=True) if series else None
