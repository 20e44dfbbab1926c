"""Members of .zip, .tar and .tar.gz files: by all jobs, and by Python's own modules."""

from __future__ import annotations

import contextlib
import functools
import io
import tarfile
import zipfile

from beam_jobs.errors import RejectError
from beam_jobs.sources.archives.archive import members, walk
from beam_jobs.sources.archives.member import open_member, read_member
from beam_jobs.sources.archives.sidecars import Samples, row_of
from tests.campaigns.fuzz.limits import Limits
from tests.campaigns.fuzz.mutations import archived
from tests.campaigns.fuzz.target import Target

_LIMIT = 1 << 20

_FILES = (
    ("cat/1.jpg", b"picture" * 20),
    ("cat/1.cls", b"7"),
    ("cat/1.json", b'{"age": 3}'),
    ("dog/2.seg.png", bytes(300)),
    (".hidden", b"x"),
    ("ä/b.txt", b"text"),
)


def _examine(kind: str, data: bytes) -> None:
    try:
        whole = True
        found = []
        for member in members(io.BytesIO(data), kind):
            found.append(member)
    except RejectError as error:
        assert str(error).startswith("the archive is damaged or cut off"), error
        whole = False
    assert len(found) <= len(data), "more members than bytes"
    contents = dict[str, bytes]()
    samples = Samples(True)
    for member in found:
        samples.add(member)
    for member in found:
        parts = member.name.split("/")
        assert member.name and ".." not in parts and not member.name.startswith("/"), member
        assert "\0" not in member.name or member.error
        if member.location is None:
            continue
        try:
            content = read_member(io.BytesIO(data), member.location, member.name, _LIMIT)
        except RejectError as error:
            assert str(error), "a reject without a reason"
            continue
        assert len(content) == member.size, (
            f"{member.name!r} has {len(content)} bytes, not {member.size}"
        )
        with open_member(io.BytesIO(data), member.location, member.name) as stream:
            assert stream.read() == content, "other bytes in a stream than at once"
        contents.setdefault(member.name, content)
        if samples.role(member.name) in ("sidecar", "lone"):
            with contextlib.suppress(RejectError):
                row_of([(member, content)])
    if whole and contents:
        _compare(kind, data, contents)


def _compare(kind: str, data: bytes, contents: dict[str, bytes]) -> None:
    """Compares with Python's modules where these find the same members."""
    try:
        theirs = _of_zip(data) if kind == "zip" else _of_tar(data)
    except Exception:  # They raise nearly everything on broken input.
        return
    for name, content in contents.items():
        if len(found := theirs.get(name, [])) == 1 and name.isascii():
            assert found[0] == content, f"other bytes of {name!r} than Python's"


def _of_zip(data: bytes) -> dict[str, list[bytes]]:
    found: dict[str, list[bytes]] = {}
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        for info in archive.infolist():
            if info.file_size <= _LIMIT:
                found.setdefault(info.filename, []).append(archive.read(info))
    return found


def _of_tar(data: bytes) -> dict[str, list[bytes]]:
    found: dict[str, list[bytes]] = {}
    with tarfile.open(fileobj=io.BytesIO(data), mode="r:") as archive:
        for info in archive:
            if info.isreg() and info.size <= _LIMIT and not info.issparse():
                file = archive.extractfile(info)
                assert file
                found.setdefault(info.name, []).append(file.read())
    return found


def _examine_packed(data: bytes) -> None:
    last = ""
    try:
        for member, stream in walk(io.BytesIO(data)):
            last = member.name
            assert ".." not in member.name.split("/") and not member.name.startswith("/"), member
            content = stream.read(_LIMIT)
            assert member.error == "" or content == b"", "bytes of a member with an error"
            assert len(content) <= member.size or member.error
    except RejectError as error:
        assert str(error), f"no reason after {last!r}"


def _zips() -> list[bytes]:
    found = []
    for method in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w", method) as archive:
            archive.comment = b"comment"
            for name, data in _FILES:
                archive.writestr(zipfile.ZipInfo(name), data, method)
        found.append(out.getvalue())
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive, archive.open("big", "w", force_zip64=True) as file:
        file.write(b"zip64")
    streamed = _Unseekable()
    with zipfile.ZipFile(streamed, "w") as archive:
        archive.writestr("a.txt", b"with a descriptor after it")
    return [*found, out.getvalue(), streamed.getvalue(), b"PK\5\6" + bytes(18)]


class _Unseekable(io.BytesIO):
    def tell(self) -> int:
        raise OSError


def _tar(mode: str = "w", style: int = tarfile.PAX_FORMAT) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode=mode, format=style) as archive:  # type: ignore[call-overload]
        for name, data in (*_FILES, ("long/" * 30 + "name", b"deep")):
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
        link = tarfile.TarInfo("link")
        link.type, link.linkname = tarfile.SYMTYPE, "../x"
        archive.addfile(link)
    data = out.getvalue()
    return data if mode != "w" else data[: -(-len(data.rstrip(b"\0")) // 512) * 512 + 1024]


def _tars() -> list[bytes]:
    return [
        _tar(style=style)
        for style in (tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT)
    ]


_ZIP_WORDS = [b"PK\6\6", b"PK\6\7", b"\1\0\x18\0", b"\x75\x70", b"../", b"__MACOSX/"]
_TAR_WORDS = [b"ustar  \0", b"path=", b"size=", b"GNU.sparse.", b"30 mtime=1.5\n"]
_LIMITS = Limits(memory=32 << 20)

TARGETS = (
    Target("zip", _zips, functools.partial(_examine, "zip"), archived.mutate_zip, _ZIP_WORDS, 4096, _LIMITS),
    Target("tar", _tars, functools.partial(_examine, "tar"), archived.mutate_tar, _TAR_WORDS, 8192, _LIMITS),
    Target("tar_gz", lambda: [_tar("w:gz"), _tar("w:gz", tarfile.GNU_FORMAT)], _examine_packed,
           archived.mutate_tar_gz, _TAR_WORDS, 4096, _LIMITS),
)  # fmt: skip
