"""The history of a dataset, for `beam-shards log`."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from readers.files.of_path import files_of
from readers.format.manifest import GENERATIONS, TAGS, Manifest, join, read_tag
from readers.format.splits import Split


def log(directory: str) -> list[dict[str, Any]]:
    """The generations of a dataset that are kept, the newest first, as JSON values.

    Each has its `generation`, its `date` if that is known, its `operation`, its `tags`, and its `splits`: name ->
    `records`, and how many were `added` and `removed` since the one before.

    Raises:
        DatasetError: (a ValueError) A manifest is missing or damaged.
    """
    Manifest.read(directory)
    files, tags, older = files_of(directory), dict[int, list[str]](), dict[str, Split]()
    for path in files.glob(join(directory, f"{TAGS}/*")):
        name = path.rpartition("/")[2]
        tags.setdefault(read_tag(directory, name)[0], []).append(name)
    paths = files.glob(join(directory, f"{GENERATIONS}/*.json"))
    found = []
    for number, path in sorted((int(p.rpartition("/")[2][:-5]), p) for p in paths):
        manifest, modified = Manifest.read(f"{directory}@{number}"), files.stat(path).modified
        date = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(modified / 1e9))
        splits = {n: _split(older.get(n), split) for n, split in manifest.splits.items()}
        operation = manifest.operation or {"name": manifest.options.get("job", "write")}
        facts = {"operation": operation, "tags": tags.get(number, []), "splits": splits}
        found.append({"generation": number, "date": date if modified else "", **facts})
        older = manifest.splits
    return found[::-1]


def _split(older: Split | None, newer: Split) -> dict[str, int]:
    kept = older is not None and newer.shards[: len(older.shards)] == older.shards
    added = newer.stored - older.stored if older and kept else newer.records
    removed = added - newer.records + (older.records if older else 0)
    return {"records": newer.records, "added": added, "removed": removed}


def line(generation: Mapping[str, Any]) -> str:
    """A generation as a line for people, without the SHA-256 of the datasets that it is made of."""
    operation = generation["operation"]
    stated = {name: value for name, value in operation.items() if value is not None}
    options = (f"{name}={stated[name]}" for name in stated if name not in ("name", "of"))
    splits = (
        f"{name} {n['records']:,} (+{n['added']:,} -{n['removed']:,})"
        for name, n in generation["splits"].items()
    )
    start = f"{generation['generation']:>4}", generation["date"], ", ".join(splits)
    return "  ".join([*start, " ".join([operation["name"], *options]), *generation["tags"]])
