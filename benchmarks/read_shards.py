"""How fast shards are read: this project, plain tf.data, TensorFlow Datasets, Grain, WebDataset.

    python benchmarks/read_shards.py --json results.json
    python benchmarks/read_shards.py --datasets jpeg,jpeg_train --cores 1 2 --plot docs

All contenders read the same records, each in its own format, in batches of 128. Each figure is
measured in a new process with a warm page cache: records per second after the start, the time from
opening the reader to its first batch, and peak memory, imports included. The upper bound is a bare
loop over `TFRecordDataset`, which returns batches of serialized records and decodes nothing. Its
shuffled form only shows the cost of a buffer; no target refers to it. The last table is the time to
the first batch of ten million records.

Before that, every mode of every contender must return the same records from a tiny version of each
dataset. The rivals run in their own environment, which is created once, as are the datasets.

The kinds `jpeg` and `jpeg_train` are photographs, read in batches of 64 by more rivals, each on 1, 2, 4
... cores and in an environment of its own (PyTorch's takes 6 GB): `pictures/kinds.py` says what is done
with each picture. Every contender must return pictures of the right number, shape, dtype and mean. A
rival that cannot be installed or fails is a row that says why.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from command import build_parser, parse_flags, parse_names, report, run_command, save
from contender import MODULES, writer_of
from environment import make_environment, prepare, rival_python, versions
from figures import to_json
from measure import HERE, BenchmarkError, run
from pictures import kinds as picture_kinds
from pictures import table as picture_table
from pictures.bench import PictureBench
from pictures.contender import ENTRIES
from read_bench import QUICK_TINY, Bench
from read_figures import (
    Result,
    format_first,
    format_outcomes,
    format_results,
    outcomes,
    outcomes_to_json,
)
from records import KINDS, TINY, Kind

QUICK_PICTURES = 2 * picture_kinds.BATCH

Figures = dict[str, Any]


def measure_records(
    flags: argparse.Namespace, kinds: Sequence[Kind], contenders: Sequence[str], figures: Figures
) -> list[str]:
    """Returns the tables of the kinds of records, and adds their figures.

    Raises:
        BenchmarkError: A contender failed.
    """
    bench = Bench(flags.data, flags.python, flags.quick)
    results: list[Result] = []
    tables: list[str] = []
    if kinds:
        bench.compare(kinds, contenders)
    for kind in kinds:
        results += bench.measure(kind, contenders, flags.runs)
        figures["results"] = to_json(results)
        figures["targets"] = outcomes_to_json(outcomes(results))
        save(flags.json, figures)  # after every dataset, in case a later one fails
    for dataset, batching in dict.fromkeys((r.dataset, r.batching) for r in results):
        rows = [r for r in results if (r.dataset, r.batching) == (dataset, batching)]
        tables.append(f"{dataset}, {batching}\n{format_results(rows)}")
    if found := outcomes(results):
        tables.append(format_outcomes(found))
    if "ours" in contenders:
        first = bench.measure_first(flags.runs)
        figures["first_batch"] = to_json(first)
        save(flags.json, figures)
        count = QUICK_TINY if flags.quick else TINY.records
        tables.append(f"{count:,} records\n{format_first(first)}")
    return tables


def measure_pictures(
    flags: argparse.Namespace,
    kinds: Sequence[picture_kinds.PictureKind],
    contenders: Sequence[str],
    figures: Figures,
) -> list[str]:
    """Returns the tables of the kinds of pictures, and adds their figures.

    Raises:
        BenchmarkError: This project failed.
    """
    count = QUICK_PICTURES if flags.quick else flags.pictures
    bench = PictureBench(flags.data, flags.python, flags.quick, count, flags.cores)
    results: list[picture_table.Result] = []
    for measured in bench.measure(kinds, contenders, flags.runs):
        results += measured
        figures["pictures"] = picture_table.to_json(results)
        figures["versions"] |= versions(bench.pythons(contenders))
        save(flags.json, figures)
    return picture_table.format_results(results)


def parse_cores(flags: argparse.Namespace) -> None:
    """Sets the numbers of cores to 1, 2, 4 ... all unless they are given, and checks the pictures.

    Raises:
        BenchmarkError: There are not as many cores, or the pictures do not fill batches.
    """
    available = len(os.sched_getaffinity(0))
    powers = [1 << power for power in range(available.bit_length()) if 1 << power < available]
    flags.cores = sorted(set(flags.cores or [*powers, available]))
    if not 1 <= flags.cores[0] <= flags.cores[-1] <= available:
        raise BenchmarkError(f"--cores {flags.cores}: expected numbers from 1 to {available}")
    batch = picture_kinds.BATCH
    if flags.pictures < batch or flags.pictures % batch:
        raise BenchmarkError(f"--pictures {flags.pictures}: expected a multiple of {batch}")


def draw(flags: argparse.Namespace, figures: Figures) -> None:
    """Draws the plots of `--plot`, if it is given.

    Raises:
        BenchmarkError: Matplotlib cannot be installed, or failed.
    """
    if flags.plot:
        make_environment(flags.data, "plot")
        results = flags.data / "read-figures.json"
        save(str(results), figures)
        command = [rival_python(flags.data, "plot"), str(HERE / "plots.py"), str(results)]
        folder = str(Path(flags.plot).resolve())
        run(f"draw plots to {folder}", [*command, folder], flags.data / "plots.log")


def main() -> None:
    """Measures, prints tables, and writes the JSON file and the plots.

    Raises:
        BenchmarkError: A contender failed, or a flag is wrong.
    """
    all_kinds = [*KINDS, *picture_kinds.KINDS]
    all_contenders = list(dict.fromkeys([*MODULES, *ENTRIES]))
    parser = build_parser(__doc__, "--datasets", all_kinds, all_contenders)
    parser.add_argument(
        "--first_batch",
        action="store_true",
        help="only time the first batch of ten million records",
    )
    parser.add_argument(
        "--cores",
        type=int,
        nargs="+",
        help="numbers of cores on which pictures are read (default: 1 2 4 ... all)",
    )
    parser.add_argument(
        "--pictures",
        type=int,
        default=picture_kinds.PICTURES,
        help="number of photographs (default: %(default)s)",
    )
    parser.add_argument(
        "--plot", metavar="FOLDER", help="draw pictures_by_cores.svg and records_by_kind.svg there"
    )
    flags = parse_flags(parser)
    parse_cores(flags)
    names = parse_names(all_kinds, flags.datasets)
    chosen = parse_names(all_contenders, flags.contenders)
    kinds = [KINDS[name] for name in names if name in KINDS]
    pictures = [picture_kinds.KINDS[name] for name in names if name in picture_kinds.KINDS]
    contenders = [name for name in chosen if name in MODULES]
    if flags.first_batch:
        kinds, pictures, contenders = [], [], ["ours"]
    needs_rivals = bool(kinds) and set(map(writer_of, contenders)) != {"ours"}
    figures = prepare(flags.data, flags.python, needs_rivals)
    tables = []
    if kinds or flags.first_batch:
        tables += measure_records(flags, kinds, contenders, figures)
    if pictures:
        readers = [name for name in chosen if name in ENTRIES]
        tables += measure_pictures(flags, pictures, readers, figures)
    report(figures, tables, flags.quick)
    draw(flags, figures)


if __name__ == "__main__":
    run_command(main)
