"""What all tests share."""

import os
from typing import Any

from apache_beam.transforms import userstate
from apache_beam.transforms.core import CallableWrapperDoFn, DoFn
from hypothesis import settings

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
