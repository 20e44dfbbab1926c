"""The flags of the dataset: splits, shards, and the output directory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from beam_jobs.cli.flags import Flags, flag
from beam_jobs.errors import UsageError

if TYPE_CHECKING:
    from beam_jobs.dataset.output import Output
    from beam_jobs.jobs.job import Job
    from beam_jobs.plan.placement import Exact, Splits
    from beam_jobs.records.mapping import Mapper
    from readers.format.schema import Schema

# Without --splits.
ONE_SPLIT = "train=1"


def threshold_of(text: str) -> float:
    """The number in a value of `--drop_near_duplicates`; UsageError if there is none."""
    try:
        return float(text)
    except ValueError:
        raise UsageError(
            f"--drop_near_duplicates {text}: expected a similarity such as 0.8 for texts, 0.9 for pictures"
        ) from None


def bytes_of(size: str) -> int:
    """The bytes in a value of `--max_record_bytes`; UsageError if it is not a size, or is more than a record can hold."""
    from beam_jobs.dataset.output import parse_size
    from readers.format.tfrecord import MAX_RECORD_BYTES

    count = parse_size(size, "--max_record_bytes")
    if count > MAX_RECORD_BYTES + 1:
        raise UsageError(f"--max_record_bytes {size}: a record can hold 2GiB at most")
    return min(count, MAX_RECORD_BYTES)


@dataclass(frozen=True)
class DatasetFlags(Flags):
    """The flags of splits and shards, which all jobs share."""

    title = "splits and shards"

    output: str | None = flag(
        None,
        "a new or empty directory",
        unset="none; a dry run needs none",
        metavar="DIR",
        check="dataset.output:resolve",
        everyday=True,
        stated=False,
    )
    splits: str = flag(
        ONE_SPLIT,
        "names and shares, which add up to 1, such as train=0.8,val=0.1,test=0.1; with --split_column only names",
        metavar="NAME=SHARE,…",
        everyday=True,
    )
    folds: str = flag(
        "",
        "K splits of equal size for cross-validation, fold0 to fold{K-1}, instead of --splits; exact to one "
        "record, or with --group_by and --stratify as exact as the groups and labels allow",
        metavar="K",
        check="plan.placement:Splits.folds",
        excludes="splits",
    )
    exact_splits: bool = flag(
        False,
        "give every split its exact share of the records, to within one; a new input may then move other "
        "records to another split",
        unset="the hash of each key chooses its split, so with a few thousand records the shares are off by "
        "about 1%, and new inputs never move a record to another split",
    )
    split_column: str = flag(
        "",
        "the column that names the split of each record",
        unset="the hash of each key chooses its split",
        excludes="folds exact_splits group_by stratify",
    )
    group_by: str = flag(
        "",
        "keep records in one split if they share the value of a column, or the part of their keys that matches a "
        "regular expression such as 'subj(\\d+)' (its first group, if any); shares are as close as group sizes allow",
        unset="each record is assigned to a split separately, or with --window each recording or text",
        metavar="REGEX|column:NAME",
        check="plan.placement:Groups.parse",
        everyday=True,
    )
    num_shards: str = flag(
        "",
        "shards of every split, or train=16,val=2",
        unset="chosen by --shard_size",
        metavar="N",
        everyday=True,
    )
    shard_size: str = flag(
        "128MiB",
        "approximate bytes of a shard",
        metavar="SIZE",
        check="dataset.output:parse_size",
    )
    seed: int = flag(0, "determines splits and order", check="plan.placement:check_seed")
    max_rejects: str = flag(
        "",
        "fail without a dataset if more inputs than this are rejected: a number, a share of all inputs such as 0.2, "
        "or all for no limit; the same command with a higher limit keeps the shards that are done",
        unset="5% of the inputs; no limit for fewer than 10 inputs, unless all are rejected",
        metavar="N|SHARE|all",
        check="records.rejects:MaxRejects.parse",
        stated=False,
    )
    max_record_bytes: str = flag(
        "256MiB",
        "reject inputs that take more bytes in memory, packed or unpacked; a process needs about four times "
        "as much. At most 2GiB",
        metavar="SIZE",
        check=bytes_of,
    )
    map: str = flag(
        "",
        "a function (features, info) -> features that changes each record, after windows and resampling; its "
        "module is a .py file in the current folder, or installed here and on every worker. See docs/write/functions.md",
        unset="the features of the job",
        metavar="MODULE:FUNCTION",
    )
    map_schema: str = flag(
        "",
        "the features that the function of --map returns, such as mel=float32[None,80],loud=bool",
        unset="learned from the first records",
        metavar="NAME=DTYPE[SIZES],…",
        check="records.mapping:parse_map_schema",
        needs="map",
    )
    drop_near_duplicates: str = flag(
        "",
        "drop records that are at least this similar to an earlier one in the global order, such as 0.8 for "
        "texts, or 0.9 for pictures and recordings; 1 drops equal ones. They are counted, not rejected",
        unset="keep all",
        metavar="THRESHOLD",
        check=threshold_of,
    )
    keep_out: str = flag(
        "",
        "drop records that are nearly the same as one in these datasets, such as a test set; the threshold is that "
        "of --drop_near_duplicates, else 0.8 for texts and 0.9 for pictures and recordings",
        metavar="DIR,…",
    )
    overwrite: bool = flag(
        False, "replace a dataset in --output", unset="fail", everyday=True, stated=False
    )
    append: bool = flag(
        False,
        "add the records to the dataset in --output, whose options, classes and vocabulary apply, as new shards",
        unset="write a new dataset",
        everyday=True,
        stated=False,
        excludes="overwrite",
    )
    existing: Literal["error", "skip", "replace"] = flag(
        "error",
        "with --append, what to do with a record whose key the dataset has: fail, leave it out, or write it in place of "
        "the older one",
        needs="append",
        stated=False,
    )
    key_prefix: str = flag(
        "",
        "with --append, a text such as 2026-11/ before the keys of inputs that are not in the folder of the first ones",
        needs="append",
        stated=False,
    )

    def validate(self) -> None:
        super().validate()
        self.check_splits()

    def check_splits(self) -> None:
        """Raises UsageError if `--splits` is not a list of names and shares."""
        from beam_jobs.plan.placement import Splits

        if not self.split_column:
            Splits.parse(self.splits)
        elif self.given("splits") and "=" in self.splits:
            raise UsageError(
                f"--splits {self.splits}: --split_column determines the shares: give only names, such as train,val"
            )

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that determine the splits of records."""
        from beam_jobs.plan.placement import Groups

        return tuple(filter(None, (Groups.parse(self.group_by).column, self.split_column)))

    def find_splits(self, job: Job) -> Splits:
        """The splits, whose names may have to be read from the job's inputs."""
        from beam_jobs.plan.placement import Splits

        if self.folds:
            return Splits.folds(self.folds)
        if not self.split_column:
            return Splits.parse(self.splits)
        return Splits.named([name.strip() for name in self.splits.split(",")], self.split_column)

    @property
    def exact(self) -> Exact:
        """The unit of which every split gets its exact share."""
        return "records" if self.folds or self.exact_splits else ""

    def note(self, job: Job) -> str:
        """One line about these flags and the job's inputs, printed before the job; "" for none."""
        return ""

    def feature_names(self, schema: Schema) -> Mapping[str, str]:
        """Feature -> its other name in Examples; UsageError if the schema lacks it, or a name is given twice."""
        return {}

    def facts(self, splits: Splits) -> dict[str, Any]:
        """Facts about the splits that the manifest states in addition to the flags."""
        return {}

    def appended(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """The flags of an append that the manifest states."""
        names = ("existing", "key_prefix")
        own = {name: getattr(self, name) for name in names if self.given(name)}
        return {**{n: options[n] for n in ("input", "table") if n in options}, **own}

    def make_output(
        self,
        directory: str,
        job: Job,
        options: dict[str, Any],
        mapper: Mapper | None = None,
        dry_run: bool = False,
    ) -> Output:
        """The dataset that a job writes, whose manifest states the options; UsageError if the flags do not fit the job."""
        from beam_jobs.dataset.generations import begun
        from beam_jobs.dataset.output import Append, Output, parse_num_shards, parse_size
        from beam_jobs.plan.placement import Groups, Placement
        from beam_jobs.records.rejects import MaxRejects

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
            overwrite=self.overwrite,
            options=options | self.facts(splits),
            max_rejects=MaxRejects.parse(self.max_rejects),
            feature_names=self.feature_names(schema),
            mapper=mapper,
            append=Append(self.appended(options)) if self.append else None,
        )
        return begun(output, repeats=True, cleans=not dry_run) if directory else output


@dataclass(frozen=True)
class EncodedDatasetFlags(DatasetFlags):
    """The flags of a dataset whose records are encoded by the job."""

    title = "labels and names"

    stratify: bool = flag(
        False,
        "give every split its exact share of each label's records, to within one; groups of --group_by and "
        "windows of a recording or text stay together, so their shares are as close as their sizes allow",
        unset="labels do not affect the splits",
    )
    names: str = flag(
        "",
        "other names for features in the Examples, such as image=image_raw,label=labels",
        unset="the names of the job",
        metavar="FEATURE=NAME,…",
    )

    def find_splits(self, job: Job) -> Splits:
        from beam_jobs.plan.placement import Splits
        from beam_jobs.sources.tables import split_names

        if self.stratify and "label" not in job.schema:
            raise UsageError("--stratify: the records have no label: add --label")
        if self.stratify and job.schema["label"].shape:
            raise UsageError(
                "--stratify: expected one label per record, these have several: drop it"
            )
        if self.split_column and self.splits == ONE_SPLIT:
            found = split_names(job.inputs, self.split_column)
            return Splits.named(found, self.split_column)
        return super().find_splits(job)

    @property
    def exact(self) -> Exact:
        return "labels" if self.stratify else super().exact

    def feature_names(self, schema: Schema) -> Mapping[str, str]:
        from beam_jobs.dataset.output import parse_names

        return parse_names(self.names, schema) if self.names else {}
