"""Runs notebooks, and keeps of their outputs what is the same everywhere."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Any
from unittest import mock

from tests.support.checkout import ROOT

# Lines of progress, such as `writing: 901 of 1,797 records, 889/s`, and of times.
_PROGRESS = re.compile(r"^((starting|listing|time):? |[a-z ]+: [\d,.]+( \w+)? of ).*\n", re.M)


def executed(path: Path, folder: Path) -> Any:
    """The notebook in a file after it has run in a folder; raises an error with the traceback of the cell that failed."""
    import nbformat
    from nbclient import NotebookClient

    notebook = nbformat.read(path, 4)
    programs = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    paths = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    variables = {"PATH": programs, "PYTHONPATH": paths, "TF_CPP_MIN_LOG_LEVEL": "3"}
    with mock.patch.dict(os.environ, variables):
        where = {"metadata": {"path": str(folder)}}
        NotebookClient(notebook, timeout=600, resources=where).execute()
    return notebook


def output_of(notebook: Any, folder: Path = Path("/nowhere")) -> list[str]:
    """The text that each cell printed, without progress and the folder in which it ran."""
    found = []
    for cell in notebook.cells:
        texts: list[str] = []
        for name in ("stdout", "stderr"):
            parts = (o for o in cell.get("outputs", ()) if o.get("name") == name)
            texts.append("".join(part.text for part in parts))
        found.append(_PROGRESS.sub("", "".join(texts)).replace(str(folder), "/home/me"))
    return found


def keep(path: Path, folder: Path) -> None:
    """Runs the notebook in a file, and writes its outputs to the file."""
    import nbformat
    from nbformat.v4 import new_output

    notebook = executed(path, folder)
    for cell, text in zip(notebook.cells, output_of(notebook, folder), strict=True):
        cell.metadata.clear()
        if cell.cell_type == "code":
            cell.outputs = [new_output("stream", name="stdout", text=text)] if text else []
    # With this lexer, the site shows cells of %%bash as Bash.
    notebook.metadata["language_info"] = {"name": "python", "pygments_lexer": "ipython3"}
    nbformat.write(notebook, path)
