"""A `.npy` file that is written in pieces, and that another process can resume."""

from __future__ import annotations

import contextlib
import fcntl
import io
import json
import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

# A note is a single line; a longer file is not a note.
_MAX_NOTE_BYTES = 1 << 16


class PartialNpy:
    """The array [rows, ...] of a `.npy` file in progress.

    Until it is complete, the file is called `<output>.partial`. A note beside it, `.partial.json`,
    describes the array and counts the rows that are on disk; a process that finds both resumes
    there. All space is reserved at the beginning: if the disk filled up while pages of a memory map
    are written, the process would be killed.

    Args:
        output: The path of the complete file.
        source: Identifies the rows: nobody resumes a file with rows of another source.
        dtype, shape: The dtype and shape of the array.

    Attributes:
        output: As given.
        rows: The number of rows that were on disk when the file was opened.
    """

    def __init__(
        self, output: Path, source: str, dtype: np.dtype[Any], shape: tuple[int, ...]
    ) -> None:
        self.output, self.dtype, self.shape = output, dtype, shape
        self.rows = 0
        self._partial = output.with_name(f"{output.name}.partial")
        self._note = output.with_name(f"{output.name}.partial.json")
        self._header = _header(dtype, shape)
        self._row_bytes = math.prod(shape[1:]) * dtype.itemsize
        self._contents = {"source": source, "dtype": dtype.str, "shape": list(shape)}

    @property
    def is_complete(self) -> bool:
        """Whether any process has `commit`ted the file and nobody has called `forget` since."""
        is_saved = self._saved_rows() == self.shape[0]
        return is_saved and self.output.exists() and not self._partial.exists()

    @contextlib.contextmanager
    def opened(self) -> Iterator[None]:
        """Opens the file for writing: resumes the one on disk, or begins a new one.

        Raises:
            FileExistsError: The output exists.
            BlockingIOError: Another process is writing the file.
            OSError: There is no space, or no permission.
        """
        self._refuse_to_replace()
        self.output.parent.mkdir(parents=True, exist_ok=True)
        self._partial.touch()
        with self._partial.open("r+b", buffering=0) as self._file:
            self._lock()
            # Another process may have finished the file between the first check and the lock.
            self._refuse_to_replace()
            has_header = self._file.read(len(self._header)) == self._header
            if has_header and os.fstat(self._file.fileno()).st_size == self._size:
                self.rows = self._saved_rows() or 0
            if not self.rows:
                self._begin()
            try:
                yield
            except BaseException:
                # Without a note, nobody can resume the file.
                if not self._note.exists():
                    self._partial.unlink(missing_ok=True)
                raise

    def write(self, first: int, values: np.ndarray) -> None:
        """Writes rows [n, ...] from row `first` on, through a memory map of just these rows."""
        if values.size:
            offset = len(self._header) + first * self._row_bytes
            window = np.memmap(self._file, self.dtype, "r+", offset, values.shape)
            window[...] = values

    def save(self, rows: int) -> None:
        """Saves the first `rows` rows, so that they survive the process and a power failure.

        Raises:
            OSError: The disk is full, or fails; what was saved before is unchanged.
        """
        staged = self._note.with_name(f"{self._note.name}.new")
        try:
            os.fsync(self._file.fileno())
            with staged.open("w") as file:
                json.dump({**self._contents, "rows": rows}, file)
                file.flush()
                os.fsync(file.fileno())
            staged.replace(self._note)
        except OSError as error:
            raise OSError(
                f"{self.output}: cannot save row {rows} ({error.strerror}); free some space and "
                "export it again: the export resumes from the rows already saved"
            ) from None

    def commit(self) -> None:
        """Gives the file its final name, after all rows are saved."""
        self._partial.replace(self.output)
        self._sync_directory()

    def forget(self) -> None:
        """Removes the note of a complete file."""
        self._note.unlink(missing_ok=True)

    @property
    def _size(self) -> int:
        return len(self._header) + self.shape[0] * self._row_bytes

    def _refuse_to_replace(self) -> None:
        if self.output.exists():
            raise FileExistsError(
                f"{self.output}: already exists; delete it, or choose another output"
            )

    def _lock(self) -> None:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise BlockingIOError(
                f"{self._partial}: another process is writing it; wait until it ends, or choose "
                "another output"
            ) from None

    def _saved_rows(self) -> int | None:
        """The number of saved rows in the note; None unless the note is of the same array."""
        try:
            with self._note.open("rb") as file:
                note = json.loads(file.read(_MAX_NOTE_BYTES))
        except (OSError, ValueError, RecursionError):
            return None
        rows = note.pop("rows", None) if isinstance(note, dict) else None
        if type(rows) is not int or note != self._contents or not 0 <= rows <= self.shape[0]:
            return None
        return rows

    def _begin(self) -> None:
        # The note of another array must be gone, also from the disk, before its rows are.
        self.forget()
        self._sync_directory()
        try:
            self._file.truncate(0)
            self._file.seek(0)
            self._file.write(self._header)
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(self._file.fileno(), 0, self._size)
            else:  # macOS
                self._file.truncate(self._size)
        except OSError as error:
            with contextlib.suppress(OSError):
                self._partial.unlink()
            raise OSError(
                f"{self.output}: cannot reserve {self._size:,} bytes ({error.strerror}); free some "
                "space, or choose another output"
            ) from None

    def _sync_directory(self) -> None:
        directory = os.open(self.output.parent, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)


def _header(dtype: np.dtype[Any], shape: tuple[int, ...]) -> bytes:
    out = io.BytesIO()
    descr = np.lib.format.dtype_to_descr(dtype)
    np.lib.format.write_array_header_1_0(
        out, {"descr": descr, "fortran_order": False, "shape": shape}
    )
    return out.getvalue()
