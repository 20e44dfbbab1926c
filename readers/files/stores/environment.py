"""Environment variables that switch something on."""

from __future__ import annotations

import os


def is_set(variable: str) -> bool:
    """Whether a variable is there, and neither empty nor a word for no."""
    return os.environ.get(variable, "").lower() not in ("", "0", "f", "false", "n", "no")
