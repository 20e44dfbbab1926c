"""Flags as dataclass fields: each declared once, with its type, default, check and help."""

from __future__ import annotations

import abc
import copy
import dataclasses
import inspect
import pkgutil
from collections.abc import Callable, Iterable, Sequence
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Literal,
    TypeVar,
    get_args,
    get_origin,
    get_type_hints,
)

from beam_jobs.engines.flags import Engine
from beam_jobs.errors import UsageError, did_you_mean

if TYPE_CHECKING:
    from beam_jobs.jobs.job import FileJob, Job

T = TypeVar("T")

F = TypeVar("F", bound="Flags")


@dataclasses.dataclass(frozen=True)
class Flag:
    """One flag of a command.

    Attributes:
        name: Its name, without dashes.
        kind: bool for a flag without a value, list for one with several, else int or str.
        default: The value without the flag.
        help: What the flag does, and the default.
        metavar: The name of the value in the help.
        choices: The values that it may have; empty for any.
        least: The smallest number that it may be.
        check: Raises UsageError for a wrong value, with what was found and expected: a function of the value, or
            its name below `beam_jobs` and further arguments, such as "plan.placement:Splits.folds", which is
            imported when the flag is given.
        needs: This flag changes nothing without one of these, such as "boxes masks".
        excludes: The flags that cannot be combined with this one.
        everyday: Whether the short help shows it.
        stated: Whether the manifest states it, because the dataset depends on it.
    """

    name: str
    kind: type
    default: Any
    help: str
    metavar: str = ""
    choices: tuple[Any, ...] = ()
    least: int | None = None
    check: Callable[[Any], object] | str = ""
    needs: str = ""
    excludes: str = ""
    everyday: bool = False
    stated: bool = True

    def value(self, texts: list[str]) -> Any:
        """The value of the texts after a flag; UsageError if it is not a number, or not one of the choices."""
        if self.kind is bool:
            return True
        if self.kind is list:
            return texts
        text, choices = texts[-1], {str(choice): choice for choice in self.choices}
        if choices and text not in choices:
            expected = f"{_either([*choices])}{did_you_mean(text, choices)}"
            raise UsageError(f"--{self.name} {text}: expected {expected}")
        if choices or self.kind is not int:
            return choices.get(text, text)
        try:
            return int(text)
        except ValueError:
            raise UsageError(f"--{self.name} {text}: expected a whole number") from None

    def check_value(self, value: Any) -> None:
        """Raises UsageError for a wrong value; the default is not checked."""
        if self.least is not None and value < self.least:
            raise UsageError(f"--{self.name} {value}: expected at least {self.least}")
        if not self.check or value == self.default:
            return
        check, *more = self.check.split() if isinstance(self.check, str) else (self.check,)
        run: Any = pkgutil.resolve_name(f"beam_jobs.{check}") if isinstance(check, str) else check
        try:
            run(value, *more)
        except UsageError as error:
            raise UsageError(f"{error.message}{self._close_form(value)}") from None

    def _close_form(self, value: Any) -> str:
        """A hint for a word that is nearly one of those in the metavar, such as `column` in `column:NAME`."""
        word, colon, rest = str(value).partition(":")
        forms = {form.split("[")[0].split(":")[0]: form for form in self.metavar.split("|")}
        words = [form for form in forms if form.islower() and form not in ("none", word)]
        return did_you_mean(word, words, after=f"{colon}{rest}") if word not in forms else ""


def flag(default: T, description: str, *, unset: str = "", **how: Any) -> T:
    """A dataclass field that is a flag; the value is parsed as its type.

    Args:
        default: The value without the flag.
        description: The help text, to which the default is added.
        unset: What happens without the flag, if the default, `none` or `off`, does not show it.
        how: Attributes of `Flag`.
    """
    usual = "off" if default is False else "none" if default in (None, "", []) else default
    how["help"] = f"{description} (default: {unset or usual})"
    if isinstance(default, list):
        return dataclasses.field(default_factory=lambda: copy.copy(default), metadata=how)
    return dataclasses.field(default=default, metadata=how)


@dataclasses.dataclass(frozen=True)
class Flags(abc.ABC):
    """Parsed flags, one field each; made with `flag`.

    Attributes:
        title: The heading of these flags in the help.
    """

    title: ClassVar[str]

    # Whether the manifest states them, because the dataset depends on them.
    stated: ClassVar[bool] = True

    @classmethod
    def declared(cls) -> dict[str, dict[str, Flag]]:
        """The flags by heading and name, those of the classes above first."""
        types = get_type_hints(cls)
        fields = {field.name: field for field in dataclasses.fields(cls)}
        groups: dict[str, dict[str, Flag]] = {}
        for declaring in reversed(cls.__mro__):
            if issubclass(declaring, Flags):
                own = [name for name in inspect.get_annotations(declaring) if name in fields]
                group = groups.setdefault(declaring.title, {}) if own else {}
                group |= {name: _flag(fields[name], types[name], cls.stated) for name in own}
        return groups

    @classmethod
    def read(cls: type[F], values: dict[str, Any]) -> F:
        """The flags that have some values, and those that have their default."""
        names = {field.name for field in dataclasses.fields(cls)}
        return cls(**{name: value for name, value in values.items() if name in names})

    def given(self, name: str) -> bool:
        """Whether a flag, if the job has it, differs from its default."""
        field = self.__dataclass_fields__.get(name)
        return field is not None and getattr(self, name) not in (field.default, [])

    def validate(self) -> None:
        """Raises UsageError if a flag needs another one, or two contradict each other; looks at no input or output."""
        for field in filter(lambda field: self.given(field.name), dataclasses.fields(self)):
            needs = field.metadata.get("needs", "").split()
            if needs and not any(map(self.given, needs)):
                raise UsageError(
                    f"{self.typed(field.name)}: it has no effect without {_either([f'--{n}' for n in needs])}: add "
                    f"{'it' if len(needs) == 1 else 'one'}, or drop --{field.name}"
                )
            for other in filter(self.given, field.metadata.get("excludes", "").split()):
                raise UsageError(
                    f"{self.typed(field.name)}: it cannot be combined with {self.typed(other)}: drop one"
                )

    def typed(self, name: str) -> str:
        """A flag and its value as on a command line."""
        value = getattr(self, name)
        text = " ".join(value) if isinstance(value, list) else "" if value is True else str(value)
        return f"--{name} {text}".rstrip()


def _either(names: Sequence[str]) -> str:
    *most, last = names
    return f"{', '.join(most)} or {last}" if most else last


def _flag(field: dataclasses.Field[Any], kind: Any, stated: bool) -> Flag:
    how = dict(field.metadata)
    if get_origin(kind) is Literal:
        how["choices"] = get_args(kind)
        kind = type(how["choices"][0])
    several = get_origin(kind) is list
    kind = list if several else kind if kind in (bool, int) else str
    usual = {bool: "", int: "N"}.get(kind, "NAME")
    how.setdefault("metavar", "|".join(map(str, how.get("choices", ()))) or usual)
    how["stated"] = how.get("stated", True) and stated
    return Flag(field.name, kind, [] if several else field.default, **how)


class JobFlags(Flags):
    """The flags that choose what a job reads and what its records are."""

    @abc.abstractmethod
    def make_job(self, columns: tuple[str, ...], output: str, max_bytes: int) -> Job:
        """The job, after a look at its inputs.

        Args:
            columns: Columns that determine the splits of records.
            output: The output directory, whose files are never inputs.
            max_bytes: The most bytes that an input may take in memory.

        Raises:
            UsageError: The flags do not fit the inputs.
        """

    # What `--input` should name.
    inputs_expected: ClassVar[str] = "name files or a folder, or add a --table"

    def encoded_job(self, job: Job, encoding: str) -> FileJob:
        """A job that these flags made, with another `--encoding`; UsageError if they or its records do not allow it."""
        raise UsageError(f"--encoding {encoding}: this job has no such flag")

    def warnings(self, job: Job) -> Iterable[str]:
        """Lines about the inputs of a job that these flags made."""
        return ()


@dataclasses.dataclass(frozen=True)
class RunFlags(Flags):
    """The flags that choose where a job runs and what it prints; the dataset does not depend on them."""

    title = "where and how it runs"
    stated = False

    engine: Engine = flag(
        "direct",
        "where the job runs: sets Beam's flags for it, see docs/deploy/engines.md",
        unset="direct, this machine",
    )
    engine_page: str = flag(
        "",
        "the address of Flink's JobManager (port 8081), which shows whether this job, or an earlier one with the "
        "same output, is running; Ctrl-C cancels the job there",
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
        "print one JSON object on stdout: the table, the reasons of rejects, warnings, the seconds of each "
        "phase, the exit code, and the error of a failed job",
        unset="a table",
    )
    config: str = flag(
        "",
        "a .yaml or .json file of flags, such as input: photos, with lists for several values; or the directory of a "
        "dataset, to make it again. Flags on the command line replace those of the file",
        metavar="FILE|DIR",
    )


def names_in(text: str) -> tuple[str, ...]:
    """The names in a comma-separated value."""
    return tuple(filter(None, text.split(",")))
