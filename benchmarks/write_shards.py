"""How fast shards are written: this project, TensorFlow Datasets, and a loop without Beam.

    python benchmarks/write_shards.py --json results.json

All three write the same records from the same files to 16 shards on this machine. A run is timed from
the start to the exit of the process; the marginal rate, between a small and a large input, excludes
imports and start-up. The rivals run in their own environment, which is created once.
"""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Sequence
from pathlib import Path

from command import build_parser, parse_flags, parse_names, report, run_command, save
from environment import prepare, rival_python, rival_variables
from figures import CONTENDERS, Result, format_scaling, format_table, margins, ratios, to_json
from inputs import CLASSES, KINDS, make_inputs, read_all
from measure import HERE, BenchmarkError, Run, run, shard_sizes

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
    """Runs the contenders.

    Args:
        data: The folder of inputs and the rivals' environment.
        outputs: The folder in which datasets are written and deleted.
        python: The interpreter of this project's environment.
        warm: Warm the memory before each run.
    """

    def __init__(self, data: Path, outputs: Path, python: str, warm: bool) -> None:
        self._data, self._python, self._warm = data, python, warm
        self._outputs = outputs / "write_shards_outputs"
        self._rival = rival_python(data)

    def clear(self) -> None:
        """Deletes the datasets of all contenders."""
        shutil.rmtree(self._outputs, ignore_errors=True)
        self._outputs.mkdir(parents=True)

    def output(self, result: Result) -> Path:
        """Returns the folder in which a contender writes a dataset."""
        return self._outputs / f"{result.kind}-{result.contender}-{result.records}"

    def _start(self, result: Result, arguments: Sequence[str]) -> Run:
        """Runs a Python program in the environment of a contender."""
        if result.contender == "ours":
            python, env = self._python, None
        else:
            python, env = self._rival, rival_variables()
        label = f"{result.contender}, {result.records} {result.kind}"
        log = self._data / f"{result.kind}-{result.contender}.log"
        return run(label, [python, *arguments], log, env, self._warm)

    def write(self, result: Result, count_shuffle: bool = False) -> Run:
        """Runs a contender once, and counts the records that it wrote.

        Args:
            result: The result whose `shards` are set.
            count_shuffle: Also set `shuffle_bytes`; counting slows the run down.

        Raises:
            BenchmarkError: The contender failed, or did not write all records.
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
        """Checks that contenders wrote the same records from the same input.

        Raises:
            BenchmarkError: Their records differ.
        """
        kind = results[0].kind
        outputs = [f"{result.contender}={self.output(result)}" for result in results]
        path = str(HERE / "rivals" / "compare.py")
        log = self._data / "compare.log"
        run(f"compare the {kind}", [self._rival, path, kind, *outputs], log)

    def measure(
        self, kind: str, sizes: Sequence[int], contenders: Sequence[str], runs: int
    ) -> list[Result]:
        """Runs every contender on every size of a kind.

        Raises:
            BenchmarkError: A contender failed, or their records differ.
        """
        for size in sorted(sizes, reverse=True):  # smaller inputs link to its files
            make_inputs(self._data, kind, size)
        results = [
            Result(kind, contender, size) for size in sorted(sizes) for contender in contenders
        ]
        print(f"{kind}: the warm-up run, which is not timed", flush=True)
        read_all(make_inputs(self._data, kind, max(sizes)))
        for result in results:
            self.write(result, count_shuffle=True)
            if result.records > min(sizes) or len(contenders) == 1:
                self.clear()
            elif result.contender == contenders[-1]:
                self.compare(results[: len(contenders)])
        for number in range(runs):
            print(f"{kind}: run {number + 1} of {runs}", flush=True)
            # Each run starts with another contender, because each leaves the machine in a state that
            # affects the next.
            for start in range(0, len(results), len(contenders)):
                same_size = results[start : start + len(contenders)]
                first = number % len(contenders)
                for result in same_size[first:] + same_size[:first]:
                    self.clear()
                    result.runs.append(self.write(result))
        self.clear()
        return results


def parse_sizes(values: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """Parses the sizes of each kind, such as `sensors=20000,80000`.

    Raises:
        BenchmarkError: A value is malformed, or has fewer than two sizes to compare.
    """
    sizes = {}
    for value in values:
        kind, _, numbers = value.partition("=")
        parts = numbers.split(",")
        if kind not in KINDS or not all(map(str.isdecimal, parts)):
            raise BenchmarkError(f"{value!r}: expected KIND=N,N such as sensors=20000,80000")
        sizes[kind] = tuple(sorted({int(part) for part in parts}))
        if len(sizes[kind]) < 2 or sizes[kind][0] < max(NUM_SHARDS, CLASSES):
            raise BenchmarkError(
                f"{value!r}: expected two different sizes of at least {NUM_SHARDS}"
            )
    return sizes


def main() -> None:
    """Measures, prints tables, and writes the JSON file.

    Raises:
        BenchmarkError: A contender failed, or a flag is wrong.
    """
    parser = build_parser(__doc__, "--kinds", KINDS, CONTENDERS)
    parser.add_argument(
        "--outputs", help="folder for temporary datasets, such as /dev/shm (default: --data)"
    )
    parser.add_argument(
        "--sizes",
        action="append",
        default=[],
        metavar="KIND=N,N",
        help="numbers of records, to replace the default sizes of a kind",
    )
    parser.add_argument(
        "--scaling",
        action="append",
        metavar="KIND=N,N,…",
        help="measure only this project, at these numbers of records",
    )
    flags = parse_flags(parser)
    kinds = parse_names(KINDS, flags.kinds)
    contenders = parse_names(CONTENDERS, flags.contenders)
    sizes = {**(QUICK_SIZES if flags.quick else SIZES), **parse_sizes(flags.sizes)}
    if flags.scaling:
        sizes, contenders = parse_sizes(flags.scaling), ["ours"]
        kinds = list(sizes)
    outputs = Path(flags.outputs).resolve() if flags.outputs else flags.data
    bench = Bench(flags.data, outputs, flags.python, warm=not flags.quick)
    figures = prepare(flags.data, flags.python, contenders != ["ours"])
    figures |= {"results": [], "margins": [], "ratios": {}}
    tables = []
    for kind in kinds:
        results = bench.measure(kind, sizes[kind], contenders, flags.runs)
        figures["results"] += to_json(results)
        figures["margins"] += [dataclasses.asdict(margin) for margin in margins(results)]
        figures["ratios"][kind] = ratios(margins(results))
        table = format_scaling(results) if flags.scaling else format_table(results)
        lines = [f"marginal rates {name}: {r:.2f}" for name, r in figures["ratios"][kind].items()]
        tables.append("\n".join([kind, table, *lines]))
        save(flags.json, figures)  # after every kind, in case a later one fails
    report(figures, tables, flags.quick)


if __name__ == "__main__":
    run_command(main)
