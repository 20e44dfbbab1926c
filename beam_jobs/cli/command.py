"""Makes a checked command of flags: asks Beam, and looks at inputs and output."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import apache_beam as beam
from apache_beam.io.filesystems import FileSystems
from apache_beam.options.pipeline_options import (
    PipelineOptions,
    PortableOptions,
)

from beam_jobs.changes.command import Parser
from beam_jobs.cli.dataset import DatasetFlags, bytes_of, threshold_of
from beam_jobs.cli.flags import names_in
from beam_jobs.cli.parser import CommandFlags
from beam_jobs.dataset.output import Output, resolve
from beam_jobs.engines.dataflow import on_dataflow, prepare_dataflow
from beam_jobs.engines.direct import on_this_machine, processes_of
from beam_jobs.engines.flags import engine_flags
from beam_jobs.engines.launch import NO_WAIT, ends_early
from beam_jobs.errors import UsageError
from beam_jobs.jobs.append import appended_job
from beam_jobs.jobs.images.pixels import compressed
from beam_jobs.jobs.job import Job, file_job
from beam_jobs.jobs.mapping import mapped
from beam_jobs.jobs.near import Compared, Near, compared_of
from beam_jobs.jobs.reshard.reshard_job import reshard_job
from beam_jobs.pipeline.planning.records import PlanRecords
from beam_jobs.pipeline.write_records import WriteRecords
from beam_jobs.pipeline.write_references import WriteReferences
from beam_jobs.plan.equality import Equality
from beam_jobs.records.mapping import MAP_DIGEST, parse_map_schema
from beam_jobs.sources.inputs import Inputs
from readers.format.similarity.likeness import DEFAULTS, Likeness

_KEY = "key"


@dataclass(frozen=True)
class Command:
    """A checked command.

    Attributes:
        beam: Beam's own options.
        processes: The number of processes that load and encode in each of the runner's workers.
        drops: The duplicates to drop, one entry for each search.
    """

    flags: CommandFlags
    job: Job
    output: Output
    beam: PipelineOptions
    processes: int
    drops: tuple[Near, ...] = ()

    @property
    def transform(self) -> beam.PTransform:
        """The whole pipeline."""
        files = file_job(self.job)
        return WriteReferences(files, self.planned()) if files else WriteRecords(self.planned())

    def planned(self, dry_run: bool = False) -> PlanRecords:
        """The first half of the pipeline."""
        return PlanRecords(self.job, self.output, self.processes, self.drops, dry_run)


def command_of(flags: CommandFlags) -> Command:
    """Makes the command of valid flags; UsageError if they do not fit the inputs, the output or the engine."""
    dataset, run = flags.dataset, flags.run
    rest = (*engine_flags(run.engine, flags.beam), *flags.beam)
    options = _beam_options(rest)
    if run.dry_run and not on_this_machine(options):
        raise UsageError("a dry run always runs on this machine: drop --engine or --runner")
    _check_early_end(options)
    # A pipeline would set them later; inputs and output are looked at here.
    FileSystems.set_options(options)
    directory = "" if dataset.output is None else resolve(dataset.output)
    if on_dataflow(options):
        read = [path for name in ("input", "table") for path in flags.options.get(name, ())]
        prepare_dataflow(options, directory, read)
    job = flags.job.make_job(dataset.columns, directory, bytes_of(dataset.max_record_bytes))
    if dataset.append:
        job = appended_job(job, directory, dataset.key_prefix)
    mapper = None
    if dataset.map:
        stated = parse_map_schema(dataset.map_schema)
        job, mapper = mapped(job, dataset.map, stated, dataset.columns, compressed)
    facts = {**job.facts, **({MAP_DIGEST: mapper.digest} if mapper else {})}
    output = dataset.make_output(directory, job, {**flags.options, **facts}, mapper, run.dry_run)
    return Command(
        flags=flags,
        job=job,
        output=output,
        beam=options,
        processes=processes_of(options, rest),
        drops=_drops(flags, job, output),
    )


def _living(dataset: DatasetFlags, directory: str) -> list[str]:
    """The dataset with which the records of an append are compared, too."""
    if not (dataset.append and dataset.drop_near_duplicates):
        return []
    if dataset.existing == "replace":
        raise UsageError(
            "--existing replace: with --drop_near_duplicates, a record would be near the one that it replaces: delete "
            "those keys first"
        )
    return [directory]


def _check_early_end(options: PipelineOptions) -> None:
    """Raises UsageError if the end of the command would end its job."""
    early = ends_early(options)
    portable = options.view_as(PortableOptions)
    if early == NO_WAIT and not on_dataflow(options):
        if portable.job_endpoint in (None, "", "embed"):
            raise UsageError(
                f"{NO_WAIT}: Beam's job service ends with the command: add --job_endpoint HOST:PORT of a job "
                "service that is running"
            )
        if portable.environment_type == "LOOPBACK":
            raise UsageError(
                f"{NO_WAIT}: the workers of --environment_type LOOPBACK end with the command: drop one of the two"
            )


def _beam_options(arguments: Sequence[str]) -> PipelineOptions:
    """Parses Beam's options; raises UsageError for an invalid value, where Beam would exit."""
    parser = Parser("beam-shards", add_help=False, allow_abbrev=False)
    for kind in dict.fromkeys([PipelineOptions, *PipelineOptions.__subclasses__()]):
        if "_add_argparse_args" in vars(kind):
            kind._add_argparse_args(parser)
    parser.parse_known_args(arguments)
    return PipelineOptions(list(arguments))


def _drops(flags: CommandFlags, job: Job, output: Output) -> tuple[Near, ...]:
    """The duplicates to drop: equal texts, and those of `--drop_near_duplicates` and `--keep_out`."""
    threshold = flags.dataset.drop_near_duplicates
    keep_out = [*names_in(flags.dataset.keep_out), *_living(flags.dataset, output.directory)]
    drops = []
    if flags.job.given("drop_duplicates"):
        drops.append(Near(Equality(), job.compared))
    if threshold or keep_out:
        compared = job.compared
        value = threshold_of(threshold) if threshold else DEFAULTS[compared.kind]
        try:
            likeness = Likeness(compared.kind, value, len(compared.features))
        except ValueError as error:
            raise UsageError(f"--drop_near_duplicates {error}") from None
        names = output.feature_names
        others = tuple(_kept_out(place, likeness, compared, names) for place in keep_out)
        drops.append(Near(likeness, compared, bool(threshold), keep_out=others))
    return tuple(drops)


def _kept_out(
    directory: str, likeness: Likeness, compared: Compared, feature_names: Mapping[str, str]
) -> tuple[Job, Near]:
    """A dataset whose records are kept out, and the rules by which they are compared."""
    try:
        job = reshard_job(Inputs.of([directory]), "", (), ())
        if job.given is None or job.splits.lone:
            raise UsageError(job.splits.lone or "it has no manifest.json")
    except UsageError as error:
        raise UsageError(f"--keep_out {directory}: no dataset: {error}") from None
    schema = {name: feature for name, feature in job.given.items() if name != _KEY}
    names = [feature_names.get(name, name) for name in compared.features]
    for features in ({name: schema[name] for name in names if name in schema}, schema):
        with contextlib.suppress(UsageError):
            theirs = compared_of(features, tuple(job.class_names))
            if theirs.kind == compared.kind and len(theirs.features) == len(names):
                near = Near(likeness, theirs, kept_out=f"{directory}: ")
                return job.without_tokenizer(), near
    raise UsageError(
        f"--keep_out {directory}: its records have {', '.join(schema)}, expected a {compared.kind} in "
        f"{', '.join(names)}"
    )
