"""The functions of this project: `beam_jobs.write` and `WriteShards`, with records that Python code makes."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from functools import partial
from typing import Any

from read import class_name, class_names, list_files, read_records

from beam_jobs import Feature, Schema, write

_FEATURES = {
    "text": {"text": Feature("string")},
    "sensors": {"signal": Feature("float32", (None, 6))},
    "images": {"image": Feature("uint8", (None, None, 3))},
}


def records_of(kind: str, labels: dict[str, int], path: str) -> Iterator[tuple[str, Any]]:
    """Yields the records of a file, each with its key."""
    (name,) = _FEATURES[kind]
    for number, (value, label) in enumerate(read_records(kind, path)):
        label = labels[class_name(path)] if label is None else label
        yield f"{path}#{number}", {name: value, "label": label}


def main() -> None:
    """Writes the shards."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=_FEATURES)
    parser.add_argument("--input", required=True)
    parser.add_argument("--output", required=True)
    parser.add_argument("--num_shards", type=int, required=True)
    parser.add_argument("--way", choices=("write", "rows", "WriteShards"), required=True)
    flags = parser.parse_args()
    schema = Schema({**_FEATURES[flags.kind], "label": Feature("int64")})
    labels = {name: label for label, name in enumerate(class_names(flags.input))}
    function, paths = partial(records_of, flags.kind, labels), list_files(flags.input, flags.kind)
    if flags.way == "write":
        write(function, flags.output, schema, inputs=paths, num_shards=flags.num_shards)
    elif flags.way == "rows":
        rows = (row for path in paths for row in function(path))
        write(rows, flags.output, schema, num_shards=flags.num_shards)
    else:
        import apache_beam as beam

        from beam_jobs import WriteShards

        with beam.Pipeline() as pipeline:
            rows = pipeline | beam.Create(paths) | beam.FlatMap(function)
            rows | WriteShards(flags.output, schema, num_shards=flags.num_shards)


if __name__ == "__main__":
    main()
