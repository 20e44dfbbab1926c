"""The parser of `python -m beam_jobs`, made from the flags of its jobs."""

from __future__ import annotations

import argparse
import dataclasses
import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

from beam_jobs.cli.dataset import DatasetFlags, EncodedDatasetFlags
from beam_jobs.cli.flags import Declarations, Flags, JobFlags, Parser, RunFlags
from beam_jobs.cli.images import ImageFlags
from beam_jobs.cli.reshard import ReshardedDatasetFlags, ReshardFlags
from beam_jobs.cli.sensors.flags import SensorFlags
from beam_jobs.cli.text import TextFlags
from beam_jobs.errors import UsageError
from beam_jobs.jobs.images.image_files import FORMATS as IMAGE_FORMATS
from beam_jobs.jobs.sensors.formats.registry import FORMATS, suffixes_of
from beam_jobs.storage.encodings import is_utf8
from readers.format.version import __version__

_DESCRIPTION = """\
Turns raw images, texts and sensor recordings into balanced TFRecord shards. `plan` before a job
prints what it would write, and writes nothing. `--config FILE` reads the flags from a file; a
dataset is made again by: python -m beam_jobs --config OLD --output NEW"""

_EPILOG = """\
Every Beam option is passed through unchanged, and takes precedence over what --engine sets:
--runner, --job_endpoint, --parallelism, --direct_num_workers, ... Without an engine the job runs on
this machine, with one process per core, or N processes with --direct_num_workers N.

exit code: 0 done, 1 the data failed (rejects with --on_reject fail, records lost by a runner),
2 a mistake in the command or the inputs. With --no_wait_until_finish, 0 says that the engine has the job."""


class _Job(NamedTuple):
    """One job of the command line.

    Attributes:
        summary: One line of help.
        own: The flags that say what the job reads and what its records are.
        dataset: The flags that say what it writes.
    """

    summary: str
    own: type[JobFlags]
    dataset: type[DatasetFlags]

    def groups(self) -> dict[str, Declarations]:
        """The job's flags by title, in the order of the help."""
        found: dict[str, Declarations] = {}
        for flags in (self.own, self.dataset):
            for declaring in reversed(flags.__mro__):
                if issubclass(declaring, Flags) and (declared := declaring.declared()):
                    found.setdefault(declaring.title, {}).update(declared)
        # What is written is decided before where.
        return found | {RunFlags.title: found.pop(RunFlags.title)}


_JOBS = {
    "images": _Job(
        f"A record is an image: {', '.join(IMAGE_FORMATS.values())}.",
        ImageFlags,
        EncodedDatasetFlags,
    ),
    "text": _Job(
        "A record is a line of .txt, an object of .jsonl or .json, or a row of .csv or .tsv (all also "
        ".gz), of .parquet, .feather or .arrow; or a whole text file.",
        TextFlags,
        EncodedDatasetFlags,
    ),
    "sensors": _Job(
        f"A record is a recording, [time, ...]: {', '.join(suffixes_of(*FORMATS))}.",
        SensorFlags,
        EncodedDatasetFlags,
    ),
    "reshard": _Job(
        "A record is a record of an existing TFRecord file; its bytes are kept.",
        ReshardFlags,
        ReshardedDatasetFlags,
    ),
}

# Flags that say where and how a job runs; the dataset is the same whatever they are.
NOT_OF_THE_DATASET = {
    *("output", "overwrite", "dry_run", "max_rejects", "config", "json"),
    *("engine", "engine_page", "report", "check", "fail_on"),
}


@dataclasses.dataclass(frozen=True)
class CommandFlags:
    """The flags of a command line.

    Attributes:
        name: The job's name.
        job: The flags that say what the job reads and what its records are.
        dataset: The flags that say what it writes.
    """

    name: str
    job: JobFlags
    dataset: DatasetFlags

    @property
    def options(self) -> dict[str, Any]:
        """The flags that decide what is in the dataset and differ from their defaults, as the manifest states them."""
        values = {
            field.name: value
            for flags in (self.job, self.dataset)
            for field in dataclasses.fields(flags)
            if field.name not in NOT_OF_THE_DATASET
            and (value := getattr(flags, field.name)) not in (field.default, [])
        }
        return {"job": self.name, **dict(sorted(values.items()))}


def parse_flags(arguments: Sequence[str]) -> tuple[CommandFlags, list[str]]:
    """The flags of a command line, and the arguments that are none of them.

    Raises:
        UsageError: A flag has no value, or one that it cannot have.
    """
    namespace, rest = build_parser().parse_known_args(arguments)
    job = _JOBS[namespace.job]
    flags = CommandFlags(
        name=namespace.job,
        job=job.own.read(namespace),
        dataset=job.dataset.read(namespace),
    )
    _check_text(flags.options)
    return flags, rest


def _check_text(options: dict[str, Any]) -> None:
    """Refuses text that is not UTF-8, which the manifest could not state."""
    for name, value in options.items():
        for text in value if isinstance(value, list) else [value]:
            if isinstance(text, str) and not is_utf8(text):
                raise UsageError(
                    f"--{name} {text}: expected UTF-8, because the manifest states this flag; "
                    "rename files and folders whose names are not"
                )


@functools.cache
def declared_flags() -> dict[str, Declarations]:
    """How each job declares its flags: job -> flag -> the arguments of `add_argument`."""
    return {
        name: {flag: how for group in job.groups().values() for flag, how in group.items()}
        for name, job in _JOBS.items()
    }


def build_parser() -> argparse.ArgumentParser:
    """The parser of `python -m beam_jobs`; flags that it does not know are Beam's."""
    parser = Parser(
        prog="python -m beam_jobs",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"beam-shards {__version__}")
    jobs = parser.add_subparsers(dest="job", required=True, metavar=f"[plan] {'|'.join(_JOBS)}")
    for name, job in _JOBS.items():
        subparser = jobs.add_parser(
            name,
            help=job.summary,
            description=job.summary,
            epilog=_EPILOG,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        for title, declarations in job.groups().items():
            group = subparser.add_argument_group(title)
            for flag, declared in declarations.items():
                text = declared["help"].replace("%", "%%")  # argparse formats it.
                group.add_argument(f"--{flag}", **{**declared, "help": text})
    return parser
