"""`python -m readers`: what is in a dataset, from the command line."""

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
    """The exit code: 0; 1 for damaged data or a store that fails; 2 for a mistake of the user, in one line."""
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
        # The reader, `head` say, has seen enough. Python would flush again on exit, and complain.
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
    parser = argparse.ArgumentParser(prog="python -m readers", description="Reads TFRecord shards.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    info = commands.add_parser("info", help="schema, splits, shards, labels and statistics")
    head = commands.add_parser("head", help="the first records")
    check = commands.add_parser("verify", help="reads every byte; exit code 1 if one is wrong")
    export = commands.add_parser("export", help="features as .npy files larger than memory")
    for command in (info, head, check, export):
        command.add_argument("directory", metavar="DIR", help="of the dataset, on any filesystem")
    for command in (head, export):
        command.add_argument(
            "--split", help="or a slice, 'train[100:]'; default: the only one, or train"
        )
    export.add_argument("--feature", required=True, action="append", help="its name; may repeat")
    export.add_argument(
        "--output",
        required=True,
        help="the .npy file; with several features, a directory for FEATURE.npy each. The same "
        "command goes on after a run that was killed",
    )
    head.add_argument("-n", type=int, default=3, help="records to show (default: %(default)s)")
    return parser


if __name__ == "__main__":
    sys.exit(main())
