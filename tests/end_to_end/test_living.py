"""The commands of the pages about datasets that live run."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from examples.samples import make_samples
from tests.end_to_end.test_readme import blocks
from tests.support.checkout import ROOT


@pytest.mark.slow
def test_the_commands_about_datasets_that_live_run(tmp_path):
    make_samples(tmp_path / "sample_data" / "inputs")
    shutil.copytree(tmp_path / "sample_data" / "inputs" / "images", tmp_path / "april")
    (tmp_path / "look.py").write_text(
        "def brightness(features, info):\n    return {'bright': features['image'].mean() / 255}\n"
    )
    programs = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    variables = {**os.environ, "PATH": programs, "PYTHONPATH": str(ROOT)}
    for page, first, rest in [
        ("write/writing.md", "## Jobs", "## Datasets that live"),
    ]:
        ran = 0
        for heading in filter(None, (first, rest)):
            text = (ROOT / "docs" / page).read_text(encoding="utf-8")
            section = text[text.index(f"\n{heading}\n") + 1 :]
            section = section[: section.find("\n## ", 1)]
            part = tmp_path / "section.md"
            part.write_text(section, encoding="utf-8")
            # Of the jobs, only the first block, which writes the datasets of all pages.
            for block in blocks(part)[: 1 if heading == first else None]:
                program = {"bash": ["bash", "-euo", "pipefail"], "python": ["python"]}
                command = [*program[block.language], "-c", block.text]
                done = subprocess.run(
                    command, cwd=tmp_path, env=variables, capture_output=True, text=True
                )
                assert done.returncode == 0, f"{block.text}\n{done.stderr[-3000:]}"
                ran += 1
        assert ran
