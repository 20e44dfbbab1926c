"""The parts that the command lines of the benchmarks share."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from measure import BenchmarkError


def build_parser(
    description: str, inputs_flag: str, inputs: Sequence[str], contenders: Sequence[str]
) -> argparse.ArgumentParser:
    """Returns a parser with the flags that several benchmarks have."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    default = "(default: %(default)s)"
    parser.add_argument(
        "--data",
        default="benchmark_data",
        help=f"folder for inputs and the rivals' environment, which are made once {default}",
    )
    parser.add_argument("--python", default=sys.executable, help="this project's interpreter")
    parser.add_argument(inputs_flag, default=",".join(inputs), help=default)
    parser.add_argument("--contenders", default=",".join(contenders), help=default)
    parser.add_argument("--runs", type=int, default=3, help=f"number of timed runs {default}")
    parser.add_argument("--quick", action="store_true", help="smoke test: tiny inputs, one run")
    parser.add_argument(
        "--json", metavar="PATH", help="write the figures of every run to this file"
    )
    return parser


def parse_flags(parser: argparse.ArgumentParser) -> argparse.Namespace:
    """Returns the flags, with `data` as a path, and creates that folder.

    Raises:
        BenchmarkError: The number of runs is less than 1.
    """
    flags = parser.parse_args()
    if flags.runs < 1:
        raise BenchmarkError(f"--runs {flags.runs}: expected at least 1")
    if flags.quick:
        flags.runs = 1
    flags.data = Path(flags.data).resolve()
    flags.data.mkdir(parents=True, exist_ok=True)
    return flags


def parse_names(allowed: Sequence[str], text: str) -> list[str]:
    """Returns the names in a comma-separated text, in the order of `allowed`.

    Raises:
        BenchmarkError: A name is not in `allowed`.
    """
    names = text.split(",")
    for name in names:
        if name not in allowed:
            raise BenchmarkError(f"{name!r}: expected some of {','.join(allowed)}")
    return [name for name in allowed if name in names]


def report(figures: dict[str, Any], tables: Sequence[str], quick: bool) -> None:
    """Prints the machine and the tables."""
    machine = figures["machine"]
    print(f"\n{machine['cpu']}, {machine['cores']} cores", *tables, sep="\n\n")
    if quick:
        print("\nThe inputs were tiny: these figures only show that the benchmark runs.")


def save(path: str | None, figures: dict[str, Any]) -> None:
    """Writes the figures to the file of `--json`, if one is given."""
    if path:
        Path(path).write_text(json.dumps(figures, indent=1) + "\n")


def run_command(main: Callable[[], None]) -> None:
    """Runs a benchmark; prints a `BenchmarkError` in one line and exits with 1."""
    try:
        main()
    except BenchmarkError as error:
        sys.exit(f"error: {error}")
