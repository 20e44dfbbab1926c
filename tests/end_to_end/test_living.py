"""The story of a dataset in docs/tutorials/living.ipynb runs, and so do the commands of the pages about it.

`python -m tests.end_to_end.test_living` runs the notebook, and writes its outputs into the file.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from examples.samples import make_samples
from tests.end_to_end.test_readme import blocks
from tests.support.checkout import ROOT
from tests.support.notebooks import executed, keep, output_of

NOTEBOOK = ROOT / "docs/tutorials/living.ipynb"

# What the notebook says about its outputs.
LINES = [
    r"1: cannot be decoded: image file is truncated, such as april/nine/cut.png",
    r"near_leaks: image: 2 of 1,505 records .*six/0611.png and six/0522.png",
    r"generation 3 has 1,499 records; deleted 5 of train, 1 of val",
    r"surprise +float32",
    r"shards/usual: selected 1,\d+ of train",
    r"shards/usual: accuracy on val 9\d",
    r"the model of the run without a stop: True",
    r"1202 records then, 1448 now",
    r"train  0 removed, 246 added, 1,202 in both",
    r"train: 1,448 records in 4 shards",
    r"erased 1 key: 2 records and rejects in all files",
    r"generation 4 is not here",
    r"1,795 records, .*: no problems",
]


@pytest.mark.slow
def test_the_notebook_runs_and_prints_what_it_says(tmp_path):
    import nbformat

    for notebook in (nbformat.read(NOTEBOOK, 4), executed(NOTEBOOK, tmp_path)):
        text = "\n".join(output_of(notebook, tmp_path))
        assert [line for line in LINES if not re.search(line, text)] == []


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
        ("read/reading.md", "", "## Parts of a dataset"),
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


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as new:
        keep(NOTEBOOK, Path(new))
