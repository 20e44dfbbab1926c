"""The package as its users have it: a wheel in a separate environment."""

import os
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

from tests.support.checkout import ROOT


def build_wheel(directory):
    """The path of a wheel, built from the source distribution.

    A wheel that is built in the checkout would also hold the files of earlier builds in `build/`.
    """
    command = [sys.executable, "-m", "build", "--no-isolation", "--skip-dependency-check"]
    subprocess.run([*command, "--outdir", directory, ROOT], check=True, capture_output=True)
    (wheel,) = Path(directory).glob("*.whl")
    return wheel


def user_environment(directory, wheel):
    """The Python of an environment with the wheel and the packages of this one."""
    venv.create(directory)
    python = directory / "bin" / "python"
    command = [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
    packages = Path(subprocess.check_output(command, text=True).strip())
    with zipfile.ZipFile(wheel) as file:
        file.extractall(packages)
    # Python does not read .pth files of folders in a .pth file, so the checkout is not on the path.
    (packages / "others.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return python


def run_in(directory, *command):
    """Runs a command whose environment does not lead to the checkout."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    arguments = [str(argument) for argument in command]
    return subprocess.run(arguments, capture_output=True, text=True, cwd=directory, env=environment)
