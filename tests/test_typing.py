"""Type checkers find the types of the installed package."""

import sys

import pytest

from tests.support.checkout import ROOT
from tests.support.packaged import build_wheel, run_in, user_environment

pytestmark = pytest.mark.slow

PROGRAM = ROOT / "tests/support/typed_program.py"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    return build_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def python(tmp_path_factory, wheel):
    return user_environment(tmp_path_factory.mktemp("user"), wheel)


@pytest.fixture(scope="module")
def mypy(python, tmp_path_factory):
    """A function that checks a program with mypy --strict; it returns the exit code and the output."""
    # A separate folder, where mypy does not take `readers/` of the checkout for the package.
    directory = tmp_path_factory.mktemp("mypy")
    command = [sys.executable, "-m", "mypy", "--strict", "--python-executable", python]

    def check(program):
        (directory / "program.py").write_text(program)
        done = run_in(directory, *command, "program.py")
        return done.returncode, done.stdout + done.stderr

    return check


def test_a_typed_program_passes_mypy_strict(python, mypy, tmp_path):
    found = run_in(tmp_path, python, "-c", "import readers; print(readers.__file__)").stdout
    assert found.startswith(str(python.parent.parent))
    code, output = mypy(PROGRAM.read_text())
    assert code == 0, output


def test_mypy_reports_misspelt_names_and_wrong_arguments(mypy):
    expected = {
        "readers.laod('x', batch_size=2)": 'Module has no attribute "laod"',
        "beam_jobs.WriteShard": 'Module has no attribute "WriteShard"',
        "readers.as_numpy('x', batchsize=2)": 'Unexpected keyword argument "batchsize" for "as_numpy"',
        "readers.load('x', batch_size=2, batching='paded')": 'Argument "batching" to "load"',
        "readers.open('x').load(2, split=3)": 'Argument "split" has incompatible type "int"',
        "readers.load('x', batch_size=2, shuffle=readers.Order(by='globl'))": 'Argument "by" to "Order"',
        "readers.load('x', batch_size=2, on_corrupt='skp')": 'Argument "on_corrupt" to "load"',
        "readers.as_numpy('x', 2, batching=readers.Padded(to='longst'))": 'Argument "to" to "Padded"',
        "readers.Feature('float32', 3)": 'expected "Sequence[int | None]"',
    }
    code, output = mypy("\n".join(("import beam_jobs, readers", *expected)))
    assert code == 1
    for number, message in enumerate(expected.values(), 2):
        lines = [line for line in output.splitlines() if line.startswith(f"program.py:{number}: ")]
        assert any(message in line for line in lines), output
