"""The command `beam-shards`: it lists, routes and suggests the commands of both packages."""

import re
import subprocess
import sys

import beam_shards
from beam_jobs.changes.command import CHANGES
from beam_jobs.cli.parser import COMMANDS
from readers import __main__ as reading
from tests.support.checkout import ROOT
from tests.support.commands import only_error
from tests.support.datasets import write_numbers

ALL = [*COMMANDS, *CHANGES, *reading._COMMANDS]


def test_the_help_lists_every_command_with_a_line_and_imports_little():
    code = "import beam_shards, sys; beam_shards.main(); print(*sys.modules, file=sys.stderr)"
    command = [sys.executable, "-c", code, "--help"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=True)
    assert re.findall(r"^  (\w+) +\w.+", done.stdout, re.MULTILINE) == ALL
    # They take most of the time of other commands.
    assert not {"numpy", "apache_beam"} & {*done.stderr.split()}
    assert beam_shards.READERS == reading._COMMANDS


def run(monkeypatch, *arguments):
    monkeypatch.setattr(sys, "argv", ["beam-shards", *map(str, arguments)])
    monkeypatch.setattr("beam_jobs.__main__._open_streams", lambda: None)
    return beam_shards.main()


def test_commands_of_both_packages_run(monkeypatch, tmp_path, capsys):
    dataset = write_numbers(tmp_path / "numbers")
    assert run(monkeypatch, "verify", dataset) == 0
    assert "no problems" in capsys.readouterr().out
    assert run(monkeypatch, "plan", "reshard", "--input", dataset) == 0
    assert "train" in capsys.readouterr().out


def test_a_mistake_is_one_line_that_names_what_to_type(monkeypatch, capsys):
    for arguments, words in (
        (["verfy", "x"], r"expected plan, images, .* or bench; did you mean verify\?"),
        (["image"], r"did you mean images\?"),
        (["--split", "x"], "expected plan, images, text, sensors or reshard before --split"),
        (["verify"], "DIR; see beam-shards verify --help"),
        (["images"], "--input is missing: name files or a folder"),
    ):
        assert run(monkeypatch, *arguments) == 2
        only_error(capsys.readouterr().err, words)
    assert run(monkeypatch) == 2
    assert capsys.readouterr().err.startswith("usage: beam-shards COMMAND")
