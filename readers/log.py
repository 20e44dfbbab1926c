"""The history of a dataset, for `beam-shards log`."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

from readers.files.of_path import files_of
from readers.format.manifest import GENERATIONS, TAGS, Manifest, generation_file, join, read_tag
from readers.format.splits import Split


def log(directory: str) -> Iterator[dict[str, Any]]:
    """Yields the generations of a dataset that are kept, the newest first, as JSON values.

    These are the `generation`, its `date` if that is known, its `operation`, its `tags`, and its `splits`: name ->
    `records`, and how many were `added` and `removed` since the generation in the next line.

    Raises:
        DatasetError: (a ValueError) A manifest is missing or damaged.
    """
    Manifest.read(directory)
    files, tags = files_of(directory), dict[int, list[str]]()
    for path in files.glob(join(directory, f"{TAGS}/*")):
        name = path.rpartition("/")[2]
        tags.setdefault(read_tag(directory, name)[0], []).append(name)
    names = (p.rpartition("/")[2] for p in files.glob(join(directory, f"{GENERATIONS}/*.json")))
    numbers = sorted(int(name.removesuffix(".json")) for name in names)
    older: Mapping[str, Split] = {}
    lines = []
    for number in numbers:
        manifest = Manifest.read(f"{directory}@{number}")
        changed = files.stat(join(directory, generation_file(number))).modified
        date = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(changed / 1e9)) if changed else ""
        splits = {n: _split(older.get(n, Split(())), split) for n, split in manifest.splits.items()}
        operation = manifest.operation or {"name": manifest.options.get("job", "write")}
        lines.append(
            {
                "generation": number,
                "date": date,
                "operation": operation,
                "tags": tags.get(number, []),
                "splits": splits,
            }
        )
        older = manifest.splits
    yield from reversed(lines)


def _split(older: Split, newer: Split) -> dict[str, int]:
    kept = newer.shards[: len(older.shards)] == older.shards
    added = newer.stored - older.stored if kept and older.shards else newer.records
    removed = added + older.records - newer.records
    return {"records": newer.records, "added": added, "removed": removed}


def line(entry: Mapping[str, Any]) -> str:
    """One of these generations as a line for people."""
    operation = " ".join(f"{k}={v}" if k != "name" else v for k, v in entry["operation"].items())
    splits = [
        f"{name} {split['records']:,}"
        + "".join(
            f" {sign}{split[k]:,}" for sign, k in (("+", "added"), ("-", "removed")) if split[k]
        )
        for name, split in entry["splits"].items()
    ]
    return "  ".join(
        filter(
            None,
            [
                f"{entry['generation']:>4}",
                entry["date"],
                ", ".join(splits),
                operation,
                " ".join(entry["tags"]),
            ],
        )
    )
