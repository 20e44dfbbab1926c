"""Smaller inputs that fail alike, and small corpora that reach as much as large ones."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

from tests.campaigns.fuzz import registry
from tests.campaigns.fuzz.target import Target
from tests.support.checkout import ROOT as CHECKOUT


def smaller(data: bytes, fails: Callable[[bytes], bool], seconds: float = 20) -> bytes:
    """An input that still fails, from which pieces were removed and in which bytes became zeros."""
    end = time.monotonic() + seconds
    size = len(data) // 2
    while size >= 1:
        at = 0
        while at < len(data) and time.monotonic() < end:
            without = data[:at] + data[at + size :]
            zeroed = data[:at] + bytes(min(size, len(data) - at)) + data[at + size :]
            if fails(without):
                data = without
                continue
            if zeroed != data and fails(zeroed):
                data = zeroed
            at += size
        size //= 2
    return data


def lines_of(target: Target, data: bytes, instrumented: Sequence[str]) -> set[tuple[str, int, int]]:
    """(file, line, line before) of what an input reaches in some modules."""
    root = str(CHECKOUT)
    parts = tuple("/" + name.replace(".", "/") for name in instrumented)
    found = set[tuple[str, int, int]]()
    wanted = dict[str, bool]()

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        file = frame.f_code.co_filename
        if file not in wanted:
            wanted[file] = any(part in file.removeprefix(root) for part in parts)
        if not wanted[file]:
            return None
        last = 0

        def line(frame: FrameType, event: str, argument: Any) -> Any:
            nonlocal last
            if event == "line":
                found.add((file, frame.f_lineno, last))
                last = frame.f_lineno
            return line

        return line

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        target.examine(data)
    except Exception:
        found.add((type(sys.exc_info()[1]).__name__, 0, 0))
    finally:
        sys.settrace(before)
    return found


def covering(target: Target, inputs: Iterable[bytes], most: int, most_bytes: int) -> list[bytes]:
    """The fewest inputs, small ones first, that reach nearly all that the inputs reach.

    Args:
        target: The target.
        inputs: The inputs.
        most: The most inputs.
        most_bytes: The most bytes of all of them.
    """
    modules = registry.instrumented(target.name)
    reached = {data: lines_of(target, data, modules) for data in inputs}
    chosen: list[bytes] = []
    left = set[tuple[str, int, int]]().union(*reached.values()) if reached else set()
    room = most_bytes
    while left and len(chosen) < most:
        # More new lines first, then fewer bytes.
        best = max(reached, key=lambda data: (len(reached[data] & left), -len(data), data))
        gained = reached.pop(best) & left
        if not gained:
            break
        if len(best) <= room:
            chosen.append(best)
            room -= len(best)
            left -= gained
        if not reached:
            break
    return sorted(chosen, key=lambda data: (len(data), data))


def read_all(*folders: Path) -> list[bytes]:
    """The files of some folders, each once."""
    files = (file for folder in folders if folder.is_dir() for file in folder.iterdir())
    return sorted(
        {file.read_bytes() for file in files if file.is_file()}, key=lambda d: (len(d), d)
    )
