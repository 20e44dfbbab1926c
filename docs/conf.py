"""The documentation site: `./run_local.sh docs` builds it with Sphinx to build/site."""

from __future__ import annotations

import atexit
import contextlib
import importlib
import io
import logging
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from textwrap import wrap
from types import GenericAlias
from types import SimpleNamespace as Namespace
from typing import Any
from unittest import mock

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.ext.autodoc.mock import mock as mocked

import beam_shards
import readers.api
from beam_jobs.changes.command import CHANGES
from beam_jobs.cli.parser import COMMANDS
from readers.format import __version__

logging.disable()  # Beam warns of what it lacks for Google's services.
importlib.import_module("apache_beam")
logging.disable(logging.NOTSET)

project, release = "beam-shards", __version__
html_show_copyright = False
extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
]
default_role, smartquotes = "code", False  # "--flag" keeps its dashes.
html_theme, html_title = "furo", f"beam-shards {release}"
html_static_path, html_css_files = ["site/wide.css"], ["wide.css"]
html_extra_path = [tempfile.mkdtemp()]  # The sample report.
atexit.register(shutil.rmtree, html_extra_path[0], ignore_errors=True)
exclude_patterns = ["conf.py", "site"]

# `./run_local.sh docs all` names the versions that it builds, and the one of this build.
templates_path = ["site"]
html_context = {
    "versions": os.environ.get("SITE_VERSIONS", "").split(),
    "shown": os.environ.get("SITE_VERSION", "main"),
}
html_sidebars = {
    "**": [
        "sidebar/brand.html",
        "sidebar/search.html",
        "sidebar/scroll-start.html",
        "sidebar/navigation.html",
        "versions.html",
        "sidebar/scroll-end.html",
    ]
}
myst_heading_anchors = 4
copybutton_prompt_text, copybutton_prompt_is_regexp = r">>> |\.\.\. ", True
nb_execution_mode = "off"  # A test executes them.

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_preserve_defaults = True
python_display_short_literal_types = True
python_maximum_signature_line_length = 80
napoleon_numpy_docstring, napoleon_use_ivar = False, True
napoleon_custom_sections = [
    (name, "params_style") for name in ("Records to read", "Order", "Processing")
]

autodoc_mock_imports = ["torch"]  # It takes 6 GB.


def _type(name: str) -> Any:
    """A type of a framework, which signatures name and only type checkers import."""
    return type(
        name, (), {"__module__": "builtins", "__class_getitem__": classmethod(GenericAlias)}
    )


_DATASET, _SHARDING = _type("tf.data.Dataset"), _type("jax.sharding.Sharding")
with mocked(autodoc_mock_imports):
    for _name, _value in {
        "tf": Namespace(Tensor=_type("tf.Tensor"), data=Namespace(Dataset=_DATASET)),
        "jax": Namespace(sharding=Namespace(Sharding=_SHARDING)),
        "TorchBatches": readers.TorchBatches,
    }.items():
        setattr(readers.api, _name, _value)

# Arguments that are converted, so that their types in signatures are not those of the attributes.
_SIGNATURES = {
    "readers.Cache": "(directory: str | PathLike, size: int | str = '10GiB')",
    "readers.Feature": "(dtype: str, shape: Sequence[int | None] = (), encoding: str = '')",
}
_SIGNATURES["beam_jobs.Feature"] = _SIGNATURES["readers.Feature"]

# Parts of signatures, and how they are shown.
_PLAIN = {
    "0.75, 1.3333333333333333": "3 / 4, 4 / 3",
    "DEFAULT_SHARD_SIZE": "'128MiB'",
    "Clock": "ndarray | float",
}

ROOT = Path(__file__).parent.parent

# Files outside this folder, and what stands for them in its pages.
_OUTSIDE = {
    "README.md": "index.md",
    "CHANGELOG.md": "reference/changelog.md",
    "CONTRIBUTING.md": "internals/contributing.md",
    "SECURITY.md": "internals/security.md",
    "LICENSE": "path:/../LICENSE",
}

# In a page, the place of a link to the sample report, which only the site has.
_SAMPLE = "<!-- sample report link -->"

_INCLUDE = re.compile(r"```\{include\} [./]+(\w+\.md)\n```")

_LINK = re.compile(r"\]\(([^)#:]+)(?=[#)])")


def setup(app: Sphinx) -> None:
    """Connects what the pages need."""
    app.connect("builder-inited", _report)
    app.connect("source-read", _read)
    app.connect("autodoc-skip-member", _skip)
    app.connect("autodoc-process-signature", _signature)
    app.connect("doctree-resolved", _plainly)
    # Before the extension that makes fields of sections.
    app.connect("autodoc-process-docstring", _docstring, priority=100)
    app.connect("autodoc-process-docstring", _types, priority=900)


def _report(app: Sphinx) -> None:
    """Makes the sample report in another process, because Sphinx has threads, and the job forks."""
    page = Path(html_extra_path[0], "sample_report.html")
    subprocess.run([sys.executable, ROOT / "docs/site/sample_report.py", page], check=True)


def _read(app: Sphinx, page: str, source: list[str]) -> None:
    """Includes files outside this folder and the help of commands, and points links to their pages."""

    folder = os.path.dirname(f"docs/{page}")

    def include(found: re.Match[str]) -> str:
        return _moved((ROOT / found[1]).read_text(encoding="utf-8"), "", folder)

    if page == "reference/commands":
        source[0] += _commands()
    root = os.path.relpath("docs", folder)
    source[0] = source[0].replace(
        _SAMPLE, f'Look at <a href="{root}/sample_report.html">a report</a>.'
    )
    source[0] = _INCLUDE.sub(include, _moved(source[0], folder, folder))


def _moved(text: str, of_text: str, of_page: str) -> str:
    """A text of a file in one folder, with links that are right in a page in another."""

    def moved(link: re.Match[str]) -> str:
        path = os.path.normpath(os.path.join(of_text, link[1]))
        if (name := _OUTSIDE.get(path, "")).startswith("path:"):
            return f"]({name}"
        path = f"docs/{name}" if name else path
        return f"]({os.path.relpath(path, of_page)}"

    return _LINK.sub(moved, text)


def _skip(app: Sphinx, what: str, name: str, value: Any, skip: bool, options: Any) -> bool | None:
    """Leaves out the fields of named tuples, which their class describes."""
    return True if type(value).__name__ == "_tuplegetter" else None


# Classes whose objects are returned by functions, not made by users.
_RETURNED = {
    "Batches",
    "CheckResult",
    "Dataset",
    "File",
    "Finding",
    "Manifest",
    "Problem",
    "Remarks",
}
_RETURNED |= {"RowList", "Shard", "Split", "TorchBatches", "Verification"}


def _signature(
    app: Sphinx, what: str, name: str, value: Any, options: Any, arguments: str, result: str
) -> tuple[str, str] | None:
    """Gives classes that are not made by users no signature, and names what cannot be shown plainly."""
    if what == "class" and name.rpartition(".")[2] in _RETURNED:
        return "", ""
    shown = _SIGNATURES.get(name, arguments)
    for text, plain in _PLAIN.items():
        shown = shown and shown.replace(text, plain)
    return shown and (shown, result)


def _docstring(
    app: Sphinx, what: str, name: str, value: Any, options: Any, lines: list[str]
) -> None:
    """Leaves out the arguments of `readers.load` in the text of other readers."""
    if name.startswith("readers.") and name != "readers.load" and "Records to read:" in lines:
        first = lines.index("Records to read:")
        lines[first - 2] = lines[first - 2].rstrip(":") + "."
        del lines[first : lines.index("Example:")]


def _types(app: Sphinx, what: str, name: str, value: Any, options: Any, lines: list[str]) -> None:
    """Leaves out the types of attributes that the signature of their class has."""
    if what == "class" and name.rpartition(".")[2] not in _RETURNED:
        lines[:] = [line for line in lines if not line.startswith(":vartype ")]


def _plainly(app: Sphinx, page: nodes.document, name: str) -> None:
    """Writes dashes after the names of arguments, and the heading of attributes."""
    for text in [*page.findall(nodes.Text)]:
        if text == " -- ":
            text.parent.replace(text, nodes.Text(" \u2013 "))
        elif text == "Variables" and isinstance(text.parent, nodes.field_name):
            text.parent.replace(text, nodes.Text("Attributes"))


def _commands() -> str:
    """The help of all commands."""
    parts = ["", f"```text\n{_help('--help')}\n```\n"]
    for name, text in {**COMMANDS, **CHANGES, **beam_shards.READERS}.items():
        flags = "--help-all" if name in COMMANDS else "--help"
        usage, examples, rest = _EXAMPLES.split(f"{_help(name, flags)}\n", maxsplit=1)
        lines = [wrap(line.strip(), 88, break_on_hyphens=False) for line in examples.splitlines()]
        typed = "\n".join(" \\\n    ".join(line) for line in lines)
        parts += [f"## {name}", "", f"{text[0].upper()}{text[1:]}.", ""]
        parts += [f"```bash\n{typed}\n```\n", f"```text\n{usage}{rest.rstrip()}\n```\n"]
    return "\n".join(parts)


# The examples in the help of a command.
_EXAMPLES = re.compile(r"\nexamples?:\n((?:  .*\n)+)")


def _help(*arguments: str) -> str:
    """The help of a command."""
    shown, command = io.StringIO(), ["beam-shards", *arguments]
    width = mock.patch.dict(os.environ, {"COLUMNS": "96"})
    with width, mock.patch.object(sys, "argv", command), contextlib.redirect_stdout(shown):
        try:
            code = beam_shards.main()
        except SystemExit as error:
            code = int(error.code or 0)
    if code or not shown.getvalue():
        raise RuntimeError(f"{' '.join(command)} ends with exit code {code}")
    return shown.getvalue().rstrip()
