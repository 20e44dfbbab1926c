"""From a command line to a checked command: parse, look at inputs and output, and ask Beam."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import apache_beam as beam
from apache_beam.io.filesystems import FileSystems
from apache_beam.options.pipeline_options import (
    GoogleCloudOptions,
    PipelineOptions,
    PortableOptions,
    StandardOptions,
)

from beam_jobs.cli.checks.near import near_of
from beam_jobs.cli.config import with_config
from beam_jobs.cli.flags import Parser, RunFlags
from beam_jobs.cli.parser import CommandFlags, declared_flags, parse_flags
from beam_jobs.dataset.lease import note_remote
from beam_jobs.dataset.output import Output
from beam_jobs.dataset.resume import noted_shards
from beam_jobs.engines.dataflow import on_dataflow, prepare_dataflow
from beam_jobs.engines.direct import on_this_machine, processes_of
from beam_jobs.engines.flags import engine_flags, job_name
from beam_jobs.engines.launch import NO_WAIT, ends_early
from beam_jobs.engines.remote.flink import RemoteJob
from beam_jobs.engines.remote.watch import Follow
from beam_jobs.errors import UsageError
from beam_jobs.jobs.images.pixels import compressed
from beam_jobs.jobs.mapping import mapped
from beam_jobs.jobs.protocols import RecordJob
from beam_jobs.pipeline.near.rules import NearRules
from beam_jobs.pipeline.write_records import WriteRecords
from beam_jobs.pipeline.write_references import WriteReferences
from beam_jobs.records.mapping import MAP_DIGEST, parse_map_schema
from beam_jobs.storage.atomic import list_files
from readers.format.display import unwritable


@dataclass(frozen=True)
class Check:
    """How a written dataset is checked.

    Attributes:
        fail_on: The mildest finding with which the exit code is 1.
        threshold: From which similarity records are near; empty for that of the checks.
    """

    fail_on: str
    threshold: str = ""


@dataclass(frozen=True)
class Command:
    """A checked command.

    Attributes:
        name: The job's name.
        job: Defines the records.
        output: The dataset.
        beam: Beam's own options.
        near: Which near duplicates are dropped; None if they are kept.
        check: How the dataset is checked; None if it is not.
        follow: How a job on another engine is followed; None on this machine.
        processes: Processes that load and encode, in each of the runner's workers.
        dry_run: Whether nothing is written.
        note: One line to print before the job; empty for none.
        warnings: Lines about the inputs to print before the job.
        page: The file of the report on the dataset; empty for none.
    """

    name: str
    job: RecordJob
    output: Output
    beam: PipelineOptions
    processes: int
    near: NearRules | None = None
    check: Check | None = None
    follow: Follow | None = None
    dry_run: bool = False
    note: str = ""
    warnings: tuple[str, ...] = ()
    page: str = ""

    @property
    def transform(self) -> beam.PTransform:
        """The whole pipeline."""
        files = self.job.as_file_job()
        if files:
            return WriteReferences(files, self.output, self.processes, self.near)
        return WriteRecords(self.job, self.output, self.processes, self.near)


def parse_command(arguments: Sequence[str]) -> Command:
    """The command of a command line, after a look at its inputs and output; nothing is written.

    Raises:
        UsageError: A mistake that can be seen before the pipeline runs.
    """
    flags, given = parse_flags(with_config(arguments))
    dataset = flags.dataset
    rest = [*engine_flags(dataset.engine, given), *given]
    options = _beam_options(rest, flags.name)
    if dataset.dry_run and not on_this_machine(options):
        raise UsageError("a dry run always runs on this machine: drop --engine and --runner")
    _check_early_end(dataset, options)
    if dataset.report:
        _check_report(dataset)
    dataset.validate()
    flags.job.validate()
    # A pipeline would set them later; inputs and output are looked at here.
    FileSystems.set_options(options)
    directory = dataset.directory()
    if on_dataflow(options):
        read = [path for name in ("input", "table") for path in flags.options.get(name, ())]
        prepare_dataflow(options, directory, read)
    job = flags.job.make_job(dataset.columns, directory, dataset.most_bytes)
    mapper = None
    if dataset.map:
        stated = parse_map_schema(dataset.map_schema)
        job, mapper = mapped(job, dataset.map, stated, dataset.columns, compressed)
    facts = {**job.facts, **({MAP_DIGEST: mapper.digest} if mapper else {})}
    output = dataset.make_output(directory, job, {**flags.options, **facts}, mapper)
    return Command(
        name=flags.name,
        job=job,
        output=output,
        beam=options,
        follow=None if on_this_machine(options) else _follow(flags, output, options),
        processes=processes_of(options, rest),
        near=near_of(dataset.drop_near_duplicates, dataset.keep_out, job, output.feature_names),
        check=Check(dataset.fail_on, dataset.drop_near_duplicates) if dataset.check else None,
        dry_run=dataset.dry_run,
        note=dataset.note(job),
        warnings=tuple(flags.job.warnings(job)),
        page=dataset.report,
    )


def _check_report(flags: RunFlags) -> None:
    """Refuses a report that could not be written when the job has ended."""
    if flags.dry_run:
        raise UsageError("--report: a dry run writes no dataset; drop one of the two")
    if problem := unwritable(Path(flags.report)):
        raise UsageError(f"--report {flags.report}: {problem}")


def _check_early_end(flags: RunFlags, options: PipelineOptions) -> None:
    """Refuses to look at a dataset before it is there, and to leave a job that would end with the command."""
    early = ends_early(options)
    for name in ("check", "report") if early else ():
        if getattr(flags, name):
            raise UsageError(
                f"--{name}: with {early} the command ends before the dataset is complete; drop one, and "
                f"run `python -m readers {name} DIR` when the job has ended"
            )
    portable = options.view_as(PortableOptions)
    if early == NO_WAIT and not on_dataflow(options):
        if portable.job_endpoint in (None, "", "embed"):
            raise UsageError(
                f"{NO_WAIT}: the job service that Beam starts ends with the command: add --job_endpoint "
                "HOST:PORT of one that runs"
            )
        if portable.environment_type == "LOOPBACK":
            raise UsageError(
                f"{NO_WAIT}: the workers of --environment_type LOOPBACK end with the command"
            )


def _follow(flags: CommandFlags, output: Output, options: PipelineOptions) -> Follow:
    """How a job on another engine is followed; gives it a name of its own unless it has one."""
    google = options.view_as(GoogleCloudOptions)
    google.job_name = google.job_name or job_name(flags.name, output.directory)

    def shards() -> tuple[int, int]:
        try:
            found = list_files(output.directory)
        except Exception:  # It may be about to be made, and each filesystem has its own errors.
            return 0, 0
        return noted_shards(file.path for file in found)

    def note(job: RemoteJob) -> None:
        note_remote(output, job.to_bytes())

    dataset = flags.dataset
    return Follow(dataset.engine, dataset.engine_page, output.staging, shards, note)


def _beam_options(rest: list[str], job: str) -> PipelineOptions:
    """Beam's options, made from the arguments that are not flags of the job.

    Refuses arguments that Beam does not know, which it would ignore, and flags of other jobs, some
    of which it would take for its own.
    """
    declared = declared_flags()
    for name in filter(None, map(_flag_name, rest)):
        jobs = [other for other, flags in declared.items() if name in flags]
        if jobs:
            raise UsageError(f"--{name} is for {' and '.join(jobs)}, not for {job}")
    options = PipelineOptions(rest)
    runner = options.view_as(StandardOptions).runner
    for flag in _unknown_to_beam(rest):
        close = difflib.get_close_matches(_flag_name(flag), declared[job], 1, 0.75)
        # Other runners may have flags that only their job server knows.
        if close or runner is None or "Direct" in runner or not flag.startswith("--"):
            hint = f"; did you mean --{close[0]}?" if close else ""
            if not flag.startswith("-"):
                hint = "; a pattern needs quotes, such as --input 'photos/*/*.jpg'"
            raise UsageError(f"unknown argument {flag}{hint}")
    return options


def _unknown_to_beam(arguments: list[str]) -> list[str]:
    """The arguments that are no options of Beam."""
    known = Parser(add_help=False, allow_abbrev=False)
    for kind in dict.fromkeys([PipelineOptions, *PipelineOptions.__subclasses__()]):
        if "_add_argparse_args" in vars(kind):
            kind._add_argparse_args(known)
    _, unknown = known.parse_known_args(arguments)
    return unknown


def _flag_name(argument: str) -> str:
    """The name of a flag; empty for a value."""
    return argument.split("=", 1)[0].removeprefix("--") if argument.startswith("--") else ""
