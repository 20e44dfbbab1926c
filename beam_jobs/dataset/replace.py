"""A dataset that replaces an older one: it is written into `.staging/next`, then moved to its place.

The older dataset stays whole and readable until the new one is complete. Then its manifest is deleted, the
new files are moved, and the new manifest is moved last. If that is interrupted, the next job for the same
directory finishes it, so at every moment one of the two datasets is complete.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Iterator

from beam_jobs.dataset.directory import (
    MARKER,
    NEXT,
    RUNNING,
    SUBMITTED,
    relative_names,
    working_directory,
)
from beam_jobs.dataset.output import Output
from beam_jobs.dataset.reservation import refuse_if_running, reserved
from beam_jobs.errors import DataError, JobError, UsageError
from beam_jobs.storage.atomic import (
    STAGING,
    clear_staging,
    delete_files,
    drop_empty_directory,
    drop_uploads,
    list_files,
    look,
    move_files,
    write_file,
)
from beam_jobs.storage.files import content_of, read_bytes
from readers.format.manifest import INDEX_SUFFIX, MANIFEST, DatasetError, Manifest, join
from readers.format.rejects import REJECTS

# Lists the files of the new dataset; exists while they are being moved.
JOURNAL = f"{STAGING}/REPLACING"


def placed(output: Output) -> Output:
    """The output with the directory to write into, which is another one if a dataset is replaced.

    Raises:
        UsageError: The directory holds something that may not be replaced.
    """
    directory = working_directory(output.directory, output.overwrite)
    if directory == output.directory:
        return output
    return dataclasses.replace(output, directory=directory, replaces=output.directory)


def finish_replacement(directory: str) -> None:
    """Moves a new dataset to its place if an earlier job was interrupted before it had done so.

    Raises:
        UsageError: Another job is running there, or the directory cannot be read or written.
    """
    refuse_if_running(directory)
    if not any(content_of(join(directory, name)) for name in (JOURNAL, f"{NEXT}/{MANIFEST}")):
        return
    try:
        with reserved(directory, "the move of a complete dataset"):
            replace_dataset(directory)
    except OSError as error:
        raise UsageError(
            f"--output {directory}: an interrupted job left a complete dataset in {NEXT}, which cannot "
            f"be moved to its place ({error})"
        ) from None


@contextlib.contextmanager
def cleaned_if_refused(directory: str) -> Iterator[None]:
    """A context that may refuse a directory; if it does, what an interrupted job left there is deleted.

    A job that may replace the dataset deletes it at its end.
    """
    try:
        yield
    except UsageError:
        _finish_cleaning(directory)
        raise


def _finish_cleaning(directory: str) -> None:
    """Deletes what a job left that was interrupted after it had written its manifest.

    What a job has written that replaces the dataset stays for the next one.
    """
    with contextlib.suppress(OSError, ValueError, JobError):  # The refusal is what matters.
        if look(directory, MANIFEST).version is None:
            return
        names = relative_names(directory, list_files(directory))
        left = [name for name in names if name.startswith(f"{STAGING}/")]
        # A job writes folders there only to replace a dataset.
        if not any(name.count("/") > 1 or name.startswith(SUBMITTED) for name in left):
            if left:
                with reserved(directory, "the end of a job"):
                    # The notes of killed jobs go with that of this one.
                    old = [name for name in left if not name.startswith(RUNNING)]
                    delete_files(join(directory, name) for name in old)
                    drop_uploads(directory)
            drop_empty_directory(join(directory, STAGING))


def replace_dataset(directory: str) -> None:
    """Moves the complete dataset in `.staging/next` to the place of the older one in `directory`.

    It may be interrupted and called again. Without a complete dataset in `.staging/next` it does nothing.

    Raises:
        OSError: A file cannot be moved or deleted.
    """
    found = list_files(directory)
    names = relative_names(directory, found)
    new = _new_names(directory, names)
    if MANIFEST not in new:
        return
    here = [name for name in new if f"{NEXT}/{name}" in names]
    if MANIFEST in here:
        _delete_old_manifest(directory)
    for group in (
        [name for name in here if name != MANIFEST],
        [MANIFEST] if MANIFEST in here else [],
    ):
        move_files([(join(directory, f"{NEXT}/{n}"), join(directory, n)) for n in group])
    old = names - set(new)
    delete_files(join(directory, n) for n in sorted(old) if not n.startswith(f"{STAGING}/"))
    if not any(name.startswith(f"{REJECTS}/") for name in new):
        drop_empty_directory(join(directory, REJECTS))
    clear_staging(directory, list_files(directory))


def _delete_old_manifest(directory: str) -> None:
    """Deletes the older dataset's manifest, but not the new one if another attempt has just moved it."""
    new = content_of(join(directory, f"{NEXT}/{MANIFEST}"))
    if new is None:
        raise OSError("another attempt moves the dataset at the same time")
    if content_of(join(directory, MANIFEST)) not in (None, new):
        delete_files([join(directory, MANIFEST)])


def _new_names(directory: str, names: set[str]) -> list[str]:
    """The names of the new dataset's files, from the journal; writes it at the first attempt.

    Empty if no dataset is complete in `.staging/next`. There may be a manifest alone, which an attempt at the
    last step that was believed dead has written after the dataset was moved.
    """
    if JOURNAL in names:
        # Damaged, if the machine lost power.
        with contextlib.suppress(ValueError, TypeError, RecursionError):
            listed = list(map(str, json.loads(read_bytes(join(directory, JOURNAL)))))
            if MANIFEST in listed:
                return listed
    inside = {name.removeprefix(f"{NEXT}/") for name in names if name.startswith(f"{NEXT}/")}
    new = {name for name in inside if not name.startswith(f"{STAGING}/")}
    if MANIFEST not in new:
        return []
    shards = _shard_files(join(directory, f"{NEXT}/{MANIFEST}"))
    if not shards <= (names | new if JOURNAL in names else new):
        return []
    write_file(directory, JOURNAL, json.dumps(sorted(new | shards)).encode())
    return sorted(new | shards)


def _shard_files(path: str) -> set[str]:
    """The names of the shards and indexes of a manifest."""
    try:
        manifest = Manifest.from_bytes(read_bytes(path))
    except (DatasetError, ValueError, RecursionError) as error:
        raise OSError(f"{path}: {error}") from None
    shards = [shard.file for split in manifest.splits.values() for shard in split.shards]
    return {name for shard in shards for name in (shard, shard + INDEX_SUFFIX)}


def check_replaced(output: Output) -> None:
    """Checks the end of a job of which the runner reports success.

    Raises:
        DataError: The dataset that was to be replaced is still there, because the runner lost the last step.
    """
    if output.replaces and content_of(join(output.directory, MARKER)) is not None:
        raise DataError(
            f"--output {output.replaces}: the runner reports success, but the dataset there is the older "
            "one; run the job again"
        )


def was_committed(output: Output, manifest: Manifest) -> bool:
    """Whether an attempt that a runner repeats has already written this manifest, or even moved it."""
    expected = manifest.to_bytes()
    if content_of(join(output.directory, MANIFEST)) == expected:
        return True
    moved = not list_files(output.directory)
    return moved and content_of(join(output.replaces, MANIFEST)) == expected
