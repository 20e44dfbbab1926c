"""Opens files with the options of the command and the errors of a job, in every process of the job.

Beam passes options to its own workers. Our own processes, which do not import Beam, receive the same options when
they start.
"""

from __future__ import annotations

import bisect
import os
import stat
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, BinaryIO

from beam_jobs.errors import AGAIN, DataError, UsageError
from readers.files.files import FileInfo, Files, WritableFiles
from readers.files.local import is_local
from readers.files.of_path import LOCAL
from readers.files.stores import clients
from readers.files.stores.ahead import Part, Read, Window, in_background
from readers.files.stores.clients import is_store
from readers.files.stores.errors import Errors, one_line
from readers.files.stores.store import RangeListed, Store

_adopted: Mapping[str, Any] | None = None

_last: tuple[Any, Mapping[str, Any]] = (None, {})


def storage_options() -> Mapping[str, Any]:
    """Beam's options by name, except those with their default value; none where Beam is not in use."""
    global _last
    if _adopted is not None:
        return _adopted
    if "apache_beam.io.filesystems" not in sys.modules:
        return {}
    from apache_beam.io.filesystems import FileSystems
    from apache_beam.options.value_provider import RuntimeValueProvider

    # Beam's filesystems look here too.
    options: Any = FileSystems._pipeline_options or RuntimeValueProvider.runtime_options or {}
    if options is not _last[0]:
        by_name = isinstance(options, Mapping)
        _last = options, dict(options) if by_name else options.get_all_options(drop_default=True)
    return _last[1]


def process_context() -> tuple[Mapping[str, Any], Mapping[str, str]]:
    """The arguments of `adopt` with which processes that this one starts can open the same files."""
    return storage_options(), dict(os.environ)


def adopt(options: Mapping[str, Any], environment: Mapping[str, str]) -> None:
    """Applies Beam's options and the variables of the parent: a fork server would pass on those of its start."""
    global _adopted
    os.environ.update(environment)
    _adopted = options


class JobErrors(Errors):
    """The errors of a store: neither a mistake nor a failing store may count as a bad input."""

    def failing(self, path: str, answer: object) -> Exception:
        return DataError(f"{path}: the store keeps failing ({one_line(answer)}); {AGAIN}")

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
    """The store of an object's URL; UsageError if its library, the bucket or usable credentials are missing."""
    return clients.store_of(path, storage_options(), JobErrors)


def files_of(path: str) -> WritableFiles:
    """The file system of a path or URL.

    Its methods raise UsageError for mistakes of the user, such as a missing bucket, DataError if a store keeps
    failing, and OSError for a problem with one file.
    """
    if is_local(path):
        return LOCAL
    if is_store(path):
        return store_of(path)
    from beam_jobs.storage.beam_files import BeamFiles

    return BeamFiles(path, _adopted)


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
    """The content of a file; None if it is missing, unreadable, or on an unknown filesystem."""
    try:
        return read_bytes(path)
    except (OSError, ValueError):
        return None


def size_and_crc(path: str) -> tuple[int, int]:
    """The length and the CRC32C of a file; arguments and errors as for `Files.size_and_crc`."""
    return files_of(path).size_and_crc(path)


def reading_ahead(reads: Iterable[Read]) -> Window:
    """A context that requests this thread's next reads of a store, in their order, in advance; nothing for other files."""
    return Window([read for read in reads if is_store(read.path)], _request)


def _request(read: Read) -> Part:
    return store_of(read.path).get(read.path, read.start, read.size)


# A page of a listing takes as long as this many requests for single objects in turn.
_WORTH_A_PAGE = 10

_NANOSECONDS = 10**9


def file_infos(paths: Sequence[str]) -> list[FileInfo | OSError]:
    """The size and the time, in whole seconds, of each file, or why it has none; many at once in a store.

    Args:
        paths: Files of one filesystem.

    Raises:
        UsageError, DataError: None of the files can be looked up, or the store fails.
    """
    if not paths or is_local(paths[0]):
        return list(map(_local_info, paths))
    files, infos, denied = files_of(paths[0]), dict[str, FileInfo | OSError](), None
    if isinstance(files, RangeListed):
        try:
            infos = _listed_infos(files, sorted(set(paths)))
        except UsageError as error:  # Permission to read objects may not include listing them.
            denied = error
    left = {path: in_background(_info, files, path) for path in {*paths} - infos.keys()}
    infos |= {path: request.result() for path, request in left.items()}
    if denied and all(isinstance(info, OSError) for info in infos.values()):
        raise denied
    return [infos[path] for path in paths]


def _listed_infos(store: RangeListed, paths: list[str]) -> dict[str, FileInfo | OSError]:
    """The first of some objects, given URLs in order, as long as each page of a listing has many of them."""
    infos: dict[str, FileInfo | OSError] = {}
    prefix = os.path.commonprefix([paths[0], paths[-1]])  # noqa: RUF071  (Names may have a part in common.)
    passed = _WORTH_A_PAGE
    while paths and passed >= _WORTH_A_PAGE:
        page = store.page(prefix, _name_before(paths[0]))
        there = {file.path: _in_seconds(file) for file in page.files}
        passed = bisect.bisect(paths, page.files[-1].path) if page.more else len(paths)
        for path in paths[:passed]:
            infos[path] = there.get(path) or FileNotFoundError(f"{path}: no such object")
        paths = paths[passed:]
    return infos


def _name_before(name: str) -> str:
    """A name such that a listing that begins after it starts with this name, or with few others."""
    previous = ord(name[-1]) - 1
    # Between the two are surrogates, which are in no name.
    return f"{name[:-1]}{chr(previous if previous != 0xDFFF else 0xD7FF)}\U0010fffd"


def _info(files: Files, path: str) -> FileInfo | OSError:
    try:
        there = files.stat(path)
    except OSError as error:
        return error
    return _in_seconds(FileInfo(path, there.size, there.modified))


def _local_info(path: str) -> FileInfo | OSError:
    try:
        status = os.stat(path)
    except OSError as error:
        return error
    if not stat.S_ISREG(status.st_mode):
        return OSError("not a file")
    return FileInfo(path, status.st_size, status.st_mtime_ns)


def _in_seconds(info: FileInfo) -> FileInfo:
    """The time that a listing and a request for the object itself both state."""
    return info._replace(modified=info.modified // _NANOSECONDS * _NANOSECONDS)
