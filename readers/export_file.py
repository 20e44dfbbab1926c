"""A `.npy` file that is written in pieces, and that another process can go on with."""

from __future__ import annotations

import contextlib
import fcntl
import io
import json
import math
import os
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

# A note is one line; whatever is longer is none of ours.
_MAX_NOTE_BYTES = 1 << 16


class PartialNpy:
    """The array [rows, ...] of a `.npy` file under way.

    Until it is whole it is called `<output>.partial`. Beside it stands a note, `.partial.json`, of
    what it is made of and how many rows have reached the disk; a process that finds it goes on
    there. All room is taken at the beginning: a full disk found while pages of a map are written
    would kill the process.

    Args:
        output: What the file is called when it is whole.
        source: What the rows are made of: nobody goes on with rows of something else.
        dtype, shape: Of the array.

    Attributes:
        output: As given.
        rows: How many were on the disk when it was opened.
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
        self._opened = contextlib.ExitStack()
        self._made_of = {"source": source, "dtype": dtype.str, "shape": list(shape)}

    @property
    def is_whole(self) -> bool:
        """Whether it has been `commit`ted and not forgotten yet, by this process or another."""
        is_saved = self._noted() == self.shape[0]
        return is_saved and self.output.exists() and not self._partial.exists()

    def __enter__(self) -> PartialNpy:
        """Takes up what is there, or begins.

        Raises:
            FileExistsError: The output is there.
            BlockingIOError: Another process is writing it.
            OSError: There is no room, or no permission.
        """
        self._refuse_to_replace()
        self.output.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.ExitStack() as opened:
            self._partial.touch()
            self._file = opened.enter_context(self._partial.open("r+b", buffering=0))
            self._lock()
            # Another process may have finished it between that look and the lock.
            self._refuse_to_replace()
            begins_so = self._file.read(len(self._header)) == self._header
            if begins_so and os.fstat(self._file.fileno()).st_size == self._size:
                self.rows = self._noted() or 0
            if not self.rows:
                self._begin()
            self._opened = opened.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        # Without a note it is of no use to anybody.
        if kind and not self._note.exists():
            self._partial.unlink(missing_ok=True)
        self._opened.close()

    def write(self, first: int, values: np.ndarray) -> None:
        """Writes rows from one on, [n, ...], through a map of these alone."""
        if values.size:
            offset = len(self._header) + first * self._row_bytes
            window = np.memmap(self._file, self.dtype, "r+", offset, values.shape)
            window[...] = values

    def save(self, rows: int) -> None:
        """Makes sure that so many rows outlast this process, and a loss of power.

        Raises:
            OSError: The disk is full, or fails; what was saved before is as it was.
        """
        staged = self._note.with_name(f"{self._note.name}.new")
        try:
            os.fsync(self._file.fileno())
            with staged.open("w") as file:
                json.dump({**self._made_of, "rows": rows}, file)
                file.flush()
                os.fsync(file.fileno())
            staged.replace(self._note)
        except OSError as error:
            raise OSError(
                f"{self.output}: row {rows} cannot be saved ({error.strerror}); make room, and "
                "export it again: it goes on from what was saved"
            ) from None

    def commit(self) -> None:
        """Gives it its name; all rows have to be saved."""
        self._partial.replace(self.output)
        self._sync_directory()

    def forget(self) -> None:
        """Takes away the note of an array that is whole."""
        self._note.unlink(missing_ok=True)

    @property
    def _size(self) -> int:
        return len(self._header) + self.shape[0] * self._row_bytes

    def _refuse_to_replace(self) -> None:
        if self.output.exists():
            raise FileExistsError(
                f"{self.output}: it exists already; delete it, or choose another output"
            )

    def _lock(self) -> None:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise BlockingIOError(
                f"{self._partial}: another process is writing it; wait for its end, or choose "
                "another output"
            ) from None

    def _noted(self) -> int | None:
        """The rows that a note of the same array says are saved."""
        try:
            with self._note.open("rb") as file:
                note = json.loads(file.read(_MAX_NOTE_BYTES))
        except (OSError, ValueError, RecursionError):
            return None
        rows = note.pop("rows", None) if isinstance(note, dict) else None
        if type(rows) is not int or note != self._made_of or not 0 <= rows <= self.shape[0]:
            return None
        return rows

    def _begin(self) -> None:
        # The note of another array must be gone, on the disk too, before its rows are.
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
                f"{self.output}: {self._size:,} bytes cannot be reserved "
                f"({error.strerror}); make room, or choose another output"
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
