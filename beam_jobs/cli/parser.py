"""The jobs of the command line: parses their flags, and prints help and results. Imports neither Beam nor NumPy."""

from __future__ import annotations

import functools
import glob
import json
import os
import re
import shutil
import sys
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, NamedTuple

from beam_jobs.cli.dataset import DatasetFlags, EncodedDatasetFlags
from beam_jobs.cli.flags import Flag, JobFlags, RunFlags
from beam_jobs.cli.images import ImageFlags
from beam_jobs.cli.reshard import ReshardedDatasetFlags, ReshardFlags
from beam_jobs.cli.sensors import SensorFlags
from beam_jobs.cli.text import TextFlags
from beam_jobs.engines.flags import BEAM_SWITCHES, BEAM_VALUES
from beam_jobs.errors import UsageError, did_you_mean, reason_of

PROGRAM = "beam-shards"

_REST = """\
All options of Beam are passed on, and take precedence over those that --engine sets: --runner,
--job_endpoint, --parallelism, --direct_num_workers, ... Without --engine the job runs on this
machine, with one process per core, or N processes with --direct_num_workers N.

exit code: 0 done; 1 the data failed (too many rejects, records lost by a runner); 2 a mistake in the
command or the inputs. With --no_wait_until_finish, 0 means that the engine accepted the job."""

# Numbers with a unit, such as -6dB, are values, too.
_VALUE = re.compile(r"[^-]|-$|-\.?[0-9]|$")

_HELP = {"-h", "--help", "--help-all", "--version"}

# The column of the help in which its texts begin.
_INDENT = 26


class _Job(NamedTuple):
    """One job of the command line: its record, its inputs, two examples, its flags, and those of its output."""

    summary: str
    description: str
    examples: tuple[str, str]
    own: type[JobFlags]
    dataset: type[DatasetFlags]

    def groups(self) -> dict[str, dict[str, Flag]]:
        """The job's flags by heading and name, in the order of the help."""
        return self.own.declared() | self.dataset.declared() | RunFlags.declared()


_JOBS = {
    "images": _Job(
        "a record is an image",
        "Images of all common formats, in folders, archives or tables, with labels, boxes, masks and captions "
        "(docs/write/images.md lists formats).",
        (
            "images --input photos/ --output shards/photos --image_size 224x224 --splits train=0.9,val=0.1",
            "images --table photos.csv --label column:species --output shards/photos --folds 5 --stratify",
        ),
        ImageFlags,
        EncodedDatasetFlags,
    ),
    "text": _Job(
        "a record is a line, an object, a row, or a whole text file",
        "Lines of .txt, objects of .jsonl or .json, and rows of .csv or .tsv (each also .gz), .parquet, .feather or "
        ".arrow; as text, or as token ids.",
        (
            "text --input reviews.jsonl --output shards/reviews --label_field stars --splits train=0.9,val=0.1",
            "text --input 'books/*.txt' --record file --output shards/books --tokens bpe --window 512",
        ),
        TextFlags,
        EncodedDatasetFlags,
    ),
    "sensors": _Job(
        "a record is a recording [time, ...], or a window of one",
        "Recordings: audio, .csv and other tables, .npy, .h5, .mat, .edf and more (docs/write/sensors.md lists formats).",
        (
            "sensors --input runs/ --output shards/runs --window 2s --resample 50Hz --group_by 'subject(\\d+)'",
            "sensors --input 'clips/*/*.wav' --output shards/clips --label parent --splits train=0.9,val=0.1",
        ),
        SensorFlags,
        EncodedDatasetFlags,
    ),
    "reshard": _Job(
        "a record is a record of an existing TFRecord file",
        "TFRecord files of any program; the bytes of records are kept, and so are the splits of datasets.",
        (
            "reshard --input 'old/*.tfrecord' --output shards/new --splits train=0.9,val=0.1",
            "reshard --input shards/photos --output shards/fewer --num_shards train=8,val=1",
        ),
        ReshardFlags,
        ReshardedDatasetFlags,
    ),
}

# The commands and what they do.
COMMANDS = {
    "plan": "what a job would write, before it: plan images --input photos/",
    **{name: job.summary for name, job in _JOBS.items()},
}


@dataclass(frozen=True)
class CommandFlags:
    """The flags of the job of a name, and the arguments for Beam."""

    name: str
    job: JobFlags
    dataset: DatasetFlags
    run: RunFlags
    beam: tuple[str, ...] = ()

    @property
    def options(self) -> dict[str, Any]:
        """The flags that change the dataset and differ from their defaults, as the manifest states them."""
        declared = declared_flags()[self.name]
        values = {
            field.name: getattr(flags, field.name)
            for flags in (self.job, self.dataset)
            for field in fields(flags)
            if declared[field.name].stated and flags.given(field.name)
        }
        return {"job": self.name, **dict(sorted(values.items()))}

    def validate(self) -> None:
        """Raises UsageError for missing or contradictory flags, and for local inputs that do not exist."""
        named = [
            (name, path) for name in ("table", "input") for path in getattr(self.job, name, ())
        ]
        if not named:
            raise UsageError(f"--input is missing: {self.job.inputs_expected}; see --help")
        if self.dataset.output is None and not self.run.dry_run:
            raise UsageError("--output is missing: name a new or empty directory; see --help")
        self._check_text()
        for flags in (self.run, self.dataset, self.job):
            flags.validate()
        for name, path in named:
            _check_exists(name, path)

    def _check_text(self) -> None:
        """Raises UsageError for text that is not UTF-8, which the manifest cannot state."""
        for name, value in self.options.items():
            text = " ".join(value) if isinstance(value, list) else str(value)
            if text.encode(errors="replace").decode() != text:
                raise UsageError(
                    f"--{name} {text}: expected UTF-8, because the manifest stores this flag; "
                    "rename files and folders whose names are not"
                )


def _check_exists(flag: str, path: str) -> None:
    """Raises UsageError for a local path that does not exist, with a similar path, unless it is a pattern."""
    if not path or "://" in path or set(path) & set("*?["):
        return  # Checked once Beam is imported.
    found = os.path.expanduser(path)
    try:
        os.lstat(found)
    except OSError as error:
        missing = isinstance(error, FileNotFoundError | NotADirectoryError)
        reason = "no such file or folder" if missing else reason_of(error)
        folder, name = os.path.split(found.rstrip("/"))
        names = sorted(glob.glob("*", root_dir=folder or "."))[:10_000]
        hint = did_you_mean(name, names, before=path.rstrip("/").removesuffix(name))
        raise UsageError(f"--{flag} {path}: {reason}{hint}") from None


@functools.cache
def declared_flags() -> dict[str, dict[str, Flag]]:
    """How each job declares its flags: job -> flag -> declaration."""
    return {
        name: {flag.name: flag for group in job.groups().values() for flag in group.values()}
        for name, job in _JOBS.items()
    }


def parse_flags(arguments: Sequence[str]) -> CommandFlags:
    """Parses a command line; UsageError for an unknown argument, and for a missing or wrong value of one."""
    name = _job_in(arguments)
    job, declared = _JOBS[name], declared_flags()[name]
    texts, beam = _sorted(name, arguments[1:])
    values = {flag: declared[flag].value(given) for flag, given in texts.items()}
    for flag, value in values.items():
        declared[flag].check_value(value)
    return CommandFlags(
        name, job.own.read(values), job.dataset.read(values), RunFlags.read(values), tuple(beam)
    )


def _job_in(arguments: Sequence[str]) -> str:
    """The job that a command line names first."""
    first = arguments[0] if arguments else ""
    if first in _JOBS:
        return first
    *most, last = COMMANDS
    expected = f"expected {', '.join(most)} or {last}"
    if not _VALUE.match(first) or not first:
        raise UsageError(f"{expected} before {first or 'flags'}; see --help")
    raise UsageError(f"unknown command {first}: {expected}{did_you_mean(first, COMMANDS)}")


def _sorted(job: str, arguments: Sequence[str]) -> tuple[dict[str, list[str]], list[str]]:
    """The texts of the job's flags by name, and the arguments for Beam; accepts `--image-size` for `--image_size`."""
    declared = declared_flags()[job]
    texts: dict[str, list[str]] = {}
    beam: list[str] = []
    rest = list(reversed(arguments))

    def values(most: int | None) -> list[str]:
        found: list[str] = []
        while rest and _VALUE.match(rest[-1]) and (most is None or len(found) < most):
            found.append(rest.pop())
        return found

    before: Flag | None = None
    while rest:
        argument, last, before = rest.pop(), before, None
        given, equals, text = argument.partition("=")
        name = given.removeprefix("--").replace("-", "_") if given.startswith("--") else ""
        if flag := declared.get(name):
            most = {list: None, bool: 0}.get(flag.kind, 1)
            found = [text] if equals else values(most)
            _check_number(flag, argument, found)
            texts[name] = [*texts.get(name, []), *found]
            before = flag
        elif jobs := [other for other, flags in declared_flags().items() if name in flags]:
            raise UsageError(f"--{name} is for {' and '.join(jobs)}, not for {job}")
        elif name in BEAM_VALUES:
            beam += [f"--{name}={value}" for value in ([text] if equals else values(1))] or [given]
        elif name in BEAM_SWITCHES:
            beam.append(argument)
        elif name and _elsewhere(arguments):
            # Other runners may have flags that only their job server knows.
            beam += [argument, *values(0 if equals else 1)]
        else:
            raise UsageError(_unknown(job, argument, last))
    return texts, beam


def _check_number(flag: Flag, argument: str, found: list[str]) -> None:
    """Raises UsageError for a flag without a value, and for a switch with one."""
    if flag.kind is bool and found:
        raise UsageError(f"{argument}: --{flag.name} takes no value: type only --{flag.name}")
    if flag.kind is not bool and not found:
        raise UsageError(
            f"{argument}: expected a value, {flag.metavar}; one that begins with - is given as --{flag.name}=-…"
        )


def _elsewhere(arguments: Sequence[str]) -> bool:
    """Whether the arguments name a runner that is not on this machine."""
    words = " ".join(arguments).replace("=", " ")
    named = re.findall(r"--(?:runner|engine) (\S+)", words)
    return bool(named) and "direct" not in named[-1].lower()


def _unknown(job: str, first: str, last: Flag | None) -> str:
    """An error about an unknown argument, with a guess at what was meant; `last` is the flag before it."""
    declared = declared_flags()[job]
    if _VALUE.match(first):
        most = (
            f"--{last.name} takes {'one' if last.metavar else 'no'} value: any other"
            if last
            else "a value"
        )
        return f"unknown argument {first}: {most} follows its flag, as in --input {first}"
    everyday = sorted(declared, key=lambda name: not declared[name].everyday)
    name = first.partition("=")[0].strip("-").replace("-", "_")
    hint = did_you_mean(name, [*everyday, *sorted(BEAM_VALUES | BEAM_SWITCHES)], before="--")
    return f"unknown argument {first}{hint or f'; {PROGRAM} {job} --help-all lists all flags'}"


class Report:
    """Prints the result of a command: text, or with `as_json` only one JSON object with the same contents."""

    def __init__(self, as_json: bool) -> None:
        self._as_json, self._code = as_json, 0
        self._values: dict[str, Any] = {}
        self._warnings: list[str] = []
        self._unprinted = ""

    def show(self, text: str, **values: Any) -> None:
        """Prints text on stdout; the object gets the values instead."""
        self._values |= values
        if not self._as_json:
            self._unprinted = self._unprinted or print_text(_shown(text, "\t\n"))

    def note(self, *lines: str, **values: Any) -> None:
        """Prints lines on stderr; the object gets the values, too."""
        self._values |= values
        for line in filter(None, lines):
            print(_shown(line), file=sys.stderr)

    def warn(self, *warnings: str) -> None:
        """Prints warnings on stderr; the object gets them, too."""
        found = [*filter(None, warnings)]
        self._warnings += map(_without_credentials, found)
        self.note(*(f"warning: {warning}" for warning in found))

    def fail(self, code: int, message: str) -> None:
        """Prints the error that ends the command with an exit code."""
        self._code = code
        self.note(f"error: {message}", error=_without_credentials(message))

    def end(self) -> int:
        """Prints the object; returns the exit code, which is 1 if stdout could not be written."""
        if self._as_json:
            ending = {"warnings": self._warnings, "exit_code": self._code}
            self._unprinted = print_text(json.dumps(self._values | ending))
        if self._unprinted and not self._code:
            self.fail(1, f"stdout cannot be written: {self._unprinted}; everything else was done")
        return self._code


def _without_credentials(text: str) -> str:
    if "://" not in text:
        return text
    from readers.format.display import without_credentials

    return without_credentials(text)


def _shown(text: str, kept: str = "") -> str:
    """A text without credentials, and without control characters but those that are kept."""
    text = _without_credentials(text)
    if text.isprintable():
        return text
    # It imports NumPy, which takes longer than all the rest.
    from readers.format.display import visible

    return visible(text, kept)


def print_text(text: str) -> str:
    """Prints a text on stdout; returns why that failed, empty for a closed pipe, as after `head`."""
    try:
        print(text, flush=True)
    except OSError as error:
        # Python would write the rest at its end, and fail once more.
        with Path(os.devnull).open("w") as nothing:
            os.dup2(nothing.fileno(), sys.stdout.fileno())
        return "" if isinstance(error, BrokenPipeError) else str(error)
    return ""


def help_for(arguments: Sequence[str]) -> str:
    """The help that a command line asks for; empty without `--help` or `--help-all`."""
    asked = _HELP & {argument.replace("_", "-") for argument in arguments}
    if not asked:
        return ""
    if asked == {"--version"}:
        from readers.format import __version__

        return f"beam-shards {__version__}"
    job = next((argument for argument in arguments if argument in _JOBS), "")
    width = min(max(shutil.get_terminal_size((100, 24)).columns, 60), 110)
    if not job:
        return "\n".join(_overview("plan" in arguments, width))
    return "\n".join(_help_of(job, "--help-all" in asked, width))


def _overview(plan: bool, width: int) -> Iterator[str]:
    if plan:
        yield f"usage: {PROGRAM} plan {'|'.join(_JOBS)} --input PATTERN [flags of the job]\n"
        yield from textwrap.wrap(
            "Prints what a job would write: features, splits, shards, bytes and the first rejects. Nothing is "
            "written, and --output is not needed.",
            width,
        )
        yield f"\nexample:\n  {PROGRAM} plan {_JOBS['images'].examples[0]}"
        return
    yield f"usage: {PROGRAM} [plan] {'|'.join(_JOBS)} --input PATTERN --output DIR [flags]\n"
    yield from textwrap.wrap(
        "Packs images, texts and sensor recordings into TFRecord shards of equal size. `--config FILE` reads flags "
        f"from a file; to make a dataset again: {PROGRAM} --config OLD --output NEW",
        width,
    )
    yield "\ncommands:"
    yield from (_entry(name, text, width) for name, text in COMMANDS.items())
    yield "\nexamples:"
    yield from (f"  {PROGRAM} {job.examples[0]}" for job in _JOBS.values())
    yield f"\n`{PROGRAM} images --help` shows the everyday flags of a command, and --help-all all of them.\n"
    yield _REST


def _help_of(name: str, all_flags: bool, width: int) -> Iterator[str]:
    job, declared = _JOBS[name], declared_flags()[name]
    yield f"usage: {PROGRAM} {name} --input PATTERN --output DIR [flags]\n"
    yield from textwrap.wrap(f"{job.summary[0].upper()}{job.summary[1:]}. {job.description}", width)
    yield "\nexamples:"
    yield from (f"  {PROGRAM} {example}" for example in job.examples)
    if all_flags:
        for title, group in job.groups().items():
            yield f"\n{title}:"
            yield from _entries(group.values(), width)
        yield f"\n{_REST}"
        return
    required = [declared[flag] for flag in ("input", "output")]
    yield "\nrequired:"
    yield from _entries(required, width)
    yield "\neveryday flags:"
    yield from _entries(
        (flag for flag in declared.values() if flag.everyday and flag not in required), width
    )
    yield f"\n{len(declared)} flags in all: {PROGRAM} {name} --help-all"


def _entries(flags: Iterable[Flag], width: int) -> Iterator[str]:
    for flag in flags:
        yield _entry(f"--{flag.name} {flag.metavar}".rstrip(), flag.help, width)


def _entry(name: str, text: str, width: int) -> str:
    """A name and its text in two columns; a long name gets a separate line."""
    indent = " " * _INDENT
    lines = textwrap.fill(text, width, initial_indent=indent, subsequent_indent=indent)
    head = f"  {name}"
    return f"{head}\n{lines}" if len(head) > _INDENT - 2 else head + lines[len(head) :]
