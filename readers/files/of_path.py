"""The kind of files of a path: chosen here for readers, and in `beam_jobs.storage.files` for jobs."""

from __future__ import annotations

from readers.files.files import Files
from readers.files.local import LocalFiles, is_local
from readers.files.others import FsspecFiles
from readers.files.stores.clients import is_store, store_of

LOCAL = LocalFiles()

_OTHERS = FsspecFiles()


def files_of(path: str) -> Files:
    """The kind of files that a path or URL belongs to.

    Raises ImportError with the pip command if the library of a store is not installed, RefusedError if the URL lacks a
    bucket or the credentials cannot be used.
    """
    if is_local(path):
        return LOCAL
    return store_of(path) if is_store(path) else _OTHERS


def read_file(path: str) -> bytes:
    """Reads a whole file into memory; arguments and errors as for `Files.read`."""
    return files_of(path).read(path)
