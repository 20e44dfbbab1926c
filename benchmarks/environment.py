"""Where contenders run: the rivals' environment, which is made once, and what there is to know of it."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from measure import BenchmarkError, run

HERE = Path(__file__).absolute().parent

_PACKAGES = (
    "apache-beam",
    "array-record",
    "grain",
    "numpy",
    "pillow",
    "protobuf",
    "tensorflow",
    "tensorflow-datasets",
    "webdataset",
)
_VERSIONS = f"""
import importlib.metadata, json, platform
versions = {{"python": platform.python_version()}}
for name in {_PACKAGES}:
    try:
        versions[name] = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        pass
print(json.dumps(versions))
"""


def rival_python(data: Path) -> str:
    """The interpreter of the rivals' environment, below the folder of inputs."""
    return str(data / "venv" / "bin" / "python")


def make_environment(data: Path) -> None:
    """Makes the environment of the rivals where it is not there as required.

    Raises:
        BenchmarkError: It could not be made.
    """
    required = (HERE / "requirements.txt").read_text()
    venv = data / "venv"
    installed = venv / "installed.txt"
    if installed.exists() and installed.read_text() == required:
        return
    print(f"making the environment of the rivals in {venv}", flush=True)
    pip = [rival_python(data), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    log = data / "venv.log"
    try:
        run([sys.executable, "-m", "venv", "--clear", str(venv)], log, HERE)
        run([*pip, "--requirement", str(HERE / "requirements.txt")], log, HERE)
    except BenchmarkError as error:
        raise BenchmarkError(f"the environment of the rivals: {error}") from None
    installed.write_text(required)


def rival_variables() -> dict[str, str]:
    """This process's environment without what would lead a rival to this project's packages."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}


def versions(pythons: dict[str, str]) -> dict[str, dict[str, str]]:
    """Of Python and the packages that matter, for each interpreter.

    Raises:
        BenchmarkError: An interpreter does not run.
    """
    try:
        return {
            name: json.loads(subprocess.check_output([python, "-c", _VERSIONS]))
            for name, python in pythons.items()
        }
    except (OSError, subprocess.CalledProcessError) as error:
        raise BenchmarkError(f"an interpreter does not run: {error}") from None


def machine() -> dict[str, str | int]:
    """The processor and the system."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return {
        "cpu": models[0] if models else platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "system": platform.platform(),
    }


def parse_names(allowed: Sequence[str], text: str) -> list[str]:
    """Names of a list, in its order.

    Raises:
        BenchmarkError: One is not in it.
    """
    names = text.split(",")
    for name in names:
        if name not in allowed:
            raise BenchmarkError(f"{name!r}: expected some of {','.join(allowed)}")
    return [name for name in allowed if name in names]
