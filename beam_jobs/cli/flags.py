"""The flags of the jobs: names, units, defaults, and one line of help for each."""

from __future__ import annotations

import argparse
import functools
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

from beam_jobs.dataset.output import BALANCES
from beam_jobs.engines.flags import ENGINES
from beam_jobs.errors import UsageError
from beam_jobs.jobs.images import job as images
from beam_jobs.jobs.sensors import job as sensors
from beam_jobs.jobs.sensors.conditioning import NAN_POLICIES
from beam_jobs.jobs.sensors.recording import TIME_UNITS
from readers.format.schema import TENSORFLOW_DTYPES

EPILOG = """\
Every option of Beam goes through as it is, and wins over what --engine sets: --runner,
--job_endpoint, --parallelism, --direct_num_workers, ... Without an engine the job runs on this
machine, with a process for each of its cores; --direct_num_workers N takes N.

exit code: 0 done, 1 the data failed (rejects that may not be skipped, records lost by a runner),
2 a mistake in the command or the inputs."""


class Parser(argparse.ArgumentParser):
    """argparse with one line for a mistake, and a suggestion where a flag is misspelt."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}; see --help")


Add = Callable[..., object]


def _add_inputs(add: Add) -> None:
    add(
        "--input",
        action="append",
        default=[],
        metavar="PATTERN",
        help="files or archives (.zip, .tar, .tar.gz): a pattern in quotes such as 'photos/*/*.jpg' "
        "(** crosses folders), a file, or a folder with all below it; may repeat. With --table, the "
        "folder below which its paths lie (default: that of the table)",
    )
    add(
        "--table",
        action="append",
        default=[],
        metavar="FILE",
        help="a .csv, .tsv, .jsonl (each also .gz) or .parquet whose rows name files; may repeat, "
        "may be a pattern (default: none)",
    )
    add(
        "--path_column",
        default="",
        metavar="NAME",
        help="the column of --table with the paths (default: path, file, filename, key, image or "
        "name; the text job takes the texts from the table itself unless this is given)",
    )
    add(
        "--key",
        default="path",
        metavar="path|row|column:NAME",
        help="what names a record of a --table: the path, the path and the row's number, or a "
        "column (default: path)",
    )
    add(
        "--extra_features",
        default="",
        metavar="NAME:DTYPE,…",
        help="columns to keep as features, such as age:float32,site:string,tags:string[],"
        "place:float32[3] (default: none)",
    )


def _add_placement(add: Add) -> None:
    add(
        "--output",
        metavar="DIR",
        help="a new or empty directory (default: none; a dry run needs none)",
    )
    add(
        "--splits",
        default="train=1",
        metavar="NAME=SHARE,…",
        help="shares that add up to 1, such as train=0.8,val=0.1,test=0.1; with --split_column "
        "names alone (default: train=1)",
    )
    add(
        "--split_column",
        default="",
        metavar="NAME",
        help="the column that names the split of each record (default: splits are drawn)",
    )
    add(
        "--group_by",
        default="",
        metavar="REGEX|column:NAME",
        help="what records must share to be kept in one split: the first group of a regular "
        "expression on their keys, or all that it matches; or a column (default: each record, or "
        "each recording or text with --window, is drawn by itself)",
    )
    add(
        "--num_shards",
        default="",
        metavar="N",
        help="shards of every split, or train=16,val=2 (default: chosen by --shard_size)",
    )
    add(
        "--shard_size",
        default="128MiB",
        metavar="SIZE",
        help="bytes a shard should have, roughly (default: 128MiB)",
    )
    add(
        "--balance",
        choices=BALANCES,
        default="records",
        help="shards of a split differ by one record at most, or by the bytes of the largest "
        "record at most (default: records)",
    )
    add("--seed", type=int, default=0, help="decides splits and order (default: 0)")
    add(
        "--on_reject",
        choices=("skip", "fail"),
        default="skip",
        help="what to do with an input that cannot become a record: list it in rejects/, or stop "
        "(default: skip)",
    )
    add(
        "--overwrite",
        action="store_true",
        help="replace a dataset in --output (default: refuse to)",
    )
    add(
        "--engine",
        choices=ENGINES,
        default="direct",
        help="where the job runs: sets Beam's flags for it, see docs/engines.md (default: direct, "
        "this machine)",
    )
    add(
        "--dry_run",
        action="store_true",
        help="write nothing, say what the job would write; `plan` before the job does the same "
        "(default: write)",
    )


def _add_by_label(add: Add) -> None:
    add(
        "--stratify",
        action="store_true",
        help="every label has its share of records in every split, to one record (default: splits "
        "are drawn, whatever the labels)",
    )
    add(
        "--names",
        default="",
        metavar="FEATURE=NAME,…",
        help="what features are called in the Examples, such as image=image_raw,label=labels "
        "(default: their own names)",
    )


def _add_label(add: Add, default: str) -> None:
    add(
        "--label",
        default=default,
        metavar="parent|none|csv:FILE|column:NAME",
        help="the name of a file's folder; nothing; a table with the columns path and label; or a "
        "column of --table, of the .json beside a member of an archive, or `cls` for the .cls "
        f"beside it; a column of lists gives several labels (default: {default})",
    )


def _add_images(add: Add) -> None:
    _add_label(add, "parent")
    add(
        "--image_size",
        default="none",
        metavar="HxW",
        help="height and width in pixels, such as 224x224; none keeps each picture's own "
        "(default: none)",
    )
    add(
        "--resize",
        choices=images.RESIZE,
        default="stretch",
        help="stretch to --image_size, fit inside it with black borders, or crop the middle "
        "(default: stretch)",
    )
    add("--channels", type=int, choices=(1, 3), default=3, help="1 gray, 3 RGB (default: 3)")
    add(
        "--encoding",
        choices=images.ENCODINGS,
        default="tensor",
        help="tensor: pixels, fastest to read; raw: their bytes without dtype and shape; jpeg, "
        "png: compressed; source: the files' own bytes, where TensorFlow reads them (default: "
        "tensor)",
    )
    add(
        "--boxes",
        default="",
        metavar="coco:FILE|voc[:DIR]|yolo[:DIR]",
        help="boxes of objects: of a COCO file; or of Pascal VOC's .xml or YOLO's .txt of the "
        "picture's name, in DIR or where these have them (default: none)",
    )
    add(
        "--class_names",
        default="",
        metavar="FILE",
        help="with --boxes yolo, a name a line, or a data.yaml (default: numbers alone)",
    )
    add(
        "--captions",
        default="",
        metavar="coco:FILE|txt[:DIR]|column:NAME",
        help="captions: of a COCO file, of a .txt of the picture's name with one a line, or of a "
        "column (default: none)",
    )
    add(
        "--masks",
        default="",
        metavar="DIR",
        help="a folder with a PNG of each picture's name, below folders as the pictures have them or "
        "not, whose values are class ids (default: none)",
    )


def _add_text(add: Add) -> None:
    _add_label(add, "none")
    add(
        "--record",
        choices=("line", "file"),
        default="line",
        help="a line, or the whole of a .txt file (default: line)",
    )
    add("--text_field", default="text", metavar="NAME", help="field or column (default: text)")
    add(
        "--label_field",
        default="",
        metavar="NAME",
        help="field or column; of lists for several labels (default: no labels)",
    )
    add(
        "--tokens",
        default="none",
        metavar="none|words|bytes|bpe|FILE.json",
        help="words: ids of a vocabulary of the training split, as Keras TextVectorization; "
        "bytes: UTF-8 bytes + 2; bpe: byte pairs learned from the training split; a tokenizer.json "
        "of Hugging Face (default: none)",
    )
    add(
        "--vocabulary_size",
        type=int,
        default=20_000,
        metavar="N",
        help="ids of words or bpe, 0 (padding) and 1 (unknown) included (default: 20000)",
    )
    add(
        "--max_length",
        type=int,
        default=0,
        metavar="N",
        help="tokens kept of a text (default: all)",
    )
    add(
        "--window",
        type=int,
        default=0,
        metavar="N",
        help="cut texts into records of N tokens, the last one shorter (default: a text is a record)",
    )
    add(
        "--stride",
        type=int,
        default=0,
        metavar="N",
        help="tokens from one window's begin to the next's, at most --window (default: --window)",
    )
    add(
        "--drop_duplicates",
        action="store_true",
        help="of equal texts keep the first in the global order, and count the others (default: keep all)",
    )


def _add_sensors(add: Add) -> None:
    _add_label(add, "parent")
    add(
        "--arrays",
        default="",
        metavar="NAME,…",
        help="arrays of .npz and .h5; one becomes `signal`, several keep their names (default: all)",
    )
    add(
        "--columns",
        default="",
        metavar="NAME,…",
        help="columns of .csv and .parquet that are channels (default: all; of .parquet, all numbers)",
    )
    add(
        "--join",
        default="",
        metavar="PATTERN",
        help="files of one recording, such as {recording}_{array}.csv: their arrays are called by "
        "{array}, their key is {recording} (default: a file is a recording)",
    )
    add(
        "--encoding",
        choices=sensors.ENCODINGS,
        default="tensor",
        help="tensor: with dtype and shape; raw: the bytes of the values; list: an Example's own "
        "list of integers or float32 (default: tensor)",
    )
    add(
        "--dtype",
        default="",
        choices=sorted(set(TENSORFLOW_DTYPES) - {"string", "bfloat16"}),
        metavar="NAME",
        help="convert to this dtype, such as float32, which makes audio -1 to 1 (default: the "
        "input's own; float32 for .csv)",
    )
    add(
        "--rate",
        default="",
        metavar="HZ",
        help="samples a second of files that do not say, such as 50Hz or 16kHz (default: unknown)",
    )
    add(
        "--time_column",
        default="",
        metavar="NAME",
        help="the column of .csv and .parquet with the times of the samples, for --resample "
        "(default: none, samples are taken at the files' rate or --rate)",
    )
    add(
        "--time_unit",
        choices=tuple(TIME_UNITS),
        default="s",
        help="of times that are numbers; dates tell theirs (default: s)",
    )
    add(
        "--resample",
        default="",
        metavar="HZ",
        help="samples a second of all records, by linear interpolation, such as 50Hz; adds "
        "`filled`, the share of samples without a measurement within half a step (default: as they "
        "are)",
    )
    add(
        "--max_gap",
        default="",
        metavar="TIME",
        help="longest time without a measurement that --resample bridges, such as 500ms, or in "
        "samples; recordings with a longer one are rejected, or cut there with --window and "
        "--sequence (default: 1s)",
    )
    add(
        "--nan",
        choices=NAN_POLICIES,
        default="keep",
        help="what to do with NaN and infinite values: keep them, reject the recording, or "
        "interpolate within the channel (default: keep)",
    )
    add(
        "--window",
        default="",
        metavar="N|TIME",
        help="cut recordings into records of N samples, or of 2s; what is left at the end is too "
        "short and goes (default: a recording is a record)",
    )
    add(
        "--stride",
        default="",
        metavar="N|TIME",
        help="samples or time from one window's begin to the next's (default: --window)",
    )
    add(
        "--spectrogram",
        default="",
        metavar="FRAME:STEP",
        help="magnitudes of the short-time Fourier transform, float32 [frames, FRAME/2+1, channels], "
        "in samples such as 256:128 or times such as 25ms:10ms (default: the signal itself)",
    )
    add(
        "--sequence",
        action="store_true",
        help="a recording is one record with a list of arrays of different lengths: its arrays, its "
        "windows, or its stretches between gaps (default: no)",
    )


def _add_reshard(add: Add) -> None:
    add(
        "--input",
        action="append",
        default=[],
        metavar="PATTERN",
        help="TFRecord files, GZIP or not: a pattern in quotes such as 'old-*.tfrecord*', a file, or "
        "a folder with all below it; may repeat. Indexes, manifests and texts beside them are passed "
        "over (default: none)",
    )
    add(
        "--schema",
        default="",
        metavar="FILE.json",
        help="the features of the records, as a manifest.json has them: the file itself will do, or "
        "its `schema` alone (default: that of the manifest beside the files, if all have one; else "
        "learned from all records)",
    )
    add(
        "--keep",
        default="",
        metavar="NAME,…",
        help="the features that stay (default: all features)",
    )
    add("--drop", default="", metavar="NAME,…", help="the features that go (default: none)")


_JOBS: dict[str, tuple[str, Callable[[Add], None]]] = {
    "images": ("A record is a picture, in any format Pillow opens.", _add_images),
    "text": (
        "A record is a line of .txt, an object of .jsonl, a row of .csv or .tsv (all .gz too) or of "
        ".parquet.",
        _add_text,
    ),
    "sensors": (
        "A record is a recording: .npy, .npz, .csv, .parquet, .h5, .wav or .flac, [time, ...].",
        _add_sensors,
    ),
    "reshard": (
        "A record is one of anybody's TFRecord files, whose bytes it keeps.",
        _add_reshard,
    ),
}


def _groups(job: str) -> Iterator[tuple[str, Callable[[Add], None]]]:
    """Yields (title, what adds its flags) of the groups of a job's flags."""
    _, add_own = _JOBS[job]
    if job == "reshard":
        yield "records", add_own
        yield "splits and shards", _add_placement
        return
    yield "inputs", _add_inputs
    yield "records", add_own
    yield "splits and shards", _add_placement
    yield "labels and names", _add_by_label


@functools.cache
def declared_flags() -> dict[str, dict[str, dict[str, Any]]]:
    """How each job declares its flags: job -> name -> what `add_argument` is told of it."""
    found: dict[str, dict[str, dict[str, Any]]] = {name: {} for name in _JOBS}
    for name, flags in found.items():
        for _, add_flags in _groups(name):
            add_flags(lambda flag, **told: flags.update({flag.removeprefix("--"): told}))  # noqa: B023
    return found


def flags_by_job() -> dict[str, frozenset[str]]:
    """The names of the flags of each job."""
    return {job: frozenset(flags) for job, flags in declared_flags().items()}


def switches() -> frozenset[str]:
    """The names of flags that take no value."""
    return frozenset(
        name
        for flags in declared_flags().values()
        for name, told in flags.items()
        if told.get("action") == "store_true"
    )


def build_parser() -> argparse.ArgumentParser:
    """The parser of `python -m beam_jobs`; flags it does not know are Beam's."""
    parser = Parser(
        prog="python -m beam_jobs",
        description="Raw images, texts and sensor arrays to balanced TFRecord shards. `plan` before "
        "a job says what it would write, and writes nothing.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    jobs = parser.add_subparsers(dest="job", required=True, metavar="|".join(_JOBS))
    for name, (summary, _) in _JOBS.items():
        job = jobs.add_parser(
            name,
            help=summary,
            description=summary,
            epilog=EPILOG,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        for group, add_flags in _groups(name):
            add_flags(job.add_argument_group(group).add_argument)
    return parser
