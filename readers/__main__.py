"""`python -m readers`: inspects, verifies and exports datasets from the command line."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable, Sequence

from readers.describe import describe, first_records
from readers.export import export_npy
from readers.files.retries import StoreError
from readers.format.manifest import Manifest
from readers.format.tfrecord import CorruptRecordError
from readers.verify import verify


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command; returns 1 for damaged data or a failing store, 2 for a user error, else 0."""
    parsed = _parser().parse_args(arguments)
    code = 0
    try:
        if parsed.command == "verify":
            code = _verified(parsed.directory)
        else:
            for line in _output(parsed):
                print(line)
        sys.stdout.flush()
    except BrokenPipeError:
        # The program that reads the output, such as `head`, has ended. Python would flush stdout
        # again on exit and report an error.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (ValueError, OSError, ImportError) as error:
        print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
        return 1 if isinstance(error, (CorruptRecordError, StoreError)) else 2
    return code


def _verified(directory: str) -> int:
    report = verify(directory)
    for problem in report.problems:
        print(problem)
    print(report)
    return 0 if report.ok else 1


def _output(parsed: argparse.Namespace) -> Iterable[str]:
    if parsed.command == "info":
        return [describe(parsed.directory, Manifest.read(parsed.directory))]
    if parsed.command == "export":
        several = len(parsed.feature) > 1
        features = parsed.feature if several else parsed.feature[0]
        paths = export_npy(parsed.directory, features, parsed.output, split=parsed.split)
        return map(str, paths if isinstance(paths, list) else [paths])
    return first_records(parsed.directory, parsed.split, parsed.n)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m readers",
        description="Inspects, verifies and exports datasets of TFRecord shards.",
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    info = commands.add_parser("info", help="show the schema, splits, labels and statistics")
    head = commands.add_parser("head", help="show the first records")
    check = commands.add_parser(
        "verify", help="check every byte; exit code 1 if there is a problem"
    )
    export = commands.add_parser(
        "export", help="write features as .npy files, which may exceed memory"
    )
    for command in (info, head, check, export):
        command.add_argument(
            "directory", metavar="DIR", help="the dataset's directory, on any filesystem"
        )
    for command in (head, export):
        command.add_argument(
            "--split",
            help="a split or a slice, as 'train[100:]' (default: the only split, or train)",
        )
    export.add_argument(
        "--feature",
        required=True,
        action="append",
        help="the feature's name; repeat the option for several",
    )
    export.add_argument(
        "--output",
        required=True,
        help="the .npy file; with several features, a directory for one FEATURE.npy each. Run the "
        "same command again to resume an interrupted export",
    )
    head.add_argument(
        "-n", type=int, default=3, help="the number of records (default: %(default)s)"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
