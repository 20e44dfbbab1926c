"""What all tests share."""

import os

from hypothesis import settings

# In CI the same examples every time, so that a change is judged by its own faults; elsewhere new
# ones in every run. Without a deadline: the machines of CI are slow at times.
settings.register_profile("ci", derandomize=True, deadline=None)
settings.register_profile("here", deadline=None)
settings.load_profile("ci" if os.environ.get("CI") else "here")
