"""The progress of a job: a bar on a terminal, otherwise plain lines; and the time of each phase.

Nothing is shown in the first seconds. Then a plain line appears every few seconds, and when a phase that counts
something begins.

Steps report progress from any thread. A process without a display, such as an engine's worker, reports to the
argument of `report_to`, or nowhere.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, Protocol, TextIO

from tqdm import tqdm

tqdm.monitor_interval = 0  # no thread that only redraws bars

# Seconds without progress lines: the command may have ended by then.
QUIET_SECONDS = 2.0

# Seconds between plain lines: an hour of log has 360 of them.
_LINE_SECONDS = 10.0

# Seconds between two messages of a process about its progress.
_RELAY_SECONDS = 0.25


def progress_line(
    phase: str, done: float, total: float, unit: str, rate: float, rejected: int = 0
) -> str:
    """One line about a phase: `writing: 500 of 1,000 records, 250/s, 00:02 left, 3 rejected`.

    Args:
        phase: The phase's name.
        done: The finished amount.
        total: The whole amount; 0 if unknown.
        unit: The unit of both; "B" for bytes.
        rate: Units per second; 0 if unknown.
        rejected: The number of rejected inputs.
    """
    from readers.format.display import format_bytes  # Not before the first line of all.

    amount = format_bytes if unit == "B" else "{:,.0f}".format
    text = f"{phase}: {amount(done)}"
    if total:
        text += f" of {amount(total)}"
    noun = unit.removesuffix("s") if (total or done) == 1 else unit
    text += "" if unit == "B" else f" {noun}"
    if rate >= 0.5:
        text += f", {amount(rate)}/s"
    if total and rate:
        text += f", {tqdm.format_interval(max(total - done, 0) / rate)} left"
    return text + (f", {rejected:,} rejected" if rejected else "")


class _Display:
    """The current phase of a job, shown on a stream."""

    def __init__(self, stream: TextIO, line_seconds: float, quiet_seconds: float) -> None:
        self._stream, self._line_seconds = stream, line_seconds
        self._lock = threading.Lock()
        self._expected: dict[str, tuple[int, str]] = {}
        self._phase = ""
        self._begun: set[str] = set()
        self._bar: Any = None
        self._rejected = 0
        self._since = time.monotonic()
        self._first_line = self._since + quiet_seconds
        self._next_line = self._since + line_seconds
        # Phase -> the time until another one began, in the order in which they began.
        self.seconds: dict[str, float] = {}

    def expect(self, phase: str, total: int, unit: str) -> None:
        with self._lock:
            known, _ = self._expected.get(phase, (0, unit))
            self._expected[phase] = known + total, unit

    def advance(self, phase: str, amount: int, rejected: int) -> None:
        with self._lock:
            if phase != self._phase:
                self._begin(phase)
            self._rejected += rejected
            if self._rejected:
                self._bar.set_postfix_str(f"{self._rejected:,} rejected", refresh=False)
            self._bar.update(amount)
            now = time.monotonic()
            if now < self._first_line or self._stream.isatty() or self._bar.bar_format:
                return
            # A phase may continue after another one, but begins once.
            if phase not in self._begun or (amount and now >= self._next_line):
                self._begun.add(phase)
                self._next_line = now + self._line_seconds
                print(self._line(), file=self._stream, flush=True)

    def _begin(self, phase: str) -> None:
        self.close()
        self._phase = phase
        total, unit = self._expected.get(phase, (None, "files"))
        shown = self._stream.isatty()
        self._bar = tqdm(
            desc=phase,
            total=total,
            unit=f" {unit}",
            unit_scale=unit == "B",
            file=self._stream,
            leave=False,
            disable=False,
            dynamic_ncols=True,
            bar_format=None if unit else "{desc} ...",
            # A bar that is never drawn still counts, and computes the rate and the time left.
            delay=max(self._first_line - time.monotonic(), 0) if shown else float("inf"),
        )

    def _line(self) -> str:
        known = self._bar.format_dict
        unit = known["unit"].strip()
        rate = known["n"] / max(known["elapsed"], 1)  # The first moments say nothing of the rate.
        return progress_line(
            self._phase, known["n"], known["total"] or 0, unit, rate, self._rejected
        )

    def close(self) -> None:
        if self._bar is not None:
            self._bar.close()
            self._bar = None
            now = time.monotonic()
            self.seconds[self._phase] = self.seconds.get(self._phase, 0.0) + now - self._since
            self._since = now


class Relay:
    """Sends the progress of this process to the process that shows it.

    If that process has died, `advance` raises OSError, because nobody needs the work any more.

    Args:
        send: Sends a list of (phase, amount, rejected).
    """

    def __init__(self, send: Callable[[list[tuple[str, int, int]]], Any]) -> None:
        self._send, self._lock = send, threading.Lock()
        self._steps: dict[str, tuple[int, int]] = {}
        self._next = 0.0

    def expect(self, phase: str, total: int, unit: str) -> None:
        """Does nothing: the other process knows the totals."""

    def advance(self, phase: str, amount: int, rejected: int) -> None:
        with self._lock:
            done, before = self._steps.get(phase, (0, 0))
            self._steps[phase] = done + amount, before + rejected
        if time.monotonic() >= self._next:
            self.send()

    def send(self) -> None:
        """Sends the rest."""
        with self._lock:
            steps, self._steps = self._steps, {}
            self._next = time.monotonic() + _RELAY_SECONDS
            if steps:
                self._send([(phase, *counts) for phase, counts in steps.items()])


class Reported(Protocol):
    """A receiver of the progress of a process, with methods named like the functions below."""

    def expect(self, phase: str, total: int, unit: str) -> None: ...

    def advance(self, phase: str, amount: int, rejected: int) -> None: ...


_reported: Reported | None = None


def report_to(reported: Reported | None) -> None:
    """Reports the progress of this process from now on; to nobody if the argument is None."""
    global _reported
    _reported = reported


def expect(phase: str, total: int, unit: str) -> None:
    """Adds to the expected total of a phase."""
    if _reported:
        _reported.expect(phase, total, unit)


def begin(phase: str) -> None:
    """Starts a phase that counts nothing."""
    expect(phase, 0, "")
    advance(phase, 0)


def advance(phase: str, amount: int, rejected: int = 0) -> None:
    """Adds to the finished amount of a phase; 0 starts the phase and its clock.

    Args:
        phase: The phase's name.
        amount: The finished amount, in the unit of `expect`.
        rejected: The number of rejected inputs in it.
    """
    if _reported:
        _reported.advance(phase, amount, rejected)


# Phase -> its seconds, before a display; and the least that are worth a word.
_early: dict[str, float] = {}
_EARLY_SECONDS = 0.5


@contextlib.contextmanager
def early(phase: str, counted: bool = True) -> Iterator[None]:
    """Announces an early phase once if it takes long, before a job has a display; times it if it is `counted`."""
    if _reported:
        yield
        return
    said = [f"{phase} ..."], {"file": sys.stderr, "flush": True}
    timer, began = threading.Timer(QUIET_SECONDS, print, *said), time.monotonic()
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()
        if (seconds := time.monotonic() - began) >= _EARLY_SECONDS and counted:
            _early[phase] = _early.get(phase, 0.0) + seconds


@contextlib.contextmanager
def display(
    stream: TextIO, line_seconds: float = _LINE_SECONDS, quiet_seconds: float = QUIET_SECONDS
) -> Iterator[dict[str, float]]:
    """Shows progress on a stream while the context is open, except in the first seconds.

    Yields:
        The seconds of each phase, in the order in which they began; complete when the context closes.
    """
    before, display = _reported, _Display(stream, line_seconds, quiet_seconds)
    display.seconds |= _early
    _early.clear()
    report_to(display)
    try:
        yield display.seconds
    finally:
        report_to(before)
        display.close()
