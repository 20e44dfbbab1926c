"""Engines for the tests."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

from tests.engines.services import free_ports, start, stop
from tests.support.checkout import ROOT

Engine = TypeVar("Engine")

_CHECKOUT = str(ROOT)


@contextlib.contextmanager
def running(kind: type[Engine], folder: Path, **arguments: Any) -> Iterator[Engine]:
    """Runs an engine on unused ports during the context; its workers can import the tests."""
    defaults: Any = kind
    engine: Any = defaults(folder, tuple(free_ports(len(defaults.ports))), **arguments)
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = _CHECKOUT
    try:
        start(folder, engine.services())
    finally:
        os.environ.pop("PYTHONPATH") if before is None else os.environ.update(PYTHONPATH=before)
    try:
        yield engine
    finally:
        stop(folder)


def engine_of_module(kind: type[Engine], **arguments: Any) -> Any:
    """A fixture: an engine that runs for the tests of one module."""

    @pytest.fixture(scope="module")
    def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
        with running(kind, tmp_path_factory.mktemp("engine"), **arguments) as started:
            yield started

    return engine
