"""The commands that change a complete dataset: their parser, output and exit codes."""

from __future__ import annotations

import argparse
import importlib
import json
from collections.abc import Sequence
from typing import NoReturn

from beam_jobs.errors import UsageError

# Command -> its help. Each is a file of `beam_jobs/changes` with `add_arguments` and `run`.
CHANGES = {
    "columns": "add features to all records of a dataset, from a table or a function",
    "compact": "write all that readers see as one generation: balanced shards in the order of hashes",
    "delete": "make a generation without some records, whose files stay as they are",
    "expire": "drop older generations, and the files that no other one names",
    "index": "make a dataset of TFRecord files, which stay where and as they are",
    "merge": "make a dataset of the records of several, whose files stay where they are",
    "purge": "erase records from all generations and files, with a receipt",
    "select": "make a dataset of some records, in the files in which they are",
    "tag": "give a generation a name, with which it is kept and read: DIR@NAME",
}


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}; see {self.prog} --help")


def change(arguments: Sequence[str]) -> str:
    """Runs the command in the first argument; returns its output, or its help.

    Raises:
        JobError: The command failed.
        ValueError: A file is damaged, or an argument is wrong.
        OSError: A file cannot be read or written.
    """
    name = arguments[0]
    command = importlib.import_module(f"beam_jobs.changes.{name}")
    parser = _Parser(prog=f"beam-shards {name}", description=f"To {CHANGES[name]}.")
    if name != "index":
        parser.add_argument("directory", metavar="DIR", help="the dataset's directory")
    command.add_arguments(parser)
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    if not {"-h", "--help"}.isdisjoint(arguments):
        return parser.format_help().rstrip()
    parsed = parser.parse_args(arguments[1:])
    lines = list(command.run(parsed))
    return json.dumps({"result": lines}, ensure_ascii=False) if parsed.json else "\n".join(lines)
