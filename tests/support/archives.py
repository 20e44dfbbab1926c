"""Archives in memory with members that never change from run to run."""

from __future__ import annotations

import io
import tarfile
import zipfile
from collections.abc import Iterable
from typing import Any

Files = Iterable[tuple[str, bytes]]


def tarred(files: Files, mode: str = "w", **options: Any) -> bytes:
    """A tar of the files; `mode` is tarfile's: "w", "w:gz", ..."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode=mode, **options) as archive:
        for name, data in files:
            member = tarfile.TarInfo(name)
            member.size, member.mtime = len(data), 1_600_000_000
            archive.addfile(member, io.BytesIO(data))
    return out.getvalue()


def zipped(files: Files, method: int = zipfile.ZIP_DEFLATED, comment: bytes = b"", **attributes):
    """A zip of the files; `attributes` are set on the ZipInfo of each member."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.comment = comment
        for name, data in files:
            info = zipfile.ZipInfo(name, (2021, 2, 3, 4, 5, 6))
            info.compress_type = method
            for attribute, value in attributes.items():
                setattr(info, attribute, value)
            archive.writestr(info, data)
    return out.getvalue()
