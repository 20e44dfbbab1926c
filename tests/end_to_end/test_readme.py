"""README and docs: their blocks run, and the flags, arguments and links that they name exist."""

from __future__ import annotations

import argparse
import ast
import contextlib
import functools
import inspect
import io
import json
import re
import shlex
from pathlib import Path

import pytest

import beam_jobs
import readers
from beam_jobs.__main__ import main as beam_jobs_main
from beam_jobs.changes.command import CHANGES
from beam_jobs.cli.parser import COMMANDS
from beam_shards import READERS
from examples.samples import make_samples
from readers.__main__ import main as readers_main
from tests.support.checkout import ROOT
from tests.support.pages import blocks, run, without_accuracy

PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]
JOBS = ("images", "text", "sensors", "reshard")

# Pages whose blocks run in order, each page in a folder with only the sample inputs.
WRITE = (
    "images",
    "text",
    "sensors",
    "tables",
    "functions",
    "tfrecords",
    "jobs",
    "splits",
    "living",
)
RUN = ("README.md", *(f"docs/write/{name}.md" for name in WRITE), "docs/check/checks.md")

# Flags of Flink's job server, which Beam's Python options do not declare.
JOB_SERVER = {"--parallelism"}


def commands(page: Path) -> list[list[str]]:
    """The commands of the shell blocks of a page, as lists of words."""
    lines = []
    for block in blocks(page):
        if block.language == "bash":
            lines += block.text.replace("\\\n", " ").splitlines()
    return [words for words in (shlex.split(line, comments=True) for line in lines) if words]


@pytest.mark.slow
@pytest.mark.parametrize("name", RUN)
def test_the_blocks_of_a_page_run_in_order_and_print_its_outputs(name, tmp_path):
    make_samples(tmp_path / "sample_data" / "inputs")
    ran = []
    for block in blocks(ROOT / name):
        if block.parse_only:
            continue
        printed = run(block, tmp_path)
        if block.output is not None:
            assert without_accuracy(printed) == without_accuracy(block.output), block.text
            ran.append(block.language)
    assert ({"bash", "python"} if name == "README.md" else {"bash"}) <= set(ran)


@functools.cache
def flags_of(program: str, command: str) -> frozenset[str]:
    """The flags that the help of a command lists."""
    text = io.StringIO()
    run = {"beam_jobs": beam_jobs_main, "readers": readers_main}[program]
    with contextlib.redirect_stdout(text), contextlib.suppress(SystemExit):
        run([command, "--help-all" if command in JOBS else "--help"])
    found = re.findall(r"^  (?:-\w(?: \w+)?, )?(--\w+)", text.getvalue(), re.M)
    assert found
    return frozenset([*found, "--help", "--help-all"])


@functools.cache
def beam_flags() -> frozenset[str]:
    """The flags of Beam's own options."""
    from apache_beam.options.pipeline_options import PipelineOptions

    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    for kind in PipelineOptions.__subclasses__():
        if "_add_argparse_args" in vars(kind):
            kind._add_argparse_args(parser)
    found = [option for action in parser._actions for option in action.option_strings]
    return frozenset([*found, *JOB_SERVER])


def unknown_flags(words: list[str]) -> list[str]:
    """The flags of a command of this project that it does not have."""
    if words[:2] == ["python", "-m"] and words[2] in ("beam_jobs", "readers"):
        program, *rest = words[2:]
    elif words[0] == "beam-shards":
        program, *rest = "readers" if words[1] in READERS else "beam_jobs", *words[1:]
    elif words[0] == "./run_local.sh" and words[1:] and words[1] in ("plan", *JOBS):
        program, *rest = "beam_jobs", *words[1:]
    else:
        return []
    command, *rest = rest[1:] if rest[0] == "plan" else rest
    known = flags_of(program, command) | (beam_flags() if program == "beam_jobs" else frozenset())
    given = [word.split("=", 1)[0] for word in rest if word.startswith("--")]
    return [flag for flag in given if flag not in known]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_flags_in_the_commands_of_a_page_exist(page):
    assert [(words, unknown) for words in commands(page) if (unknown := unknown_flags(words))] == []


@pytest.mark.parametrize("command", [*COMMANDS, *CHANGES, *READERS])
def test_the_help_of_a_command_begins_with_an_example_whose_flags_exist(command, capsys):
    run = readers_main if command in READERS else beam_jobs_main
    with contextlib.suppress(SystemExit):
        run([command, "--help"])
    (shown,) = re.findall(r"\n\nexamples?:\n((?:  beam-shards .*\n)+)", capsys.readouterr().out)
    for words in map(shlex.split, shown.splitlines()):
        assert words[1] == command and len(words) > 2
        assert unknown_flags(words) == []


def test_a_flag_that_does_not_exist_is_found():
    assert unknown_flags(shlex.split("python -m beam_jobs plan text --tokns words")) == ["--tokns"]
    assert unknown_flags(shlex.split("./run_local.sh images --tokens=words")) == ["--tokens"]
    assert unknown_flags(shlex.split("python -m readers head DIR --splits a")) == ["--splits"]
    assert unknown_flags(shlex.split("beam-shards plan text --tokns words")) == ["--tokns"]
    assert unknown_flags(shlex.split("beam-shards head DIR --splits a")) == ["--splits"]


@pytest.mark.parametrize(
    "page",
    [ROOT / "README.md", *sorted((ROOT / "docs/write").glob("*.md"))],
    ids=lambda page: page.name,
)
def test_the_flags_in_the_text_of_a_page_exist(page):
    prose = re.sub(r"^ *```.*?^ *```$", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
    named = {
        flag for code in re.findall(r"`([^`]+)`", prose) for flag in re.findall(r"--\w+", code)
    }
    programs = [*(("beam_jobs", name) for name in (*JOBS, *CHANGES)), ("readers", "check")]
    known = beam_flags().union(*(flags_of(*program) for program in programs))
    assert named - known == set()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_functions_and_arguments_in_the_python_of_a_page_exist(page):
    python = [block.text for block in blocks(page) if block.language == "python"]
    assert [wrong for text in python for wrong in unknown_arguments(text)] == []


def unknown_arguments(text: str) -> list[str]:
    """The arguments in some Python that the public function with them does not have."""
    wrong = []
    for node in ast.walk(ast.parse(text)):
        if (
            not isinstance(node, ast.Call)
            or not isinstance(node.func, ast.Attribute)
            or not node.keywords
        ):
            continue
        *owner, name = ast.unparse(node.func).split(".")
        modules = {"readers": readers, "beam_jobs": beam_jobs, "transforms": readers.transforms}
        if not owner or owner[0] not in modules or not all(map(str.isidentifier, owner)):
            continue
        called = getattr(functools.reduce(getattr, owner[1:], modules[owner[0]]), name)
        known = {*inspect.signature(called).parameters}
        wrong += [word.arg for word in node.keywords if word.arg not in {*known, None}]
    return wrong


def test_what_the_table_of_wishes_says_to_type_exists():
    page = ROOT / "docs/reference/howdoi.md"
    cells = re.findall(r"^\| [^|]+ \| `(.+)` \| \[", page.read_text(encoding="utf-8"), re.M)
    assert 40 <= len(cells) == len({*cells}) <= 60
    flags = set().union(*(flags_of("beam_jobs", job) for job in JOBS))
    for typed in cells:
        if typed.startswith("beam-shards "):
            assert unknown_flags(shlex.split(typed)) == []
        elif typed.startswith("--"):
            assert {word for word in shlex.split(typed) if word.startswith("--")} <= flags, typed
        else:
            call = (
                typed
                if typed.startswith(("readers.", "beam_jobs."))
                else f"readers.as_numpy(D, 8, {typed})"
            )
            assert "(" in call and unknown_arguments(call) == []


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    found: list[str] = []
    text = re.sub(r"^ *```.*?^ *```$", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
    for heading in re.findall(r"^#+ (.+)$", text, re.M):
        slug = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        found.append(f"{slug}-{found.count(slug)}" if slug in found else slug)
    return set(found)


def broken_links(page: Path) -> list[str]:
    """The relative links of a page whose target does not exist."""
    text = re.sub(r"^ *```.*?^ *```$", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
    broken = []
    for link in re.findall(r"\]\(([^)\s]+)", re.sub(r"`[^`]*`", "", text)):
        if re.match(r"\w+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(link)
    return broken


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_relative_link_has_a_target(page):
    assert broken_links(page) == []


def test_broken_links_are_found(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("# One\n[a](#one) [b](#two) [c](gone.md) [d](page.md#one) [e](https://x.y/z)\n")
    assert broken_links(page) == ["#two", "gone.md"]


def test_the_readme_fits_three_screens():
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 120


def test_the_pages_for_users_have_at_most_25_000_words():
    """Those of the README, of pages outside of `internals`, and of notebooks, without code and the generated reference."""
    texts = [page.read_text(encoding="utf-8") for page in PAGES if "internals" not in page.parts]
    for notebook in sorted((ROOT / "docs/tutorials").glob("*.ipynb")):
        cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
        texts += ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown"]
    prose = re.sub(r"^ *```(?!{glossary}).*?^ *```$", "", "\n".join(texts), flags=re.M | re.S)
    assert len(re.findall(r"\S*\w\S*", prose)) <= 25_000


@pytest.mark.parametrize("page", [*PAGES, ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md"], ids=str)
def test_the_paragraphs_of_a_page_are_wrapped_at_100_columns(page):
    text = re.sub(r"^ *```.*?^ *```$", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
    whole = re.compile(r"!\[[^]]*\]|\]\([^)]*\)|`[^`]*`|^\[[^]]+\]: .*")  # What cannot be wrapped.
    lines = [whole.sub("", line) for line in text.splitlines() if not line.startswith("|")]
    assert [line for line in lines if len(line) > 100] == []
