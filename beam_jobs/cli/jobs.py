"""What the flags of each job ask for: what its records are, and where they lie."""

from __future__ import annotations

import argparse
import functools
import itertools
from collections.abc import Sequence
from dataclasses import replace

from beam_jobs.errors import UsageError
from beam_jobs.jobs.images import job as images
from beam_jobs.jobs.images.annotations import Beside
from beam_jobs.jobs.images.job import ImageJob
from beam_jobs.jobs.reshard.job import ReshardJob, reshard_job
from beam_jobs.jobs.sensors.conditioning import Conditioning
from beam_jobs.jobs.sensors.job import SensorJob
from beam_jobs.jobs.sensors.recording import Reading
from beam_jobs.jobs.text import job as text
from beam_jobs.jobs.text.job import TextJob
from beam_jobs.jobs.text.subwords import Subwords, check_vocabulary_size
from beam_jobs.plan.groups import Groups
from beam_jobs.sources.archives.archive import archive_kind
from beam_jobs.sources.extra_features import ExtraFeature, parse_extra_features
from beam_jobs.sources.inputs import Inputs
from beam_jobs.sources.joined_inputs import JoinedInputs
from beam_jobs.sources.labels import Labels
from beam_jobs.sources.table_inputs import TableInputs, first_value, tables_of
from beam_jobs.storage.paths import absolute_path

# Jobs whose records are made of raw inputs.
EncodingJob = ImageJob | TextJob | SensorJob

AnyJob = EncodingJob | ReshardJob

# Files that are looked at for one that has columns.
_TRIED = 100


def encoding_job(flags: argparse.Namespace, groups: Groups, output: str) -> EncodingJob:
    """The job that makes records of pictures, texts or recordings.

    Args:
        flags: As `flags.build_parser` has them.
        groups: Of `--group_by`.
        output: The directory, no file below which is an input.

    Raises:
        UsageError: Flags contradict each other, or the inputs.
    """
    _check_inputs(flags)
    labels = Labels.parse(flags.label)
    extras = parse_extra_features(flags.extra_features) if flags.extra_features else ()
    columns = _columns(flags, groups, extras)
    if flags.job == "text":
        return _text_job(flags, labels, extras, columns, output)
    inputs, labels = _labelled_inputs(flags, labels, columns, output)
    if flags.job == "images":
        return _image_job(flags, inputs, labels, extras)
    return _sensor_job(flags, inputs, labels, extras)


def resharding_job(flags: argparse.Namespace, output: str) -> ReshardJob:
    """The job that makes a dataset of anybody's TFRecord files.

    Raises:
        UsageError: As `encoding_job`.
    """
    if not flags.input:
        raise UsageError("--input is missing: name TFRecord files or a folder")
    if flags.split_column and (flags.group_by or "=" in flags.splits):
        raise UsageError(
            f"--split_column {flags.split_column}: the feature decides the splits: name them alone, "
            "such as --splits train,val, and drop --group_by"
        )
    if flags.keep and flags.drop:
        raise UsageError("--keep and --drop both say which features stay: give one of them")
    inputs = Inputs.of(flags.input, output)
    return reshard_job(inputs, flags.schema, _names(flags.keep), _names(flags.drop))


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


def _labelled_inputs(
    flags: argparse.Namespace, labels: Labels, columns: tuple[str, ...], output: str
) -> tuple[Inputs, Labels]:
    """The files of a job with the columns that are asked for, and whether they have several labels."""
    wanted = tuple(dict.fromkeys((*labels.columns, *columns)))
    inputs = _inputs(flags, wanted, output)
    if not labels.columns:
        return inputs, labels
    several = isinstance(first_value(inputs, labels.table), list)
    return inputs, replace(labels, several=several)


def _image_job(
    flags: argparse.Namespace, inputs: Inputs, labels: Labels, extras: tuple[ExtraFeature, ...]
) -> ImageJob:
    size = images.parse_image_size(flags.image_size)
    if flags.resize != "stretch" and not size:
        raise UsageError(f"--resize {flags.resize}: add the --image_size to resize to")
    beside = Beside.parse(flags.boxes, flags.class_names, flags.captions, flags.masks)
    inputs = replace(inputs, skips=functools.partial(beside.says, root=inputs.root))
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
    for flag in ("arrays", "columns"):
        names = _names(getattr(flags, flag))
        if len(set(names)) < len(names):
            raise UsageError(f"--{flag} {getattr(flags, flag)}: a name stands there twice")
    if flags.columns and not _has_columns(inputs):
        raise UsageError(
            f"--columns {flags.columns}: none of the first files is a .csv or a .parquet: drop it"
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


def _has_columns(inputs: Inputs) -> bool:
    first = itertools.chain.from_iterable(inputs.first(p, _TRIED) for p in inputs.patterns)
    return any(
        name.lower().endswith((".csv", ".parquet"))
        for source, _ in first
        for name in (source.file, *(path for _, path, _, _ in source.joined))
    )


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
    elif flags.vocabulary_size != TextJob.vocabulary_size and tokens != "words":
        raise UsageError(
            f"--vocabulary_size {flags.vocabulary_size}: it is for --tokens words or bpe, which are "
            "learned: drop it, or choose one of these"
        )
    label_field = flags.label_field
    if flags.table and flags.path_column:
        inputs, labels = _labelled_inputs(flags, labels, columns, output)
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
        _check_fields(inputs, [*filter(None, [label_field]), *columns])
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


def _check_fields(inputs: Inputs, fields: list[str]) -> None:
    """Makes sure that some file can have fields, if any is asked for.

    Raises:
        UsageError: The first ones are plain texts.
    """
    if not fields:
        return
    for pattern in inputs.patterns:
        for file in itertools.islice(inputs.files(pattern, _TRIED), _TRIED):
            if not file.path.lower().endswith((".txt", ".txt.gz")):
                return
    raise UsageError(
        f"field {fields[0]!r}: .txt files have no fields; use .jsonl or a table, or name the files in "
        "a --table with its --path_column"
    )


def _text_window(flags: argparse.Namespace) -> tuple[int, int]:
    window, stride = flags.window, flags.stride or flags.window
    if flags.stride and not window:
        raise UsageError(f"--stride {stride}: it says where windows begin: add --window")
    if window < 0:
        raise UsageError(f"--window {window}: expected a number of tokens")
    if not 0 <= stride <= window:
        raise UsageError(f"--stride {stride}: expected tokens, at most those of --window {window}")
    return window, stride
