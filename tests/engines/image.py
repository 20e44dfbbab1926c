"""The worker's image, built by buildah without a daemon from stand-ins for the images it begins with.

The stand-ins are made of Debian's packages and of Beam's boot program. No registry of images is asked.
"""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.engines import packages
from tests.engines.services import EngineError
from tests.support.checkout import ROOT

# Its Python is that of docker/Dockerfile.
_SUITE = "bookworm"

# uv and pip verify the registry with the certificates of this machine.
_CERTIFICATES = "/etc/ssl/certs/ca-certificates.crt"


@dataclass(frozen=True)
class Builder:
    """Buildah with storage of its own.

    Attributes:
        folder: The folder of images and containers.
    """

    folder: Path

    def command(self, *arguments: object) -> list[str]:
        """A command line of buildah."""
        storage = ["--root", self.folder / "root", "--runroot", self.folder / "run"]
        return ["buildah", *map(str, storage), *map(str, arguments)]

    def __call__(self, *arguments: object) -> str:
        """Runs buildah; returns its output.

        Raises:
            EngineError: It fails.
        """
        done = subprocess.run(self.command(*arguments), cwd=ROOT, capture_output=True, text=True)
        if done.returncode:
            lines = (done.stdout + done.stderr).strip().splitlines()[-20:]
            raise EngineError("\n".join([f"buildah {arguments[0]} failed:", *lines]))
        return done.stdout.strip()

    def commit(self, name: str, files: dict[str, Path], *settings: str) -> None:
        """Makes an image of some files and folders, given by their paths in it."""
        container = self("from", "scratch")
        for target, source in files.items():
            self("copy", "--quiet", container, source, target)
        if settings:
            self("config", *settings, container)
        self("commit", "--quiet", "--rm", container, name)

    def build(self) -> str:
        """Builds docker/Dockerfile; returns the name of a container of the image."""
        launcher = self.folder / "launcher"
        launcher.write_text("#!/bin/sh\n")
        bases = [line.split()[1] for line in _dockerfile() if line.startswith("FROM ")]
        beam, templates, python = (_with_arguments(base) for base in bases)
        certificates = [f"--env={name}={_CERTIFICATES}" for name in ("SSL_CERT_FILE", "PIP_CERT")]
        self.commit(_full(beam), {"/opt/apache/beam/boot": packages.boot()})
        program = "/opt/google/dataflow/python_template_launcher"
        self.commit(_full(templates), {program: launcher})
        self.commit(
            _full(python),
            {"/": packages.debian(_SUITE), _CERTIFICATES: Path(_CERTIFICATES)},
            *certificates,
        )
        self(
            *("build", "--isolation=chroot", "--pull=never", "--quiet"),
            *("--file=docker/Dockerfile", "--tag=localhost/beam-shards", "."),
        )
        return self("from", "--pull=never", "localhost/beam-shards")

    def remove(self) -> None:
        """Removes all containers, which releases their mounts: nobody could delete the folder."""
        self("rm", "--all")

    def within(self, container: str, shared: Path) -> list[str]:
        """The beginning of a command line that runs a program in a container, which sees a folder."""
        volume = f"--volume={shared}:{shared}"
        return self.command("run", "--isolation=chroot", volume, container, "--")


def _dockerfile() -> list[str]:
    return (ROOT / "docker/Dockerfile").read_text().splitlines()


def _with_arguments(name: str) -> str:
    """The name of a base image with the Dockerfile's default arguments."""
    for line in _dockerfile():
        if line.startswith("ARG ") and "=" in line:
            argument, _, value = line.removeprefix("ARG ").partition("=")
            name = name.replace(f"${{{argument}}}", value)
    return name


def _full(name: str) -> str:
    """The whole name by which buildah finds a base image."""
    first, _, rest = name.partition("/")
    if rest and "." in first:
        return name
    return f"docker.io/{name}" if rest else f"docker.io/library/{name}"
