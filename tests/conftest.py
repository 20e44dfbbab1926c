"""Fixtures and settings that all tests share."""

import contextlib
import os
import shutil
import signal
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from beam_jobs.dataset.shard_writer import ShardWriter
from beam_jobs.errors import DataError
from tests.support import quick_beam  # noqa: F401
from tests.support.object_stores import (
    azure,
    azure_of_module,
    azure_server,
    gcs,
    gcs_of_module,
    gcs_server,
    s3,
    s3_of_module,
    s3_server,
    store,
)

__all__ = ["azure", "azure_of_module", "azure_server"]
__all__ += ["gcs", "gcs_of_module", "gcs_server", "s3", "s3_of_module", "s3_server", "store"]

# A shell that starts pytest in the background makes it and its child processes ignore Ctrl-C.
signal.signal(signal.SIGINT, signal.default_int_handler)

# CI uses the same examples in every run, so that a change fails only for its own faults; elsewhere
# every run draws new ones. There is no deadline because CI machines are slow at times.
settings.register_profile("ci", derandomize=True, deadline=None)
settings.register_profile("here", deadline=None)
settings.load_profile("ci" if os.environ.get("CI") else "here")

# Where programs that tests start keep what they fetch, by the variable that says so.
_CACHES = {"BEAM_SHARDS_POOL": "beam-shards-pool", "UV_CACHE_DIR": "uv", "GOCACHE": "go-build"}


def pytest_configure(config: pytest.Config) -> None:
    """Lets readers keep their indexes in a folder of this run, and other programs theirs where they were."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    for variable, folder in _CACHES.items():
        os.environ.setdefault(variable, str(Path(cache, folder)))
    made = os.environ["XDG_CACHE_HOME"] = tempfile.mkdtemp(prefix="beam-shards-tests-")
    config.add_cleanup(lambda: shutil.rmtree(made, ignore_errors=True))


TIERS = {"slow", "environments", "disks", "frameworks", "pool", "azurite", "browsers", "engines"}


@pytest.hookimpl(tryfirst=True)  # before pytest evaluates -m
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Moves the cases that `slow(base=[...])` lists to the base; every test is in exactly one tier."""
    listed, found = set(), set()
    for item in items:
        mark = item.get_closest_marker("slow")
        if mark and "base" in mark.kwargs:
            name, case = item.nodeid.split("[")[0], item.callspec.id  # type: ignore[attr-defined]
            listed |= {(name, case) for case in mark.kwargs["base"]}
            found.add((name, case))
            if case in mark.kwargs["base"]:
                item.own_markers.remove(mark)
        if item.get_closest_marker("azurite"):  # Slow or not, it needs Azurite.
            item.own_markers = [mark for mark in item.own_markers if mark.name != "slow"]
        tiers = TIERS & {mark.name for mark in item.iter_markers()}
        if len(tiers) > 1:
            raise pytest.UsageError(f"{item.nodeid} is in several tiers: {', '.join(tiers)}")
    # With `::` on the command line only some cases of a test are collected.
    if (unknown := listed - found) and not any("::" in argument for argument in config.args):
        raise pytest.UsageError(f"slow(base=...) lists cases that do not exist: {sorted(unknown)}")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Prints where the seconds of a run went: by folder, and the slowest tests."""
    seconds: Counter[str] = Counter()
    for report in (r for reports in terminalreporter.stats.values() for r in reports):
        if isinstance(report, pytest.TestReport):
            seconds[report.nodeid] += report.duration
    if seconds.total() < 60:
        return
    folders: Counter[str] = Counter()
    for test, taken in seconds.items():
        folders[test.split("::")[0].rpartition("/")[0]] += taken
    terminalreporter.section(f"{len(seconds):,} tests, {seconds.total():.0f} s in all processes")
    for name, taken in [*folders.most_common(), ("", 0), *seconds.most_common(10)]:
        terminalreporter.write_line(f"{taken:7.1f} s  {name}" if name else "")


@pytest.fixture
def dying_after(
    monkeypatch: pytest.MonkeyPatch,
) -> Callable[[int], contextlib.AbstractContextManager]:
    """Lets a number of shards be written; the next writer fails in any thread."""
    write, changed = ShardWriter.write, threading.Condition()

    @contextlib.contextmanager
    def dying(shards: int) -> Iterator[None]:
        begun = written = 0

        def dies(*arguments: Any) -> Any:
            nonlocal begun, written
            with changed:
                if begun == shards:
                    changed.wait_for(lambda: written == shards, timeout=60)
                    raise DataError("interrupted")
                begun += 1
            result = write(*arguments)
            with changed:
                written += 1
                changed.notify_all()
            return result

        with monkeypatch.context() as patch:
            patch.setattr(ShardWriter, "write", dies)
            yield

    return dying
