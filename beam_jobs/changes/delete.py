"""`beam-shards delete`: a generation without some records."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from beam_jobs.changes.choice import chosen_rows, given
from beam_jobs.dataset.changes import changing, without
from beam_jobs.errors import UsageError
from readers.format.display import counted


def run(parsed: argparse.Namespace) -> Iterator[str]:
    """Runs the command; yields lines for people."""
    operation = {"name": "delete", **given(parsed)}
    with changing(parsed.directory, operation) as change:
        directory, parent = change.directory, change.parent
        if "rows" in operation and parent.operation == operation:
            done = f"generation {parent.generation} has deleted these rows"
            raise UsageError(f"{directory}: {done}; now, the same numbers are other records")
        gone = {n: rows for n, rows in chosen_rows(directory, parent, parsed).items() if len(rows)}
        if not gone:
            yield f"{directory}: nothing to delete; it stays generation {parent.generation}"
            return
        splits, folder = dict(parent.splits), change.folder()
        for name, rows in gone.items():
            splits[name] = without(change, f"{folder}/{name}", change.splits[name], rows)
        made = change.commit(splits=splits)
    removed = ", ".join(f"{len(rows):,} of {name}" for name, rows in gone.items())
    kept = counted(sum(split.records for split in splits.values()), "record")
    yield f"{directory}: generation {made.generation} has {kept}; deleted {removed}"
