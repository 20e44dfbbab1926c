"""How far a job is: a bar on a terminal, a plain line now and then elsewhere.

Steps tell it from whatever thread they run in. In a process that shows nothing, a runner's
worker, telling costs nothing and does nothing; there Beam's counters say the same.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from typing import Any, TextIO

from tqdm import tqdm

tqdm.monitor_interval = 0  # Without a thread that only ever redraws bars.

# Seconds between plain lines, and before the first: a log of an hour has 360 of them.
_LINE_SECONDS = 10.0


class _Display:
    """The phase of a job that moves, on a stream."""

    def __init__(self, stream: TextIO, line_seconds: float) -> None:
        self._stream, self._line_seconds = stream, line_seconds
        self._lock = threading.Lock()
        self._expected: dict[str, tuple[int, str]] = {}
        self._phase = ""
        self._bar: Any = None
        self._next_line = time.monotonic() + line_seconds

    def expect(self, phase: str, total: int, unit: str) -> None:
        with self._lock:
            known, _ = self._expected.get(phase, (0, unit))
            self._expected[phase] = known + total, unit

    def advance(self, phase: str, amount: int) -> None:
        with self._lock:
            if phase != self._phase:
                self._begin(phase)
            self._bar.update(amount)
            due = amount and time.monotonic() >= self._next_line
            if due and not self._stream.isatty():
                self._next_line = time.monotonic() + self._line_seconds
                print(self._line(), file=self._stream, flush=True)

    def _begin(self, phase: str) -> None:
        self.close()
        self._phase = phase
        total, unit = self._expected.get(phase, (None, "files"))
        self._bar = tqdm(
            desc=phase,
            total=total,
            unit=f" {unit}",
            unit_scale=unit == "B",
            file=self._stream,
            leave=False,
            disable=False,
            dynamic_ncols=True,
            # A bar that is never drawn still counts, and knows rate and time left.
            delay=0 if self._stream.isatty() else float("inf"),
        )

    def _line(self) -> str:
        known = self._bar.format_dict
        done, total, seconds = known["n"], known["total"], max(known["elapsed"], 1e-3)
        rate = done / seconds
        unit = known["unit"].strip()
        if unit == "B":
            amount, unit = (lambda n: tqdm.format_sizeof(n, divisor=1000)), "B"
        else:
            amount = "{:,.0f}".format
        text = f"{known['prefix']}: {amount(done)}"
        if total:
            text += f" of {amount(total)}"
        text += f" {unit}, {amount(rate)}/s"
        if total and rate:
            text += f", {tqdm.format_interval((total - done) / rate)} left"
        return text

    def close(self) -> None:
        if self._bar is not None:
            self._bar.close()
            self._bar = None


_display: _Display | None = None


def expect(phase: str, total: int, unit: str) -> None:
    """Tells how much more a phase has to do than was known before."""
    display = _display
    if display:
        display.expect(phase, total, unit)


def advance(phase: str, amount: int) -> None:
    """Tells that so much more of a phase is done; 0 when it begins, so that its clock runs."""
    display = _display
    if display:
        display.advance(phase, amount)


@contextlib.contextmanager
def shown(stream: TextIO, line_seconds: float = _LINE_SECONDS) -> Iterator[None]:
    """Shows progress on a stream while the context is open."""
    global _display
    _display = display = _Display(stream, line_seconds)
    try:
        yield
    finally:
        _display = None
        display.close()
