"""Where a job writes: a folder of this disk, or a bucket of S3 or of Google Cloud Storage."""

from __future__ import annotations

import hashlib
import itertools
import os
import shutil
import urllib.error
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import boto3

from beam_jobs.storage import atomic
from tests.campaigns.values import read_files, write_files
from tests.support.object_stores import Bucket

_NUMBERS = itertools.count()


class Disk:
    """Output directories in a folder of this disk."""

    name = "disk"

    def __init__(self, base: Path) -> None:
        self._base = base

    def new(self, files: Mapping[str, bytes]) -> str:
        """A new output directory with some files; empty, it does not exist."""
        root = self._base / f"out-{os.getpid()}-{next(_NUMBERS)}"
        write_files(root, files)
        return str(root)

    def files(self, root: str) -> dict[str, bytes]:
        """All files in an output directory, by their names relative to it."""
        return read_files(Path(root))

    def unfinished(self, root: str) -> list[str]:
        """Folders that no dataset has, because they are empty."""
        folders = [path for path in Path(root).rglob("*") if path.is_dir()]
        return [str(path) for path in folders if not any(path.iterdir())]

    def forget(self, root: str) -> None:
        """Removes an output directory."""
        shutil.rmtree(root, ignore_errors=True)


class InBucket:
    """Output directories in a bucket, as `Disk` has them."""

    def __init__(self, bucket: Bucket) -> None:
        self.name = {"s3": "S3", "gs": "GCS"}[bucket.server.scheme]
        self._bucket, self._s3 = bucket, bucket.server.scheme == "s3"
        url = f"http://127.0.0.1:{bucket.server.port}"
        self._client: Any = boto3.client("s3", endpoint_url=url) if self._s3 else None

    def new(self, files: Mapping[str, bytes]) -> str:
        root = f"{self._bucket.url}/out-{next(_NUMBERS)}"
        for name, data in files.items():
            self._bucket.put(f"{root}/{name}", data)
        return root

    def _names(self, root: str) -> list[str]:
        self._bucket.proxy.forget()  # Once requests of a killed process have ended.
        return [file.path for file in atomic.list_files(root)]

    def files(self, root: str) -> dict[str, bytes]:
        found = {}
        for path in self._names(root):
            name = path.removeprefix(f"{root}/")
            try:
                found[name] = self._bucket.get(path)
            except urllib.error.HTTPError as error:
                # The process that was killed had asked for its deletion.
                if error.code != 404:
                    raise
        return found

    def unfinished(self, root: str) -> list[str]:
        """Uploads that are neither complete nor dropped."""
        if not self._s3:
            return []  # The store neither lists nor charges them.
        bucket, _, prefix = root.removeprefix("s3://").partition("/")
        found = self._client.list_multipart_uploads(Bucket=bucket, Prefix=f"{prefix}/")
        return [upload["Key"] for upload in found.get("Uploads", ())]

    def forget(self, root: str) -> None:
        for path in self._names(root):
            atomic.delete_files([path])
        self._bucket.proxy.forget()


Place = Disk | InBucket


def sums_of(files: Mapping[str, bytes]) -> dict[str, str]:
    """Name -> SHA-256."""
    return {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}
