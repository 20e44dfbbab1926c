"""The command line of the jobs: what its flags mean together, and what is left to Beam."""

from __future__ import annotations

import argparse
import difflib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions, StandardOptions

from beam_jobs import images, text
from beam_jobs.archives import archive_kind
from beam_jobs.assign import Placement, Splits, check_seed, parse_size
from beam_jobs.beside import Beside
from beam_jobs.columns import ExtraFeature, parse_extra_features
from beam_jobs.conditioning import Conditioning
from beam_jobs.direct import on_this_machine, processes_of
from beam_jobs.errors import UsageError
from beam_jobs.files import absolute_path
from beam_jobs.flags import Parser, build_parser
from beam_jobs.groups import Groups
from beam_jobs.images import ImageJob
from beam_jobs.inputs import Inputs
from beam_jobs.joined import JoinedInputs
from beam_jobs.labels import Labels
from beam_jobs.output import Output, check_output, parse_names, parse_num_shards, resolve
from beam_jobs.parts import WriteParts
from beam_jobs.recordings import Reading
from beam_jobs.references import WriteFiles
from beam_jobs.reshard import UNKNOWN, ReshardJob, reshard_job
from beam_jobs.sensors import SensorJob
from beam_jobs.subwords import Subwords, check_vocabulary_size
from beam_jobs.table_inputs import TableInputs, first_value, split_names, tables_of
from beam_jobs.text import TextJob
from readers.format.schema import Schema

AnyJob = ImageJob | TextJob | SensorJob | ReshardJob

# Flags that say where and how, not what: a dataset is the same whatever they are.
_NOT_OF_THE_DATASET = ("job", "output", "overwrite", "dry_run")


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
    def in_parts(self) -> bool:
        """Whether a file may hold several records, or can only be read together with others."""
        if _cuts(self.job):
            return True
        return isinstance(self.job, TextJob | ReshardJob) or self.job.inputs.packed

    @property
    def transform(self) -> beam.PTransform:
        """The whole pipeline."""
        kind: Any = WriteParts if self.in_parts else WriteFiles
        return kind(self.job, self.output, self.processes)


def _cuts(job: AnyJob) -> bool:
    """Whether a recording gives several records."""
    return isinstance(job, SensorJob) and job.conditioning.cuts


def parse_command(arguments: Sequence[str]) -> Command:
    """The job that a command line asks for; inputs and output are looked at, nothing is written.

    Raises:
        UsageError: Anything is wrong that can be known before the pipeline runs.
    """
    parser = build_parser()
    flags, rest = parser.parse_known_args(arguments)
    beam_options = _beam_options(rest, vars(flags))
    output = _output(flags)
    if flags.dry_run and not on_this_machine(beam_options):
        raise UsageError("a dry run is made on this machine: drop --runner")
    check_seed(flags.seed)
    if flags.job == "reshard":
        return _reshard(flags, output, beam_options, processes_of(beam_options, rest))
    _check_inputs(flags)
    groups = Groups.parse(flags.group_by)
    extras = parse_extra_features(flags.extra_features) if flags.extra_features else ()
    job = _job(flags, groups, extras, output)
    splits = _splits(flags, job)
    _check_stratify(flags, job, splits)
    dataset = replace(
        _dataset(flags, output, job.schema, splits, groups),
        stored=parse_names(flags.names, job.schema) if flags.names else {},
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


def _reshard(
    flags: argparse.Namespace, output: str, beam_options: PipelineOptions, processes: int
) -> Command:
    """The job that makes a dataset of anybody's TFRecord files."""
    if not flags.input:
        raise UsageError("--input is missing: name TFRecord files or a folder")
    if flags.split_column and (flags.group_by or "=" in flags.splits):
        raise UsageError(
            f"--split_column {flags.split_column}: the feature decides the splits: name them alone, "
            "such as --splits train,val, and drop --group_by"
        )
    if flags.keep and flags.drop:
        raise UsageError("--keep and --drop both say which features stay: give one of them")
    job = reshard_job(
        Inputs.of(flags.input, output), flags.schema, _names(flags.keep), _names(flags.drop)
    )
    splits = _named_splits(flags) if flags.split_column else Splits.parse(flags.splits)
    dataset = _dataset(flags, output, UNKNOWN, splits, Groups.parse(flags.group_by))
    return Command(flags.job, job, dataset, beam_options, processes, flags.dry_run)


def _output(flags: argparse.Namespace) -> str:
    """The directory of the dataset; empty for a dry run without one."""
    if flags.output is None:
        if flags.dry_run:
            return ""
        raise UsageError("--output is missing: name a new or empty directory; see --help")
    output = resolve(flags.output)
    check_output(output, flags.overwrite)
    return output


def _check_inputs(flags: argparse.Namespace) -> None:
    if not flags.table:
        if not flags.input:
            raise UsageError("--input is missing: name files or a folder; or name a --table")
        for flag, default in (("path_column", ""), ("key", "path")):
            value = getattr(flags, flag)
            if value != default:
                raise UsageError(f"--{flag} {value}: it is for the rows of a --table, add one")
    elif len(flags.input) > 1:
        raise UsageError(
            f"--input {' '.join(flags.input)}: with --table it is the one folder below which all "
            "paths lie"
        )


def _columns(
    flags: argparse.Namespace, groups: Groups, extras: Sequence[ExtraFeature]
) -> tuple[str, ...]:
    """The columns that are asked for beside the label and the path, each once."""
    wanted = [groups.column, flags.split_column, *(extra.name for extra in extras)]
    if flags.job == "images":
        wanted += Beside.parse("", "", flags.captions, "").columns
    return tuple(dict.fromkeys(filter(None, wanted)))


def _inputs(flags: argparse.Namespace, columns: tuple[str, ...], output: str) -> Inputs:
    if flags.table:
        if getattr(flags, "join", ""):
            raise UsageError("--join finds files by their names, --table by its rows: drop one")
        root = flags.input[0] if flags.input else ""
        return TableInputs.of_tables(
            flags.table, root, flags.path_column, columns, flags.key, output
        )
    inputs = Inputs.of(flags.input, output, samples=True, columns=columns)
    if columns and not any(
        archive_kind(pattern) or pattern.endswith("*") for pattern in inputs.patterns
    ):
        raise UsageError(
            f"column {columns[0]!r}: files have no columns; name them in a --table, or read archives "
            "with a .json beside each member"
        )
    if getattr(flags, "join", ""):
        return JoinedInputs(inputs.patterns, inputs.root, output, join=flags.join)
    return inputs


def _job(
    flags: argparse.Namespace, groups: Groups, extras: tuple[ExtraFeature, ...], output: str
) -> ImageJob | TextJob | SensorJob:
    labels = Labels.parse(flags.label)
    columns = _columns(flags, groups, extras)
    if flags.job == "text":
        return _text_job(flags, labels, extras, columns, output)
    inputs = _inputs(flags, tuple(dict.fromkeys((*labels.columns, *columns))), output)
    if labels.columns:
        several = isinstance(first_value(inputs, labels.table), list)
        labels = replace(labels, several=several)
    if flags.job == "images":
        return _image_job(flags, inputs, labels, extras)
    return _sensor_job(flags, inputs, labels, extras)


def _image_job(
    flags: argparse.Namespace, inputs: Inputs, labels: Labels, extras: tuple[ExtraFeature, ...]
) -> ImageJob:
    size = images.parse_image_size(flags.image_size)
    beside = Beside.parse(flags.boxes, flags.class_names, flags.captions, flags.masks)
    inputs = replace(inputs, skips=beside.says)
    beside.check(inputs)
    return ImageJob(
        inputs, labels, size, flags.resize, flags.channels, flags.encoding, extras, beside
    )


def _sensor_job(
    flags: argparse.Namespace, inputs: Inputs, labels: Labels, extras: tuple[ExtraFeature, ...]
) -> SensorJob:
    if flags.time_column and not flags.resample:
        raise UsageError(
            f"--time_column {flags.time_column}: it says when samples were taken: add --resample, "
            "or leave it out to keep the times as a channel"
        )
    if flags.time_unit != "s" and not flags.time_column:
        raise UsageError(f"--time_unit {flags.time_unit}: add the --time_column that it is for")
    if flags.sequence and flags.encoding != "tensor":
        raise UsageError(
            f"--encoding {flags.encoding}: --sequence stores arrays as tensors, drop one"
        )
    reading = Reading(
        _names(flags.arrays),
        _names(flags.columns),
        flags.time_column,
        flags.time_unit,
        flags.dtype.startswith("float"),
    )
    conditioning = Conditioning.parse(
        flags.nan,
        flags.rate,
        flags.resample,
        flags.max_gap,
        flags.window,
        flags.stride,
        flags.spectrogram,
        flags.sequence,
    )
    return SensorJob(
        inputs,
        labels,
        reading=reading,
        dtype=flags.dtype,
        encoding=flags.encoding,
        extras=extras,
        conditioning=conditioning,
    ).learned()


def _names(text: str) -> tuple[str, ...]:
    return tuple(filter(None, text.split(",")))


def _text_job(
    flags: argparse.Namespace,
    labels: Labels,
    extras: tuple[ExtraFeature, ...],
    columns: tuple[str, ...],
    output: str,
) -> TextJob:
    if flags.max_length < 0:
        raise UsageError(f"--max_length {flags.max_length}: expected a number of tokens")
    window, stride = _text_window(flags)
    tokens, tokenizer = flags.tokens, ""
    if tokens not in text.TOKENS:
        if not tokens.endswith(".json"):
            raise UsageError(
                f"--tokens {tokens}: expected none, words, bytes, bpe or a tokenizer's FILE.json"
            )
        tokens, tokenizer = "file", Subwords.read(absolute_path(tokens), flags.max_length).json
    if tokens == "bpe":
        check_vocabulary_size(flags.vocabulary_size)
    elif flags.vocabulary_size < 3:
        raise UsageError(f"--vocabulary_size {flags.vocabulary_size}: expected at least 3")
    label_field = flags.label_field
    if flags.table and flags.path_column:
        wanted = tuple(dict.fromkeys((*labels.columns, *columns)))
        inputs: Inputs = _inputs(flags, wanted, output)
        if labels.columns:
            several = isinstance(first_value(inputs, labels.table), list)
            labels = replace(labels, several=several)
    else:
        if flags.table and flags.input:
            raise UsageError(
                "--table has the texts, or names their files by --path_column: drop --input"
            )
        if flags.key != "path":
            raise UsageError(f"--key {flags.key}: texts of a table are named by its path and row")
        for table in flags.table:
            tables_of(table)
        inputs = Inputs.of(flags.table or flags.input, output)
        if labels.columns and not label_field:
            labels, label_field = Labels(), labels.table
    job = TextJob(
        inputs,
        labels,
        flags.record,
        flags.text_field,
        label_field,
        tokens,
        flags.vocabulary_size,
        flags.max_length,
        extras=extras,
        columns=columns,
        tokenizer=tokenizer,
        window=window,
        stride=stride,
        drop_duplicates=flags.drop_duplicates,
    )
    return replace(job, several_labels=text.has_several_labels(job))


def _text_window(flags: argparse.Namespace) -> tuple[int, int]:
    window, stride = flags.window, flags.stride or flags.window
    if flags.stride and not window:
        raise UsageError(f"--stride {stride}: it says where windows begin: add --window")
    if window < 0 or not 0 <= stride <= window:
        raise UsageError(
            f"--window {window} --stride {stride}: expected tokens, and a stride of at most the window"
        )
    return window, stride


def _splits(flags: argparse.Namespace, job: ImageJob | TextJob | SensorJob) -> Splits:
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


def _check_stratify(
    flags: argparse.Namespace, job: ImageJob | TextJob | SensorJob, splits: Splits
) -> None:
    if not flags.stratify:
        return
    reason = ""
    if flags.group_by:
        reason = "--group_by keeps records together, so that no share can be exact: drop one"
    elif job.window if isinstance(job, TextJob) else _cuts(job):
        reason = "windows stay together with their recording or text, so that no share can be exact"
    elif "label" not in job.schema:
        reason = "the records have no label: add --label"
    elif job.schema["label"].shape:
        reason = "records of several labels belong to several shares"
    elif len(splits.names) == 1:
        reason = "there is one split: add --splits train=0.8,val=0.2"
    if reason:
        raise UsageError(f"--stratify: {reason}")


def _beam_options(rest: list[str], ours: dict[str, object]) -> PipelineOptions:
    """Beam's options; a flag that nobody knows is refused instead of being passed over."""
    known = Parser(add_help=False, allow_abbrev=False)
    for kind in dict.fromkeys([PipelineOptions, *PipelineOptions.__subclasses__()]):
        if "_add_argparse_args" in vars(kind):
            kind._add_argparse_args(known)
    _, unknown = known.parse_known_args(rest)
    options = PipelineOptions(rest)
    runner = options.view_as(StandardOptions).runner
    for flag in unknown:
        name = flag.split("=", 1)[0].lstrip("-")
        close = difflib.get_close_matches(name, ours, 1, 0.75)
        # Other runners may know flags that only their job server tells.
        if close or runner is None or "Direct" in runner or not flag.startswith("--"):
            hint = f"; did you mean --{close[0]}?" if close else ""
            raise UsageError(f"unknown argument {flag}{hint}")
    return options
