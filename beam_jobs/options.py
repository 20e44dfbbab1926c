"""The command line of the jobs: their flags, what they mean together, and what is left to Beam."""

from __future__ import annotations

import argparse
import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NoReturn

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions, StandardOptions

from beam_jobs import images, sensors, text
from beam_jobs.assign import Placement, Splits, check_seed, parse_size
from beam_jobs.direct import processes_of
from beam_jobs.errors import UsageError
from beam_jobs.files import Inputs
from beam_jobs.images import ImageJob
from beam_jobs.labels import Labels
from beam_jobs.lines import WriteTexts
from beam_jobs.output import BALANCES, Output, check_output, parse_names, parse_num_shards, resolve
from beam_jobs.references import WriteFiles
from beam_jobs.sensors import SensorJob
from beam_jobs.text import TextJob
from readers.format.schema import TENSORFLOW_DTYPES

# Flags that say where and how, not what: a dataset is the same whatever they are.
_NOT_OF_THE_DATASET = ("job", "output", "overwrite")

EPILOG = """\
Every option of Beam goes through as it is: --runner, --direct_num_workers, --flink_master, ...
Without --runner the job runs on this machine, with a process for each of its cores;
--direct_num_workers N takes N.

exit code: 0 done, 1 the data failed (rejects that may not be skipped, records lost by a runner),
2 a mistake in the command or the inputs."""


class _Parser(argparse.ArgumentParser):
    """argparse with one line for a mistake, and a suggestion where a flag is misspelt."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}; see --help")


def _add_common_flags(parser: argparse.ArgumentParser) -> None:
    common = parser.add_argument_group("common")
    common.add_argument(
        "--input",
        action="append",
        required=True,
        metavar="PATTERN",
        help="files: a pattern in quotes such as 'photos/*/*.jpg' (** crosses folders), a file, "
        "or a folder with all below it; may repeat",
    )
    common.add_argument("--output", required=True, metavar="DIR", help="a new or empty directory")
    common.add_argument(
        "--splits",
        default="train=1",
        metavar="NAME=SHARE,…",
        help="shares that add up to 1, such as train=0.8,val=0.1,test=0.1 (default: train=1)",
    )
    common.add_argument(
        "--num_shards",
        metavar="N",
        help="shards of every split, or train=16,val=2 (default: chosen by --shard_size)",
    )
    common.add_argument(
        "--shard_size",
        default="128MiB",
        metavar="SIZE",
        help="bytes a shard should have, roughly (default: 128MiB)",
    )
    common.add_argument(
        "--balance",
        choices=BALANCES,
        default="records",
        help="shards of a split differ by one record at most, or by the bytes of the largest "
        "record at most (default: records)",
    )
    common.add_argument("--seed", type=int, default=0, help="decides splits and order (default: 0)")
    common.add_argument(
        "--on_reject",
        choices=("skip", "fail"),
        default="skip",
        help="what to do with an input that cannot become a record: list it in rejects/, or stop "
        "(default: skip)",
    )
    common.add_argument(
        "--names",
        default="",
        metavar="FEATURE=NAME,…",
        help="what features are called in the Examples, such as image=image_raw,label=labels "
        "(default: their own names)",
    )
    common.add_argument("--overwrite", action="store_true", help="replace a dataset in --output")


def _add_label_flag(parser: argparse.ArgumentParser, default: str) -> None:
    parser.add_argument(
        "--label",
        default=default,
        metavar="parent|none|csv:FILE",
        help="the name of a file's folder, nothing, or a table with the columns path and label "
        f"(default: {default})",
    )


def build_parser() -> argparse.ArgumentParser:
    """The parser of `python -m beam_jobs`; flags it does not know are Beam's."""
    parser = _Parser(
        prog="python -m beam_jobs",
        description="Raw images, texts and sensor arrays to balanced TFRecord shards.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    jobs = parser.add_subparsers(dest="job", required=True, metavar="images|text|sensors")

    def job(name: str, summary: str) -> argparse.ArgumentParser:
        sub = jobs.add_parser(
            name,
            help=summary,
            description=summary,
            epilog=EPILOG,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        _add_common_flags(sub)
        return sub

    of_images = job("images", "A record is a picture, in any format Pillow opens.")
    _add_label_flag(of_images, "parent")
    of_images.add_argument(
        "--image_size",
        default="none",
        metavar="HxW",
        help="height and width in pixels, such as 224x224; none keeps each picture's own "
        "(default: none)",
    )
    of_images.add_argument(
        "--resize",
        choices=images.RESIZE,
        default="stretch",
        help="stretch to --image_size, fit inside it with black borders, or crop the middle "
        "(default: stretch)",
    )
    of_images.add_argument(
        "--channels", type=int, choices=(1, 3), default=3, help="1 gray, 3 RGB (default: 3)"
    )
    of_images.add_argument(
        "--encoding",
        choices=images.ENCODINGS,
        default="tensor",
        help="tensor: pixels, fastest to read; raw: their bytes without dtype and shape; jpeg, "
        "png: compressed; source: the files' own bytes, where TensorFlow reads them (default: "
        "tensor)",
    )

    of_text = job(
        "text", "A record is a line of .txt, an object of .jsonl, a row of .csv (.gz too)."
    )
    _add_label_flag(of_text, "none")
    of_text.add_argument(
        "--record",
        choices=("line", "file"),
        default="line",
        help="a line, or the whole of a .txt file (default: line)",
    )
    of_text.add_argument(
        "--text_field", default="text", metavar="NAME", help="field or column (default: text)"
    )
    of_text.add_argument(
        "--label_field", default="", metavar="NAME", help="field or column (default: no labels)"
    )
    of_text.add_argument(
        "--tokens",
        choices=text.TOKENS,
        default="none",
        help="words: ids of a vocabulary of the training split, as Keras TextVectorization; "
        "bytes: UTF-8 bytes + 2 (default: none)",
    )
    of_text.add_argument(
        "--vocabulary_size",
        type=int,
        default=20_000,
        metavar="N",
        help="word ids, 0 (padding) and 1 (unknown) included (default: 20000)",
    )
    of_text.add_argument(
        "--max_length",
        type=int,
        default=0,
        metavar="N",
        help="tokens kept of a text (default: all)",
    )

    of_sensors = job(
        "sensors", "A record is a recording: .npy, .npz or .csv, [time] or [time, ...]."
    )
    _add_label_flag(of_sensors, "parent")
    of_sensors.add_argument(
        "--arrays",
        default="",
        metavar="NAME,…",
        help="arrays of .npz files; one becomes `signal`, several keep their names (default: all)",
    )
    of_sensors.add_argument(
        "--encoding",
        choices=sensors.ENCODINGS,
        default="tensor",
        help="tensor: with dtype and shape; raw: the bytes of the values; list: an Example's own "
        "list of integers or float32 (default: tensor)",
    )
    of_sensors.add_argument(
        "--dtype",
        default="",
        choices=sorted(set(TENSORFLOW_DTYPES) - {"string", "bfloat16"}),
        metavar="NAME",
        help="convert to this dtype, such as float32 (default: the input's own; float32 for .csv)",
    )
    return parser


@dataclass(frozen=True)
class Command:
    """A checked command line.

    Attributes:
        name: "images", "text" or "sensors".
        transform: The whole pipeline.
        output: The dataset.
        beam: Beam's own options.
    """

    name: str
    transform: beam.PTransform
    output: Output
    beam: PipelineOptions


def parse_command(arguments: Sequence[str]) -> Command:
    """The job that a command line asks for; inputs and output are looked at, nothing is written.

    Raises:
        UsageError: Anything is wrong that can be known before the pipeline runs.
    """
    parser = build_parser()
    flags, rest = parser.parse_known_args(arguments)
    beam_options = _beam_options(rest, vars(flags))
    splits = Splits.parse(flags.splits)
    output = resolve(flags.output)
    check_output(output, flags.overwrite)
    check_seed(flags.seed)
    labels = Labels.parse(flags.label)
    inputs = Inputs.of(flags.input, output)
    job = _job(flags, inputs, labels)
    dataset = Output(
        directory=output,
        schema=job.schema,
        placement=Placement(flags.seed, splits),
        num_shards=(
            parse_num_shards(flags.num_shards, splits.names)
            if flags.num_shards
            else (0,) * len(splits.names)
        ),
        shard_size=parse_size(flags.shard_size),
        on_reject=flags.on_reject,
        overwrite=flags.overwrite,
        balance=flags.balance,
        stored=parse_names(flags.names, job.schema) if flags.names else {},
        options={
            "job": flags.job,
            **{k: v for k, v in sorted(vars(flags).items()) if k not in _NOT_OF_THE_DATASET},
        },
    )
    processes = processes_of(beam_options, rest)
    if isinstance(job, TextJob):
        return Command(flags.job, WriteTexts(job, dataset, processes), dataset, beam_options)
    return Command(flags.job, WriteFiles(job, dataset, processes), dataset, beam_options)


def _job(
    flags: argparse.Namespace, inputs: Inputs, labels: Labels
) -> ImageJob | TextJob | SensorJob:
    if flags.job == "images":
        size = images.parse_image_size(flags.image_size)
        return ImageJob(inputs, labels, size, flags.resize, flags.channels, flags.encoding)
    if flags.job == "sensors":
        arrays = tuple(filter(None, flags.arrays.split(",")))
        return SensorJob.of(inputs, labels, arrays, flags.dtype, flags.encoding)
    if flags.vocabulary_size < 3:
        raise UsageError(f"--vocabulary_size {flags.vocabulary_size}: expected at least 3")
    if flags.max_length < 0:
        raise UsageError(f"--max_length {flags.max_length}: expected a number of tokens")
    return TextJob(
        inputs,
        labels,
        flags.record,
        flags.text_field,
        flags.label_field,
        flags.tokens,
        flags.vocabulary_size,
        flags.max_length,
    )


def _beam_options(rest: list[str], ours: dict[str, object]) -> PipelineOptions:
    """Beam's options; a flag that nobody knows is refused instead of being passed over."""
    known = _Parser(add_help=False, allow_abbrev=False)
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
