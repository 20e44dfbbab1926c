"""The packages that decide what a dataset's bytes are."""

from __future__ import annotations

import functools
import platform
from importlib import metadata

_PACKAGES = ("beam-shards", "apache-beam", "numpy", "pillow")


@functools.cache
def versions(*more: str) -> dict[str, str]:
    """The version of Python and of each package that is installed.

    Args:
        more: Packages that decide something in this job alone.
    """
    found = {"python": platform.python_version()}
    for package in (*_PACKAGES, *more):
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found
