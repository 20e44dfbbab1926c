"""How much faster batches are read with the compiled kernel than by NumPy alone, and what limits `load`.

    python benchmarks/compiled_kernel.py

For each kind of records, processes with the kernel and without it read the same shards by turns of half a second,
so whatever else the machine does disturbs both alike. A ratio is the median over the rounds of the rate with the kernel
over that without it in the same round. Before its first turn a process reads for 0.6 s, and at the begin of each turn
for 0.075 s: its buffers were filled while others read. The shards are those of `read_shards.py`.

The last columns are those of a loop over a `tf.data.Dataset` that repeats one batch of `load` in memory, and of `load`, with
the kernel, beside a limit: what it would have if the thread that reads (as `as_numpy`) and the loop took turns, because
both hold the interpreter's lock.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
from collections.abc import Sequence

from command import parse_flags, parse_names, run_command
from contender import IN_ORDER, SHUFFLED
from measure import HERE, BenchmarkError
from read_bench import QUICK_RECORDS, Bench
from records import KINDS, Kind

WAYS = ("as_numpy", "load")
KERNELS = ("without", "with")
LOOP = "loop over one batch"

_ROUNDS, _SECONDS, _QUICK_SECONDS = 11, 0.5, 0.05


class Reader:
    """A process that reads when it is its turn.

    Args:
        python: The interpreter.
        kernel: `with` or `without` the kernel.
        arguments: How it reads: the way, the kind, the folder, the batching and the order.
    """

    def __init__(self, python: str, kernel: str, arguments: Sequence[str]) -> None:
        command = [python, str(HERE / "kernel_process.py"), kernel, *arguments]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def wait(self) -> None:
        """Waits until it has begun to read.

        Raises:
            BenchmarkError: It failed.
        """
        self._answer()

    def read(self, seconds: float) -> float:
        """Records per second of a turn.

        Raises:
            BenchmarkError: It failed.
        """
        assert self._process.stdin
        self._process.stdin.write(f"{seconds}\n")
        self._process.stdin.flush()
        return float(self._answer())

    def end(self) -> None:
        """Ends the process."""
        self._process.kill()
        self._process.communicate()

    def _answer(self) -> str:
        assert self._process.stdout
        line = self._process.stdout.readline()
        if not line:
            raise BenchmarkError("a process that reads has failed; see its message above")
        return line


def turns(readers: Sequence[Reader], rounds: int, seconds: float) -> list[list[float]]:
    """Records per second of each reader in each round; every round begins with another reader.

    Raises:
        BenchmarkError: A reader failed.
    """
    for reader in readers:
        reader.wait()
    found = []
    for number in range(rounds):
        rates = [0.0] * len(readers)
        for place in range(len(readers)):
            which = (place + number) % len(readers)
            rates[which] = readers[which].read(seconds)
        found.append(rates)
    return found


def measure(bench: Bench, kind: Kind, batching: str, order: str, flags: argparse.Namespace) -> str:
    """A row of the table.

    Raises:
        BenchmarkError: A process failed.
    """
    folder = bench.make_stores(kind, QUICK_RECORDS if flags.quick else kind.records, ["ours"])
    columns = [*((way, kernel) for way in WAYS for kernel in KERNELS), (LOOP, "with")]
    readers = [
        Reader(flags.python, kernel, [way, kind.name, str(folder), batching, order])
        for way, kernel in columns
    ]
    try:
        rates = turns(readers, flags.runs, _QUICK_SECONDS if flags.quick else _SECONDS)
    finally:
        for reader in readers:
            reader.end()
    cells = list[str]()
    for way in range(len(WAYS)):
        without, with_kernel = 2 * way, 2 * way + 1
        middle = [statistics.median(each[at] for each in rates) for at in (without, with_kernel)]
        ratio = statistics.median(each[with_kernel] / each[without] for each in rates)
        cells += [f"{middle[0]:,.0f}", f"{middle[1]:,.0f}", f"{ratio:.2f}"]
    by_way = [dict(zip(columns, each, strict=True)) for each in rates]
    loop = statistics.median(each[LOOP, "with"] for each in by_way)
    cells += [f"{loop:,.0f}", f"{statistics.median(map(_of_limit, by_way)):.2f}"]
    return f"| {kind.name}, {batching} | {order} | {' | '.join(cells)} |"


def _of_limit(rates: dict[tuple[str, str], float]) -> float:
    """The rate of `load` with the kernel, divided by that of `as_numpy` and the loop one after the other."""
    numpy, load, loop = (rates[way, "with"] for way in (*WAYS, LOOP))
    return load * (1 / numpy + 1 / loop)


def main() -> None:
    """Prints a table of Markdown.

    Raises:
        BenchmarkError: A process failed, or a flag is wrong.
    """
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    default = "(default: %(default)s)"
    parser.add_argument("--data", default="benchmark_data", help=f"folder of the shards {default}")
    parser.add_argument("--python", default=sys.executable, help="this project's interpreter")
    parser.add_argument("--datasets", default=",".join(KINDS), help=default)
    parser.add_argument("--runs", type=int, default=_ROUNDS, help=f"number of rounds {default}")
    parser.add_argument("--quick", action="store_true", help="smoke test: tiny inputs, one round")
    flags = parse_flags(parser)
    bench = Bench(flags.data, flags.python, flags.quick)
    kinds = [KINDS[name] for name in parse_names(list(KINDS), flags.datasets)]
    columns = " | ".join(f"`{way}`, NumPy | kernel | times" for way in WAYS)
    print(f"| records/s | order | {columns} | {LOOP} | `load` of its limit |")
    print(f"|---|---|{'--:|' * (3 * len(WAYS) + 2)}")
    for order in (SHUFFLED, IN_ORDER):
        for kind in kinds:
            for batching in kind.batchings:
                print(measure(bench, kind, batching, order, flags), flush=True)


if __name__ == "__main__":
    run_command(main)
