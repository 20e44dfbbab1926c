"""LitData: `optimize` writes chunks of 64 MB, the size that its documentation uses, with a function of a file."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from functools import partial
from typing import Any

import litdata
from read import class_name, class_names, list_files, read_records


def records_of(kind: str, labels: dict[str, int], path: str) -> Iterator[Any]:
    """Yields the records of a file."""
    for value, label in read_records(kind, path):
        yield {"value": value, "label": labels[class_name(path)] if label is None else label}


def main() -> None:
    """Writes the chunks."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=("sensors", "images", "text"))
    parser.add_argument("--input", required=True)
    parser.add_argument("--output", required=True)
    parser.add_argument("--num_shards", type=int, help="not used: chunks are cut by size")
    flags = parser.parse_args()
    labels = {name: label for label, name in enumerate(class_names(flags.input))}
    litdata.optimize(
        partial(records_of, flags.kind, labels),
        list_files(flags.input, flags.kind),
        flags.output,
        chunk_bytes="64MB",
        num_workers=len(os.sched_getaffinity(0)),
        verbose=False,
    )


if __name__ == "__main__":
    main()
