"""Flags as dataclass fields: their declarations for argparse, the help, and the checks."""

import argparse
from dataclasses import FrozenInstanceError, asdict, dataclass
from typing import Literal

import pytest

from beam_jobs.__main__ import main
from beam_jobs.cli.flags import Flags, Parser, flag
from beam_jobs.cli.parser import build_parser, parse_flags
from beam_jobs.errors import UsageError
from readers.format.version import __version__

JOBS = ("images", "text", "sensors", "reshard")


@dataclass(frozen=True)
class Few(Flags):
    title = "few"

    name: str = flag("", "a name", unset="none", metavar="NAME")
    size: int = flag(3, "a size")
    kind: Literal["a", "b"] = flag("a", "a kind")
    level: Literal[1, 2] = flag(2, "a level")
    parts: list[str] = flag([], "parts", unset="none")
    fast: bool = flag(False, "be fast", unset="be slow")

    def validate(self):
        pass


@dataclass(frozen=True)
class More(Few):
    title = "more"

    other: str | None = flag(None, "another", unset="none")


def test_a_value_may_begin_as_a_negative_number():
    assert parse_flags(["sensors", "--window", "-6dB"])[0].job.window == "-6dB"


def actions():
    (jobs,) = (a for a in build_parser()._actions if isinstance(a, argparse._SubParsersAction))
    return [
        pytest.param(action, id=f"{name} {'/'.join(action.option_strings)}")
        for name, job in jobs.choices.items()
        for action in job._actions
        if action.dest != "help"
    ]


def test_a_declaration_follows_from_type_default_and_description():
    assert Few.declared() == {
        "name": {"default": "", "help": "a name (default: none)", "metavar": "NAME"},
        "size": {"default": 3, "type": int, "help": "a size (default: 3)"},
        "kind": {
            "default": "a",
            "type": str,
            "choices": ("a", "b"),
            "help": "a kind (default: a)",
        },
        "level": {"default": 2, "type": int, "choices": (1, 2), "help": "a level (default: 2)"},
        "parts": {"default": [], "action": "append", "help": "parts (default: none)"},
        "fast": {"action": "store_true", "help": "be fast (default: be slow)"},
    }


def test_a_class_declares_its_own_flags_and_reads_inherited_ones():
    assert list(More.declared()) == ["other"]
    parser = Parser()
    for declared in (Few.declared(), More.declared()):
        for name, how in declared.items():
            parser.add_argument(f"--{name}", **how)
    assert More.read(parser.parse_args([])) == More()
    given = ["--parts", "x", "--parts", "y", "--level", "1", "--fast", "--other", "z"]
    assert More.read(parser.parse_args(given)) == More(
        parts=["x", "y"], level=1, fast=True, other="z"
    )
    assert More.read(parser.parse_args([])).parts == []
    with pytest.raises(FrozenInstanceError):
        More().size = 4
    with pytest.raises(UsageError, match="--level: invalid choice: 3"):
        parser.parse_args(["--level", "3"])


@pytest.mark.parametrize("job", JOBS)
def test_a_bare_command_line_gives_the_defaults_of_the_fields(job):
    flags, rest = parse_flags([job])
    assert rest == []
    assert flags.name == job
    assert asdict(flags.job) == asdict(type(flags.job)())
    assert asdict(flags.dataset) == asdict(type(flags.dataset)())


def test_other_arguments_are_returned():
    flags, rest = parse_flags(["text", "--window", "4", "--runner=x", "--keep", "y"])
    assert flags.job.window == 4
    assert rest == ["--runner=x", "--keep", "y"]


@pytest.mark.parametrize("action", actions())
def test_the_help_of_every_flag_states_its_default(action):
    found = action.help.rpartition("(default: ")
    assert found[1], "no default"
    assert found[0], "no help"
    default = found[2].removesuffix(")").split(";")[0]
    if action.default not in (None, "", [], False):
        assert default.split(",")[0].split(" ")[0] == str(action.default)
    if action.nargs != 0:
        assert action.metavar or action.choices or action.type


@pytest.mark.parametrize("arguments", [[], ["plan"]])
def test_a_command_without_a_job_shows_the_help_and_ends_with_exit_code_2(capsys, arguments):
    assert main(arguments) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "[plan] images|text|sensors|reshard" in shown.err
    assert "exit code: 0 done" in shown.err


def test_the_version_is_printed(capsys):
    with pytest.raises(SystemExit) as caught:
        main(["--version"])
    assert (caught.value.code, capsys.readouterr().out) == (0, f"beam-shards {__version__}\n")


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("images --image_size 5", "--image_size 5"),
        ("images --splits a=2", "--splits a=2"),
        ("text --window 4", "--window counts tokens"),
        ("sensors --time_unit ms", "--time_unit ms"),
        ("reshard --keep a --drop b", "--keep and --drop"),
    ],
)
def test_flags_are_checked_before_inputs_are_looked_at(capsys, command, message):
    assert main([*command.split(), "--input", "/nowhere", "--dry_run"]) == 2
    assert capsys.readouterr().err.startswith(f"error: {message}")
