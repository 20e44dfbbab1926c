"""The docstrings of public names describe every argument, and their examples run."""

import contextlib
import doctest
import inspect
import io
import pydoc
import re
import sys

import numpy as np
import pytest

import beam_jobs
import readers
from readers import decoders, transforms
from tests.support.samples import write_samples

# Of other packages, or with several devices: their examples are only compiled.
COMPILED = {"torch_batches", "jax_batches", "state_of"}
# What functions return, and errors.
WITHOUT_EXAMPLE = {
    *["Batches", "CheckResult", "Column", "Dataset", "Decoder", "File", "Finding", "Problem"],
    *["ReadOptions", "Remarks", "RowList", "Shard", "Split", "Verification"],
}


def public_names():
    """Name -> the functions, and the classes that are not errors, of all public modules."""
    found = {"open": readers.open}
    for module in (readers, beam_jobs, decoders, transforms):
        found |= {name: getattr(module, name) for name in module.__all__ if name[0] != "_"}
    return {
        name: value
        for name, value in found.items()
        if inspect.isfunction(value)
        or (inspect.isclass(value) and not issubclass(value, BaseException))
    }


PUBLIC = public_names()


def example_of(value):
    """The section with the example of a docstring; empty without one."""
    found = re.search(r"^Examples?:\n((?: .*\n|\n)+)", f"{inspect.getdoc(value)}\n", re.M)
    return inspect.cleandoc(found[1]) if found else ""


EXAMPLES = {
    **{name: text for name, value in PUBLIC.items() if (text := example_of(value))},
    "Moments.of": example_of(transforms.Moments.of),
}


@pytest.fixture(scope="module")
def samples(tmp_path_factory):
    return write_samples(tmp_path_factory.mktemp("samples"))


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_example_of_a_docstring_runs_and_prints_what_it_says(name, samples, monkeypatch):
    monkeypatch.chdir(samples)
    names = {"np": np, "readers": readers, "transforms": transforms, "beam_jobs": beam_jobs}
    names |= {each: getattr(beam_jobs, each) for each in beam_jobs.__all__}
    if "beam." in EXAMPLES[name]:
        names["beam"] = pytest.importorskip("apache_beam")
    test = doctest.DocTestParser().get_doctest(EXAMPLES[name], names, name, None, None)
    assert test.examples
    if name in COMPILED:
        for example in test.examples:
            compile(example.source, name, "exec")
        return
    printed = io.StringIO()
    flags = doctest.NORMALIZE_WHITESPACE
    runner = doctest.DocTestRunner(optionflags=flags)
    with contextlib.redirect_stdout(io.StringIO()):
        runner.run(test, out=printed.write, clear_globs=False)
    assert not printed.getvalue(), printed.getvalue()


def test_every_public_function_and_class_that_users_call_has_an_example():
    assert {*PUBLIC} - {*EXAMPLES} == WITHOUT_EXAMPLE


@pytest.mark.parametrize("name", PUBLIC)
def test_a_docstring_names_every_argument(name):
    value = PUBLIC[name]
    if name in ("Batches", "Dataset", "Remarks"):  # Readers make them.
        return
    text = inspect.getdoc(value) or ""
    assert [
        a for a in inspect.signature(value).parameters if not re.search(rf"\b{a}\b", text)
    ] == []


@pytest.mark.parametrize("name", sorted({*PUBLIC} - WITHOUT_EXAMPLE - {"Recording"}))
def test_a_docstring_states_the_errors(name):
    text = inspect.getdoc(PUBLIC[name]) or ""
    assert "Raises:\n" in text or "errors" in text


@pytest.mark.parametrize("module", [readers, beam_jobs, decoders, transforms])
def test_completion_and_star_imports_show_only_public_names(module):
    assert {*module.__all__} <= {*dir(module)} <= {*module.__all__, "open"}
    assert not [name for name in dir(module) if name[0] == "_" and name != "__version__"]
    names = {}
    exec(f"from {module.__name__} import *", names)
    assert {*names} - {"__builtins__"} == {*module.__all__}


def test_help_needs_no_beam(monkeypatch):
    monkeypatch.setitem(sys.modules, "apache_beam", None)
    assert {*beam_jobs.__all__} - {*dir(beam_jobs)} == {"ReadShards", "WriteShards"}
    assert "write(" in pydoc.render_doc(beam_jobs)
