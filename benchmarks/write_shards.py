"""Measures how fast shards are written: the jobs and functions of this project, two libraries, and two loops.

    python benchmarks/write_shards.py --json results.json

All write the same records from the same files to 16 shards on this machine. `write` is `beam_jobs.write` with a
function of a file, `rows` with a generator in one process, and `WriteShards` gets the records of that generator; the
second loop uses this project's encoder instead of TensorFlow. A run is timed from the start to the exit of the process; the marginal rate, between a
small and a large input, excludes imports and start-up. The rivals run in a separate environment, which is created once.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from command import build_parser, parse_flags, parse_names, report, run_command, save
from environment import describe
from harness import Contender, Harness, Result, format_markdown
from inputs import KINDS, make_inputs, read_all
from measure import HERE, BenchmarkError, count_records, warm_memory

NUM_SHARDS = 16
SIZES = {"sensors": (20_000, 80_000), "images": (1_000, 4_000), "text": (50_000, 200_000)}
QUICK_SIZES = {"sensors": (100, 200), "images": (20, 40), "text": (200, 400)}

CONTENDERS = {
    "ours": Contender("ours"),
    "write": Contender("ours", "functions.py"),
    "rows": Contender("ours", "functions.py"),
    "WriteShards": Contender("ours", "functions.py"),
    "litdata": Contender("litdata", "litdata_optimize.py"),
    "tfds": Contender("rivals", "tfds_builder.py"),
    "floor": Contender("rivals", "loop.py"),
    "own floor": Contender("ours", "loop.py"),
}
_PATTERNS = {"sensors": "*/*.npy", "images": "*/*.jpg", "text": "*.jsonl"}
_OWN_FLAGS = {
    "sensors": (),
    "images": ("--image_size", "224x224"),
    "text": ("--text_field", "text", "--label_field", "label"),
}


class Bench:
    """Runs the contenders.

    Args:
        harness: Runs the contenders.
        outputs: The folder in which datasets are written and deleted.
    """

    def __init__(self, harness: Harness, outputs: Path) -> None:
        self._harness, self._outputs = harness, outputs / "write_shards_outputs"

    def _write(self, kind: str, result: Result, folder: Path) -> dict[str, Any]:
        """Runs a contender once, and checks that it wrote all records.

        Raises:
            BenchmarkError: It failed, or did not.
        """
        shutil.rmtree(self._outputs, ignore_errors=True)
        self._outputs.mkdir(parents=True)
        output = self._outputs / result.contender
        flags = ["--output", str(output), "--num_shards", str(NUM_SHARDS)]
        if result.contender == "ours":
            arguments = ["-m", "beam_jobs", kind, "--input", str(folder / _PATTERNS[kind])]
            arguments += [*flags, *_OWN_FLAGS[kind]]
        else:
            script = HERE / "rivals" / CONTENDERS[result.contender].module
            arguments = [str(script), kind, "--input", str(folder), *flags]
            arguments += ["--own_encoder"] * (result.contender == "own floor")
            if script.name == "functions.py":
                arguments += ["--way", result.contender]
        done = self._harness.run(result.contender, result.case, arguments)
        if (written := _count(output)) != result.arguments["records"]:
            raise BenchmarkError(f"{result.contender} wrote {written} of {result.case}")
        shutil.rmtree(self._outputs)
        return asdict(done)

    def measure(
        self,
        kind: str,
        sizes: Sequence[int],
        contenders: Sequence[str],
        runs: int,
        different: int | None,
    ) -> list[Result]:
        """Runs every contender on every size of a kind; a run before the first is not counted.

        Args:
            kind: One of `KINDS`.
            sizes: The numbers of records.
            contenders: The contenders.
            runs: The number of runs that count.
            different: The number of different files; the others are further names of these. None for all.

        Raises:
            BenchmarkError: This project failed.
        """
        folders = {size: make_inputs(self._harness.data, kind, size, different) for size in sizes}
        read_all(folders[sizes[-1]])
        results = [
            Result(f"{size:,} {kind}", name, "", {"records": size})
            for size in sizes
            for name in contenders
        ]
        for number in range(runs + (not self._harness.quick)):
            # Each run starts with another contender, because each leaves the machine in a state that
            # affects the next.
            if not self._harness.quick:
                warm_memory()
            start = number % len(contenders)
            for size in sizes:
                some = [result for result in results if result.arguments["records"] == size]
                for result in [*some[start:], *some[:start]]:
                    write = partial(self._write, kind, result, folders[size])
                    figures = self._harness.attempt(result, write)
                    if figures and (number or self._harness.quick):
                        result.runs.append(figures)
        return results


def _count(output: Path) -> int:
    """Returns the number of records in a folder."""
    if (chunks := output / "index.json").exists():  # LitData's
        return sum(chunk["chunk_size"] for chunk in json.loads(chunks.read_text())["chunks"])
    paths = (path for path in output.rglob("*.tfrecord*") if path.suffix != ".index")
    return sum(map(count_records, paths))


def format_table(kind: str, results: Sequence[Result]) -> str:
    """Returns a row for every contender and size.

    Marginal rate, processor time and growth of memory are relative to the size in the row above.
    """
    head = [
        "seconds",
        "marginal records/s",
        "of ours",
        "CPU µs/record",
        "peak MB",
        "growth B/record",
    ]
    rows = [[kind, "records", *head]]
    ours = 0.0
    for name in dict.fromkeys(result.contender for result in results):
        before = None
        for result in (each for each in results if each.contender == name):
            records = result.arguments["records"]
            if not result.is_measured:
                rows.append([name, f"{records:,}", "does not run", *[""] * 5])
                continue
            cells = [name, f"{records:,}", f"{result.median('seconds'):.2f}"]
            margin = ["", "", "", ""]
            if before:
                added = records - before.arguments["records"]
                seconds, cpu, peak = (
                    (result.median(figure) - before.median(figure)) / added
                    for figure in ("seconds", "cpu_seconds", "peak_bytes")
                )
                rate = 1 / seconds if seconds > 0 else 0.0
                ours = ours or rate
                margin = [f"{rate:,.0f}", f"{rate / ours:.2f}" if ours else ""]
                margin += [f"{cpu * 1e6:,.1f}", f"{peak:,.0f}"]
            peak_mb = f"{result.median('peak_bytes') / 1e6:,.0f}"
            rows.append([*cells, *margin[:3], peak_mb, margin[3]])
            before = result
    problems = [f"- {result.contender}: {result.problem}" for result in results if result.problem]
    return "\n".join([format_markdown(rows), *problems])


def main() -> None:
    """Measures, prints tables, and writes the JSON file.

    Raises:
        BenchmarkError: This project failed, or a flag is wrong.
    """
    parser = build_parser(__doc__, "--kinds", KINDS, list(CONTENDERS))
    parser.add_argument(
        "--outputs", help="folder for temporary datasets, such as /dev/shm (default: --data)"
    )
    parser.add_argument(
        "--times",
        type=int,
        default=1,
        help="how many times as large the inputs are, with more names of the same files: 4 for 16 cores",
    )
    flags = parse_flags(parser)
    contenders = parse_names(list(CONTENDERS), flags.contenders)
    sizes = QUICK_SIZES if flags.quick else SIZES
    harness = Harness(flags.data, flags.python, CONTENDERS, flags.quick)
    bench = Bench(harness, Path(flags.outputs).resolve() if flags.outputs else flags.data)
    results: list[Result] = []
    tables = []
    for kind in parse_names(KINDS, flags.kinds):
        large = [size * flags.times for size in sizes[kind]]
        different = sizes[kind][0] if flags.times > 1 else None
        found = bench.measure(kind, large, contenders, flags.runs, different)
        results += found
        tables.append(format_table(kind, found))
        figures = {**describe(harness.pythons()), "results": [asdict(each) for each in results]}
        save(flags.json, figures)  # after every kind, in case a later one fails
    report(figures, tables, flags.quick)


if __name__ == "__main__":
    run_command(main)
