"""The public names of both packages, their version, and the systems that they run on."""

import builtins
import inspect
import os
import re
import subprocess
import sys

import pytest
import tensorflow as tf

import beam_jobs
import readers
from readers import transforms
from tests.support.checkout import ROOT

PACKAGES = {"readers": readers, "beam_jobs": beam_jobs}
MODULES = [readers, beam_jobs, transforms]


def is_python(value):
    return inspect.isfunction(value) or inspect.ismethod(value)


def package_of(function):
    return PACKAGES.get(function.__module__.partition(".")[0])


def public_functions(module):
    """The public functions, classes and methods of a module."""
    for value in (getattr(module, name) for name in module.__all__):
        if callable(value):
            yield value
        if inspect.isclass(value):
            for name, method in inspect.getmembers(value, is_python):
                # What a private base defines is for the package itself.
                is_public = method.__qualname__.partition(".")[0] in module.__all__
                if not name.startswith("_") and package_of(method) and is_public:
                    yield method


def raised_by(function):
    """The names of the exceptions in the docstring of a function."""
    section = re.search(r"Raises:\n(.*?)(\n\s*\n|\Z)", inspect.getdoc(function) or "", re.S)
    if not section:
        return set()
    lines = re.findall(r"^ {4}((?:[\w.]+, )*[\w.]+): ", section[1], re.M)
    assert lines, function
    return {name for line in lines for name in line.split(", ")}


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
def test_exceptions_of_public_functions_can_be_imported_from_the_package(module):
    raised = {(error, package_of(f)) for f in public_functions(module) for error in raised_by(f)}
    assert raised
    for error, package in raised:
        if error.startswith("tf.errors."):
            assert hasattr(tf.errors, error.removeprefix("tf.errors."))
        else:
            assert error in package.__all__ or hasattr(builtins, error), error


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
def test_types_of_public_functions_and_fields_can_be_imported_from_the_package(module):
    annotations = []
    for function in public_functions(module):
        if inspect.isclass(function):
            annotations += vars(function).get("__annotations__", {}).values()
        else:
            annotations.append(inspect.signature(function).return_annotation)
    words = {word for text in annotations for word in re.findall(r"\w+", str(text))}
    classes = set()
    for path in (path for name in PACKAGES for path in (ROOT / name).rglob("*.py")):
        classes |= {*re.findall(r"^class ([A-Z]\w*)", path.read_text(), re.M)}
    found = words & classes
    # Not in `__all__`, because `import *` would need PyTorch.
    lazy = {"TorchBatches"}
    assert found <= {*readers.__all__, *beam_jobs.__all__, *transforms.__all__, *lazy}
    if module is readers:
        assert {
            "Batches",
            "Verification",
            "CheckResult",
            "Problem",
            "Manifest",
            "Split",
            "Shard",
            "State",
        } <= found


def test_both_packages_have_the_version_of_the_distribution():
    command = [sys.executable, "setup.py", "--quiet", "--version"]
    built = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=True).stdout
    assert built.split()[-1] == readers.__version__ == beam_jobs.__version__


@pytest.mark.parametrize("arguments", [["-m", "readers", "info", "x"], ["-c", "import beam_jobs"]])
def test_windows_is_refused_in_one_line(tmp_path, arguments):
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.platform = 'win32'\n")
    environment = os.environ | {"PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"}
    command = [sys.executable, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=tmp_path)
    refusal = "beam-shards runs on Linux and macOS; on Windows, use it inside WSL 2"
    if arguments[0] == "-m":
        assert (done.returncode, done.stdout, done.stderr) == (2, "", f"error: {refusal}\n")
    else:
        assert done.returncode == 1
        assert done.stderr.splitlines()[-1] == f"ImportError: {refusal}"


def test_importing_everything_leaves_the_functions_of_python_alone():
    names: dict[str, object] = {}
    exec("from readers import *; from beam_jobs import *", names)
    assert not {*names} & {*vars(builtins)} - {"__builtins__", "__doc__", "__name__"}


@pytest.mark.parametrize("package", PACKAGES)
def test_every_public_name_is_in_the_reference(package):
    page = (ROOT / f"docs/reference/{package}.md").read_text()
    names = {name for name in PACKAGES[package].__all__ if not name.startswith("_")}
    assert names <= {*re.findall(rf"\b{package}\.(\w+)", page)}
