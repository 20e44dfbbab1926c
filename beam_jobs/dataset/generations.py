"""The states of an output directory (free, unfinished, complete) and the steps between them.

A job writes into its own folder, and commits by creating the manifest of the next generation, which must not
exist. docs/internals/design.md has the table.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import uuid
from collections.abc import Collection
from dataclasses import replace
from typing import NamedTuple

from beam_jobs.dataset.lease import is_busy, is_lease
from beam_jobs.dataset.output import (
    OF_INPUTS,
    STAGING,
    Append,
    Holder,
    Output,
    not_writable,
    renamed_schema,
)
from beam_jobs.dataset.resume import DONE
from beam_jobs.errors import CompleteError, DataError, JobError, TakenError, UsageError
from beam_jobs.plan.group_splits import GroupSplits
from beam_jobs.records.statistics import are_complete
from beam_jobs.sources.labels import LABEL
from beam_jobs.storage.atomic import (
    delete_files,
    drop_empty_directories,
    drop_uploads,
    list_files,
    make_directory,
    sync_names,
    write_file,
)
from beam_jobs.storage.files import content_of, read_bytes
from beam_jobs.storage.paths import refuse_links
from readers.format.display import first_names
from readers.format.lookup.stored_keys import StoredKeys
from readers.format.manifest import (
    GENERATIONS,
    GROUPS,
    MANIFEST,
    TAGS,
    Manifest,
    generation_file,
    join,
)

_GENERATION = re.compile(rf"{GENERATIONS}/([1-9][0-9]{{0,17}})\.json")

_OURS = re.compile(rf"{_GENERATION.pattern}|{re.escape(MANIFEST)}|{TAGS}/[^/]+|{STAGING}/.+")

# Files that a job or a command writes into its folder; those of a family of features in a folder in it.
_OF_A_JOB = re.compile(
    rf"[0-9a-f]{{8}}/(([^/]+/)?[^/]+({DONE}|\.tfrecord(\.index)?)|[^/]+\.(gone|rows)|rejects/[^/]+\.jsonl"
    r"|vocabulary\.txt|tokenizer\.json|groups)"
)

_TAGGED = "a dataset with a tag is not replaced, because other datasets may read it"

# So many are named in an error.
_MOST_TAGS = 3

# A path in the folder of a job or a command.
IN_FOLDER = re.compile(r"[0-9a-f]{8}/")

# The folder of a path in the file of a manifest.
_NAMED = re.compile(rb'"path": "([0-9a-f]{8})/')

# The job of a dataset whose shards are files that another program wrote.
IN_PLACE = "index"

# Files of other programs.
_OF_OTHERS = re.compile(r"[^/]+/([^/]+\.tfrecord\.idx|dataset_info\.json|features\.json)")

# Files that `beam-shards card` adds to a complete dataset.
_CARD = frozenset(["README.md"])

_NOTE = re.compile(rf"([0-9a-f]{{8}})/.+{DONE}")


class State(NamedTuple):
    """The state of a directory.

    Attributes:
        directory: Its path.
        sizes: Name, relative to it -> size in bytes, of its files.
        content: The file of the newest generation; empty if no dataset is complete.
        manifest: The manifest in it; None if no dataset is complete.
    """

    directory: str
    sizes: dict[str, int]
    content: bytes = b""
    manifest: Manifest | None = None

    @property
    def named(self) -> frozenset[str]:
        """The folders to which generations refer."""
        paths = [join(self.directory, generation_file(number)) for number in self.generations]
        # Another command may have deleted some meanwhile.
        contents = [self.content, *map(content_of, paths[:-1])]
        return frozenset(n.decode() for data in contents for n in _NAMED.findall(data or b""))

    @property
    def noted(self) -> frozenset[str]:
        """The folders of jobs and commands whose commit is not finished: the first file in each is a note."""
        return frozenset(note[1] for note in map(_NOTE.fullmatch, self.sizes) if note)

    @property
    def generations(self) -> list[int]:
        """The numbers of the generations."""
        return sorted(int(name[1]) for name in map(_GENERATION.fullmatch, self.sizes) if name)

    @property
    def tags(self) -> list[str]:
        """The files of the tags."""
        return sorted(name for name in self.sizes if folder_of(name) == TAGS)


def state_of(directory: str, in_place: bool = False) -> State:
    """The state of a directory; UsageError if it cannot be listed, has files of no dataset, or is damaged.

    With `in_place`, shards that another program wrote are there, and so any files, as in a dataset of `index`.
    """
    try:
        refuse_links(directory)
        start = len(join(directory, ""))
        sizes = {file.path[start:]: file.size for file in list_files(directory)}
        state = State(directory, sizes)
    except (ValueError, OSError) as error:
        raise UsageError(f"--output {directory}: {error}") from None
    if state.generations:
        path = join(directory, generation_file(state.generations[-1]))
        try:
            content = read_bytes(path)
            manifest = Manifest.from_bytes(content)
        except (ValueError, OSError, RecursionError) as error:
            raise UsageError(f"--output: {path}: {error}; name another directory") from None
        state = State(directory, sizes, content, manifest)
        in_place = in_place or manifest.options.get("job") == IN_PLACE
    # Files in a folder without a note come from an attempt that was too late, or from somebody else: keep them.
    others = () if in_place else sizes
    strange = [name for name in others if not (_OURS.fullmatch(name) or _OF_A_JOB.fullmatch(name))]
    if strange:
        ours = state.named | state.noted
        strange = sorted(name for name in strange if folder_of(name) not in ours)
    if state.content:
        strange = [name for name in strange if name not in _CARD]
    elif MANIFEST in sizes:
        strange.append(MANIFEST)
    if strange:
        raise UsageError(
            f"--output {directory}: it contains {strange[0]!r}, which is not part of a dataset; "
            "move it away, or name a new or an empty directory"
        )
    return state


def folder_of(name: str) -> str:
    """The first part of a file's name, which is its job's folder if it has one."""
    return name.partition("/")[0]


def begun(output: Output, repeats: bool = False, cleans: bool = True) -> Output:
    """The output of a run that begins now: the generation that it writes, and the one before.

    Args:
        output: The dataset.
        repeats: Whether the run may repeat the job that completed the dataset.
        cleans: Whether to finish an interrupted commit.

    Raises:
        UsageError: The directory has another dataset, or other files.
    """
    state = state_of(output.directory)
    output = replace(output, run=uuid.uuid4().hex[:8])
    if state.manifest is None:
        if output.append:
            raise UsageError(f"--output {output.directory}: no dataset is here: drop --append")
        return output
    sha256 = hashlib.sha256(state.content).hexdigest()
    output = replace(output, generation=state.generations[-1] + 1, parent=sha256)
    if output.overwrite:
        if state.manifest.options.get("job") == IN_PLACE:
            raise UsageError(
                f"--output {output.directory}: it describes files of another writer; name another directory"
            )
        if card := _CARD.intersection(state.sizes):
            raise UsageError(
                f"--output {output.directory}: {min(card)} describes the dataset that would be replaced; move it away"
            )
        if state.tags:
            raise UsageError(
                f"--output {output.directory}: {_TAGGED}; delete {first_names(state.tags, _MOST_TAGS)}, or name another "
                "directory"
            )
        return output
    if cleans:
        # An unfinished append is continued.
        began = _abandoned(state) if not output.append else frozenset[str]()
        finish_interrupted(state, began)
    if output.append:
        return _appending(output, output.append, state.manifest)
    if not repeats or state.manifest.options != json.loads(json.dumps(output.options)):
        raise _refusal(output.directory)
    return replace(output, written=state.manifest.job)


def _appending(output: Output, append: Append, parent: Manifest) -> Output:
    """The output of a run with what it takes from its dataset; UsageError if its records would not suit the others."""
    place, stated = output.directory, json.loads(json.dumps(output.options))
    # Arguments of functions state fewer options than the flags of a job.
    named = {*stated, *(parent.options if "job" in stated else ["seed"])}
    for name in sorted(named - OF_INPUTS):
        if (given := stated.get(name)) != (known := parent.options.get(name)):
            raise UsageError(
                f"--{name}: found {given!r:.80}, but {place} was written with {known!r:.80}; an append takes its "
                "options from the dataset"
            )
    if parent.families:
        drops = ", ".join(f"beam-shards columns {place} --drop {name}" for name in parent.families)
        raise UsageError(
            f"{place} has added features, which new records would need, too: drop them ({drops}), append, and add "
            "them again"
        )
    if not are_complete(parent):
        raise UsageError(f"{place} is a part of a dataset: run beam-shards compact {place} first")
    found = renamed_schema(output.schema, output.feature_names)
    if found and found != parent.schema:
        raise UsageError(
            f"the records have other features than {place}; the first that differs is "
            f"{parent.schema.difference(found)}; write them with the same flags, or to another directory"
        )
    if output.placement.splits.names != tuple(parent.splits):
        raise UsageError(f"{place} has the splits {', '.join(parent.splits)}")
    job_names = {new: name for name, new in output.feature_names.items()}
    classes = {job_names.get(name, name): names for name, names in parent.class_names.items()}
    placement = replace(
        output.placement,
        stored=StoredKeys.of(place, parent),
        existing=append.flags.get("existing", "error"),
    )
    groups = b""
    if GROUPS in parent.files and output.placement.deals_groups:
        data = read_bytes(join(place, parent.files[GROUPS].path))
        parent.check_file(GROUPS, data)
        groups = GroupSplits.of_file(data, output.placement.splits).pack()
    taken = replace(append, names={LABEL: parent.label_names, **classes}, groups=groups)
    return replace(output, written=parent.job, placement=placement, append=taken)


def finish_interrupted(state: State, began: frozenset[str] = frozenset()) -> None:
    """Finishes the commit of the newest generation, if that was interrupted and the directory can be written.

    Also deletes the folders of runs that cannot commit any more.
    """
    with contextlib.suppress(OSError, JobError):  # The caller's own result is what matters.
        copied = content_of(join(state.directory, MANIFEST))
        staging = join(state.directory, STAGING)
        if state.manifest and _copy_newest(state.directory, staging, copied) == state.content:
            _finish(state, state.manifest, began)


def _refusal(directory: str) -> UsageError:
    return UsageError(
        f"--output {directory}: a dataset is here already; add --overwrite to replace it, or --append to add to it"
    )


def prepare(output: Output, job: str, folder: str) -> None:
    """Makes a directory ready for the files of a job, given its `Output.job` and `Output.folder`.

    Raises:
        CompleteError: This job has completed the dataset.
        UsageError: Another job has completed a dataset, or the directory cannot be written.
        DataError: The disk is full.
    """
    state = state_of(output.directory)
    newer = state.manifest if max(state.generations, default=0) >= output.generation else None
    if job in (output.written, newer and newer.job):
        raise CompleteError(f"{output.directory} is complete")
    if output.written and not output.append:
        raise _refusal(output.directory)
    # The commit of an append compares its records with those that were added.
    if newer and not (output.append and output.parent in newer.ancestors):
        raise UsageError(
            f"--output {output.directory}: a dataset was completed here after this job began; run it again "
            "with --overwrite to replace that"
        )
    try:
        make_directory(output.staging)
        make_directory(join(output.directory, folder))
    except OSError as error:
        raise not_writable(output.directory, error) from None


class OvertakenError(DataError):
    """Another command committed the generation that a run was about to commit."""


def commit(output: Holder, manifest: Manifest, before: State) -> None:
    """Completes a dataset whose files are all written, given the state of its directory.

    A runner may call it again.

    Raises:
        OvertakenError: (a DataError) Another job completed a dataset there in the meantime.
        OSError: A file cannot be written.
    """
    directory, data = output.directory, manifest.to_bytes()
    name = generation_file(manifest.generation)
    # After a loss of power there must be no manifest without its shards.
    older = before.manifest.paths if before.manifest and manifest.ancestors else set[str]()
    new = manifest.paths - older
    sync_names(directory, new)
    advice = "run it again" if manifest.ancestors else "add --overwrite to replace it"
    too_late = OvertakenError(
        f"--output {directory}: another job completed a dataset here while this one ran; {advice}"
    )
    if max(before.generations, default=0) > manifest.generation:
        raise too_late  # The generation of this number has been replaced, and its manifest deleted.
    if before.tags and before.generations and not manifest.ancestors and name not in before.sizes:
        raise DataError(
            f"--output {directory}: it got a tag while this job ran, and {_TAGGED}; delete "
            f"{first_names(before.tags, _MOST_TAGS)}, and run it again, or name another directory"
        )
    # A purge deletes what is unfinished if it believes that this run is dead.
    if lost := sorted(filter(IN_FOLDER.match, new - before.sizes.keys())):
        raise DataError(f"{directory}: another command deleted {lost[0]}; run this one again")
    try:
        write_file(join(directory, name), data, output.staging)
    except TakenError:
        raise too_late from None
    sync_names(directory, [name])
    # Runs with a folder before the first attempt cannot commit any more; later ones may have begun the next generation.
    began_before = before.noted if name not in before.sizes else frozenset[str]()
    if _copy_newest(directory, output.staging) == data:  # Otherwise the next job has committed.
        _finish(before, manifest, began_before, output.run)


def _abandoned(state: State) -> frozenset[str]:
    """The folders of a complete dataset in which no run is at work: runs have files in `STAGING` first."""
    idle = all(folder_of(name) != STAGING for name in state.sizes)
    return state.noted if idle else frozenset()


def _copy_newest(directory: str, staging: str, copied: bytes | None = None) -> bytes:
    """Copies the newest generation to `manifest.json` unless this was done before; returns its content."""
    while copied != (newest := state_of(directory).content):
        write_file(join(directory, MANIFEST), newest, staging, replace=True, synced=True)
        sync_names(directory, [MANIFEST])
        copied = newest
    return newest


def files_in(state: State, folders: Collection[str]) -> set[str]:
    """The files in some folders that jobs, commands and cards wrote there."""
    ours = (name for name in state.sizes if _OF_A_JOB.fullmatch(name) or _OF_OTHERS.fullmatch(name))
    return {name for name in ours if folder_of(name) in folders}


def _finish(state: State, manifest: Manifest, began: frozenset[str], run: str = "") -> None:
    """Finishes a commit: deletes the files that the newest generation, whose manifest is given, does not need.

    If it continues others, these keep their files, and only what its own run left is deleted. Nothing is deleted while
    another run is at work. Files left by an interruption are deleted by the next job.

    Args:
        state, manifest: The dataset.
        began: The folders of runs that cannot commit any more.
        run: The run that has committed; empty if another job found the dataset complete.
    """
    directory = state.directory
    if is_busy(directory, run):
        return
    named = {*map(folder_of, manifest.paths)}
    folders = named & state.noted if manifest.ancestors else named | state.named | began
    ours = files_in(state, folders) - manifest.paths
    unnamed = [n for n in ours if _OF_A_JOB.fullmatch(n) or folder_of(n) not in named]
    left = [n for n in state.sizes if folder_of(n) == STAGING and not is_lease(n, run)]
    first = manifest.generation - len(manifest.ancestors)
    dead = [generation_file(number) for number in state.generations if number < first]
    # Notes and manifests of older generations go last: they show the next job which files are a job's.
    for names in (left, sorted(unnamed, key=lambda name: name.endswith(DONE)), dead):
        delete_files(join(directory, name) for name in names)
    drop_empty_directories(directory)
    drop_uploads(directory)  # Files of attempts that died.
