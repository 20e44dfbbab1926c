"""Compressed values: their size, and how fast they are written, and read in order and at random, beside other libraries.

    pip install --no-deps --target FOLDER sktime==1.2.0
    python benchmarks/compressed_values.py --recordings FOLDER/sktime/datasets/data

The values are motions (BasicMotions of sktime: 80 of [100, 6]) and currents (PLAID: 1,074 of 100 to 1,344 values), float32;
pieces of 2,000 characters of Python's standard library (texts); and the ids of their words, int64 (tokens). Each contender
is bound to one core and reads the same file again and again: ours and ArrayRecord in batches of 128, the others, which have
no such call, one by one. MDS unpacks whole shards to the disk before the first value is read, which is not timed.
"""

from __future__ import annotations

import shutil
import sysconfig
import time
from collections import Counter
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from command import build_parser, parse_flags, parse_names, report, run_command, save
from environment import describe
from harness import Contender, Harness, Result, format_markdown
from rivals import compressed

_SECONDS, _FIGURES = 1.0, ("bytes", "written", "in order", "at random")
_ARRAYS = "tensor", "raw", "list", "zlib", "zlib_shuffled"
DATASETS: dict[str, tuple[str, ...]] = dict.fromkeys(("motions", "currents", "tokens"), _ARRAYS)
DATASETS["texts"] = "text", "zlib text"

# Row -> contender, option.
_RIVALS = {
    "ArrayRecord": ("array_record", "group_size:1"),
    "ArrayRecord, group_size:256": ("array_record", "group_size:256"),
    "MosaicML Streaming": ("mds", "zstd"),
    "LitData": ("litdata", "zstd"),
}
_CONTENDERS = {"ours": "ours", "array_record": "rivals", "mds": "mds", "litdata": "litdata"}


def make_values(name: str, recordings: str, folder: Path) -> None:
    """Writes the values of a dataset; a text is the bytes of its UTF-8."""
    if name in ("texts", "tokens"):
        sources = sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))
        whole = "".join(path.read_text() for path in sources)[: 4 << 20]
        texts = [whole[at : at + 2000] for at in range(0, len(whole), 2000)]
        ids = {word: n for n, (word, _) in enumerate(Counter(whole.split()).most_common())}
        values = [np.frombuffer(text.encode(), np.uint8) for text in texts]
        if name == "tokens":
            words = [text.split() for text in texts]
            values = [np.array([ids.get(word, 0) for word in some], np.int64) for some in words]
    else:
        part = {"motions": "BasicMotions", "currents": "PLAID"}[name]
        files = [path.read_text() for path in sorted(Path(recordings, part).glob("*.ts"))]
        rows = [row.split(":")[:-1] for file in files for row in file.split("@data\n")[1].split()]
        values = [np.array([c.split(",") for c in row], np.float32).T.copy() for row in rows]
    folder.mkdir()
    np.savez(folder / "values.npz", *values)


def measure(contender: str, option: str, folder: str) -> Any:
    """The bytes per value, and the values per second that are written, read in order, and at random."""
    with np.load(f"{folder}/values.npz") as found:
        values = [found[name] for name in found.files]
    store = Path(folder, "store")
    shutil.rmtree(store, ignore_errors=True)
    store.mkdir()
    steps = getattr(compressed, contender)(values, f"{store}/x", option)
    next(steps)
    began = time.perf_counter()
    next(steps)
    figures = {"written": len(values) / (time.perf_counter() - began)}
    files = [path for path in store.rglob("*") if path.is_file()]
    figures["bytes"] = sum(path.stat().st_size for path in files) / len(values)
    for name, counts in zip(_FIGURES[2:], steps, strict=True):
        warm, done = time.perf_counter() + _SECONDS / 2, 0
        while time.perf_counter() < warm:
            next(counts)
        began = time.perf_counter()
        while (now := time.perf_counter()) < began + _SECONDS:
            done += next(counts)
        figures[name] = done / (now - began)
    return figures


def main() -> None:
    """Measures, prints tables, and writes the JSON file."""
    parser = build_parser(__doc__, "--datasets", list(DATASETS), list(_CONTENDERS))
    parser.add_argument("--recordings", required=True, help="the folder of BasicMotions and PLAID")
    flags, tables, figures = parse_flags(parser), list[str](), dict[str, Any]()
    chosen = parse_names(list(_CONTENDERS), flags.contenders)
    contenders = {name: Contender(environment) for name, environment in _CONTENDERS.items()}
    harness = Harness(flags.data, flags.python, contenders, flags.quick)
    results: list[Result] = []
    for name in parse_names(list(DATASETS), flags.datasets):
        make = partial(make_values, name, flags.recordings)
        folder = harness.once(flags.data / "compressed" / name, make)
        rows = {encoding: ("ours", encoding) for encoding in DATASETS[name]} | _RIVALS
        some = [
            Result(name, c, row, {"contender": c, "option": option, "folder": str(folder)}, 1)
            for row, (c, option) in rows.items()
            if c in chosen
        ]
        harness.measure(some, "compressed_values:measure", flags.runs)
        table = [[name, "bytes", "written/s", "in order/s", "at random/s"]]
        for result in some:
            medians = [f"{result.median(each):,.0f}" for each in _FIGURES if result.is_measured]
            table.append([result.mode, *(medians or [""] * len(_FIGURES))])
        tables.append(format_markdown(table))
        results += some
        figures = {**describe(harness.pythons()), "results": [asdict(each) for each in results]}
        save(flags.json, figures)
    report(figures, tables, flags.quick)


if __name__ == "__main__":
    run_command(main)
