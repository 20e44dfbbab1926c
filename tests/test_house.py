"""Imports between packages point down only; docs/internals/design.md draws the packages listed here."""

import ast
import functools
import subprocess
import sys

import pytest

from tests.support.checkout import ROOT

# From the top; the jobs share one floor.
JOBS = ["jobs/images", "jobs/text", "jobs/sensors", "jobs/reshard"]
FLOORS = {
    "beam_jobs": (
        "__main__ __init__ cli pipeline changes writing JOBS jobs dataset plan records sources engines storage "
        "progress packages columns errors"
    ),
    "readers": (
        "__main__ __init__ log diff report dataset bench pages check checks measures api "
        "source card verify head describe transforms tfdata tensors batches "
        "shards decoders order format files hosts"
    ),
}
# The packages that beam_jobs may import from readers.
SHARED = "readers/format", "readers/files"
WITHOUT_BEAM = ["sources", "records", "plan", "dataset", "jobs"]


def floor(path: str) -> tuple[int, str]:
    """The number of a path's floor, counted from the top, and its package."""
    package, _, inside = path.partition("/")
    job = next((job for job in JOBS if f"{inside}/".startswith(f"{job}/")), "")
    room = "JOBS" if job else inside.split("/")[0] or "__init__"
    return FLOORS[package].split().index(room), job or room


def statements(body):
    """Yields all statements, those in blocks among them."""
    for node in body:
        yield node
        for block in ("body", "handlers", "orelse", "finalbody"):
            yield from statements(getattr(node, block, ()))


@functools.cache
def exists(path):
    """Whether a module or a package is one of this project."""
    return (ROOT / path).is_dir() or (ROOT / f"{path}.py").exists()


@functools.cache
def imports(path):
    """(line, imported path) of every import in a file, in functions and for types alone, too."""
    found = []
    for node in statements(ast.parse(path.read_text(encoding="utf-8")).body):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        for there in (name.replace(".", "/") for name in names):
            of = isinstance(node, ast.ImportFrom) and not exists(there)
            found.append((node.lineno, there.rpartition("/")[0] if of else there))
    return found


def test_imports_for_types_alone_are_seen(tmp_path):
    (tmp_path / "a.py").write_text(
        "import numpy\nimport readers.load\nif TYPE_CHECKING:\n    from readers.format.schema import Schema\n"
    )
    found = imports(tmp_path / "a.py")
    assert found == [(1, "numpy"), (2, "readers/load"), (4, "readers/format/schema")]


def circles(graph: dict[str, set[str]]) -> list[list[str]]:
    """The groups of files that import each other, through others or not."""

    def reached(start):
        seen, left = set(), [start]
        while left:
            new = graph.get(left.pop(), set()) - seen
            seen |= new
            left += new
        return seen

    reach = {file: reached(file) for file in graph}
    groups = {
        tuple(sorted(other for other in there if file in reach.get(other, ())))
        for file, there in reach.items()
        if file in there
    }
    return sorted(map(list, groups))


@pytest.mark.parametrize("package", FLOORS)
def test_no_files_import_each_other(package):
    """Not even for types: a circle says that one of them is two things."""
    graph = {}
    for path in (ROOT / package).rglob("[!_]*.py"):
        here = str(path.relative_to(ROOT).with_suffix(""))
        graph[here] = {there for _, there in imports(path)} - {here}
    assert circles(graph) == []


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
            elif there.split("/")[0] in (*FLOORS, "beam_shards") and not there.startswith(
                (package, *SHARED)
            ):
                upward.append(f"{here}.py:{line}: {there}")
    assert upward == []


def test_only_a_report_and_a_notebook_import_the_pages_and_only_when_they_are_made():
    stand = {
        str(path.relative_to(ROOT))
        for path in (ROOT / "readers").rglob("*.py")
        if "pages" not in path.relative_to(ROOT).parts
        and any(there.startswith("readers/pages") for _, there in imports(path))
    }
    assert stand == {"readers/report.py", "readers/dataset.py"}
    code = "import sys, readers; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert "readers.report" in done.stdout and "readers.pages" not in done.stdout


@pytest.mark.parametrize("package", [*FLOORS, "beam_jobs/jobs"])
def test_packages_have_at_most_twelve_files(package):
    for folder in [path for path in (ROOT / package).rglob("*") if path.is_dir()]:
        assert len(list(folder.glob("[!_]*.py"))) <= 12, folder


def modules_in(*folders):
    paths = [path for folder in folders for path in (ROOT / folder).rglob("*.py")]
    names = [".".join(path.relative_to(ROOT).with_suffix("").parts) for path in paths]
    return {name.removesuffix(".__init__") for name in names}


def test_only_some_packages_load_frameworks():
    """In one process: the first line of a command, then the readers, then jobs and what is below them."""
    own = modules_in("readers") - modules_in("readers/tfdata", "readers/tensors")
    own -= {"readers.transforms.tftensors", "readers.__main__"}
    jobs = modules_in(*(f"beam_jobs/{name}" for name in WITHOUT_BEAM))
    code = "import sys"
    for modules in ({"beam_jobs"}, own, jobs):
        code += f"\nimport {', '.join(sorted(modules))}\nprint(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    first, reading, writing = (
        {name.split(".")[0] for name in line.split()} for line in done.stdout.splitlines()
    )
    assert not first & {"readers", "numpy", "apache_beam"}
    assert not reading & {"tensorflow", "torch", "jax", "apache_beam"}
    assert not writing & {"apache_beam", "tensorflow"}


def test_no_part_of_beam_jobs_imports_tensorflow():
    for path in (ROOT / "beam_jobs").rglob("*.py"):
        assert not [line for line, there in imports(path) if there.startswith("tensorflow")], path
