"""From a command line to a checked command: parse, look at inputs and output, and ask Beam."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass

import apache_beam as beam
from apache_beam.io.filesystems import FileSystems
from apache_beam.options.pipeline_options import PipelineOptions, StandardOptions

from beam_jobs.cli.config import with_config
from beam_jobs.cli.flags import Parser
from beam_jobs.cli.parser import declared_flags, parse_flags
from beam_jobs.dataset.output import Output
from beam_jobs.engines.direct import on_this_machine, processes_of
from beam_jobs.engines.flags import engine_flags
from beam_jobs.errors import UsageError
from beam_jobs.jobs.protocols import RecordJob
from beam_jobs.pipeline.write_records import WriteRecords
from beam_jobs.pipeline.write_references import WriteReferences


@dataclass(frozen=True)
class Command:
    """A checked command.

    Attributes:
        name: The job's name.
        job: Defines the records.
        output: The dataset.
        beam: Beam's own options.
        processes: Processes that load and encode, in each of the runner's workers.
        dry_run: Whether nothing is written.
        note: One line to print before the job; empty for none.
        warnings: Lines about the inputs to print before the job.
    """

    name: str
    job: RecordJob
    output: Output
    beam: PipelineOptions
    processes: int
    dry_run: bool = False
    note: str = ""
    warnings: tuple[str, ...] = ()

    @property
    def transform(self) -> beam.PTransform:
        """The whole pipeline."""
        files = self.job.as_file_job()
        if files:
            return WriteReferences(files, self.output, self.processes)
        return WriteRecords(self.job, self.output, self.processes)


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
    dataset.check()
    flags.job.check()
    # A pipeline would set them later; inputs and output are looked at here.
    FileSystems.set_options(options)
    directory = dataset.directory()
    job = flags.job.make_job(dataset.columns, directory)
    return Command(
        name=flags.name,
        job=job,
        output=dataset.make_output(directory, job, flags.options),
        beam=options,
        processes=processes_of(options, rest),
        dry_run=dataset.dry_run,
        note=dataset.note(job),
        warnings=tuple(flags.job.warnings(job)),
    )


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
    known = Parser(add_help=False, allow_abbrev=False)
    for kind in dict.fromkeys([PipelineOptions, *PipelineOptions.__subclasses__()]):
        if "_add_argparse_args" in vars(kind):
            kind._add_argparse_args(known)
    _, unknown = known.parse_known_args(rest)
    options = PipelineOptions(rest)
    runner = options.view_as(StandardOptions).runner
    for flag in unknown:
        close = difflib.get_close_matches(_flag_name(flag), declared[job], 1, 0.75)
        # Other runners may have flags that only their job server knows.
        if close or runner is None or "Direct" in runner or not flag.startswith("--"):
            hint = f"; did you mean --{close[0]}?" if close else ""
            if not flag.startswith("-"):
                hint = "; a pattern needs quotes, such as --input 'photos/*/*.jpg'"
            raise UsageError(f"unknown argument {flag}{hint}")
    return options


def _flag_name(argument: str) -> str:
    """The name of a flag; empty for a value."""
    return argument.split("=", 1)[0].removeprefix("--") if argument.startswith("--") else ""
