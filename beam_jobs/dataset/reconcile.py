"""Compares results with the plan, which proves that no record was lost."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from beam_jobs.dataset.resume import ShardResult
from beam_jobs.errors import DataError, UsageError
from beam_jobs.plan.shards import Plan, SplitPlan
from beam_jobs.records.rejects import ANY_NUMBER, MaxRejects
from readers.format.manifest import INDEX_SUFFIX, join


def reconcile(
    plan: Plan,
    results: Iterable[ShardResult],
    counted: Mapping[int, int],
    names: tuple[str, ...],
    max_rejects: MaxRejects = ANY_NUMBER,
    duplicates: int = 0,
) -> list[list[ShardResult]]:
    """The results of every split by shard, after checking that nothing was lost.

    If a shard has several results, the last one counts. `counted` is split -> the records in its statistics,
    `duplicates` the number of inputs that were dropped.

    Raises:
        DataError: A shard is missing, found is not written + rejected, shards of a split are not
            balanced, records are missing from the statistics, too many inputs are rejected, or
            nothing was written.
    """
    by_shard = {(result.split, result.index): result for result in results}
    splits = []
    for number, (split, name) in enumerate(zip(plan.splits, names, strict=True)):
        mine = [by_shard[key] for key in sorted(by_shard) if key[0] == number]
        _check_split(name, split, mine, counted.get(number, 0))
        splits.append(mine)
    every = [result for mine in splits for result in mine]
    _check_rejects(
        every, duplicates + sum(s.records + s.rejected for s in plan.splits), max_rejects
    )
    return splits


def _check_split(name: str, split: SplitPlan, results: list[ShardResult], counted: int) -> None:
    """Checks that a split has all of its shards and records, in balance, and that the statistics agree."""
    sizes = [result.shard.records for result in results if result.shard]
    written = sum(sizes)
    rejected = sum(result.rejected for result in results)
    found = split.records + split.rejected
    if len(sizes) != split.shards or found != written + rejected or counted != written:
        raise DataError(
            f"split {name}: found {found} records, written {written}, rejected {rejected}, "
            f"{counted} in the statistics; {len(sizes)} of {split.shards} shards arrived: the "
            "runner lost or repeated some; no dataset was written, run the same command again"
        )
    if sizes and max(sizes) - min(sizes) > 1:
        raise DataError(
            f"split {name}: shards of {min(sizes)} to {max(sizes)} records, expected to differ by 1 at "
            "most: no dataset was written, run the same command again"
        )


def _check_rejects(every: list[ShardResult], inputs: int, max_rejects: MaxRejects) -> None:
    """Checks that something was written, and that not too many of the inputs were rejected."""
    rejects = [result.first_reject for result in every if result.first_reject]
    rejected = sum(result.rejected for result in every)
    if not any(result.shard.records for result in every if result.shard):
        if not rejects:
            raise UsageError("the inputs have no records: no dataset was written")
        raise DataError(
            f"all {rejected} records were rejected, no dataset was written; the first: {min(rejects)}"
        )
    max_rejects.check(rejected, inputs, sorted(rejects))


def check_files(directory: str, results: Iterable[ShardResult], sizes: Mapping[str, int]) -> None:
    """Checks that the files of all shards are in a directory, given the bytes of its files; DataError if not."""
    for result in results:
        if not result.shard:
            continue
        file = result.shard.path
        index = file + INDEX_SUFFIX, result.shard.index_bytes
        for name, size in ((file, result.shard.bytes), index):
            if sizes.get(name) != size:
                raise DataError(
                    f"{join(directory, name)}: written with {size} bytes, found "
                    f"{sizes.get(name, 'no file')}; is the output directory shared by all workers, "
                    "and no other job writing there?"
                )
