"""Engines for the tests."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

from engines.services import free_ports, start, stop

Engine = TypeVar("Engine")

_TESTS = str(Path(__file__).parents[1])


@contextlib.contextmanager
def running(kind: type[Engine], folder: Path, **arguments: Any) -> Iterator[Engine]:
    """An engine for as long as a block runs, on ports that nobody else has.

    Its workers can import what lies in the folder of the tests.
    """
    defaults: Any = kind
    engine: Any = defaults(folder, tuple(free_ports(len(defaults.ports))), **arguments)
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = _TESTS
    try:
        start(folder, engine.services())
    finally:
        os.environ.pop("PYTHONPATH") if before is None else os.environ.update(PYTHONPATH=before)
    try:
        yield engine
    finally:
        stop(folder)
