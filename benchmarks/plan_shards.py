"""How long it takes to plan exactly balanced shards for many keys, without any input or output.

Keys are generated, hashed and passed through the pure functions of the pipeline: the histogram, the
draft, the hashes of the bins that contain boundaries, and the boundaries. Then every key is assigned to
a shard, and the keys of each shard are counted. Nothing is kept between passes, so memory does not grow
with the number of keys. For comparison, the obvious algorithm sorts all hashes in memory.

    python benchmarks/plan_shards.py --keys 100_000_000 --shards 10_000 --json plan.json

With `--references`, references with these keys are made, too, and divided among the shards as the
pipeline does it, a million in each task: their bytes before and after, and the processor time.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import pickle
import resource
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from beam_jobs.engines.pool import Pool, call_pickled
from beam_jobs.plan.boundaries import draft_split, finish_plan, pick_boundaries, wanted_hashes
from beam_jobs.plan.placement import Placement
from beam_jobs.plan.shards import BINS, HeldBlocks, Plan, bin_counts
from beam_jobs.plan.splits import Splits
from beam_jobs.records.blocks import Block, BlockBuilder
from beam_jobs.records.ragged import Ragged
from beam_jobs.sources.source import Source, pack_reference
from readers.format.display import format_table

# Keys generated and hashed at a time: 8 MB of hashes.
STEP = 1_000_000

# A time in nanoseconds; files follow each other in some milliseconds.
_MODIFIED = 1_764_000_000 * 10**9


class Keys:
    """The passes of a pipeline over keys, each for a range of them."""

    def __init__(self, seed: int) -> None:
        self._placement = Placement(seed, Splits())

    def block(self, start: int, stop: int) -> tuple[Block, float]:
        """Returns the block of a range, and the seconds to generate and hash its keys."""
        began = time.perf_counter()
        keys = (b"site-%d/run-%09d.npy" % (n % 97, n) for n in range(start, stop))
        hashes = self._placement.orders(keys)
        block = Block(hashes, np.zeros(len(hashes), np.uint8), Ragged.of(()))
        return block, time.perf_counter() - began

    def histogram(self, start: int, stop: int) -> tuple[np.ndarray, float, float]:
        """Returns the counts of the bins, the seconds of hashing, and those of counting."""
        block, hashing = self.block(start, stop)
        began = time.perf_counter()
        counts = bin_counts(block.hashes)
        return counts, hashing, time.perf_counter() - began

    def select(self, start: int, stop: int, draft: bytes) -> tuple[list, float, float]:
        """Returns the hashes of the wanted bins, the seconds of hashing, and those of selecting."""
        block, hashing = self.block(start, stop)
        began = time.perf_counter()
        selected = list(wanted_hashes(block, pickle.loads(draft)))
        return selected, hashing, time.perf_counter() - began

    def assign(self, start: int, stop: int, plan: bytes) -> tuple[np.ndarray, float, float]:
        """Returns the keys in each shard, the seconds of hashing, and those of assigning."""
        block, hashing = self.block(start, stop)
        began = time.perf_counter()
        split = Plan.unpack(plan).splits[0]
        counts = np.bincount(split.shard_of(block.hashes), minlength=split.shards)
        return counts, hashing, time.perf_counter() - began

    def group(self, start: int, stop: int, plan: bytes) -> tuple[np.ndarray, float, float]:
        """Returns the parts of references, and their bytes before and after, and the seconds as above."""
        began = time.perf_counter()
        builder = BlockBuilder(compress=True)
        keys = [f"site-{n % 97}/run-{n:09d}.npy" for n in range(start, stop)]
        orders = self._placement.orders(key.encode() for key in keys).tolist()
        packed: list[bytes] = []
        for n, (key, order) in enumerate(zip(keys, orders, strict=True), start):
            source = Source(key, 6_600 + n % 1_000, _MODIFIED + 7_000_000 * n)
            if block := builder.add(order, 0, pack_reference(source)):
                packed.append(block)
        packed += filter(None, [builder.flush()])
        making, began = time.perf_counter() - began, time.perf_counter()
        held = HeldBlocks(compress=True)
        parts = after = 0
        adding = (part for block in packed for part in held.add(Block.unpack(block), plan))
        for _, part in itertools.chain(adding, held.release(plan)):
            parts, after = parts + 1, after + len(part)
        counts = np.array([parts, sum(map(len, packed)), after])
        return counts, making, time.perf_counter() - began


def plan(keys: int, shards: int, processes: int, references: bool) -> dict[str, float | int]:
    """Plans, assigns and counts; returns the figures.

    Raises:
        SystemExit: The sizes of the shards differ by more than one key.
    """
    pool = Pool(processes)
    pipeline = Keys(seed=0)
    figures: dict[str, float | int] = {"keys": keys, "shards": shards}

    def passes(method: Callable[..., tuple], *arguments: bytes) -> Iterator[tuple]:
        packed = pickle.dumps(method)
        began, hashing, work = time.perf_counter(), 0.0, 0.0
        tasks = (
            (packed, start, min(start + STEP, keys), *arguments) for start in range(0, keys, STEP)
        )
        for result, hashing_seconds, seconds in pool.map(call_pickled, tasks):
            hashing, work = hashing + hashing_seconds, work + seconds
            yield result
        figures[f"{method.__name__}_wall_s"] = time.perf_counter() - began
        figures[f"{method.__name__}_hashing_cpu_s"] = hashing
        figures[f"{method.__name__}_cpu_s"] = work

    counts = np.zeros(BINS, np.int64)
    for part in passes(pipeline.histogram):
        counts += part
    draft = (draft_split(counts, 0, 1000.0, shards, 1 << 27),)
    by_bin: dict[int, list[bytes]] = defaultdict(list)
    packed_draft = pickle.dumps(draft)
    for selected in passes(pipeline.select, packed_draft):
        for bin_, hashes in selected:
            by_bin[bin_].append(hashes)
    figures["selected_keys"] = sum(len(h) // 8 for parts in by_bin.values() for h in parts)
    began = time.perf_counter()
    boundaries = [pick_boundaries(bin_, parts, draft) for bin_, parts in by_bin.items()]
    found = finish_plan(draft, boundaries)
    figures["boundaries_s"] = time.perf_counter() - began
    figures["side_input_draft_bytes"] = len(packed_draft)
    figures["side_input_plan_bytes"] = len(found.pack())
    by_bin.clear()
    sizes = np.zeros(shards, np.int64)
    for part in passes(pipeline.assign, found.pack()):
        sizes += part
    if references:
        grouped = sum(passes(pipeline.group, found.pack()), np.zeros(3, np.int64))
        figures["reference_parts"] = int(grouped[0])
        figures["reference_bytes_listed"], figures["reference_bytes_grouped"] = map(
            int, grouped[1:]
        )
    pool.close()
    figures["fewest"], figures["most"] = int(sizes.min()), int(sizes.max())
    if sizes.sum() != keys or figures["most"] - figures["fewest"] > 1:
        raise SystemExit(f"not balanced: {figures}")
    figures["wall_s"] = sum(v for k, v in figures.items() if k.endswith("_wall_s"))
    figures["wall_s"] += figures["boundaries_s"]
    children = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    figures["peak_mb_driver"], figures["peak_mb_a_process"] = own / 1024, children / 1024
    return figures


def sort_everything(keys: int, shards: int) -> dict[str, float | int]:
    """Sorts random numbers in place of hashed keys; returns the seconds and the memory."""
    hashes = np.random.Generator(np.random.PCG64(0)).integers(0, 2**64, keys, np.uint64)
    began = time.perf_counter()
    hashes.sort()
    hashes[[keys * shard // shards for shard in range(1, shards)]]
    return {"sort_s": time.perf_counter() - began, "sort_mb": hashes.nbytes / 2**20}


def main() -> None:
    """Measures every size, prints a table, and writes the JSON file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    sizes = [1_000_000, 10_000_000, 100_000_000]
    parser.add_argument("--keys", type=int, nargs="+", default=sizes, help="numbers of keys")
    parser.add_argument("--shards", type=int, default=10_000, help="(default: %(default)s)")
    parser.add_argument(
        "--processes", type=int, default=os.cpu_count() or 1, help="(default: one per core)"
    )
    parser.add_argument("--references", action="store_true", help="divide references, too")
    parser.add_argument("--json", type=Path, help="write all figures to this file")
    arguments = parser.parse_args()
    rows = []
    for keys in arguments.keys:
        rows.append(plan(keys, arguments.shards, arguments.processes, arguments.references))
        rows[-1] |= sort_everything(keys, arguments.shards)
    header = ["keys", "shards", "keys/shard", "wall s", "hashing CPU s", "planning CPU s"]
    header += ["side inputs kB", "driver MB", "sort s", "sort MB"]
    print(format_table([header, *map(_row, rows)]))
    if arguments.references:
        header = ["references", "shards", "B listed", "B grouped", "each part", "CPU µs"]
        print("\n" + format_table([header, *map(_reference_row, rows)]))
    if arguments.json:
        arguments.json.write_text(json.dumps(rows, indent=1) + "\n")


def _row(figures: dict[str, float | int]) -> list[str]:
    phases = ("histogram", "select", "assign")
    side_inputs = figures["side_input_draft_bytes"] + figures["side_input_plan_bytes"]
    return [
        f"{figures['keys']:,}",
        f"{figures['shards']:,}",
        f"{figures['fewest']:,} to {figures['most']:,}",
        f"{figures['wall_s']:.1f}",
        f"{sum(figures[f'{phase}_hashing_cpu_s'] for phase in phases):.1f}",
        f"{sum(figures[f'{phase}_cpu_s'] for phase in phases) + figures['boundaries_s']:.1f}",
        f"{side_inputs / 1000:,.0f}",
        f"{figures['peak_mb_driver']:,.0f}",
        f"{figures['sort_s']:.1f}",
        f"{figures['sort_mb']:,.0f}",
    ]


def _reference_row(figures: dict[str, float | int]) -> list[str]:
    keys = figures["keys"]
    return [
        f"{keys:,}",
        f"{figures['shards']:,}",
        f"{figures['reference_bytes_listed'] / keys:.1f}",
        f"{figures['reference_bytes_grouped'] / keys:.1f}",
        f"{keys / figures['reference_parts']:,.0f}",
        f"{figures['group_cpu_s'] / keys * 1e6:.1f}",
    ]


if __name__ == "__main__":
    main()
