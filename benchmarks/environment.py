"""The environments of the contenders: the one for the rivals, their versions, and the machine."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

from measure import HERE, BenchmarkError, run

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
    """Returns the interpreter of the rivals' environment, which is in the folder of inputs."""
    return str(data / "venv" / "bin" / "python")


def _make_environment(data: Path) -> None:
    """Creates the environment of the rivals, unless it exists with the required packages.

    Raises:
        BenchmarkError: It could not be created.
    """
    required = (HERE / "requirements.txt").read_text()
    venv = data / "venv"
    installed = venv / "installed.txt"
    if installed.exists() and installed.read_text() == required:
        return
    log = data / "venv.log"
    run(f"create {venv} for the rivals", [sys.executable, "-m", "venv", "--clear", str(venv)], log)
    pip = [rival_python(data), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    run("install the rivals", [*pip, "--requirement", str(HERE / "requirements.txt")], log)
    installed.write_text(required)


def rival_variables() -> dict[str, str]:
    """Returns the environment variables without PYTHONPATH, which could name this project."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}


def _versions(pythons: dict[str, str]) -> dict[str, dict[str, str]]:
    """Returns the versions of Python and of the packages above, for each interpreter.

    Raises:
        BenchmarkError: An interpreter fails.
    """
    try:
        return {
            name: json.loads(subprocess.check_output([python, "-c", _VERSIONS]))
            for name, python in pythons.items()
        }
    except (OSError, subprocess.CalledProcessError) as error:
        raise BenchmarkError(f"cannot run an interpreter: {error}") from None


def _machine() -> dict[str, str | int]:
    """Returns the processor, the memory and the operating system."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return {
        "cpu": models[0] if models else platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "system": platform.platform(),
    }


def prepare(data: Path, python: str, rivals: bool = False) -> dict[str, Any]:
    """Describes the machine and the environments, for the JSON file.

    Args:
        data: The folder of inputs.
        python: The interpreter of this project's environment.
        rivals: Also create the environment of the rivals, if necessary.

    Raises:
        BenchmarkError: An environment cannot be created, or an interpreter fails.
    """
    pythons = {"ours": python}
    if rivals:
        _make_environment(data)
        pythons["rivals"] = rival_python(data)
    return {"machine": _machine(), "versions": _versions(pythons)}
