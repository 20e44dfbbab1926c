"""From encoded records to a complete dataset: the steps of a pipeline, one after another."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

from beam_jobs import progress
from beam_jobs.dataset.encoded_records import merge_neighbours, neighbours_in, write_spooled
from beam_jobs.dataset.generations import prepare
from beam_jobs.dataset.output import Output
from beam_jobs.engines.memory import give_back_freed
from beam_jobs.engines.pool import Pool
from beam_jobs.errors import CompleteError, UsageError
from beam_jobs.jobs.passes import Learned
from beam_jobs.plan.shards import (
    Draft,
    finish_plan,
    mean_bytes,
    pick_boundaries,
    shards_of,
    wanted_hashes,
)
from beam_jobs.plan.summary import Summary
from beam_jobs.records.pieces import merged
from beam_jobs.records.rejects import Reject
from beam_jobs.records.runs import locate
from beam_jobs.records.spool import Spool
from beam_jobs.records.statistics import SplitStatistics
from beam_jobs.sources.labels import Names
from beam_jobs.writing.commit import commit_dataset, warn_of_rejects
from beam_jobs.writing.encode import Encoded
from readers.format.manifest import Manifest

# References of records -> the size in bytes of each in its shard, or why it cannot be encoded.
Measure = Callable[[list[bytes]], list[int | Reject]]

# A dataset, its job, and the folder of its shards -> shards can be written there.
Prepare = Callable[[Output, str, str], None]


def draft_of(
    output: Output, summary: Summary, measure: Measure | None, prepare: Prepare | None
) -> tuple[Draft, list[int | Reject]]:
    """The draft, and the sizes in bytes, or the rejects, of sampled records; UsageError or DataError if nothing may be written.

    Args:
        measure: Measures sampled records; None if the summary has sizes already.
        prepare: Makes the output directory ready for shards; None leaves it unchanged.
    """
    if not any(split.rejected or split.histogram().any() for split in summary.splits):
        dropped = sum(split.duplicates for split in summary.splits)
        what = "the inputs have no records"
        if dropped and output.placement.existing == "skip":
            raise CompleteError(f"{output.directory} has all of these keys")
        if dropped:  # One of several similar records always stays.
            what = f"all {dropped:,} records are near those of --keep_out"
        raise UsageError(f"{what}: no dataset was written")
    if summary.existing and output.written != output.job(summary):
        raise UsageError(
            f"the dataset has {summary.existing:,} of these keys, such as {summary.existing_key}; add --existing skip "
            "or replace"
        )
    if prepare:
        # Before an old dataset is replaced; rejects found later are counted at the end.
        rejected = sum(split.rejected for split in summary.splits)
        inputs = sum(split.rejected + split.records + split.duplicates for split in summary.splits)
        for some, every in ((summary.rejected_parts, summary.parts), (rejected, inputs)):
            output.max_rejects.check(some, every, summary.rejects)
        prepare(output, output.job(summary), output.folder(summary))
    give_back_freed()
    sizes = [sampled.size for sampled in summary.sample]
    measured = measure([sampled.reference for sampled in summary.sample]) if measure else []
    splits = []
    for split, num_shards in zip(summary.splits, output.num_shards, strict=True):
        histogram = split.histogram()
        mean = split.bytes / max(int(histogram.sum()), 1)
        if measure:
            mean = mean_bytes(mean, sizes, measured)
        splits.append((histogram, split.rejected, mean, num_shards))
    draft = Draft.of(splits, output.shard_size)
    progress.expect("writing", sum(s.records + s.rejected for s in draft.splits), "records")
    return draft, measured


def complete(output: Output, encoded: Encoded, pool: Pool, names: Names) -> Manifest:
    """Writes the shards of all records in a pool, and commits them with names of classes; raises what `write` does."""
    spool, schema, summary = Spool(output.staging), output.schema, encoded.summary
    draft, _ = draft_of(output, summary, None, prepare)
    wanted = (pair for block in encoded.hashes for pair in wanted_hashes(block, draft))
    boundaries = [pick_boundaries(*bin_, draft) for bin_ in _grouped(wanted)]
    plan = finish_plan(draft, boundaries, output.folder(summary))
    packed = plan.pack()
    neighbours = neighbours_in(plan, spool)
    assign = partial(shards_of, plan, neighbours=neighbours)
    located = _grouped(pair for run in encoded.runs for pair in locate(run, assign))
    if neighbours > 1:
        groups = (merge_neighbours(group, packed, spool) for group in located)
        located = _grouped(pair for group in groups for pair in group)
    tasks = ((output, packed, schema, spool, each) for each in located)
    results = list(pool.map(write_spooled, tasks))
    statistics = merged((SplitStatistics.of(*some) for some in encoded.statistics), SplitStatistics)
    learned = Learned(schema, names)
    manifest = commit_dataset(output, learned, summary, packed, statistics, results)
    warn_of_rejects(output.directory, manifest, results)
    return manifest


def _grouped(pairs: Iterable[tuple[int, bytes]]) -> Iterable[tuple[int, list[bytes]]]:
    """(key, all values of the key) for each key."""
    groups: dict[int, list[bytes]] = {}
    for key, value in pairs:
        groups.setdefault(key, []).append(value)
    return groups.items()
