"""Imports between packages point down only; docs/design.md draws the packages listed here."""

import ast
import subprocess
import sys

import pytest

from tests.support.checkout import ROOT

# From the top; the jobs share one floor.
JOBS = ["jobs/images", "jobs/text", "jobs/sensors", "jobs/reshard"]
FLOORS = {
    "beam_jobs": (
        "__main__ __init__ cli pipeline JOBS jobs dataset plan records sources engines storage "
        "progress packages errors"
    ),
    "readers": (
        "__main__ __init__ report page check checks measures dataset load torch_batches jax_batches numpy_stream "
        "source export export_file card verify gallery head describe transforms tfdata tensors batches "
        "shards decoders order format files hosts"
    ),
}
# The package that beam_jobs may import from readers.
SHARED = "readers/format"
WITHOUT_BEAM = ["sources", "records", "plan", "jobs"]


def floor(path: str) -> tuple[int, str]:
    """The number of a path's floor, counted from the top, and its package."""
    package, _, inside = path.partition("/")
    job = next((job for job in JOBS if f"{inside}/".startswith(f"{job}/")), "")
    room = "JOBS" if job else inside.split("/")[0] or "__init__"
    return FLOORS[package].split().index(room), job or room


def imports(path):
    """Yields (line, imported path) of every import of beam_jobs and readers."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                whole = f"{node.module}.{alias.name}".replace(".", "/")
                if whole.split("/")[0] in FLOORS:
                    exists = (ROOT / whole).is_dir() or (ROOT / f"{whole}.py").exists()
                    yield node.lineno, whole if exists else node.module.replace(".", "/")


@pytest.mark.parametrize("package", FLOORS)
def test_imports_point_down(package):
    upward = []
    for path in sorted((ROOT / package).rglob("*.py")):
        here = str(path.relative_to(ROOT).with_suffix("")).removesuffix("/__init__")
        for line, there in imports(path):
            if there.startswith(f"{package}/"):
                (mine, room), (its, other) = floor(here), floor(there)
                if its < mine or (its == mine and room != other):
                    upward.append(f"{here}.py:{line}: {there}")
            elif there != package and not there.startswith(SHARED):
                upward.append(f"{here}.py:{line}: {there}")
    assert upward == []


@pytest.mark.parametrize("package", [*FLOORS, "beam_jobs/jobs"])
def test_packages_have_at_most_twelve_files(package):
    for folder in [path for path in (ROOT / package).rglob("*") if path.is_dir()]:
        assert len(list(folder.glob("[!_]*.py"))) <= 12, folder


def loaded_by(modules) -> set[str]:
    code = f"import sys, {', '.join(modules)}; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return {name.split(".")[0] for name in done.stdout.split()}


def test_the_first_line_of_a_command_waits_for_no_package():
    assert not loaded_by(["beam_jobs"]) & {"readers", "numpy", "apache_beam"}


def modules_in(*folders):
    paths = [path for folder in folders for path in (ROOT / folder).rglob("*.py")]
    names = [".".join(path.relative_to(ROOT).with_suffix("").parts) for path in paths]
    return sorted(name.removesuffix(".__init__") for name in names)


def test_jobs_and_everything_below_them_import_neither_beam_nor_tensorflow():
    found = loaded_by(modules_in(*(f"beam_jobs/{name}" for name in WITHOUT_BEAM)))
    assert not found & {"apache_beam", "tensorflow"}


def test_no_part_of_beam_jobs_imports_tensorflow():
    modules = [m for m in modules_in("beam_jobs") if not m.endswith("__main__")]
    assert "tensorflow" not in loaded_by(modules)


def test_readers_import_frameworks_in_three_packages_alone():
    heavy = ("readers/tfdata", "readers/tensors", "readers/transforms/tftensors")
    modules = set(modules_in("readers")) - set(modules_in(*heavy)) - {"readers.__main__"}
    others = {"tensorflow", "torch", "jax", "apache_beam", "beam_jobs"}
    assert not loaded_by(sorted(modules)) & others
