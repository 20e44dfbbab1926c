"""Opens and reads files, local or remote."""

from __future__ import annotations

import io
import os
import stat
from typing import Any, BinaryIO

import google_crc32c

from beam_jobs.storage.objects import is_store, open_object, read_object, store_of
from beam_jobs.storage.options import set_beam_options
from beam_jobs.storage.paths import is_local

_READ_BYTES = 4 << 20


def open_file(path: str) -> BinaryIO:
    """Opens a file on any Beam filesystem for reading; never decompresses it.

    Raises:
        OSError: the file is missing or unreadable.
    """
    if is_local(path):
        return open(_open_regular(path), "rb")
    if is_store(path):
        return open_object(path)
    from apache_beam.io.filesystem import BeamIOError, CompressionTypes
    from apache_beam.io.filesystems import FileSystems

    set_beam_options()
    try:
        file: Any = FileSystems.open(path, compression_type=CompressionTypes.UNCOMPRESSED)
    except Exception as error:  # HDFS raises its own errors.
        if not isinstance(error, BeamIOError) and type(error).__name__ != "HdfsError":
            raise
        kind = OSError if FileSystems.exists(path) else FileNotFoundError
        raise kind(f"{path}: {str(error).splitlines()[0][:200]}") from None
    return file


def _open_regular(path: str) -> int:
    """The descriptor of a local file. Reading a pipe or a device might hang, or never end."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError("not a regular file")
    return descriptor


def open_seekable(path: str) -> BinaryIO:
    """Opens a file on any Beam filesystem in which seeking is cheap; most remote ones are read whole.

    Raises:
        OSError: the file is missing or unreadable.
    """
    if is_store(path):
        return open_object(path, eager=True)
    return open_file(path) if is_local(path) else io.BytesIO(read_bytes(path))


def read_bytes(path: str) -> bytes:
    """Reads a whole file on any Beam filesystem; never decompresses it.

    Raises:
        OSError: the file is missing or unreadable.
    """
    if is_store(path):
        return read_object(path)
    if not is_local(path):
        with open_file(path) as file:
            return file.read()
    # This takes a third of the time of Path.read_bytes, which matters for files of a few kilobytes.
    descriptor = _open_regular(path)
    try:
        size = os.fstat(descriptor).st_size
        parts = [os.read(descriptor, size + 1)]
        while parts[-1] and sum(map(len, parts)) != size:
            parts.append(os.read(descriptor, 1 << 20))
        return parts[0] if len(parts) == 1 else b"".join(parts)
    finally:
        os.close(descriptor)


def content_of(path: str) -> bytes | None:
    """A whole file; None if it is missing, unreadable, or on a filesystem that is not known."""
    try:
        return read_bytes(path)
    except (OSError, ValueError):
        return None


def size_and_crc(path: str) -> tuple[int, int]:
    """The length and the CRC32C of a file; from a store that keeps the checksum, nothing is read.

    Raises:
        OSError: the file is missing or unreadable.
    """
    if is_store(path):
        size, known = store_of(path).checksum(path)
        if known is not None:
            return size, known
    size = crc = 0
    with open_file(path) as file:
        while data := file.read(_READ_BYTES):
            size += len(data)
            crc = google_crc32c.extend(crc, data)
    return size, crc
