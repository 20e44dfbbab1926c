"""How fast shards are written: this project, TensorFlow Datasets, and a loop without Beam.

    python benchmarks/write_shards.py --json results.json

All three write the same records of the same files to 16 shards on this machine. The time of a run
is that of the whole process; the rate at the margin, between a small and a large input, is free of
imports and start-up. The rivals run in an environment of their own, which is made once.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from environment import (
    HERE,
    machine,
    make_environment,
    parse_names,
    rival_python,
    rival_variables,
    versions,
)
from figures import CONTENDERS, Result, format_scaling, format_table, margins, ratios, to_json
from inputs import CLASSES, KINDS, make_inputs, read_all
from measure import BenchmarkError, Run, run, shard_sizes

NUM_SHARDS = 16
SIZES = {"sensors": (20_000, 80_000), "images": (1_000, 4_000), "text": (50_000, 200_000)}
QUICK_SIZES = {"sensors": (100, 200), "images": (20, 40), "text": (200, 400)}

_PATTERNS = {"sensors": "*/*.npy", "images": "*/*.jpg", "text": "*.jsonl"}
_OWN_FLAGS = {
    "sensors": (),
    "images": ("--image_size", "224x224"),
    "text": ("--text_field", "text", "--label_field", "label"),
}


class Bench:
    """Starts the contenders.

    Args:
        data: The folder of inputs and the rivals' environment.
        outputs: The folder below which datasets are written, and removed.
        python: The interpreter of this project's environment.
        warm: Warm the memory before each run.
    """

    def __init__(self, data: Path, outputs: Path, python: str, warm: bool) -> None:
        self._data, self._python, self._warm = data, python, warm
        self._outputs = outputs / "write_shards_outputs"
        self._rival = rival_python(data)

    def clear(self) -> None:
        """Deletes what contenders have written."""
        shutil.rmtree(self._outputs, ignore_errors=True)
        self._outputs.mkdir(parents=True)

    def output(self, result: Result) -> Path:
        """Where a contender writes."""
        return self._outputs / f"{result.kind}-{result.contender}-{result.records}"

    def _start(self, result: Result, arguments: Sequence[str]) -> Run:
        """Runs a Python program in the environment of a contender."""
        what = f"{result.contender}, {result.records} {result.kind}"
        print(f"  {what}", flush=True)
        if result.contender == "ours":
            python, env = self._python, None
        else:
            python = self._rival
            env = rival_variables()
        log = self._data / f"{result.kind}-{result.contender}.log"
        try:
            return run([python, *arguments], log, HERE.parent, env, self._warm)
        except BenchmarkError as error:
            raise BenchmarkError(f"{what}: {error}") from None

    def write(self, result: Result, count_shuffle: bool = False) -> Run:
        """Runs a contender once, and looks at what it wrote.

        Args:
            result: Takes the sizes of the shards.
            count_shuffle: Take the bytes of Beam's shuffle too, which costs some time.

        Raises:
            BenchmarkError: It failed, or did not write all records.
        """
        folder = make_inputs(self._data, result.kind, result.records)
        output = self.output(result)
        shutil.rmtree(output, ignore_errors=True)
        flags = ["--output", str(output), "--num_shards", str(NUM_SHARDS)]
        if result.contender == "ours":
            pattern = str(folder / _PATTERNS[result.kind])
            arguments = ["-m", "beam_jobs", result.kind, "--input", pattern]
            arguments += [*flags, *_OWN_FLAGS[result.kind]]
        else:
            script = {"tfds": "tfds_builder.py", "floor": "loop.py"}[result.contender]
            path = str(HERE / "rivals" / script)
            arguments = [path, result.kind, "--input", str(folder), *flags]
        if count_shuffle and result.contender != "floor":
            total = self._data / "shuffle_bytes.txt"
            arguments = [str(HERE / "shuffle_bytes.py"), str(total), *arguments]
            measured = self._start(result, arguments)
            result.shuffle_bytes = int(total.read_text())
        else:
            measured = self._start(result, arguments)
        result.shards = shard_sizes(output)
        if sum(result.shards) != result.records:
            raise BenchmarkError(
                f"{result.contender} wrote {sum(result.shards)} of {result.records} {result.kind}"
            )
        return measured

    def compare(self, results: Sequence[Result]) -> None:
        """Checks that contenders wrote the same records of the same input.

        Raises:
            BenchmarkError: They did not.
        """
        first = results[0]
        outputs = [f"{result.contender}={self.output(result)}" for result in results]
        path = str(HERE / "rivals" / "compare.py")
        print(f"  comparing their {first.kind}", flush=True)
        try:
            log = self._data / "compare.log"
            run([self._rival, path, first.kind, *outputs], log, HERE.parent)
        except BenchmarkError as error:
            raise BenchmarkError(f"the records of {first.kind} differ: {error}") from None

    def measure(
        self, kind: str, sizes: Sequence[int], contenders: Sequence[str], runs: int
    ) -> list[Result]:
        """Every contender on every size of a kind.

        Raises:
            BenchmarkError: One failed, or they differ in what they wrote.
        """
        for size in sorted(sizes, reverse=True):  # the smaller ones are links to its files
            make_inputs(self._data, kind, size)
        results = [
            Result(kind, contender, size) for size in sorted(sizes) for contender in contenders
        ]
        print(f"{kind}: the first run, which is not timed", flush=True)
        read_all(make_inputs(self._data, kind, max(sizes)))
        for result in results:
            self.write(result, count_shuffle=True)
            if result.records > min(sizes) or len(contenders) == 1:
                self.clear()
            elif result.contender == contenders[-1]:
                self.compare(results[: len(contenders)])
        for number in range(runs):
            print(f"{kind}: run {number + 1} of {runs}", flush=True)
            # Another contender comes first each time: what one leaves the machine in is what the
            # next one finds.
            for start in range(0, len(results), len(contenders)):
                same_size = results[start : start + len(contenders)]
                turn = number % len(contenders)
                for result in same_size[turn:] + same_size[:turn]:
                    self.clear()
                    result.runs.append(self.write(result))
        self.clear()
        return results


def parse_sizes(values: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """The sizes of each kind, from `sensors=20000,80000`.

    Raises:
        BenchmarkError: The text is something else, or there are not two sizes to compare.
    """
    sizes = {}
    for value in values:
        kind, _, numbers = value.partition("=")
        parts = numbers.split(",")
        if kind not in KINDS or not all(map(str.isdecimal, parts)):
            raise BenchmarkError(f"{value!r}: expected KIND=N,N such as sensors=20000,80000")
        sizes[kind] = tuple(sorted({int(part) for part in parts}))
        if len(sizes[kind]) < 2 or sizes[kind][0] < max(NUM_SHARDS, CLASSES):
            raise BenchmarkError(f"{value!r}: expected two different sizes from {NUM_SHARDS} on")
    return sizes


def build_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", default="benchmark_data", help="inputs (default: %(default)s)")
    parser.add_argument(
        "--outputs", help="where datasets go for a while, such as /dev/shm (default: --data)"
    )
    parser.add_argument("--python", default=sys.executable, help="this project's interpreter")
    parser.add_argument("--kinds", default=",".join(KINDS), help="(default: %(default)s)")
    parser.add_argument("--contenders", default=",".join(CONTENDERS), help="(default: %(default)s)")
    parser.add_argument("--sizes", action="append", default=[], metavar="KIND=N,N")
    parser.add_argument("--runs", type=int, default=3, help="timed ones (default: %(default)s)")
    parser.add_argument("--quick", action="store_true", help="tiny inputs, one run: a smoke test")
    parser.add_argument(
        "--scaling",
        action="append",
        metavar="KIND=N,N,…",
        help="this project alone, at these sizes",
    )
    parser.add_argument("--json", metavar="PATH", help="every figure of every run")
    return parser


def main() -> None:
    """Measures, prints, and writes the figures.

    Raises:
        BenchmarkError: A contender failed, or a flag is wrong.
    """
    flags = build_parser().parse_args()
    kinds = parse_names(KINDS, flags.kinds)
    contenders = parse_names(CONTENDERS, flags.contenders)
    sizes = {**(QUICK_SIZES if flags.quick else SIZES), **parse_sizes(flags.sizes)}
    runs = 1 if flags.quick else flags.runs
    if runs < 1:
        raise BenchmarkError(f"--runs {runs}: expected at least 1")
    if flags.scaling:
        sizes, contenders = parse_sizes(flags.scaling), ["ours"]
        kinds = list(sizes)
    data = Path(flags.data).resolve()
    data.mkdir(parents=True, exist_ok=True)
    outputs = Path(flags.outputs).resolve() if flags.outputs else data
    bench = Bench(data, outputs, flags.python, warm=not flags.quick)
    pythons = {"ours": flags.python}
    if contenders != ["ours"]:
        pythons["rivals"] = rival_python(data)
        make_environment(data)
    figures: dict = {
        "machine": machine(),
        "versions": versions(pythons),
        "results": [],
        "margins": [],
        "ratios": {},
    }
    tables = []
    for kind in kinds:
        results = bench.measure(kind, sizes[kind], contenders, runs)
        figures["results"] += to_json(results)
        figures["margins"] += [dataclasses.asdict(margin) for margin in margins(results)]
        at_margin = ratios(margins(results))
        figures["ratios"][kind] = at_margin
        table = format_scaling(results) if flags.scaling else format_table(results)
        lines = [f"{name} at the margin: {ratio:.2f}" for name, ratio in at_margin.items()]
        tables.append("\n".join([kind, table, *lines]))
        # Written after every kind: a failure of a later one does not cost what is measured.
        if flags.json:
            Path(flags.json).write_text(json.dumps(figures, indent=1) + "\n")
    hardware = figures["machine"]
    print(f"\n{hardware['cpu']}, {hardware['cores']} cores", *tables, sep="\n\n")
    if flags.quick:
        print("\nInputs as tiny as these say that it runs, not how fast.")


if __name__ == "__main__":
    try:
        main()
    except BenchmarkError as error:
        sys.exit(f"error: {error}")
