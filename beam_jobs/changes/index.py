"""`beam-shards index`: a manifest and indexes for TFRecord files, which stay where and as they are."""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from beam_jobs import progress
from beam_jobs.dataset.changes import Change, changing
from beam_jobs.dataset.generations import IN_FOLDER, IN_PLACE, finish_interrupted, state_of
from beam_jobs.dataset.output import resolve
from beam_jobs.engines.memory import keep_freed
from beam_jobs.engines.pool import Pool
from beam_jobs.errors import UsageError
from beam_jobs.jobs.reshard.in_place import INDEXING, index_file, learned_from
from beam_jobs.jobs.reshard.manifests import read_schema
from beam_jobs.jobs.reshard.reshard_job import has_records
from beam_jobs.jobs.reshard.schema_guess import SchemaGuess
from beam_jobs.packages import check_crc32c, versions
from beam_jobs.records.statistics import Statistics
from beam_jobs.storage.listing import match
from beam_jobs.storage.paths import absolute
from readers.files.local import is_local
from readers.files.processors import processors
from readers.format.display import counted
from readers.format.manifest import ALLOWED_BASES, Manifest
from readers.format.schema import Schema
from readers.format.splits import Shard, Split, check_split_name, checked_path, is_sibling

# Names of TFRecord files, of which a folder may also have others.
_RECORDS = re.compile(r"\.(tf)?records?\b|-\d+-of-\d+\b", re.IGNORECASE)

# `NAME-train.tfrecord-00000-of-00010` and `train-00000-of-00010.tfrecord`.
_SHARD = re.compile(r"(?:.*-)?(\w+)(?:\.\w+)?-\d+-of-\d+\b")

_SPLIT = re.compile(
    r"(?<![^-_./])(train|training|val|valid|validation|dev|eval|test|testing)(?![a-z])",
    re.IGNORECASE,
)

# The split of files whose names state none, as in readers.
_ALL = "all"

# A path in the manifest of a file outside of the dataset's directory.
_OUTSIDE = re.compile(r"\.\./|/|\w+://")

_PRELOADED = [index_file.__module__]

# The split and the size of a file.
_Facts = tuple[str, int]


def run(parsed: argparse.Namespace) -> Iterator[str]:
    """Runs the command; yields lines for people."""
    check_crc32c()
    directory = _plain(resolve(parsed.output))
    given = read_schema(parsed.schema) if parsed.schema else None
    files = _files(parsed.files, parsed.split)
    listed = [_path_in(directory, path) for path in files]
    bases = tuple(sorted({name.rpartition("/")[0] for name in listed if _OUTSIDE.match(name)}))
    try:
        for name in listed:
            checked_path("" if IN_FOLDER.match(name) else name, bases)
    except ValueError as error:
        raise UsageError(f"{directory}: {error}; rename the file") from None
    options = {"job": IN_PLACE, **({"split": parsed.split} if parsed.split else {})}
    content = options, listed, list(files.values()), given and given.to_json()
    job = hashlib.blake2b(json.dumps(content).encode(), digest_size=8).hexdigest()
    state = state_of(directory, in_place=not all(map(_OUTSIDE.match, listed)))
    if manifest := state.manifest:
        finish_interrupted(state)
    else:
        keep_freed()  # A page fault for each page of each batch took a seventh of the time.
        with contextlib.closing(Pool(min(processors(), len(files)), _PRELOADED)) as pool:
            known = given or Manifest(_learned(pool, files), {})
            draft = Manifest(known.schema, {}, known.label_names, 0, options, versions())
            draft = replace(draft, class_names=known.class_names, job=job, base=bases)
            with changing(directory, {"name": IN_PLACE}, draft, in_place=True) as change:
                manifest = change.parent
                if not manifest.generation:
                    change = replace(change, sha256=job)
                    manifest = _indexed(change, pool, files, listed, learned=given is None)
    if manifest.job != job:
        raise UsageError(f"--output {directory}: a dataset of other files or flags is here already")
    yield f"{directory} is complete: {counted(len(files), 'file')}, unchanged\n\n{manifest}"
    for base in bases:
        if not is_sibling(base):
            yield f"to read it, set {ALLOWED_BASES}={base}"


def _learned(pool: Pool, files: Mapping[str, _Facts]) -> Schema:
    guess = SchemaGuess()
    for found in pool.map(learned_from, [(path,) for path in files]):
        guess.merge(found)
    return guess.schema()


def _indexed(
    change: Change, pool: Pool, files: Mapping[str, _Facts], listed: Sequence[str], learned: bool
) -> Manifest:
    """Writes the indexes of some files, then the manifest."""
    shards, statistics = dict[str, list[Shard]](), dict[str, Statistics]()
    draft = change.parent
    folder = change.folder(draft.schema.to_json(), draft.versions)
    tasks = [
        (change, f"{folder}/{split}-{number:05d}", path, name, draft.schema, learned)
        for number, ((path, (split, _)), name) in enumerate(zip(files.items(), listed, strict=True))
    ]
    with progress.display(sys.stderr):
        change.begin(folder)
        progress.expect(INDEXING, sum(size for _, size in files.values()), "B")
        found = pool.map(index_file, tasks)
        for (split, _), (shard, counted) in zip(files.values(), found, strict=True):
            shards.setdefault(split, []).append(shard)
            if split in statistics:
                statistics[split].merge(counted)
            statistics.setdefault(split, counted)
    return change.commit(
        splits={n: Split((*s,), statistics=statistics[n].to_json()) for n, s in shards.items()}
    )


def _files(patterns: Sequence[str], splits: Sequence[str]) -> dict[str, _Facts]:
    """The files in the order of their paths, each with its split and size."""
    pairs = [(split.partition("=")[0], split.partition("=")[2]) for split in splits]
    found = dict[str, _Facts]()
    for given, pattern in [*pairs, *(("", pattern) for pattern in patterns)]:
        whole = absolute(_plain(pattern))
        names_folder = whole.endswith("/**") and not pattern.endswith("/**")
        for file in match(whole):
            name = file.path.rpartition("/")[2]
            if has_records(name) and (_RECORDS.search(name) or not names_folder):
                found.setdefault(file.path, (given or _split_of(file.path), file.size))
    if not found:
        raise UsageError(f"no TFRecord files in {', '.join([*patterns, *splits]) or 'no FILES'}")
    names = {split for split, _ in found.values()}
    if _ALL in names and len(names) > 1:
        path = next(path for path, (split, _) in found.items() if split == _ALL)
        raise UsageError(f"{path}: its name states no split, others do: add --split NAME=PATTERN")
    try:
        return {path: found[path] for path in sorted(found) if check_split_name(found[path][0])}
    except ValueError as error:
        raise UsageError(f"--split: {error}") from None


def _split_of(path: str) -> str:
    """The split that the name of a file or its folder states."""
    folder, name = path.split("/")[-2:]
    known = _SPLIT.findall(name) or _SPLIT.findall(folder)
    shard = _SHARD.match(name)
    return known[0] if known else shard[1] if shard else _ALL


def _path_in(directory: str, path: str) -> str:
    """The path of a file, relative to a dataset if it is in that or in its parent folder."""
    if path.startswith(f"{directory}/"):
        return path[len(directory) + 1 :]
    parent = directory.rpartition("/")[0]
    is_near = path.startswith(f"{parent}/") and not parent.endswith(":/")
    return f"../{path[len(parent) + 1 :]}" if is_near else path


def _plain(path: str) -> str:
    """A path without `..`, which a manifest cannot list."""
    return os.path.realpath(path) if is_local(path) and ".." in path.split("/") else path
