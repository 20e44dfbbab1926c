"""The command line of the jobs: what its flags mean together, and what is left to Beam."""

from __future__ import annotations

import argparse
import difflib
from collections.abc import Sequence
from dataclasses import dataclass, replace

import apache_beam as beam
from apache_beam.io.filesystems import FileSystems
from apache_beam.options.pipeline_options import PipelineOptions, StandardOptions

from beam_jobs.cli.flags import Parser, build_parser, flags_by_job
from beam_jobs.cli.jobs import AnyJob, EncodingJob, encoding_job, resharding_job
from beam_jobs.dataset.directory import check_output
from beam_jobs.dataset.output import Output, parse_names, parse_num_shards, parse_size, resolve
from beam_jobs.engines.direct import on_this_machine, processes_of
from beam_jobs.engines.flags import engine_flags
from beam_jobs.errors import UsageError
from beam_jobs.jobs.reshard.job import UNKNOWN
from beam_jobs.pipeline.write_records import WriteRecords
from beam_jobs.pipeline.write_references import WriteReferences
from beam_jobs.plan.groups import Groups
from beam_jobs.plan.placement import Placement, Splits, check_seed
from beam_jobs.sources.table_inputs import split_names
from readers.format.schema import Schema

# Flags that say where and how, not what: a dataset is the same whatever they are.
_NOT_OF_THE_DATASET = ("job", "output", "overwrite", "dry_run", "engine")


@dataclass(frozen=True)
class Command:
    """A checked command line.

    Attributes:
        name: Of the job.
        job: What a record is.
        output: The dataset.
        beam: Beam's own options.
        processes: That load and encode, in each of the runner's workers.
        dry_run: Whether nothing is to be written.
    """

    name: str
    job: AnyJob
    output: Output
    beam: PipelineOptions
    processes: int
    dry_run: bool = False

    @property
    def transform(self) -> beam.PTransform:
        """The whole pipeline."""
        files = self.job.as_file_job()
        if files:
            return WriteReferences(files, self.output, self.processes)
        return WriteRecords(self.job, self.output, self.processes)


def parse_command(arguments: Sequence[str]) -> Command:
    """The job that a command line asks for; inputs and output are looked at, nothing is written.

    Raises:
        UsageError: Anything is wrong that can be known before the pipeline runs.
    """
    flags, given = build_parser().parse_known_args(arguments)
    rest = [*engine_flags(flags.engine, given), *given]
    beam_options = _beam_options(rest, flags)
    # Before a pipeline tells them: inputs and output are looked at here.
    FileSystems.set_options(beam_options)
    output = _output(flags)
    if flags.dry_run and not on_this_machine(beam_options):
        raise UsageError("a dry run is made on this machine: drop --engine and --runner")
    check_seed(flags.seed)
    groups = Groups.parse(flags.group_by)
    if flags.job == "reshard":
        job: AnyJob = resharding_job(flags, output)
        splits = _named_splits(flags) if flags.split_column else Splits.parse(flags.splits)
        dataset = _dataset(flags, output, UNKNOWN, splits, groups)
    else:
        job = encoding_job(flags, groups, output)
        splits = _splits(flags, job)
        _check_stratify(flags, job, splits)
        dataset = replace(
            _dataset(flags, output, job.schema, splits, groups),
            feature_names=parse_names(flags.names, job.schema) if flags.names else {},
            stratify=flags.stratify,
        )
    processes = processes_of(beam_options, rest)
    return Command(flags.job, job, dataset, beam_options, processes, flags.dry_run)


def _dataset(
    flags: argparse.Namespace, output: str, schema: Schema, splits: Splits, groups: Groups
) -> Output:
    """The dataset that the flags of every job ask for."""
    return Output(
        directory=output,
        schema=schema,
        placement=Placement(flags.seed, splits, groups, flags.split_column),
        num_shards=(
            parse_num_shards(flags.num_shards, splits.names)
            if flags.num_shards
            else (0,) * len(splits.names)
        ),
        shard_size=parse_size(flags.shard_size),
        on_reject=flags.on_reject,
        overwrite=flags.overwrite,
        balance=flags.balance,
        options={
            "job": flags.job,
            **{k: v for k, v in sorted(vars(flags).items()) if k not in _NOT_OF_THE_DATASET},
        },
    )


def _output(flags: argparse.Namespace) -> str:
    """The directory of the dataset; empty for a dry run without one."""
    if flags.output is None:
        if flags.dry_run:
            return ""
        raise UsageError("--output is missing: name a new or empty directory; see --help")
    output = resolve(flags.output)
    check_output(output, flags.overwrite)
    return output


def _splits(flags: argparse.Namespace, job: EncodingJob) -> Splits:
    if not flags.split_column:
        return Splits.parse(flags.splits)
    if flags.group_by or flags.stratify:
        other = "--group_by" if flags.group_by else "--stratify"
        raise UsageError(
            f"--split_column {flags.split_column}: the column decides the splits, {other} would "
            "draw them: drop one"
        )
    if flags.splits == "train=1":
        found = split_names(job.inputs.patterns, flags.split_column)
        return Splits.named(found, flags.split_column)
    if "=" in flags.splits:
        raise UsageError(
            f"--splits {flags.splits}: with --split_column the column decides, give names alone such "
            "as train,val,test"
        )
    return _named_splits(flags)


def _named_splits(flags: argparse.Namespace) -> Splits:
    return Splits.named([name.strip() for name in flags.splits.split(",")], flags.split_column)


def _check_stratify(flags: argparse.Namespace, job: EncodingJob, splits: Splits) -> None:
    if not flags.stratify:
        return
    reason = ""
    if flags.group_by:
        reason = "--group_by keeps records together, so that no share can be exact: drop one"
    elif job.has_windows:
        reason = "windows stay together with their recording or text, so that no share can be exact"
    elif "label" not in job.schema:
        reason = "the records have no label: add --label"
    elif job.schema["label"].shape:
        reason = "records of several labels belong to several shares"
    elif len(splits.names) == 1:
        reason = "there is one split: add --splits train=0.8,val=0.2"
    if reason:
        raise UsageError(f"--stratify: {reason}")


def _beam_options(rest: list[str], ours: argparse.Namespace) -> PipelineOptions:
    """Beam's options; a flag that nobody knows is refused instead of being passed over.

    So is one of another job, some of which Beam would take for its own.
    """
    names = [name for name in map(_flag_name, rest) if name]
    for name in names:
        jobs = [job for job, flags in flags_by_job().items() if name in flags]
        if jobs:
            raise UsageError(f"--{name} is for {' and '.join(jobs)}, not for {ours.job}")
    known = Parser(add_help=False, allow_abbrev=False)
    for kind in dict.fromkeys([PipelineOptions, *PipelineOptions.__subclasses__()]):
        if "_add_argparse_args" in vars(kind):
            kind._add_argparse_args(known)
    _, unknown = known.parse_known_args(rest)
    options = PipelineOptions(rest)
    runner = options.view_as(StandardOptions).runner
    for flag in unknown:
        close = difflib.get_close_matches(_flag_name(flag), vars(ours), 1, 0.75)
        # Other runners may know flags that only their job server tells.
        if close or runner is None or "Direct" in runner or not flag.startswith("--"):
            hint = f"; did you mean --{close[0]}?" if close else ""
            if not flag.startswith("-"):
                hint = "; a pattern needs quotes, such as --input 'photos/*/*.jpg'"
            raise UsageError(f"unknown argument {flag}{hint}")
    return options


def _flag_name(argument: str) -> str:
    """The name of a flag; empty for what is none."""
    return argument.split("=", 1)[0].removeprefix("--") if argument.startswith("--") else ""
