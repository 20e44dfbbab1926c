"""Archives compared with the standard library's readers, and damaged in every way."""

from __future__ import annotations

import contextlib
import gzip
import io
import random
import re
import stat
import struct
import subprocess
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from typing import BinaryIO

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beam_jobs.errors import RejectError
from beam_jobs.sources.archives import archive
from beam_jobs.sources.archives.archive import archive_kind, walk
from beam_jobs.sources.archives.member import (
    IN_TAR,
    Member,
    MemberLocation,
    open_member,
    read_member,
)
from tests.support.archives import zipped
from tests.support.memory import peak_below

LIMIT = 1 << 31
BROKEN = "the archive is damaged or cut off before its first member: "
NOISE = random.Random(0).randbytes(200_000)
LONG = "folder/" + "x" * 90 + "/" + "y" * 90 + ".txt"
FILES = {
    "a.txt": b"hello\nworld\n",
    "cat/1.jpg": NOISE,
    "cat/empty": b"",
    "dög/日本.txt": "日本".encode() * 1000,
    "dog/block": b"z" * 512,
    LONG: b"long",
}


def zip_of(files: dict[str, bytes] | list[tuple[str, bytes]] = FILES, *args, **options) -> bytes:
    """A zip; the options are those of `zipped`."""
    return zipped(files.items() if isinstance(files, dict) else files, *args, **options)


def entry(name: str, data: bytes = b"", **attributes: object) -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.size = len(data)
    for attribute, value in {"mtime": 1_600_000_000, **attributes}.items():
        setattr(info, attribute, value)
    return info, data


def tar_of(
    entries: list[tuple[tarfile.TarInfo, bytes]] | None = None, format: int = tarfile.PAX_FORMAT
) -> bytes:
    """A tar of entries with any attributes."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=format) as archive:
        for info, data in [entry(*file) for file in FILES.items()] if entries is None else entries:
            archive.addfile(info, io.BytesIO(data))
    return out.getvalue()


def members(file: BinaryIO, kind: str) -> Iterator[Member]:
    """The members of an archive of any kind."""
    packed = kind == "tar.gz"
    return (member for member, _ in walk(file)) if packed else archive.members(file, kind)


def listed(data: bytes, kind: str) -> list[Member]:
    return list(members(io.BytesIO(data), kind))


def contents(data: bytes, kind: str) -> list[tuple[str, bytes]]:
    """(name, bytes) of all members; reading whole and streaming must agree."""
    if kind == "tar.gz":
        walked = walk(io.BytesIO(data))
        # No bytes of the file are those of a member.
        return [(member.name, stream.read()) for member, stream in walked if not member.location]
    file = io.BytesIO(data)
    found = []
    for member in members(file, kind):
        assert member.error == ""
        assert member.location is not None
        whole = read_member(file, member.location, member.name, LIMIT)
        assert open_member(file, member.location, member.name).read() == whole
        assert member.size == len(whole)
        found.append((member.name, whole))
    return found


def until_broken(data: bytes, kind: str) -> tuple[list[str], str]:
    """(names of the members that are listed, error that ends the listing)."""
    names = []
    try:
        for member in members(io.BytesIO(data), kind):
            names.append(member.name)
    except RejectError as error:
        return names, str(error)
    return names, ""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("a.zip", "zip"),
        ("/x.tar/A.ZIP", "zip"),
        ("gs://bucket/a.tar", "tar"),
        ("a.Tar.Gz", "tar.gz"),
        ("a.gz", None),
        ("a.zip.txt", None),
        ("", None),
    ],
)
def test_archives_are_recognized_by_file_name(path, kind):
    assert archive_kind(path) == kind


PACKERS = {
    "deflated.zip": "zip -qr",
    "wide.zip": "zip -qr -fz",
    "descriptors.zip": "zip -qr -fd",
    "links.zip": "zip -qr -y",
    "oldgnu-command.tar": "tar --format=oldgnu -cf",
    "posix-command.tar": "tar --format=posix -cf",
    "command.tgz": "tar -zcf",
}


# The programs zip and tar are not among what the base tests need.
@pytest.mark.slow
@pytest.mark.parametrize("name", PACKERS)
def test_packed_files_are_read_back_unchanged(tmp_path, name):
    folder = tmp_path / "in"
    for path, data in FILES.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(data)
    (folder / ".hidden").write_bytes(b"no")
    (folder / "link.txt").symlink_to("a.txt")
    command = [*PACKERS[name].split(), str(tmp_path / name), "."]
    subprocess.run(command, cwd=folder, check=True)
    data, kind = (tmp_path / name).read_bytes(), archive_kind(name)
    expected = dict(FILES)
    # The zip command follows links by default.
    if kind == "zip" and name != "links.zip":
        expected["link.txt"] = FILES["a.txt"]
    assert dict(contents(data, kind)) == expected
    found = {member.name: member for member in listed(data, kind)}
    assert {path: member.size for path, member in found.items()} == {
        path: len(data) for path, data in expected.items()
    }


names = st.lists(
    st.text("abcXYZ09_ -é日+%~#'\"&\\", min_size=1, max_size=6), min_size=1, max_size=4
).map("/".join)
bodies = st.one_of(st.binary(max_size=50), st.integers(0, 100_000).map(lambda n: NOISE[:n]))
compressible = st.integers(0, 300_000).map(lambda n: b"abc" * (n // 3))


@pytest.mark.filterwarnings("ignore:Duplicate name")
@given(
    st.lists(
        st.tuples(names, st.one_of(bodies, compressible), st.sampled_from([0, 8]), st.booleans()),
        max_size=6,
    ),
    st.binary(max_size=30),
)
@settings(max_examples=60, deadline=None)
def test_a_zip_reads_as_with_zipfile(files, comment):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.comment = comment.replace(b"PK", b"")
        for name, data, method, wide in files:
            info = zipfile.ZipInfo(name)
            info.compress_type = method
            with archive.open(info, "w", force_zip64=wide) as member:
                member.write(data)
    with zipfile.ZipFile(out) as archive:
        expected = [(info.filename, archive.read(info)) for info in archive.infolist()]
    assert contents(out.getvalue(), "zip") == expected


@given(
    st.lists(st.tuples(names, bodies, st.integers(0, 2**33 - 1)), max_size=6),
    st.sampled_from([tarfile.GNU_FORMAT, tarfile.PAX_FORMAT]),
)
@settings(max_examples=60, deadline=None)
def test_a_tar_reads_as_with_tarfile(files, format):
    data = tar_of([entry(name, body, mtime=time) for name, body, time in files], format)
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        expected = [(info.name, archive.extractfile(info).read()) for info in archive]
        places = [(info.offset_data, info.size) for info in archive]
    assert contents(data, "tar") == expected
    assert [(m.location.offset, m.size) for m in listed(data, "tar")] == places
    assert contents(gzip.compress(data, 1), "tar.gz") == expected


NAMES = [
    ("./a/b", "a/b"),
    ("a//b/./c", "a/b/c"),
    ("a/..b/c", None),
    (".git/x", None),
    ("a/.DS_Store", None),
    ("__MACOSX/a/b", None),
    ("a/__MACOSX/b", None),
    ("a/Thumbs.db", None),
    ("DESKTOP.INI", None),
    ("folder/", None),
    ("C:x", "C:x"),
]


@pytest.mark.parametrize(("name", "expected"), NAMES)
def test_names_are_normalized_and_hidden_files_skipped(name, expected):
    for data, kind in ((zip_of([(name, b"x")]), "zip"), (tar_of([entry(name, b"x")]), "tar")):
        found = listed(data, kind)
        assert [(member.name, member.error) for member in found] == (
            [(expected, "")] if expected else []
        )


WRONG = [
    ("/etc/passwd", "%2Fetc/passwd", "an absolute path"),
    ("C:/x", "C%3A/x", "an absolute path"),
    ("../../x", "%2E%2E/%2E%2E/x", "leads out of the archive"),
    ("a/../b", "a/%2E%2E/b", "leads out of the archive"),
    ("a/..", "a/%2E%2E", "leads out of the archive"),
    (".", "(no name)", "no name"),
    ("é" * 2049, None, "has 4098 bytes, more than 4096"),
]


@pytest.mark.parametrize(("name", "shown", "error"), WRONG)
def test_an_invalid_name_is_an_error_of_only_its_member(name, shown, error):
    files = [(name, b"x"), ("whole", b"y")]
    for data, kind in ((zip_of(files), "zip"), (tar_of([entry(*f) for f in files]), "tar")):
        wrong, whole = listed(data, kind)
        assert error in wrong.error
        assert wrong.location is None
        assert shown is None or wrong.name == shown
        assert whole == Member("whole", 1, whole.location)


def test_a_name_that_is_not_utf8_is_an_error_of_only_its_member():
    latin = tar_of([entry("d\udcf6g", b"x"), entry("whole", b"y")], tarfile.GNU_FORMAT)
    wrong, whole = listed(latin, "tar")
    assert (wrong.name, wrong.error) == ("d%F6g", "the member's name is not UTF-8: rename it")
    assert whole.error == ""


def test_a_zip_with_a_name_that_is_not_the_utf8_it_claims_is_rejected():
    flagged = zip_of({"dög": b"x", "whole": b"y"}).replace("ö".encode(), b"\xff\xfe")
    names, message = until_broken(flagged, "zip")
    assert names == []
    assert message.startswith(f"{BROKEN}no zip directory at the end of the file: 'utf-8' codec ")


def test_a_nul_in_a_name_is_an_error_of_its_member():
    data = zip_of({"dAg": b"x"}).replace(b"dAg", b"d\0g")
    error = "the member's name contains a NUL"
    assert listed(data, "zip") == [Member("d%00g", 1, None, error)]
    data = tar_of([entry("a", b"x", pax_headers={"path": "d\0g"})])
    assert listed(data, "tar")[0].error == "the member's name contains a NUL"


@pytest.mark.parametrize(
    ("system", "expected"), [(0, "a/b.txt"), (10, "a/b.txt"), (3, "a\\b.txt"), (19, "a\\b.txt")]
)
def test_backslashes_separate_folders_in_zips_from_windows(system, expected):
    data = zip_of({"a\\b.txt": b"x"}, create_system=system)
    assert contents(data, "zip") == [(expected, b"x")]
    (member,) = listed(zip_of({"..\\b": b"x"}, create_system=0), "zip")
    assert (member.name, member.error) == ("%2E%2E/b", "the member's name leads out of the archive")


def test_zip_names_without_the_utf8_flag_are_utf8_or_cp437():
    for encoded in ("é".encode(), "é".encode("cp437")):
        data = zip_of({"A" * len(encoded): b"x"}).replace(b"A" * len(encoded), encoded)
        assert contents(data, "zip") == [("é", b"x")]


class InShiftJis(zipfile.ZipInfo):
    """A member whose name is stored as Explorer in Japan does, in an encoding that it does not state."""

    def _encodeFilenameFlags(self) -> tuple[bytes, int]:
        return self.filename.encode("cp932"), 0


def in_shift_jis(name: str, extra: bytes = b"") -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        info = InShiftJis(name)
        info.create_system, info.extra = 0, extra
        archive.writestr(info, b"x")
    return out.getvalue()


def test_a_backslash_within_a_letter_of_shift_jis_separates_no_folders():
    (member,) = listed(in_shift_jis("猫/ソ.png"), "zip")
    assert member.name.count("/") == 1
    assert "was read as CP437" in member.remark
    (plain,) = listed(zip_of({"a\\b.png": b"x"}, create_system=0), "zip")
    assert (plain.name, plain.remark) == ("a/b.png", "")


@pytest.mark.parametrize(
    ("checksum", "is_read"), [(zlib.crc32("猫".encode("cp932")), True), (0, False)]
)
def test_the_unicode_path_of_a_member_is_its_name(checksum, is_read):
    body = struct.pack("<BL", 1, checksum) + "猫".encode()
    extra = struct.pack("<HH4sHH", 0x9999, 4, b"skip", 0x7075, len(body)) + body
    (member,) = listed(in_shift_jis("猫", extra), "zip")
    assert (member.name == "猫", member.remark == "") == (is_read, is_read)


def test_links_and_folders_of_a_zip_are_skipped():
    unix = zip_of({"link": b"a"}, external_attr=(stat.S_IFLNK | 0o777) << 16)
    assert listed(unix, "zip") == []
    # On other systems these bits mean something else.
    dos = zip_of({"link": b"a"}, external_attr=(stat.S_IFLNK | 0o777) << 16, create_system=0)
    assert contents(dos, "zip") == [("link", b"a")]
    assert contents(zip_of([("a/", b""), ("a/b", b"x")]), "zip") == [("a/b", b"x")]


# Offsets of fields in a directory entry of a zip and in its end record.
FLAGS, METHOD, CRC, PACKED, SIZE, OFFSET = 8, 10, 16, 20, 24, 42
END_DISK, END_COUNT, END_SIZE, END_OFFSET = 4, 10, 12, 16


def patched(data: bytes, signature: bytes, at: int, number: int, size: int = 4) -> bytes:
    start = data.index(signature) + at
    return data[:start] + number.to_bytes(size, "little") + data[start + size :]


def with_entry(data: bytes, at: int, number: int, size: int = 4) -> bytes:
    return patched(data, b"PK\1\2", at, number, size)


def with_end(data: bytes, at: int, number: int, size: int = 4) -> bytes:
    return patched(data, b"PK\5\6", at, number, size)


PLAIN = zip_of({"a.txt": b"x" * 100}, 0)


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (with_entry(PLAIN, FLAGS, 1, 2), "is encrypted"),
        (with_entry(PLAIN, FLAGS, 0x40, 2), "is encrypted"),
        (
            with_entry(PLAIN, METHOD, 12, 2),
            "is packed by method 12, expected 0 .stored. or 8 .deflated.",
        ),
        (with_entry(PLAIN, PACKED, 106), "'s 106 bytes from byte 0 on do not end before byte 135"),
        (
            with_entry(PLAIN, OFFSET, 999),
            "'s 100 bytes from byte 999 on do not end before byte 135",
        ),
        (with_entry(zip_of(), SIZE, 1 << 31), r"'s 2147483648 bytes .* packed in \d+ by method 8"),
        (with_entry(PLAIN, SIZE, 99), "'s 99 bytes cannot be packed in 100 by method 0"),
        (
            with_entry(PLAIN, SIZE, 0xFFFFFFFF),
            "'s 4294967295 bytes cannot be packed in 100 by .* 0",
        ),
    ],
)
def test_an_unreadable_member_of_a_zip_states_why(data, error):
    found = listed(data, "zip")[0]
    assert (found.name, found.location) == ("a.txt", None)
    assert re.fullmatch(f"the member ?{error}", found.error)


@pytest.mark.skipif(not hasattr(zipfile, "ZIP64_LIMIT"), reason="zipfile has another limit")
def test_numbers_above_32_bits_are_read_from_zip64_fields(monkeypatch):
    monkeypatch.setattr(zipfile, "ZIP64_LIMIT", 20)
    monkeypatch.setattr(zipfile, "ZIP_FILECOUNT_LIMIT", 2)
    files = {"a": b"short", "b": b"x" * 100, "c": NOISE[:50], "d": b""}
    for method in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        data = zip_of(files, method)
        assert data.count(b"PK\6\6") == data.count(b"PK\6\7") == 1
        assert dict(contents(data, "zip")) == files
    moved = data.replace(b"PK\6\6", b"PK\6\0")
    assert until_broken(moved, "zip") == (
        [],
        f"{BROKEN}no zip directory at the end of the file: Bad magic number for central directory",
    )


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b"", "no zip directory at the end of the file"),
        (b"PK\5\6" + bytes(13), "no zip directory at the end of the file"),
        (b"garbage" * 100, "no zip directory at the end of the file"),
        (zip_of() + b"\0", "it is cut off, or data follows"),
        (zip_of(comment=b"hello")[:-1], "it is cut off, or data follows"),
        (with_end(zip_of(), END_DISK, 1, 2), "it is part 2 of an archive of several parts: join"),
        (b"#!/bin/sh" + zip_of({"a": b""}), "should begin at byte 33, but does at 42"),
        (with_end(zip_of({"a": b""}), END_SIZE, 46), "no zip directory"),
        (with_end(zip_of({"a": b""}), END_OFFSET, 32), "should begin at byte 32, but does at 33"),
        (
            zip_of({"a": b""}).replace(b"PK\1\2", b"PK\1\1"),
            "Bad magic number for central directory",
        ),
        (
            with_end(zip_of([]), END_SIZE, 4).replace(b"PK\5\6", b"PK\1\2PK\5\6"),
            "Truncated central directory",
        ),
    ],
)
def test_a_zip_without_an_intact_directory_is_rejected(data, error):
    found, message = until_broken(data, "zip")
    assert found == []
    assert message.startswith(BROKEN)
    assert error in message


def test_a_zip_stored_in_a_truncated_zip_is_not_mistaken_for_it():
    inner = zip_of({"inner": b"x"})
    outer = zip_of({"a.zip": inner, "b": NOISE[:100]}, zipfile.ZIP_STORED)
    assert [name for name, _ in contents(outer, "zip")] == ["a.zip", "b"]
    for cut in range(outer.index(inner) + len(inner), len(outer)):
        assert until_broken(outer[:cut], "zip")[0] == []


def test_overlapping_members_are_rejected():
    one = zip_of({"a": b"\0" * 100_000})
    start = one.index(b"PK\1\2")
    end = one.index(b"PK\5\6")
    directory = one[start:end] * 1000
    bomb = one[:start] + directory + one[end:]
    bomb = with_end(with_end(bomb, END_COUNT, 1000, 2), END_SIZE, len(directory))
    names, message = until_broken(bomb, "zip")
    assert len(names) < 2
    assert "its members overlap: they claim more bytes than the archive has" in message


def reject(data: bytes, place: MemberLocation) -> str:
    """The error of reading a member, which is the same whole and streamed."""
    with pytest.raises(RejectError) as whole:
        read_member(io.BytesIO(data), place, "a", LIMIT)
    with pytest.raises(RejectError) as streamed:
        open_member(io.BytesIO(data), place, "a").read()
    assert str(whole.value) == str(streamed.value)
    return str(whole.value)


@pytest.mark.parametrize("method", [0, 8])
def test_damaged_members_of_a_zip_are_rejected(method):
    data = zip_of({"a": NOISE}, method)
    place = listed(data, "zip")[0].location
    assert place.method == method
    assert "damaged: the CRC-32 is " in reject(data, place._replace(crc=place.crc ^ 1))
    assert reject(b"x" + data, place) == "damaged: no local header at byte 0"
    assert reject(data[:20], place) == "damaged: no local header at byte 0"
    other = patched(data, b"PK\3\4", 8, 12, 2)
    assert reject(other, place) == f"damaged: the local header states method 12, expected {method}"
    flipped = bytearray(data)
    flipped[50_000] ^= 4
    assert reject(bytes(flipped), place).startswith("damaged: ")


def test_a_truncated_stored_member_is_rejected():
    data = zip_of({"a": NOISE}, 0)
    place = listed(data, "zip")[0].location
    assert reject(data[:1031], place) == "cut off: 1000 of 200000 bytes are there"
    tar = tar_of([entry("a", NOISE)])
    place = listed(tar, "tar")[0].location
    assert reject(tar[:1512], place) == "cut off: 1000 of 200000 bytes are there"


def test_a_truncated_deflated_member_is_rejected():
    data = zip_of({"a": NOISE})
    place = listed(data, "zip")[0].location
    assert reject(data[: len(data) // 2], place) == "damaged: truncated deflate stream"
    assert reject(data, place._replace(packed=1000)) == "damaged: truncated deflate stream"
    assert reject(data, place._replace(size=200_001)) == "cut off: 200000 of 200001 bytes are there"
    garbage = data[:31] + b"\xff" * 100 + data[131:]
    assert reject(garbage, place) == (
        "damaged: Error -3 while decompressing data: invalid block type"
    )


@pytest.mark.parametrize("size", [0, 65_536])
def test_a_deflated_member_never_yields_more_than_its_size(size):
    data = zip_of({"a": b"\0" * 10_000_000})
    place = listed(data, "zip")[0].location._replace(size=size)
    expected = f"damaged: it unpacks to more than the {size} bytes that the archive states"
    assert reject(data, place) == expected
    stream = open_member(io.BytesIO(data), place, "a")
    given = 0
    with pytest.raises(RejectError, match="it unpacks to more"):
        while chunk := stream.read(1000):
            given += len(chunk)
            assert not any(chunk)
    assert given <= size


def test_a_long_extra_field_takes_a_second_read():
    extra = struct.pack("<HH", 0x9999, 5000) + bytes(5000)
    for method in (0, 8):
        assert contents(zip_of(method=method, extra=extra), "zip") == list(FILES.items())


def test_a_member_larger_than_the_limit_is_rejected_unread():
    for place in (
        MemberLocation(0, 10, 11, 8, 0),
        MemberLocation(0, 11, 10, 8, 0),
        MemberLocation(0, 11, 11, IN_TAR, 0),
    ):
        with pytest.raises(RejectError, match=r"^it has 11 bytes, more than 10$"):
            read_member(io.BytesIO(), place, "a", 10)
    data = tar_of([entry("a", b"x" * 11)])
    place = listed(data, "tar")[0].location
    assert read_member(io.BytesIO(data), place, "a", 11) == b"x" * 11


def opened(text: bytes, kind: str) -> BinaryIO:
    """A stream of a member of a tar, or of a zip with a compression method."""
    data = tar_of([entry("a", text)]) if kind == "tar" else zip_of({"a": text}, int(kind))
    member = listed(data, "tar" if kind == "tar" else "zip")[0]
    return open_member(io.BytesIO(data), member.location, member.name)


@pytest.mark.parametrize("kind", ["0", "8", "tar"])
def test_a_member_stream_behaves_like_a_file(kind):
    text = b"".join(b"line %d\n" % n for n in range(30_000))
    stream = opened(text, kind)
    assert stream.readable()
    assert stream.name == "a"
    assert stream.readline() == b"line 0\n"
    assert next(stream) == b"line 1\n"
    assert stream.read(9) == b"line 2\nli"
    assert stream.read() == text[14 + 9 :]
    assert stream.read() == stream.read(5) == b""
    assert list(opened(text, kind)) == text.splitlines(keepends=True)
    assert io.TextIOWrapper(opened(text, kind)).read() == text.decode()


@pytest.mark.parametrize("kind", ["0", "8", "tar"])
def test_a_member_stream_cannot_seek(kind):
    stream = opened(NOISE, kind)
    assert not stream.seekable()
    with pytest.raises(io.UnsupportedOperation):
        stream.seek(0)


@pytest.mark.parametrize("method", [0, 8])
def test_the_last_bytes_of_a_damaged_member_are_not_returned(method):
    data = zip_of({"a": NOISE}, method)
    place = listed(data, "zip")[0].location
    stream = open_member(io.BytesIO(data), place._replace(crc=place.crc ^ 1), "a")
    assert stream.read(60_000) == NOISE[:60_000]
    with pytest.raises(RejectError, match="damaged: the CRC-32"):
        while stream.read(10_000):
            pass


def length(stream: BinaryIO) -> int:
    return sum(map(len, iter(lambda: stream.read(10_000), b"")))


def test_a_large_member_is_streamed_in_bounded_memory():
    text = b"0123456789abcde\n" * (1 << 20)
    packed = gzip.compress(tar_of([entry("a", text)]), 1)
    for data in (zip_of({"a": text}), zip_of({"a": text}, 0), tar_of([entry("a", text)])):
        file = io.BytesIO(data)
        kind = "zip" if data.startswith(b"PK") else "tar"
        with peak_below(1 << 20):
            for member in members(file, kind):
                assert length(open_member(file, member.location, "a")) == len(text)
            for _, stream in walk(io.BytesIO(packed)):
                assert length(stream) == len(text)
            assert len(list(members(io.BytesIO(packed), "tar.gz"))) == 1


def header(**fields: tuple[int, bytes]) -> bytes:
    """A tar header with some fields replaced, and a matching checksum."""
    block = bytearray(entry("a")[0].tobuf(tarfile.USTAR_FORMAT))
    for at, value in fields.values():
        block[at : at + len(value)] = value
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    return bytes(block)


def block(data: bytes) -> bytes:
    return data + bytes(-len(data) % 512)


ZEROS = bytes(1024)
WHOLE = block(header(name=(0, b"whole")))


def test_only_regular_files_of_a_tar_are_listed():
    kinds = [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.DIRTYPE, tarfile.FIFOTYPE]
    kinds += [tarfile.CHRTYPE, tarfile.BLKTYPE, b"V"]
    entries = [entry("a", b"x")]
    entries += [entry(f"b{n}", type=kind, linkname="a") for n, kind in enumerate(kinds)]
    entries += [entry("folder/", type=tarfile.AREGTYPE), entry("dump", b"data", type=b"D")]
    entries += [entry("c", b"y", type=tarfile.CONTTYPE), entry("d", b"z", type=tarfile.AREGTYPE)]
    for format in (tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT):
        data = tar_of(entries, format)
        assert contents(data, "tar") == [("a", b"x"), ("c", b"y"), ("d", b"z")]


def test_sparse_files_are_errors_of_their_members():
    records = {"GNU.sparse.size": "9", "GNU.sparse.name": "holes"}
    data = tar_of([entry("x", b"1", pax_headers=records), entry("whole", b"whole")])
    for data_, kind in ((data, "tar"), (gzip.compress(data), "tar.gz")):
        holes, whole = listed(data_, kind)
        error = "the member is a sparse file: pack it without --sparse"
        assert (holes.name, holes.location, holes.error) == ("holes", None, error)
        assert (whole.name, whole.size, whole.error) == ("whole", 5, "")
    pairs = [(member.name, stream.read()) for member, stream in walk(io.BytesIO(data_))]
    assert pairs == [("holes", b""), ("whole", b"whole")]


def test_times_that_gnu_tar_stores_after_names_are_not_part_of_them():
    gnu = header(magic=(257, b"ustar  \0"), accessed=(345, b"14512345670"))
    ustar = header(prefix=(345, b"folder/deep"))
    assert [member.name for member in listed(gnu + ustar + ZEROS, "tar")] == ["a", "folder/deep/a"]


def test_numbers_of_a_tar_are_octal_or_binary():
    wide = header(size=(124, b"\x80" + (513).to_bytes(11, "big")))
    small = header(size=(124, b"  17 \0"))
    data = wide + block(b"x" * 513) + small + block(b"y" * 15) + ZEROS
    assert [member.size for member in listed(data, "tar")] == [513, 15]


def test_checksums_of_signed_bytes_are_accepted():
    data = bytearray(header(name=(0, "dög".encode())))
    data[148:156] = b"%06o\0 " % (int(data[148:154], 8) - 512)
    assert [member.name for member in listed(bytes(data) + ZEROS, "tar")] == ["dög"]


def test_a_global_header_applies_to_all_members_and_an_extended_one_to_the_next():
    shared = b"15 path=shared\n"
    data = (
        block(header(kind=(156, b"g"), size=(124, b"%011o" % len(shared))))
        + block(shared)
        + WHOLE
        + tar_of([entry("b", pax_headers={"path": "own", "comment": "x"}), entry("c")])
    )
    assert [member.name for member in listed(data, "tar")] == ["shared", "own", "shared"]


@pytest.mark.parametrize(("count", "whole"), [(7, ["whole"]), (10, [])])
def test_large_headers_are_read_in_bounded_memory(count, whole):
    parts = []
    for number in range(count):
        record = b"500016 key%04d=%s\n" % (number, b"x" * 500_000)
        parts += [header(kind=(156, b"g"), size=(124, b"%011o" % len(record))), block(record)]
    with peak_below(16 << 20):
        names, message = until_broken(b"".join(parts) + WHOLE + ZEROS, "tar")
    assert names == whole
    assert bool(whole) != ("have more than 4194304 bytes" in message)


def test_endless_headers_are_rejected():
    empty = header(kind=(156, b"g"))
    names, message = until_broken(empty * 3000 + WHOLE + ZEROS, "tar")
    assert (names, "too many extended headers" in message) == ([], True)


def extended(data: bytes, size: int | None = None) -> bytes:
    size = len(data) if size is None else size
    return header(kind=(156, b"x"), size=(124, b"%011o" % size)) + block(data)


AFTER_A = "the archive is damaged or cut off after 'whole': "


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b"", "it ends at byte 1024 without an end-of-archive marker"),
        (WHOLE[:100], "no tar header at byte 1024: truncated header"),
        (b"x" * 512 + ZEROS, "no tar header at byte 1024"),
        (header(size=(124, b"9" * 11)) + ZEROS, "no tar header at byte 1024"),
        (WHOLE[:50] + b"x" + WHOLE[51:] + ZEROS, "no tar header at byte 1024"),
        (header(size=(124, b"\xff" * 12)) + ZEROS, "a header states a size of -1 bytes"),
        (
            header(size=(124, b"\x80" + (1 << 70).to_bytes(11, "big"))) + ZEROS,
            "of 1180591620717411303424 b",
        ),
        (header(size=(124, b"00000004000")) + ZEROS, "ends at byte 3584, the archive at 2560"),
        (extended(b"", 17 << 20) + ZEROS, "have more than 4194304 bytes"),
        (extended(b"", 2000) + ZEROS, "it ends at byte 2560 without an end-of-archive marker"),
        (extended(b"11 path=ab\n") + ZEROS, "no tar header at byte 1024: end of file header"),
        (extended(b"0 path=ab\n") + WHOLE + ZEROS, "no tar header at byte 1024: invalid header"),
        (extended(b"10 size=x\n") + WHOLE + ZEROS, "header states a size of 'x' bytes"),
        (extended(b"28 size=%s\n" % (b"9" * 19)) + WHOLE + ZEROS, "of '9999999999999999999' b"),
        (ZEROS + WHOLE, "data after the end-of-archive marker, from byte 1024 on"),
    ],
)
def test_a_damaged_tar_is_rejected_after_its_intact_members(data, error):
    # An intact member comes first, so that the damage is not at the start of the archive.
    data = header(name=(0, b"whole"), size=(124, b"%011o" % 1)) + block(b"x") + data
    names, message = until_broken(data, "tar")
    assert names == ["whole"]
    assert message.startswith(AFTER_A)
    assert error in message


def test_a_size_in_an_extended_header_is_used():
    data = extended(b"12 size=700\n") + header() + block(b"x" * 700) + WHOLE + ZEROS
    assert contents(data, "tar") == [("a", b"x" * 700), ("whole", b"")]


@pytest.mark.parametrize(
    "data", [b"", b"garbage" * 100, zip_of(), tar_of(), gzip.compress(tar_of())]
)
@pytest.mark.parametrize("kind", ["zip", "tar", "tar.gz"])
def test_files_of_another_kind_are_rejected(data, kind):
    names, message = until_broken(data, kind)
    intact = {"zip": b"PK", "tar": b"a.txt", "tar.gz": b"\x1f\x8b"}[kind]
    if data.startswith(intact):
        assert (names, message) == (list(FILES), "")
    else:
        assert names == []
        assert message.startswith(BROKEN)


def test_a_member_without_a_name_is_an_error():
    (member,) = listed(header(name=(0, b"\0")) + ZEROS, "tar")
    assert (member.name, member.error) == ("(no name)", "the member has no name")


def ends(data: bytes) -> list[int]:
    """Where each member of a tar ends, according to tarfile."""
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        return [info.offset_data + -(-info.size // 512) * 512 for info in archive]


def test_a_tar_truncated_anywhere_lists_its_whole_members_and_is_rejected():
    data = tar_of([entry(name, data[:700]) for name, data in FILES.items()])
    last = ends(data)[-1]
    for cut in [*range(0, last + 512, 37), last + 511]:
        names, message = until_broken(data[:cut], "tar")
        assert names == [name for name, end in zip(FILES, ends(data), strict=True) if end <= cut]
        where = f"after {names[-1]!r}: " if names else "before its first member: "
        assert message.startswith(f"the archive is damaged or cut off {where}")
    for cut in range(last + 512, len(data), 501):
        assert until_broken(data[:cut], "tar") == (list(FILES), "")


@pytest.mark.parametrize("mark", ["zip", "tar.gz"])
def test_an_archive_truncated_anywhere_is_rejected(mark):
    files = {name: data[:300] for name, data in FILES.items()}
    data = zip_of(files)
    if mark == "tar.gz":
        data = gzip.compress(tar_of([entry(*file) for file in files.items()]))
    for cut in range(len(data)):
        names, message = until_broken(data[:cut], mark)
        assert names == list(files)[: len(names)]
        assert message


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (gzip.compress(tar_of())[:-8] + bytes(8), "GZIP: CRC check failed 0x0 != "),
        (gzip.compress(tar_of()) + b"garbage", "GZIP: Not a gzipped file (b'ga')"),
        (gzip.compress(tar_of()) + gzip.compress(tar_of()), "data after the end-of-archive marker"),
    ],
)
def test_damage_after_the_last_member_of_a_tar_gz_is_noticed(data, error):
    names, message = until_broken(data, "tar.gz")
    assert names == list(FILES)
    assert message.startswith(f"the archive is damaged or cut off after {LONG!r}: {error}")


def test_streams_of_a_tar_gz_may_be_left_unread_and_are_closed_by_the_next_step():
    before: list[BinaryIO] = []
    for number, (member, stream) in enumerate(walk(io.BytesIO(gzip.compress(tar_of())))):
        for old in before:
            with pytest.raises(ValueError, match="closed"):
                old.read(1)
        assert not stream.seekable()
        size = number * 99
        assert stream.read(size) == FILES[member.name][:size]
        before.append(stream)
    assert len(before) == len(FILES)


def test_concatenated_gzip_streams_are_one_archive():
    data = tar_of()
    parts = [data[:700], data[700:100_000], data[100_000:]]
    packed = b"".join(map(gzip.compress, parts))
    assert contents(packed, "tar.gz") == list(FILES.items())


def read_all(data: bytes, kind: str) -> Iterator[tuple[str, bytes]]:
    """Yields (name, bytes) of the members that can be read. It raises RejectError or nothing."""
    if kind == "tar.gz":
        for member, stream in walk(io.BytesIO(data)):
            yield member.name, stream.read()
        return
    file = io.BytesIO(data)
    for member in members(file, kind):
        member.name.encode()
        assert bool(member.error) == (member.location is None)
        if member.location:
            with contextlib.suppress(RejectError):
                whole = read_member(file, member.location, member.name, LIMIT)
                yield member.name, whole
            with contextlib.suppress(RejectError):
                assert open_member(file, member.location, member.name).read() == whole


BODIES = {"a": b"first", "b": b"", "c": b"x" * 100}
SMALL = {
    "stored.zip": zip_of(BODIES, 0),
    "deflated.zip": zip_of(BODIES),
    "ustar.tar": tar_of([entry(*file) for file in BODIES.items()], tarfile.USTAR_FORMAT)[:3584],
    "pax.tar.gz": gzip.compress(
        tar_of([entry(*file, pax_headers={"path": file[0]}) for file in BODIES.items()])
    ),
}


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("change", [0x01, 0xFF])
def test_no_damaged_byte_of_an_archive_leads_to_a_wrong_byte(name, change):
    data, kind = SMALL[name], archive_kind(name)
    unchecked: set[int] = set()
    if kind == "tar":  # It has checksums of its headers alone.
        for member in listed(data, kind):
            start = member.location.offset
            unchecked.update(range(start, start + member.size))
    for at in set(range(len(data))) - unchecked:
        damaged = data[:at] + bytes([data[at] ^ change]) + data[at + 1 :]
        found = []
        try:
            for member in read_all(damaged, kind):
                found.append(member)
        except RejectError:
            if kind == "tar.gz":  # Its checksum is at its end.
                continue
        if kind == "zip":  # The names in its directory have no checksum.
            assert {body for _, body in found} <= set(BODIES.values()), at
        else:
            assert set(found) <= set(BODIES.items()), at
