"""Files of HDFS, and of the other filesystems of Beam."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, cast

from apache_beam.io.filesystem import BeamIOError, CompressionTypes
from apache_beam.io.filesystems import FileSystems
from apache_beam.options.pipeline_options import PipelineOptions

from beam_jobs.errors import UsageError
from readers.files.files import Draft, ExistsError, FileInfo, StagedFiles, Stat


class BeamFiles(StagedFiles):
    """Files of a filesystem of Beam's, with Beam's own retries.

    Args:
        path: One of its URLs.
        options: The options of the parent process by name; None in a process of Beam, which has them already.

    Raises:
        UsageError: Beam has no filesystem for it.
    """

    def __init__(self, path: str, options: Mapping[str, Any] | None = None) -> None:
        if options is not None and FileSystems._pipeline_options is None:
            FileSystems.set_options(PipelineOptions.from_dictionary(dict(options)))
        try:
            FileSystems.get_filesystem(path)
        except ValueError:
            raise UsageError(
                f"{path}: this scheme is unknown, or its package is not installed: expected a path, s3://, gs://, "
                "az://, abfs://, or hdfs:// (pip install 'beam-shards[hdfs]')"
            ) from None

    def stat(self, path: str) -> Stat:
        with _errors(path):
            matches = FileSystems.match([path])[0].metadata_list
        if not matches:
            raise FileNotFoundError(f"{path}: no such file")
        version, info = matches[0].last_updated_in_seconds, _info(matches[0])
        return Stat(info.size, version, modified=info.modified)

    def open(self, path: str) -> io.BufferedReader:
        with _errors(path):
            file = FileSystems.open(path, compression_type=CompressionTypes.UNCOMPRESSED)
        return cast(io.BufferedReader, file)

    def read(self, path: str, start: int = 0, size: int | None = None) -> bytes:
        with self.open(path) as file:
            if start:
                file.seek(start)
            return file.read(-1 if size is None else size)

    def begin(self, path: str) -> Draft:
        return _BeamDraft(path)

    def rename(self, path: str, name: str, replace: bool) -> None:
        _make_folder(name.rpartition("/")[0])
        if replace and FileSystems.exists(name):
            FileSystems.delete([name])  # For a moment the file is missing, but never incomplete.
        try:
            FileSystems.rename([path], [name])
        except OSError:  # HDFS does not rename onto a file.
            if replace or not FileSystems.exists(name):
                raise
            raise ExistsError(f"{name}: a file of this name exists") from None

    def listed(self, folder: str) -> Iterable[FileInfo]:
        return _walked(folder)

    def delete(self, paths: Sequence[str]) -> None:
        for path in filter(FileSystems.exists, paths):
            FileSystems.delete([path])


class _BeamDraft:
    """A file that is visible while it grows."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._file: Any = FileSystems.create(path, compression_type=CompressionTypes.UNCOMPRESSED)
        self.write = self._file.write

    def publish(self, synced: bool = False) -> None:
        self._file.close()

    def give_up(self) -> None:
        # The error that led here is the one to report.
        for undo in (self._file.close, lambda: FileSystems.delete([self._path])):
            with contextlib.suppress(OSError, BeamIOError):
                undo()


@contextlib.contextmanager
def _errors(path: str) -> Iterator[None]:
    """Raises errors of Beam and HDFS as an OSError of one line."""
    try:
        yield
    except Exception as error:  # HDFS raises its own errors.
        if not isinstance(error, BeamIOError) and type(error).__name__ != "HdfsError":
            raise
        kind = OSError if FileSystems.exists(path) else FileNotFoundError
        raise kind(f"{path}: {str(error).splitlines()[0][:200]}") from None


def _make_folder(path: str) -> None:
    """Makes a folder unless it exists; several workers may do so at the same time."""
    if not FileSystems.exists(path):
        try:
            FileSystems.mkdirs(path)
        except OSError:  # Another worker has made it.
            if not FileSystems.exists(path):
                raise


def _walked(folder: str) -> Iterator[FileInfo]:
    """Yields all files under a folder; Beam's `match` lists one folder, and reports its sub-folders as empty files."""

    def entries(below: str) -> list[Any]:
        listed: list[Any] = FileSystems.match([f"{below}/*"])[0].metadata_list
        return listed

    def walk(level: list[Any]) -> Iterator[FileInfo]:
        for entry in level:
            below = [] if entry.size_in_bytes else entries(entry.path)
            # An empty file lists itself, with a nameless entry.
            if entry.size_in_bytes or any(one.path == f"{entry.path}/" for one in below):
                yield _info(entry)
            else:
                yield from walk(below)

    if FileSystems.exists(folder):
        yield from walk(entries(folder))


def _info(metadata: Any) -> FileInfo:
    """One of Beam's `FileMetadata`."""
    modified = int((metadata.last_updated_in_seconds or 0) * 1e9)
    return FileInfo(metadata.path, metadata.size_in_bytes, modified)
