"""Optional packages, imported when an input needs them, and the versions of installed ones."""

from __future__ import annotations

import functools
import importlib
import platform
from typing import Any

from beam_jobs.errors import UsageError


def require(module: str, extra: str, purpose: str) -> Any:
    """Imports a module that is installed with one of this package's extras.

    Args:
        module: The module's import name.
        extra: The extra that installs it, such as "matlab".
        purpose: The inputs that need it, such as ".mat files", for the error message.

    Raises:
        UsageError: The module is not installed; the message has the pip command.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise UsageError(
            f"{purpose} need {module.split('.')[0]} ({error}): pip install 'beam-shards[{extra}]'"
        ) from None


_PACKAGES = ("beam-shards", "apache-beam", "numpy", "pillow")


@functools.cache
def versions(*more: str) -> dict[str, str]:
    """The versions of Python and of the installed packages that affect a dataset's bytes, with `more` of this job."""
    from importlib import metadata

    found = {"python": platform.python_version()}
    for package in (*_PACKAGES, *more):
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found


def check_crc32c() -> None:
    """Raises UsageError if google-crc32c computes checksums in Python, which is a thousand times slower."""
    from readers.format.tfrecord import crc32c_is_native

    if not crc32c_is_native():
        raise UsageError(
            "google-crc32c has no native code here, which makes checksums a thousand times "
            "slower; reinstall it: pip install --force-reinstall google-crc32c"
        )
