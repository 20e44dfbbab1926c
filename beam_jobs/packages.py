"""Packages: optional ones, imported when an input needs them, and the versions that decide bytes."""

from __future__ import annotations

import functools
import importlib
import platform
from importlib import metadata
from typing import Any

from beam_jobs.errors import UsageError
from readers.format.tfrecord import crc32c_is_native


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


def check_crc32c() -> None:
    """Makes sure that checksums are computed by native code.

    Raises:
        UsageError: google-crc32c fell back to Python, a thousand times slower.
    """
    if not crc32c_is_native():
        raise UsageError(
            "google-crc32c has no native code here, which makes every checksum a thousand times "
            "slower; reinstall it: pip install --force-reinstall google-crc32c"
        )
