"""The flags of the reshard job."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from beam_jobs.cli.dataset import ONE_SPLIT, DatasetFlags
from beam_jobs.cli.flags import JobFlags, flag, names_in
from beam_jobs.errors import UsageError

if TYPE_CHECKING:
    from beam_jobs.jobs.job import Job
    from beam_jobs.jobs.reshard.manifests import InputSplits
    from beam_jobs.jobs.reshard.reshard_job import ReshardJob
    from beam_jobs.plan.placement import Splits

# The value of --splits, also in the manifest, if records keep their splits.
_KEEP = "keep"

# How many names of shards a note lists.
_NAMES_SHOWN = 5


@dataclass(frozen=True)
class ReshardFlags(JobFlags):
    """The flags of the reshard job."""

    title = "records"

    input: list[str] = flag(
        [],
        "TFRecord files, GZIP or not: a file, a folder with its subfolders, or a pattern in quotes such as "
        "'old-*.tfrecord*'; several may follow. Indexes, manifests and texts next to them are skipped",
        metavar="PATTERN",
        everyday=True,
    )
    schema: str = flag(
        "",
        "the features of the records: a manifest.json, or only its `schema`",
        unset="from the manifests next to the files if all have one, else learned from the first records of each file",
        metavar="FILE.json",
        everyday=True,
    )
    keep: str = flag(
        "", "the features to keep", unset="all features", metavar="NAME,…", everyday=True
    )
    drop: str = flag("", "the features to drop", metavar="NAME,…", excludes="keep")

    inputs_expected = "name TFRecord files or a folder"

    def make_job(self, columns: tuple[str, ...], output: str, max_bytes: int) -> ReshardJob:
        from beam_jobs.jobs.reshard.reshard_job import reshard_job
        from beam_jobs.sources.inputs import Inputs

        return reshard_job(
            inputs=Inputs.of(self.input, output=output, max_bytes=max_bytes),
            schema=self.schema,
            keep=names_in(self.keep),
            drop=names_in(self.drop),
        )


@dataclass(frozen=True)
class ReshardedDatasetFlags(DatasetFlags):
    """The flags of splits and shards, of records that may keep their splits."""

    splits: str = flag(
        _KEEP,
        "names and shares of new splits of all records, such as train=0.8,val=0.2; with --split_column only names",
        unset=f"keep those of the input if all files belong to datasets with manifests; {ONE_SPLIT} if none does",
        metavar="NAME=SHARE,…",
        everyday=True,
    )

    def check_splits(self) -> None:
        if self.split_column and self.splits == _KEEP:
            raise UsageError(
                f"--split_column {self.split_column}: list the names in it, such as --splits train,val"
            )
        if self.splits != _KEEP:
            super().check_splits()

    def find_splits(self, job: Job) -> Splits:
        if self.splits != _KEEP or self.folds:
            return super().find_splits(job)
        from beam_jobs.plan.placement import Splits

        names, lone, _ = _splits_of(job)
        if lone:
            raise UsageError(
                f"--input: {lone}, so its records have no split to keep: leave this file out, or add "
                f"--splits {ONE_SPLIT} or other shares to make new splits of all records"
            )
        if names and self.group_by:
            raise UsageError(
                f"--group_by {self.group_by}: the records keep their splits, {', '.join(names)}: drop it, or add --splits"
            )
        return Splits.of_shards(names) if names else Splits.parse(ONE_SPLIT)

    def note(self, job: Job) -> str:
        from readers.format.display import first_names

        names, _, suggested = _splits_of(job)
        keeps = self.splits == _KEEP and not self.folds
        if keeps and len(suggested) > 1:
            return (
                f"the names of the shards begin with {first_names(suggested, _NAMES_SHOWN)}, but no "
                f"manifest.json lists splits: all records go into one, {ONE_SPLIT}; to keep splits "
                "apart, reshard the files of each separately, such as with --splits test=1"
            )
        if keeps or len(names) < 2:
            return ""
        made = f"--folds {self.folds}" if self.folds else f"--splits {self.splits}"
        return f"{made} makes new splits of all records; the splits of the input, {', '.join(names)}, are not kept"

    def facts(self, splits: Splits) -> dict[str, Any]:
        new = self.splits == _KEEP and not (splits.kept or self.folds)
        return {"splits": ONE_SPLIT} if new else {}


def _splits_of(job: Job) -> InputSplits:
    return cast("ReshardJob", job).splits
