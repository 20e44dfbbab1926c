"""The blocks of Markdown pages, and what they print when they run."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from tests.support.checkout import ROOT

# Precedes a block that needs an installation, a cluster or a store; invisible on the page.
_PARSE_ONLY = "<!-- test: parse only -->"

_FENCE = re.compile(
    rf"(?P<only>{_PARSE_ONLY}\n)?^ *```(?P<language>\w*)\n(?P<text>.*?)^ *```$", re.M | re.S
)


class Block(NamedTuple):
    """A fenced block of a page, and the output that the page shows after it."""

    language: str
    text: str
    parse_only: bool = False
    output: str | None = None

    @property
    def file(self) -> str:
        """The file of a program that begins with its name, such as `# train.py`; empty without one."""
        named = re.match(r"# (\w+\.py)\n", self.text)
        return named[1] if named else ""


def blocks(page: Path) -> list[Block]:
    """The blocks of a page in order; a `text` block is the output of the block before it."""
    return blocks_in(page.read_text(encoding="utf-8"))


def blocks_in(text: str) -> list[Block]:
    """The blocks of a page's text."""
    found: list[Block] = []
    for match in _FENCE.finditer(text):
        language, code = match["language"], match["text"]
        if language == "text" and found:
            found[-1] = found[-1]._replace(output=code)
        else:
            found.append(Block(language, code, bool(match["only"])))
    return found


def run(
    block: Block, folder: Path, python: str = sys.executable, more: Mapping[str, str] | None = None
) -> str:
    """Runs a block in a folder; a program of Python as a file, like that of a user.

    Args:
        block: A block of bash or Python.
        folder: The current folder.
        python: The interpreter of the blocks, which also find the programs next to that of this process.
        more: Further environment variables.

    Returns:
        What it prints on stdout.

    Raises:
        AssertionError: It fails.
    """
    file = block.file or "program.py"
    if block.language == "python":
        (folder / file).write_text(block.text, encoding="utf-8")
    programs = [str(Path(python).parent), str(Path(sys.executable).parent), os.environ["PATH"]]
    environment = {
        **os.environ,
        "PATH": os.pathsep.join(programs),
        "PYTHONPATH": str(ROOT),
        "TF_CPP_MIN_LOG_LEVEL": "3",
        **(more or {}),
    }
    shell = ["bash", "-euo", "pipefail", "-c", block.text]
    done = subprocess.run(
        {"bash": shell, "python": [python, file]}[block.language],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, f"{block.text}\n{done.stderr[-3000:]}"
    return done.stdout


def without_accuracy(text: str) -> list[str]:
    """The lines of an output without what differs between runs: a network's accuracy."""
    return re.sub(r"(accuracy: )(?:[89]\d|100)%", r"\1", text).splitlines()
