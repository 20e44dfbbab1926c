"""`python -m readers`, the commands of `beam-shards` that read: inspects, checks and reports on datasets."""

from __future__ import annotations

import argparse
import errno
import io
import json
import os
import sys
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import NoReturn, TextIO

from readers.bench import bench, decoders_of, function_of, step_of
from readers.card.readme import write_card
from readers.check import check
from readers.dataset import open as open_dataset
from readers.describe import describe
from readers.diff import diff, lines
from readers.files.files import StoreError
from readers.files.local import path_text
from readers.format import __version__
from readers.format.display import visible, visible_line, without_credentials
from readers.format.findings import SEVERITIES
from readers.format.manifest import Manifest
from readers.format.tfrecord import CorruptRecordError
from readers.head import shown_records, shown_records_as_json
from readers.log import line, log
from readers.report import report
from readers.verify import verify


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise ValueError(f"{message}; see {self.prog} --help")


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command; returns 1 for damaged data, a failing store or a full disk, 2 for a user error, otherwise 0."""
    arguments = sys.argv[1:] if arguments is None else arguments
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # Closed, as by `>&-`.
            setattr(sys, name, Path(os.devnull).open("w"))  # noqa: SIM115
    # Pillow warns of damaged EXIF with a line of its source code, and does not name the record.
    warnings.filterwarnings("ignore", module=r"PIL\.")
    code = 0
    try:
        if isinstance(sys.stdout, io.TextIOWrapper):
            if "--json" in arguments:
                sys.stdout.reconfigure(encoding="utf-8")
            # An ASCII terminal cannot show all labels.
            sys.stdout.reconfigure(errors="backslashreplace")
        parsed = _parser().parse_args(arguments)
        if parsed.command in ("verify", "check"):
            code = _judged(parsed)
        else:
            for line in _output(parsed):
                # JSON escapes control characters itself.
                print(line if getattr(parsed, "json", False) else visible(line))
        sys.stdout.flush()
    except BrokenPipeError:
        # The program that reads the output, such as `head`, has exited.
        _discard(sys.stdout)
        return 1
    except (ValueError, OSError, ImportError) as error:
        message = without_credentials(" ".join(str(error).split()))
        is_full = isinstance(error, OSError) and error.errno == errno.ENOSPC
        code = 1 if is_full or isinstance(error, (CorruptRecordError, StoreError)) else 2
        if "--json" in arguments:
            failure = {"error": message, "exit_code": code}
            _print(json.dumps(failure, ensure_ascii=False), sys.stdout)
        _print(f"error: {visible_line(message)}", sys.stderr)
    return code


def _print(line: str, stream: TextIO) -> None:
    """Prints a line about a failure; a failure to print it does not change the exit code."""
    try:
        print(line, file=stream, flush=True)
    except OSError:
        _discard(stream)


def _discard(stream: TextIO) -> None:
    """Drops a stream's unwritten output: Python would try to write it at exit, fail, and exit with 120."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _judged(parsed: argparse.Namespace) -> int:
    """Prints the result of `verify` or `check`; returns 1 for a problem, or for a finding as severe as `--fail_on`."""
    if parsed.command == "verify":
        verified = verify(parsed.directory)
        is_good, found = verified.ok, asdict(verified)
        lines = [*map(str, verified.problems), str(verified)]
    else:
        how = {name: getattr(parsed, name) for name in ("records", "against", "group_by")}
        checked = check(parsed.directory, **how)
        is_good, found = not checked.fails(parsed.fail_on), checked.to_json()
        lines = [*map(str, checked.findings), str(checked)]
    if parsed.json:
        print(json.dumps({"ok": is_good, **found}, ensure_ascii=False))
    else:
        print(*map(visible_line, lines), sep="\n")
    return 0 if is_good else 1


def _output(parsed: argparse.Namespace) -> Iterable[str]:
    directory = parsed.directory
    if parsed.command == "head":
        shown = shown_records_as_json if parsed.json else shown_records
        return shown(directory, parsed.split, parsed.n, parsed.key)
    if parsed.command == "info":
        manifest = Manifest.read(directory)
        if parsed.json:
            return [manifest.to_bytes().decode().rstrip()]
        return [describe(directory, manifest, parsed.labels)]
    if parsed.command == "log":
        return map(json.dumps if parsed.json else line, log(directory))
    if parsed.command == "diff":
        compared = diff(directory, parsed.other, parsed.keys)
        return [json.dumps(compared)] if parsed.json else lines(compared)
    if parsed.command == "bench":
        work = {"decoders": decoders_of(parsed.decoders), "map": function_of(parsed.map)}
        how = {"batch_size": parsed.batch_size, "batching": parsed.batching, **work}
        how["columns"] = parsed.columns
        timings = bench(directory, parsed.split, step_of(parsed.step), parsed.seconds, **how)
        return [json.dumps(timings.to_json()) if parsed.json else str(timings)]
    if parsed.command == "report":
        page = report(directory, parsed.output, records=parsed.records, against=parsed.against)
        return [json.dumps({"file": str(page)}) if parsed.json else str(page)]
    written = list(map(str, _written(parsed)))
    return [json.dumps({"files": written}, ensure_ascii=False)] if parsed.json else written


def _written(parsed: argparse.Namespace) -> Iterable[str | Path]:
    if parsed.command == "files":
        dataset = open_dataset(parsed.directory)
        paths = dataset.files(parsed.split)
        splits = [split for name, split in dataset.splits.items() if parsed.split in (None, name)]
        if unseen := sum(split.stored - split.records for split in splits):
            what = "are gone, or not in this subset, but other programs will see them"
            print(f"{unseen:,} of their records {what}", file=sys.stderr)
        return paths
    return write_card(parsed.directory, parsed.output, parsed.license)


_COMMANDS = {
    "info": "show the schema, splits, labels and statistics",
    "head": "show the first records",
    "verify": "compare every byte with the manifest; exit code 1 if there is a problem",
    "check": "look for problems in the data; exit code 1 if there is an error",
    "report": "write an HTML page about the records, their values and their problems",
    "card": "write README.md, and the files with which TensorFlow Datasets opens the shards",
    "files": "print the path of each shard, for other programs",
    "log": "list the generations: their dates, commands and records",
    "diff": "count the keys in which two generations or datasets differ",
    "bench": "measure how fast this machine reads, and name the slowest part",
}


# Command -> how it may be typed.
_EXAMPLES = {
    "info": "info shards/photos",
    "head": "head shards/photos --split val -n 5",
    "verify": "verify shards/photos",
    "check": "check shards/photos --group_by column:subject --fail_on warning",
    "report": "report shards/photos --output photos.html",
    "card": "card shards/photos --license CC-BY-4.0",
    "files": "files shards/photos --split train",
    "log": "log shards/photos",
    "diff": "diff shards/photos@1 shards/photos --keys",
    "bench": "bench shards/photos --step 120ms --decoders image=RandomResizedCrop:224",
}


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="beam-shards",
        description="Inspect, verify and check a dataset of TFRecord shards.",
        epilog="Each command explains its options: beam-shards COMMAND --help",
    )
    parser.add_argument("--version", action="version", version=f"beam-shards {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    parsers = {
        name: commands.add_parser(
            name,
            help=text,
            description=f"{text[0].upper()}{text[1:]}.\n\nexample:\n  beam-shards {_EXAMPLES[name]}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        for name, text in _COMMANDS.items()
    }
    for name, command in parsers.items():
        command.add_argument(
            "directory",
            metavar="DIR",
            type=path_text,
            help="the dataset's directory, a local path or a URL such as s3://bucket/shards",
        )
        shown = command.add_mutually_exclusive_group()
        shown.add_argument("--json", action="store_true", help="print the result as JSON")
        if name == "info":
            text = "list all classes (default: the first 12)"
            shown.add_argument("--labels", action="store_true", help=text)
    _, head, _, look, page, card, files, _, compared, timed = parsers.values()
    for command in (head, timed):
        command.add_argument(
            "--split",
            help="a split, or a slice such as 'train[100:]' (default: the only split, or train)",
        )
    for command in (look, page):
        command.add_argument(
            "--records",
            type=int,
            default=10_000,
            help="maximum number of records to sample (default: %(default)s)",
        )
        command.add_argument(
            "--against",
            metavar="DIR",
            help="another dataset to compare with, such as an earlier version",
        )
    page.add_argument(
        "--output",
        default="report.html",
        metavar="FILE",
        help="the file to write; an existing file is replaced (default: %(default)s)",
    )
    look.add_argument(
        "--group_by",
        default="",
        metavar="REGEX|column:NAME",
        help="groups, such as speakers, that should be within one split: a regular expression that finds the group in a "
        "key, or a feature (default: the --group_by of the job, and features such as speaker_id)",
    )
    look.add_argument(
        "--fail_on",
        choices=SEVERITIES,
        default=SEVERITIES[0],
        help="lowest severity of a finding that makes the exit code 1 (default: %(default)s)",
    )
    card.add_argument(
        "--output",
        metavar="FOLDER",
        help="the folder to write to; existing files are not replaced (default: DIR)",
    )
    card.add_argument(
        "--license",
        default="",
        metavar="SPDX|URL|TEXT",
        help="the licence of the records, such as CC-BY-4.0 (default: none)",
    )
    compared.add_argument(
        "other", metavar="DIR2", type=path_text, help="the other one, such as DIR@5"
    )
    text = "read the records that are in one only, and list their keys"
    compared.add_argument("--keys", action="store_true", help=text)
    files.add_argument("--split", metavar="NAME", help="list only this split (default: all)")
    timed.add_argument("--batch_size", type=int, default=64, help="records per batch (default: 64)")
    timed.add_argument("--batching", default="padded", help="dense, padded (default) or ragged")
    text = "duration of a training step, such as 120ms, to show how long it would wait for batches"
    timed.add_argument("--step", metavar="TIME", help=text)
    text = "duration of each measurement (default: 2)"
    timed.add_argument("--seconds", type=float, default=2, help=text)
    text = "the features to read (default: all)"
    timed.add_argument("--columns", nargs="+", metavar="FEATURE", help=text)
    timed.add_argument("--map", metavar="MODULE:FUNCTION", help="function to apply to each record")
    text = "how to decode images: image=RandomResizedCrop:224, image=Resize:240x320, mask=Skip, ..."
    timed.add_argument("--decoders", nargs="+", default=[], metavar="FEATURE=DECODER", help=text)
    head.add_argument(
        "-n", type=int, default=3, help="number of records to show (default: %(default)s)"
    )
    text = "show the record with this key instead, of any split without --split; may be repeated"
    head.add_argument("--key", action="append", default=[], help=text)
    return parser


if __name__ == "__main__":
    sys.exit(main())
