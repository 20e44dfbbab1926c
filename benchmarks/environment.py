"""The environments of the contenders: the one for the rivals, their versions, and the machine."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from measure import HERE, BenchmarkError, run

_VERSIONS = """
import importlib.metadata, json, platform
versions = {found.name.lower(): found.version for found in importlib.metadata.distributions()}
print(json.dumps({"python": platform.python_version(), **versions}))
"""


@dataclass(frozen=True)
class Environment:
    """An environment that is created once, in the folder of inputs.

    Attributes:
        folder: Its folder.
        requirements: The file with its packages.
        base: The name of an environment whose packages it also has.
    """

    folder: str
    requirements: str
    base: str | None = None


def _on_torch(name: str) -> Environment:
    return Environment(f"venv-{name}", f"requirements/{name}.txt", "torch")


# One for each rival, because their requirements conflict; PyTorch is large, and installed once.
ENVIRONMENTS = {
    "rivals": Environment("venv", "requirements.txt"),
    "torch": Environment("venv-torch", "requirements/torch.txt"),
    "litdata": _on_torch("litdata"),
    "mds": _on_torch("mds"),
    "datasets": _on_torch("datasets"),
    "ffcv": _on_torch("ffcv"),
    "dali": Environment("venv-dali", "requirements/dali.txt"),
    "planted": Environment("venv-planted", "requirements/planted.txt"),
    "datalab": Environment("venv-datalab", "requirements/datalab.txt"),
    "fastdup": Environment("venv-fastdup", "requirements/fastdup.txt"),
    "datasketch": Environment("venv-datasketch", "requirements/datasketch.txt"),
    "profiling": Environment("venv-profiling", "requirements/profiling.txt"),
    "tfdv": Environment("venv-tfdv", "requirements/tfdv.txt"),
}


def rival_python(data: Path, name: str = "rivals") -> str:
    """Returns the interpreter of an environment, which is in the folder of inputs."""
    return str(data / ENVIRONMENTS[name].folder / "bin" / "python")


def make_environment(data: Path, name: str) -> None:
    """Creates an environment, unless it exists with the required packages.

    Raises:
        BenchmarkError: It could not be created.
    """
    wanted = ENVIRONMENTS[name]
    requirements = HERE / wanted.requirements
    required = requirements.read_text()
    if wanted.base:
        make_environment(data, wanted.base)
    venv = data / wanted.folder
    installed = venv / "installed.txt"
    if installed.exists() and installed.read_text() == required:
        return
    log = data / f"{wanted.folder}.log"
    run(f"create {venv} for {name}", [sys.executable, "-m", "venv", "--clear", str(venv)], log)
    if wanted.base:
        (site,) = (data / ENVIRONMENTS[wanted.base].folder).glob("lib/python*/site-packages")
        own = venv / site.relative_to(data / ENVIRONMENTS[wanted.base].folder)
        (own / "base.pth").write_text(f"{site}\n")
    pip = [rival_python(data, name), "-m", "pip", "install", "--quiet"]
    pip += ["--disable-pip-version-check"]
    run(f"install {name}", [*pip, "--requirement", str(requirements)], log)
    installed.write_text(required)


def rival_variables() -> dict[str, str]:
    """Returns the environment variables without PYTHONPATH, which could name this project."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}


def versions(pythons: dict[str, str]) -> dict[str, dict[str, str]]:
    """Returns the versions of Python and of all packages, for each interpreter.

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


def describe_machine() -> dict[str, str | int]:
    """Returns the processor, the memory and the operating system."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return {
        "cpu": models[0] if models else platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "system": platform.platform(),
    }


def describe(pythons: dict[str, str]) -> dict[str, Any]:
    """Describes the machine and some environments, for the JSON file.

    Args:
        pythons: Name of an environment -> its interpreter.

    Raises:
        BenchmarkError: An interpreter fails.
    """
    return {"machine": describe_machine(), "versions": versions(pythons)}
