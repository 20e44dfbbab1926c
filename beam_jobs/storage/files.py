"""The files of a path, with the options of the command and the errors of a job."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import BinaryIO

from beam_jobs.errors import DataError, UsageError
from beam_jobs.storage.options import storage_options
from readers.files.files import WritableFiles
from readers.files.local import is_local
from readers.files.of_path import LOCAL
from readers.files.stores import clients
from readers.files.stores.ahead import Part, Read, Window
from readers.files.stores.clients import is_store
from readers.files.stores.errors import Errors, one_line
from readers.files.stores.store import Store


class JobErrors(Errors):
    """The errors of a store, of which neither a mistake nor a store that fails may count as a bad input."""

    def failing(self, path: str, answer: object) -> Exception:
        return DataError(
            f"{path}: the store keeps failing ({one_line(answer)}); run the same command again: it keeps the "
            "shards that are done"
        )

    def refused(self, text: str) -> Exception:
        return UsageError(text)

    def aborted(self, path: str) -> Exception:
        return DataError(str(super().aborted(path)))

    def missing_package(self, text: str) -> Exception:
        return UsageError(text)

    def how_to_sign_in(self) -> str:
        # Beam's boot programs and ours set it, so a process that has it is a worker of an engine.
        if "WORKER_ID" not in os.environ:
            return self.sign_in.flags + self.sign_in.variables
        return (
            "this is a worker of the engine, which variables and profiles of your shell do not reach: "
            + self.sign_in.workers
        )


def store_of(path: str) -> Store:
    """The store of an object's URL.

    Raises:
        UsageError: The library of the store is not installed, the URL names no bucket, or the credentials
            cannot be used.
    """
    return clients.store_of(path, storage_options(), JobErrors)


def files_of(path: str) -> WritableFiles:
    """The files that a path or URL is one of.

    They raise UsageError for what the user can correct, such as a missing bucket, DataError if a store keeps
    failing, and OSError for a problem with one file.
    """
    if is_local(path):
        return LOCAL
    if is_store(path):
        return store_of(path)
    from beam_jobs.storage.beam_files import BeamFiles

    return BeamFiles(path)


def open_file(path: str) -> BinaryIO:
    """Opens a file for reading from front to back; arguments and errors as for `Files.open`."""
    return files_of(path).open(path)


def open_seekable(path: str) -> BinaryIO:
    """Opens a file in which seeking is cheap; arguments and errors as for `Files.open_seekable`."""
    return files_of(path).open_seekable(path)


def read_bytes(path: str) -> bytes:
    """Reads a whole file; never decompresses it. The errors are those of `Files.read`."""
    return files_of(path).read(path)


def content_of(path: str) -> bytes | None:
    """A whole file; None if it is missing, unreadable, or on a filesystem that is not known."""
    try:
        return read_bytes(path)
    except (OSError, ValueError):
        return None


def size_and_crc(path: str) -> tuple[int, int]:
    """The length and the CRC32C of a file; arguments and errors as for `Files.size_and_crc`."""
    return files_of(path).size_and_crc(path)


def reading_ahead(reads: Iterable[Read]) -> Window:
    """A context in which this thread's reads find their answers requested; nothing for other files.

    Args:
        reads: What will be read, in order.
    """
    return Window([read for read in reads if is_store(read.path)], _request)


def _request(read: Read) -> Part:
    return store_of(read.path).get(read.path, read.start, read.size)
