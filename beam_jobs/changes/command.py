"""The commands that change a complete dataset: their parser, output and exit codes."""

from __future__ import annotations

import argparse
import importlib
import json
from collections.abc import Sequence
from typing import NoReturn

from beam_jobs.errors import UsageError

# Command -> its help. Each is a file of `beam_jobs/changes` with `run`.
# Importing it takes twice as long as the help.
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


# Command -> how it may be typed.
EXAMPLES = {
    "columns": "columns shards/photos --table clip.parquet --key path --extra_features clip:float32[512]",
    "compact": "compact shards/photos",
    "delete": "delete shards/photos --where 'len(boxes) == 0'",
    "expire": "expire shards/photos --keep 3",
    "index": "index old/*.tfrecord --output shards/old",
    "merge": "merge shards/photos shards/more --output shards/all",
    "purge": "purge shards/photos --keys withdrawn.txt",
    "select": "select shards/photos --where \"label == 'cat'\" --output shards/cats",
    "tag": "tag shards/photos paper",
}


class Parser(argparse.ArgumentParser):
    """An argument parser that reports a mistake as a `UsageError` of one line."""

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
    text = f"{CHANGES[name][0].upper()}{CHANGES[name][1:]}."
    parser = Parser(
        prog=f"beam-shards {name}",
        description=f"{text}\n\nexample:\n  beam-shards {EXAMPLES[name]}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    if name != "index":
        parser.add_argument("directory", metavar="DIR", help="the dataset's directory")
    _add_arguments(parser, name)
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    if not {"-h", "--help", "--help-all"}.isdisjoint(arguments):
        return parser.format_help().rstrip()
    parsed = parser.parse_args(arguments[1:])
    lines = list(importlib.import_module(f"beam_jobs.changes.{name}").run(parsed))
    return json.dumps({"result": lines}, ensure_ascii=False) if parsed.json else "\n".join(lines)


def _add_arguments(parser: argparse.ArgumentParser, command: str) -> None:
    """Adds the arguments of a command."""
    add = parser.add_argument
    match command:
        case "columns":
            source = parser.add_mutually_exclusive_group(required=True)
            source.add_argument(
                "--table", help="a table with the features and the key of each record"
            )
            source.add_argument(
                "--map", metavar="MODULE:FUNCTION", help="a function, as --map of jobs"
            )
            source.add_argument(
                "--drop", metavar="NAME", help="remove the features of this name again"
            )
            add("--name", help="a name for the new features together")
            add("--key", help="the column of --table with the keys")
            add("--extra_features", help="its columns, such as clip:float32[512],age:int64")
            add("--map_schema", help="what --map returns, such as clip=float32[512]")
            text = "records without a row are an error, or get zeros and empty texts"
            add("--missing", choices=("error", "default"), default="error", help=text)
        case "compact":
            text = "shards of each split: 16, or train=16,val=2 (default: by their size)"
            add("--num_shards", metavar="N", help=text)
            text = "the approximate size of a shard (default: 128MiB)"
            add("--shard_size", metavar="SIZE", help=text)
        case "delete":
            _add_choice(parser)
        case "expire":
            text = "how many of the newest generations to keep, in addition to those with a tag"
            add("--keep", metavar="N", type=int, required=True, help=text)
        case "index":
            of_split = (
                "the files of a split; may be repeated (default: by the names of files and folders)"
            )
            schema = "a manifest.json, or its schema (default: learned from the first records of each file)"
            place = "the dataset; it may be the folder of the files"
            add("files", metavar="FILES", nargs="*", help="TFRecord files, folders or patterns")
            add("--output", metavar="DIR", required=True, help=place)
            add("--split", metavar="NAME=PATTERN", action="append", default=[], help=of_split)
            add("--schema", metavar="FILE.json", help=schema)
        case "merge":
            add("others", metavar="DIR", nargs="+", help="further datasets")
            add("--output", metavar="DIR", required=True, help="the new dataset")
            text = "copy the records: afterwards, the new dataset is compact"
            add("--copy", action="store_true", help=text)
        case "purge":
            group = parser.add_mutually_exclusive_group(required=True)
            text = "a file with a key on each line, or with an object of JSON that has a `key`"
            group.add_argument("--keys", metavar="FILE", help=text)
            group.add_argument("--key", action="append", help="a key; may be repeated")
            text = "the file of the receipt (default: purge-DIGEST.json in this folder)"
            add("--receipt", metavar="FILE", help=text)
        case "select":
            _add_choice(parser)
            text = (
                "the directory of the subset, best next to DIR, together with which it may be moved"
            )
            add("--output", metavar="SUB", required=True, help=text)
        case "tag":
            add(
                "name",
                metavar="NAME",
                help="the name, such as paper: DIR@paper is then the generation",
            )
            add(
                "generation",
                metavar="N",
                nargs="?",
                type=int,
                help="its number (default: the newest)",
            )


def _add_choice(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments that choose records."""
    group = parser.add_mutually_exclusive_group(required=True)
    for flag, value, text in (
        ("where", "EXPR", "records that fulfil a condition, such as 'len(boxes) == 0'"),
        ("rows", "FILE", "records by their numbers in the --split, a number on each line"),
        ("keys", "FILE", "records by their keys: on each line a key, or JSON with a `key`"),
    ):
        group.add_argument(f"--{flag}", metavar=value, help=text)
    group.add_argument("--key", action="append", help="a record by its key; may be repeated")
    text = "whether a key that is not there is an error (default) or ok"
    parser.add_argument("--missing", choices=("error", "ok"), default="error", help=text)
    parser.add_argument("--split", metavar="NAME", help="only this split (default: all)")
