"""Starts processes quickly: a fork server that has imported the modules they need."""

from __future__ import annotations

import multiprocessing
import os
import tempfile
from collections.abc import Sequence
from multiprocessing import forkserver
from typing import Any

# The fork server listens at a socket in the folder for temporary files. The kernel accepts names of
# up to 107 bytes, to which Python contributes `/pymp-xxxxxxxx/listener-xxxxxxxx`.
_LONGEST_FOLDER = 107 - 32

_SHORT_FOLDERS = ("/tmp", "/var/tmp", "/dev/shm")


def fork_context(preload: Sequence[str]) -> Any:
    """A multiprocessing context whose processes have modules imported when they start.

    They are not forked from this process, because Beam and gRPC run threads in it.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(preload))
    folder = tempfile.gettempdir()
    if len(os.fsencode(folder)) > _LONGEST_FOLDER:
        tempfile.tempdir = next(
            (name for name in _SHORT_FOLDERS if os.access(name, os.W_OK)), folder
        )
        try:
            forkserver.ensure_running()
        finally:
            tempfile.tempdir = folder
    return context
