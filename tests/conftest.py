"""What all tests share."""

import contextlib
import os
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from apache_beam.transforms import userstate
from apache_beam.transforms.core import CallableWrapperDoFn, DoFn
from hypothesis import settings

from beam_jobs.errors import DataError
from beam_jobs.shard_writer import ShardWriter

# In CI the same examples every time, so that a change is judged by its own faults; elsewhere new
# ones in every run. Without a deadline: the machines of CI are slow at times.
settings.register_profile("ci", derandomize=True, deadline=None)
settings.register_profile("here", deadline=None)
settings.load_profile("ci" if os.environ.get("CI") else "here")

# Beam looks through all methods of a step for state and timers some thirty times for each step, which
# takes 40 % of a small pipeline's time (1.6 s to 1.0). It is a matter of the class, and functions in
# Map and FlatMap have neither here.
_specs_of = userstate.get_dofn_specs
_known: dict[type, Any] = {CallableWrapperDoFn: (set(), set())}


def _specs_of_class(step: DoFn) -> Any:
    kind = type(step)
    if kind not in _known:
        _known[kind] = _specs_of(step)
    return _known[kind]


userstate.get_dofn_specs = _specs_of_class


@pytest.fixture
def dying_after(
    monkeypatch: pytest.MonkeyPatch,
) -> Callable[[int], contextlib.AbstractContextManager]:
    """Lets exactly so many shards be written, then the next writer fails, in whatever thread."""
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
