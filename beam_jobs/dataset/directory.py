"""Checks, prepares and cleans the output directory."""

from __future__ import annotations

import contextlib
import errno
import os
import re
from collections.abc import Iterable
from pathlib import Path

from apache_beam.io.filesystem import BeamIOError

from beam_jobs.errors import DataError, JobError, UsageError
from beam_jobs.storage.atomic import (
    STAGING,
    delete_files,
    drop_uploads,
    list_files,
    look,
    make_directory,
    write_file,
)
from beam_jobs.storage.files import content_of
from beam_jobs.storage.object_store import FileInfo
from beam_jobs.storage.paths import is_local
from readers.format.manifest import (
    INDEX_SUFFIX,
    MANIFEST,
    TEXT_INDEX_SUFFIX,
    TOKENIZER,
    VOCABULARY,
    join,
)
from readers.format.rejects import REJECTS

# The suffix of notes about committed shards.
DONE = ".done"

# Exists while a run is unfinished; the files next to it may be deleted. It says whether records move from
# shard to shard, so that no attempt at writing a shard begins.
MARKER = f"{STAGING}/UNFINISHED"

# Names the job that is running. Only its own command changes it, and the end of the job that completes
# the dataset deletes it.
RUNNING = f"{STAGING}/RUNNING"

# Says how the job is found that an engine runs; the same holds for it.
SUBMITTED = f"{STAGING}/SUBMITTED"

# How names of such notes begin, also of those that are about to appear.
NOTES = tuple(
    begin
    for name in (RUNNING, SUBMITTED)
    for begin in (name, f"{STAGING}/{name.replace('/', '-')}")
)

_UNFINISHED = b"An unfinished run of beam_jobs: no dataset yet. Run the job again.\n"

_MOVING = (
    b"An unfinished run of beam_jobs, whose records move: no dataset yet. Run the job again.\n"
)

_OURS = re.compile(
    rf"{re.escape(MANIFEST)}|{re.escape(VOCABULARY)}|{re.escape(TOKENIZER)}"
    rf"|[^/]+-\d{{5}}-of-\d{{5}}\.tfrecord({re.escape(INDEX_SUFFIX)}|{re.escape(TEXT_INDEX_SUFFIX)})?"
    rf"|{REJECTS}/[^/]+\.jsonl|{re.escape(STAGING)}/[^/]+"
)

# Where a dataset is written that will replace the complete one in the directory.
NEXT = f"{STAGING}/next"


def relative_names(directory: str, found: Iterable[FileInfo]) -> set[str]:
    """The names of files relative to the directory that they are in."""
    start = len(join(directory, ""))
    return {file.path[start:] for file in found}


def working_directory(directory: str, overwrite: bool) -> str:
    """The directory into which a job writes: `directory`, or `.staging/next` in it to replace a dataset.

    Raises:
        UsageError: `check_output` refuses the directory.
    """
    complete = join(directory, MANIFEST) in check_output(directory, overwrite)
    return join(directory, NEXT) if complete else directory


def files_in(directory: str) -> list[FileInfo]:
    """The files in an output directory, without the notes of running jobs.

    Raises:
        UsageError: They cannot be listed.
    """
    notes = tuple(join(directory, name) for name in NOTES)
    try:
        return [file for file in list_files(directory) if not file.path.startswith(notes)]
    except (BeamIOError, ValueError, OSError) as error:
        raise UsageError(f"--output {directory}: {error}") from None


def check_output(directory: str, overwrite: bool) -> list[str]:
    """The files of an earlier run that must be deleted before a job writes into a directory.

    Raises:
        UsageError: The directory holds a dataset, or shards of unknown origin, and `overwrite` is
            not set; or it holds files that are not part of a dataset.
    """
    if is_local(directory) and Path(directory).exists() and not Path(directory).is_dir():
        raise UsageError(f"--output {directory}: this is a file; name a directory")
    _refuse_links(directory)
    found = files_in(directory)
    names = relative_names(directory, found)
    unfinished = any(name.startswith(f"{STAGING}/") for name in names)
    strange = sorted(name for name in names if not _OURS.fullmatch(name.removeprefix(f"{NEXT}/")))
    if strange:
        raise UsageError(
            f"--output {directory}: it holds {strange[0]!r}, which is not part of a dataset; "
            "move it away, or name an empty or a new directory"
        )
    if names and not (overwrite or unfinished or MANIFEST in names):
        raise UsageError(
            f"--output {directory}: it holds {min(names)!r} but neither a manifest nor the marks of "
            "an unfinished run; name another directory, or add --overwrite to replace its contents"
        )
    if {MANIFEST, f"{NEXT}/{MANIFEST}"} & names and not overwrite:
        raise UsageError(
            f"--output {directory}: a dataset is here already; add --overwrite to replace it"
        )
    return [file.path for file in found]


def _refuse_links(directory: str) -> None:
    """Refuses folders of an output that are links: files elsewhere would be replaced through them.

    Raises:
        UsageError: One of them is a link.
    """
    for name in (STAGING, NEXT, REJECTS, f"{NEXT}/{REJECTS}"):
        path = join(directory, name)
        if is_local(path) and os.path.islink(path):
            raise UsageError(
                f"--output {directory}: {name!r} is a link to {os.readlink(path)}, where files would be "
                "replaced; remove the link, or name another directory"
            )


def prepare_output(directory: str, overwrite: bool, keep: str = "") -> None:
    """Prepares a `working_directory` for a job: marked as unfinished, and empty or with shards to keep.

    The shards of an unfinished run stay, because this job may be about to write the same. Anything
    else is deleted, but never a dataset that was complete before the job: only in `.staging/next` may
    there be one, which another job completed without moving it to its place.

    Files whose paths begin with `keep`, unless it is empty, are this job's own and stay, too.

    Raises:
        UsageError: `check_output` refuses the directory, or it cannot be written, or another job has
            completed a dataset there since this one began.
        DataError: The disk is full, or the job is further than this attempt.
    """
    manifest, marker = join(directory, MANIFEST), join(directory, MARKER)
    seen = look(directory, MARKER)
    paths = check_output(directory, overwrite)
    if manifest in paths and not directory.endswith(f"/{NEXT}"):
        raise UsageError(
            f"--output {directory}: a dataset was completed here since this job was planned; run the "
            "job again to replace it"
        )
    paths = [path for path in paths if not (keep and path.startswith(keep))]
    try:
        make_directory(join(directory, STAGING))
        write_file(directory, MARKER, _UNFINISHED, seen)
        if manifest not in paths and look(directory, MANIFEST).version is not None:
            delete_files([marker])
            raise _too_late(directory)
        if marker in paths and manifest not in paths:
            staging = join(directory, STAGING)
            halves = [p for p in paths if p.startswith(staging) and not p.endswith((marker, DONE))]
            delete_files(halves)
            drop_uploads(directory)
            return
        delete_files([manifest] if manifest in paths else [])
        delete_files(path for path in paths if path not in (manifest, marker))
    except OSError as error:
        raise not_writable(directory, error) from None


def begin_moves(directory: str) -> None:
    """Says that every shard is written, before any of them changes.

    Raises:
        UsageError: The directory cannot be written.
        DataError: The disk is full, or another run of the job has completed the dataset.
    """
    try:
        write_file(directory, MARKER, _MOVING)
        # The other run has looked for a marker to delete after it wrote its manifest.
        if look(directory, MANIFEST).version is not None:
            delete_files([join(directory, MARKER)])
            raise _too_late(directory)
    except OSError as error:
        raise not_writable(directory, error) from None


def check_moves(directory: str, expected: bool) -> None:
    """Ends an attempt that was believed dead, if the job has reached its next steps meanwhile.

    Attempts at writing a shard end if records have begun to move or the dataset is complete, and attempts
    at moving records if it is complete. A file that was looked at before this check is replaced only if it
    is still the same.

    Args:
        expected: Whether records may have begun to move.

    Raises:
        DataError: The job is further than this attempt.
    """
    late = look(directory, MANIFEST).version is not None
    late |= not expected and content_of(join(directory, MARKER)) == _MOVING
    if late:
        raise _too_late(directory)


def _too_late(directory: str) -> DataError:
    return DataError(
        f"{directory}: an attempt of a worker came too late: the other shards are written; if the job "
        "fails, run the same command again: it keeps the shards that are done"
    )


def not_writable(directory: str, error: OSError) -> JobError:
    """The error of a directory that cannot be written; a full disk is not the user's mistake."""
    kind = DataError if error.errno in (errno.ENOSPC, errno.EDQUOT) else UsageError
    return kind(
        f"--output {directory}: cannot be written ({error}); make room or choose another place"
    )


def remove_leftovers(directory: str, names: set[str], found: Iterable[FileInfo]) -> None:
    """Deletes all `found` files in a dataset's directory but those named and those in staging."""
    keep = {join(directory, name) for name in names}
    staging = join(directory, STAGING) + "/"
    paths = (file.path for file in found)
    delete_files(path for path in paths if path not in keep and not path.startswith(staging))


def note_submitted(directory: str, note: bytes | None) -> None:
    """Keeps what finds the job of a directory on its engine; None forgets it.

    Nothing is kept where nothing can be written.
    """
    with contextlib.suppress(OSError, JobError):
        if note is None:
            delete_files([join(directory, SUBMITTED)])
        else:
            write_file(directory, SUBMITTED, note)


def submitted(directory: str) -> bytes | None:
    """What `note_submitted` kept; None if there is nothing."""
    return content_of(join(directory, SUBMITTED))
