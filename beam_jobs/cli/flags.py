"""Flags as typed dataclass fields, each declared once with its default and its help."""

from __future__ import annotations

import abc
import argparse
import copy
import dataclasses
import inspect
import re
from collections.abc import Iterable
from typing import Any, ClassVar, Literal, NoReturn, TypeVar, get_args, get_origin, get_type_hints

from beam_jobs.engines.flags import Engine
from beam_jobs.errors import UsageError
from beam_jobs.jobs.protocols import RecordJob

T = TypeVar("T")

F = TypeVar("F", bound="Flags")

# The arguments of `add_argument` for each flag, by the flag's name.
Declarations = dict[str, dict[str, Any]]


class Parser(argparse.ArgumentParser):
    """argparse that reports a mistake as a `UsageError` of one line."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        # Numbers with a unit, such as -6dB, are values, too.
        self._negative_number_matcher = re.compile(r"-\.?[0-9]")

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}; see --help")


@dataclasses.dataclass(frozen=True)
class Flags(abc.ABC):
    """Parsed flags, one field each; made with `flag`.

    Attributes:
        title: The heading of these flags in the help.
    """

    title: ClassVar[str]

    @classmethod
    def read(cls: type[F], namespace: argparse.Namespace) -> F:
        """The flags that argparse has parsed."""
        return cls(
            **{field.name: getattr(namespace, field.name) for field in dataclasses.fields(cls)}
        )

    @classmethod
    def declared(cls) -> Declarations:
        """How this class declares its own flags; those it inherits are left out."""
        types, own = get_type_hints(cls), inspect.get_annotations(cls)
        return {
            field.name: {**_parsed_as(types[field.name], field.default), **field.metadata}
            for field in dataclasses.fields(cls)
            if field.name in own
        }

    @abc.abstractmethod
    def validate(self) -> None:
        """Checks the flags by themselves, without a look at inputs or output.

        Raises:
            UsageError: A value is wrong, or two flags contradict each other.
        """


class JobFlags(Flags):
    """The flags that say what a job reads and what its records are."""

    @abc.abstractmethod
    def make_job(self, columns: tuple[str, ...], output: str, max_bytes: int) -> RecordJob:
        """The job, after a look at its inputs.

        Args:
            columns: Columns that decide the splits of records.
            output: The output directory, whose files are never inputs.
            max_bytes: The most bytes that an input may take in memory.

        Raises:
            UsageError: The flags do not fit the inputs.
        """

    def warnings(self, job: RecordJob) -> Iterable[str]:
        """Lines about the inputs of a job that these flags made."""
        return ()


def flag(default: T, description: str, *, unset: str = "", **declaration: Any) -> T:
    """A dataclass field that is a flag; its type decides how the value is parsed.

    Args:
        default: The value without the flag.
        description: The help text, to which the default is added.
        unset: What happens without the flag, if the default's text does not say it.
        declaration: Further arguments of `add_argument`, such as `metavar`.
    """
    declared = {"help": f"{description} (default: {unset or default})", **declaration}
    if isinstance(default, list):
        return dataclasses.field(default_factory=lambda: copy.copy(default), metadata=declared)
    return dataclasses.field(default=default, metadata=declared)


@dataclasses.dataclass(frozen=True)
class RunFlags(Flags):
    """The flags that say where a job runs and what it prints; the dataset does not depend on them."""

    title = "where and how it runs"

    engine: Engine = flag(
        "direct",
        "where the job runs: sets Beam's flags for it, see docs/engines.md",
        unset="direct, this machine",
    )
    engine_page: str = flag(
        "",
        "the page of Flink's JobManager (port 8081), which is asked whether an earlier job of the output runs, and "
        "whether this one does; Ctrl-C cancels the job there",
        unset="--flink_master, or this port of the job service's machine",
        metavar="URL",
    )
    dry_run: bool = flag(
        False,
        "write nothing, and print what the job would write; `plan` before the job does the same",
        unset="write",
    )
    json: bool = flag(
        False,
        "print one JSON object on stdout, of what the table shows, the reasons of rejects, warnings, the "
        "seconds of each phase, the exit code, and the error of a job that failed",
        unset="a table",
    )
    report: str = flag(
        "",
        "write a report on the dataset: one HTML file on this machine, as `python -m readers report` does",
        unset="none",
        metavar="FILE",
    )
    check: bool = flag(
        False,
        "look for what may be wrong with the dataset once it is written, as `python -m readers check` does, and for "
        "near duplicates among all of its records; the exit code is 1 if there is a finding as bad as --fail_on",
        unset="off",
    )
    fail_on: Literal["error", "warning", "note"] = flag(
        "error", "the mildest finding of --check with which the exit code is 1"
    )
    config: str = flag(
        "",
        "a .yaml or .json file with flags of the job, such as input: photos, and lists for flags that "
        "may be repeated; or a dataset's directory, to make it again. Flags of the command line "
        "replace those of the file",
        unset="none",
        metavar="FILE|DIR",
    )


def _parsed_as(kind: Any, default: Any) -> dict[str, Any]:
    """The arguments of `add_argument` that follow from a field's type and default."""
    if kind is bool:
        return {"action": "store_true"}
    if get_origin(kind) is list:
        return {"action": "append", "default": []}
    if get_origin(kind) is Literal:
        choices = get_args(kind)
        return {"default": default, "type": type(choices[0]), "choices": choices}
    return {"default": default, **({"type": int} if kind is int else {})}


def names_in(text: str) -> tuple[str, ...]:
    """The names in a comma-separated value."""
    return tuple(filter(None, text.split(",")))
