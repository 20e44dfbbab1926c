"""The draft of the shards of a dataset, from the summary of all records."""

from __future__ import annotations

from collections.abc import Callable

from beam_jobs import progress
from beam_jobs.dataset.output import Output
from beam_jobs.engines.memory import give_back_freed
from beam_jobs.errors import UsageError
from beam_jobs.plan.shards import Draft, mean_bytes
from beam_jobs.plan.summary import Summary
from beam_jobs.records.rejects import Reject

# References of records -> the size in bytes of each in its shard, or why it cannot be encoded.
Measure = Callable[[list[bytes]], list[int | Reject]]

# A dataset, its job, and the folder of its shards -> shards can be written there.
Prepare = Callable[[Output, str, str], None]


def draft_of(
    output: Output, summary: Summary, measure: Measure | None, prepare: Prepare | None
) -> tuple[Draft, list[int | Reject]]:
    """The draft, and the sizes in bytes, or the rejects, of the records that were sampled.

    Args:
        output: The dataset.
        summary: The summary of all records.
        measure: Measures sampled records; None if the summary has sizes already.
        prepare: Makes the output directory ready for shards; None leaves it unchanged.

    Raises:
        UsageError: There are no records, or the directory is not free.
        DataError: Too many inputs are rejected.
    """
    if not any(split.rejected or split.histogram().any() for split in summary.splits):
        dropped = sum(split.duplicates for split in summary.splits)
        what = "the inputs have no records"
        if dropped:  # One of several similar records always stays.
            what = f"all {dropped:,} records are near those of --keep_out"
        raise UsageError(f"{what}: no dataset was written")
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
