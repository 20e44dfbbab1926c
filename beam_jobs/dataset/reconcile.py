"""Reconciles results with the plan: proof that no record was lost, and the manifest."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from beam_jobs.dataset.resume import ShardResult
from beam_jobs.errors import DataError, UsageError
from beam_jobs.plan.shards import Plan
from beam_jobs.records.rejects import rejects_file
from beam_jobs.storage.object_store import FileInfo
from readers.format.manifest import (
    INDEX_SUFFIX,
    MANIFEST,
    TOKENIZER,
    VOCABULARY,
    Manifest,
    Shard,
    join,
    shard_name,
)


def reconcile(
    plan: Plan,
    results: Iterable[ShardResult],
    counted: Mapping[int, int],
    names: tuple[str, ...],
    balance: str = "records",
) -> list[list[ShardResult]]:
    """The results of every split by shard, after proving that nothing was lost.

    Args:
        plan: What was found.
        results: What every shard's writer did; of several for one shard the last one counts.
        counted: Split -> records in its statistics.
        names: Of the splits.
        balance: What shards were balanced by.

    Raises:
        DataError: A shard is missing, found is not written + rejected, shards of a split are not
            balanced, records are missing from the statistics, or nothing was written.
    """
    by_shard = {(result.split, result.index): result for result in results}
    splits = []
    for number, (split, name) in enumerate(zip(plan.splits, names, strict=True)):
        mine = [by_shard[key] for key in sorted(by_shard) if key[0] == number]
        sizes = [result.shard.records for result in mine if result.shard]
        written = sum(sizes)
        rejected = sum(result.rejected for result in mine)
        found = split.records + split.rejected
        known = counted.get(number, 0)
        if len(sizes) != split.shards or found != written + rejected or known != written:
            raise DataError(
                f"split {name}: found {found} records, written {written}, rejected {rejected}, "
                f"{known} in the statistics; {len(sizes)} of {split.shards} shards arrived. The "
                "runner lost or repeated some: no dataset was written, run the job again"
            )
        _check_balance(name, [result.shard for result in mine if result.shard], mine, balance)
        splits.append(mine)
    if not any(result.shard.records for mine in splits for result in mine if result.shard):
        rejects = [result.first_reject for mine in splits for result in mine if result.first_reject]
        if not rejects:
            raise UsageError("the inputs hold no record: no dataset was written")
        raise DataError(
            f"all {sum(result.rejected for mine in splits for result in mine)} records were "
            f"rejected, no dataset was written; the first: {min(rejects)}"
        )
    return splits


def _check_balance(
    name: str, shards: list[Shard], results: list[ShardResult], balance: str
) -> None:
    if not shards:
        return
    unit, allowed, sizes = "records", 1, [shard.records for shard in shards]
    if balance == "bytes":
        unit, sizes = "bytes", [shard.bytes for shard in shards]
        allowed = max(result.largest for result in results)
    if max(sizes) - min(sizes) > allowed:
        raise DataError(
            f"split {name}: shards of {min(sizes)} to {max(sizes)} {unit}, expected to differ by "
            f"{allowed} at most: no dataset was written, run the job again"
        )


def check_files(directory: str, results: Iterable[ShardResult], found: Iterable[FileInfo]) -> None:
    """Looks at the outputs themselves: shards and indices must be there as they were written.

    Args:
        found: All files below the directory.

    Raises:
        DataError: One is missing or has another size.
    """
    start = len(join(directory, ""))
    sizes = {file.path[start:]: file.size for file in found}
    for result in results:
        if not result.shard:
            continue
        file = result.shard.file
        for name, size in ((file, result.shard.bytes), (file + INDEX_SUFFIX, result.index_bytes)):
            if sizes.get(name) != size:
                raise DataError(
                    f"{join(directory, name)}: written with {size} bytes, found "
                    f"{sizes.get(name, 'no file')}; is the output directory shared by all workers, "
                    "and no other job writing there?"
                )


def dataset_files(
    manifest: Manifest, results: list[ShardResult], names: tuple[str, ...]
) -> set[str]:
    """The names of all files of a dataset; a second attempt at the commit finds its manifest."""
    files = {MANIFEST}
    if manifest.vocabulary:
        files.add(VOCABULARY)
    if manifest.tokenizer:
        files.add(TOKENIZER)
    for result in results:
        if result.shard:
            files |= {result.shard.file, result.shard.file + INDEX_SUFFIX}
        if result.rejected:
            count = len(manifest.splits[names[result.split]].shards)
            files.add(rejects_file(shard_name(names[result.split], result.index, max(count, 1))))
    return files
