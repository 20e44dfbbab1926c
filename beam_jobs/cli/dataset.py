"""The flags that say what is written: splits, shards, and the output directory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from beam_jobs.cli.checks.near import threshold_of
from beam_jobs.cli.flags import RunFlags, flag
from beam_jobs.dataset.generations import begun
from beam_jobs.dataset.output import (
    Output,
    parse_names,
    parse_num_shards,
    parse_size,
    resolve,
)
from beam_jobs.errors import UsageError
from beam_jobs.jobs.protocols import RecordJob
from beam_jobs.plan.placement import Exact, Groups, Placement, check_seed
from beam_jobs.plan.splits import Splits
from beam_jobs.records.mapping import Mapper, parse_map_schema
from beam_jobs.records.rejects import MaxRejects, OnReject
from beam_jobs.sources.columns import split_names
from readers.format.schema import Schema
from readers.format.tfrecord import MAX_RECORD_BYTES

# Without --splits.
ONE_SPLIT = "train=1"


@dataclass(frozen=True)
class DatasetFlags(RunFlags):
    """The flags of splits and shards, which all jobs share."""

    title = "splits and shards"

    output: str | None = flag(
        None, "a new or empty directory", unset="none; a dry run needs none", metavar="DIR"
    )
    splits: str = flag(
        ONE_SPLIT,
        "names and shares, which add up to 1, such as train=0.8,val=0.1,test=0.1; with "
        "--split_column names alone",
        metavar="NAME=SHARE,…",
    )
    folds: str = flag(
        "",
        "K splits for cross-validation, fold0 to fold{K-1}, instead of --splits: of equal size, exact to "
        "one record, or with --group_by and --stratify as exact as these allow",
        unset="none",
        metavar="K",
    )
    exact_splits: bool = flag(
        False,
        "give every split its share of all records, exact to one record; one more input may then move "
        "others to another split",
        unset="a hash of each key decides, so shares are exact to about one percent of a few thousand "
        "records, and each record stays in its split whatever the others are",
    )
    split_column: str = flag(
        "",
        "the column that names the split of each record",
        unset="a hash of each key decides",
        metavar="NAME",
    )
    group_by: str = flag(
        "",
        "keep records together in one split if they share this: a column, or a part of their keys "
        "given by a regular expression such as 'subj(\\d+)', whose first group counts (without "
        "parentheses all that it matches). Groups are dealt to the splits by their sizes, as exactly "
        "as these allow",
        unset="each record, or with --window each recording or text, is assigned by itself",
        metavar="REGEX|column:NAME",
    )
    num_shards: str = flag(
        "", "shards of every split, or train=16,val=2", unset="chosen by --shard_size", metavar="N"
    )
    shard_size: str = flag("128MiB", "approximate bytes of a shard", metavar="SIZE")
    seed: int = flag(0, "determines splits and order")
    on_reject: OnReject = flag(
        "skip", "if an input cannot become a record, skip it and list it in rejects/, or fail"
    )
    max_rejects: str = flag(
        "",
        "fail without a dataset if more inputs are rejected: a number, or a share such as 1%",
        unset="any number may be, but not all",
        metavar="N|N%",
    )
    max_record_bytes: str = flag(
        "256MiB",
        "reject an input that takes more bytes in memory, packed or not; a process needs some four times "
        "as much. At most 2GiB",
        metavar="SIZE",
    )
    map: str = flag(
        "",
        "a function that makes the features of each record: module:function(features, info) -> features, called "
        "after windows and resampling; the module is a .py file in the current folder, or installed here and on "
        "every worker. See docs/inputs.md",
        unset="the features of the job",
        metavar="MODULE:FUNCTION",
    )
    map_schema: str = flag(
        "",
        "features that the function of --map returns, such as mel=float32[None,80],loud=bool",
        unset="those of the first records",
        metavar="NAME=DTYPE[SIZES],…",
    )
    drop_near_duplicates: str = flag(
        "",
        "drop records that are nearly the same as one before them in the global order: a similarity such as 0.8 "
        "of texts, or 0.9 of pictures and recordings; 1 drops what is the same. They are counted, not rejected",
        unset="keep all",
        metavar="THRESHOLD",
    )
    keep_out: str = flag(
        "",
        "drop records that are nearly the same as one in these datasets, such as a test set: at the threshold of "
        "--drop_near_duplicates, or 0.8 of texts and 0.9 of pictures and recordings",
        unset="none",
        metavar="DIR,…",
    )
    overwrite: bool = flag(False, "replace a dataset in --output", unset="refuse to")

    def validate(self) -> None:
        if self.output is not None:
            resolve(self.output)
        elif not self.dry_run:
            raise UsageError("--output is missing: name a new or empty directory; see --help")
        check_seed(self.seed)
        parse_size(self.shard_size)
        Groups.parse(self.group_by)
        MaxRejects.parse(self.max_rejects)
        _ = self.most_bytes
        if self.map_schema and not self.map:
            raise UsageError(f"--map_schema {self.map_schema}: add the --map that returns it")
        parse_map_schema(self.map_schema)
        if self.drop_near_duplicates:
            threshold_of(self.drop_near_duplicates)
        self.check_splits()
        if self.folds:
            self._check_folds()

    @property
    def most_bytes(self) -> int:
        """The most bytes that an input may take in memory.

        Raises:
            UsageError: It is no size, or more than a record can hold.
        """
        size = parse_size(self.max_record_bytes, "--max_record_bytes")
        if size > MAX_RECORD_BYTES + 1:
            raise UsageError(
                f"--max_record_bytes {self.max_record_bytes}: a record can hold 2GiB at most"
            )
        return min(size, MAX_RECORD_BYTES)

    def check_splits(self) -> None:
        """Checks the value of `--splits`.

        Raises:
            UsageError: It is not a list of names and shares.
        """
        if not self.split_column:
            Splits.parse(self.splits)
            return
        for name in ("folds", "exact_splits", "group_by", "stratify"):
            if value := getattr(self, name, None):  # Not all jobs stratify.
                other = f"--{name} {value}" if isinstance(value, str) else f"--{name}"
                raise UsageError(
                    f"--split_column {self.split_column}: the column decides the splits, and so "
                    f"would {other}: drop one"
                )
        if self.splits != type(self).splits and "=" in self.splits:
            raise UsageError(
                f"--splits {self.splits}: with --split_column the column decides: give names alone, "
                "such as train,val,test"
            )

    def _check_folds(self) -> None:
        """Checks `--folds` and the other flag that decides splits."""
        Splits.folds(self.folds)
        if self.splits != type(self).splits:
            raise UsageError(
                f"--folds {self.folds}: the folds are the splits, and so would be those of --splits "
                f"{self.splits}: drop one"
            )

    def directory(self) -> str:
        """The output directory; empty for a dry run without one.

        Raises:
            UsageError: Its path is empty, or has characters of a pattern.
        """
        if self.output is None:
            return ""
        return resolve(self.output)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that decide the splits of records."""
        return tuple(filter(None, (Groups.parse(self.group_by).column, self.split_column)))

    def find_splits(self, job: RecordJob) -> Splits:
        """The splits, whose names may have to be read from the job's inputs."""
        if self.folds:
            return Splits.folds(self.folds)
        if not self.split_column:
            return Splits.parse(self.splits)
        return Splits.named([name.strip() for name in self.splits.split(",")], self.split_column)

    @property
    def exact(self) -> Exact:
        """What every split gets its exact share of."""
        return "records" if self.folds or self.exact_splits else ""

    def note(self, job: RecordJob) -> str:
        """One line about these flags and the job's inputs, printed before the job; "" for none."""
        return ""

    def feature_names(self, schema: Schema) -> Mapping[str, str]:
        """The names in Examples of those features that are called otherwise there.

        Raises:
            UsageError: The schema lacks a feature, or a name is given twice.
        """
        return {}

    def facts(self, splits: Splits) -> dict[str, Any]:
        """Facts about the splits that the manifest states beside the flags."""
        return {}

    def make_output(
        self,
        directory: str,
        job: RecordJob,
        options: dict[str, Any],
        mapper: Mapper | None = None,
    ) -> Output:
        """The dataset that a job writes, with the features that a mapper makes; the manifest states the options.

        Raises:
            UsageError: The flags do not fit the job.
        """
        splits = self.find_splits(job)
        if self.exact and (len(splits.names) == 1 or splits.kept):
            name = "stratify" if self.exact == "labels" else "exact_splits"
            reason = "the records keep their splits" if splits.kept else "there is one split"
            raise UsageError(f"--{name}: {reason}: add --splits train=0.8,val=0.2, or --folds 5")
        placement = Placement(
            seed=self.seed,
            splits=splits,
            groups=Groups.parse(self.group_by),
            split_column=self.split_column,
            exact=self.exact,
            windows=job.has_windows,
        )
        schema = mapper.schema if mapper else job.schema
        output = Output(
            directory=directory,
            schema=schema,
            placement=placement,
            num_shards=parse_num_shards(self.num_shards or None, splits.names),
            shard_size=parse_size(self.shard_size),
            on_reject=self.on_reject,
            overwrite=self.overwrite,
            options=options | self.facts(splits),
            max_rejects=MaxRejects.parse(self.max_rejects),
            feature_names=self.feature_names(schema),
            mapper=mapper,
        )
        return begun(output, repeats=True, cleans=not self.dry_run) if directory else output


@dataclass(frozen=True)
class EncodedDatasetFlags(DatasetFlags):
    """The flags of a dataset whose records are encoded by the job."""

    title = "labels and names"

    stratify: bool = flag(
        False,
        "give every split its share of each label's records, exact to one record; whole groups of "
        "--group_by, and windows of one recording or text, as exactly as their sizes and labels allow",
        unset="labels do not affect the splits",
    )
    names: str = flag(
        "",
        "names of features in the Examples, such as image=image_raw,label=labels",
        unset="their own names",
        metavar="FEATURE=NAME,…",
    )

    def find_splits(self, job: RecordJob) -> Splits:
        if self.stratify and "label" not in job.schema:
            raise UsageError("--stratify: the records have no label: add --label")
        if self.stratify and job.schema["label"].shape:
            raise UsageError("--stratify: records with several labels belong to several shares")
        if self.split_column and self.splits == ONE_SPLIT:
            found = split_names(job.inputs, self.split_column)
            return Splits.named(found, self.split_column)
        return super().find_splits(job)

    @property
    def exact(self) -> Exact:
        return "labels" if self.stratify else super().exact

    def feature_names(self, schema: Schema) -> Mapping[str, str]:
        return parse_names(self.names, schema) if self.names else {}
