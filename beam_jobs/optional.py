"""Libraries that only some inputs need, imported when one of those is met."""

from __future__ import annotations

import importlib
from typing import Any

from beam_jobs.errors import UsageError


def optional(module: str, extra: str, purpose: str) -> Any:
    """A module of one of the package's extras.

    Args:
        module: Its name, as it is imported.
        extra: Of the package, such as "hdf5".
        purpose: What needs it, such as ".h5 files".

    Raises:
        UsageError: It is not installed; the message has the pip command.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise UsageError(
            f"{purpose} need {module.split('.')[0]} ({error}): pip install 'beam-shards[{extra}]'"
        ) from None
