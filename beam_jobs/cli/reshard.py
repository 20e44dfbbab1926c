"""The flags of the reshard job."""

from __future__ import annotations

from dataclasses import dataclass

from beam_jobs.cli.dataset import DatasetFlags
from beam_jobs.cli.flags import JobFlags, flag, names_in
from beam_jobs.errors import UsageError
from beam_jobs.jobs.reshard.job import ReshardJob, reshard_job
from beam_jobs.sources.inputs import Inputs


@dataclass(frozen=True)
class ReshardFlags(JobFlags):
    """The flags of the reshard job."""

    title = "records"

    input: list[str] = flag(
        [],
        "TFRecord files, GZIP or not: a pattern in quotes such as 'old-*.tfrecord*', a file, or a "
        "folder with all its subfolders; may be repeated. Indexes, manifests and texts next to them "
        "are skipped",
        unset="none",
        metavar="PATTERN",
    )
    schema: str = flag(
        "",
        "the features of the records, as in a manifest.json: the file itself, or its `schema` alone",
        unset="that of the manifest next to the files, if all have one; else learned from all records",
        metavar="FILE.json",
    )
    keep: str = flag("", "the features to keep", unset="all features", metavar="NAME,…")
    drop: str = flag("", "the features to drop", unset="none", metavar="NAME,…")

    def check(self) -> None:
        if not self.input:
            raise UsageError("--input is missing: name TFRecord files or a folder")
        if self.keep and self.drop:
            raise UsageError("--keep and --drop both choose the features: drop one")

    def make_job(self, columns: tuple[str, ...], output: str) -> ReshardJob:
        return reshard_job(
            inputs=Inputs.of(self.input, output),
            schema=self.schema,
            keep=names_in(self.keep),
            drop=names_in(self.drop),
        )


@dataclass(frozen=True)
class ReshardedDatasetFlags(DatasetFlags):
    """The flags of splits and shards, of records whose features decide their splits."""

    def check(self) -> None:
        super().check()
        if self.split_column and (self.group_by or "=" in self.splits):
            raise UsageError(
                f"--split_column {self.split_column}: the feature decides the splits: give names "
                "alone, such as --splits train,val, and drop --group_by"
            )
