"""What checks find of planted faults: this project, CleanVision, Datalab, fastdup, ydata-profiling, TFDV.

    python benchmarks/check_shards.py --json results.json
    python benchmarks/check_shards.py --datasets pictures --contenders ours,cleanvision,fastdup

All contenders look at the same pictures, texts, rows and recordings, which are made once from real photographs, sentences
and measurements, with known faults of each kind; this project looks at shards of them. Each rival runs
with its own defaults where it has any, in an environment and a process of its own. A cell says how many of the planted
faults a contender names, and how many names are false alarms: names without this fault. A dash is a kind that
it does not look for. Seconds are from the start of the process to its end; the page's are in addition, except ours, which
is a command of its own that checks again.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from command import build_parser, parse_flags, parse_names, report, run_command, save
from environment import prepare, rival_python, versions
from planted.bench import PlantedBench, Result
from planted.contender import CONTENDERS
from planted.make import MAKERS
from planted.table_of_results import format_results, to_json

COUNTS = {"pictures": 3000, "texts": 10_000, "table": 20_000, "recordings": 1000}
QUICK_COUNTS = {"pictures": 400, "texts": 400, "table": 1000, "recordings": 200}


def main() -> None:
    """Measures, prints the tables, and writes the JSON file.

    Raises:
        BenchmarkError: This project failed, or a flag is wrong.
    """
    parser = build_parser(__doc__, "--datasets", list(MAKERS), list(CONTENDERS))
    parser.set_defaults(runs=1)
    flags = parse_flags(parser)
    datasets = parse_names(list(MAKERS), flags.datasets)
    contenders = parse_names(list(CONTENDERS), flags.contenders)
    bench = PlantedBench(
        flags.data, flags.python, QUICK_COUNTS if flags.quick else COUNTS, flags.quick
    )
    figures: dict[str, Any] = prepare(flags.data, flags.python)
    bench.make(datasets)
    results: list[Result] = []
    tables = []
    for dataset in datasets:
        found: list[Result] = []
        for result in bench.measure(dataset, contenders, flags.runs):
            found.append(result)
            figures["results"] = to_json([*results, *found])
            save(flags.json, figures)  # after every contender, in case a later one hangs
        results += found
        tables.append(format_results(dataset, bench.truth(dataset), found))
    used = {CONTENDERS[name].environment for name in contenders} - {""}
    pythons = {name: rival_python(flags.data, name) for name in used}
    figures["versions"] |= versions({n: p for n, p in pythons.items() if Path(p).exists()})
    save(flags.json, figures)
    report(figures, tables, flags.quick)


if __name__ == "__main__":
    run_command(main)
