"""Texts of the pool in many encodings, held against Python's own codecs."""

import pytest

from tests.pool.packages import unpack
from tests.support.commands import run
from tests.support.datasets import records_of, rejects_of

pytestmark = pytest.mark.pool

CHARDET = "chardet-5.2.0.tar.gz"

# The folders of an encoding. Some pages of the web have bytes that their encoding lacks.
ENCODINGS = {
    "big5": "Big5",
    "cp932": "SHIFT_JIS|CP932",
    "euc_jp": "EUC-JP",
    "euc_kr": "EUC-KR",
    "johab": "Johab",
    "cp1251": "windows-1251-.*",
    "iso2022_jp": "iso-2022-jp",
    "utf-16": "UTF-16",
    "utf-32-le": "UTF-32LE",
}

# The differences, by their reason.
KNOWN = {
    "UTF-16 and UTF-32 without a mark, whose NULs are valid UTF-8": {
        "UTF-16BE/nobom-utf16be.txt",
        "UTF-16LE/nobom-utf16le.txt",
        "UTF-32BE/nobom-utf32be.txt",
        "UTF-32LE/nobom-utf32le.txt",
    },
}


def decoded(data, encoding):
    try:
        return data.decode(encoding)
    except UnicodeDecodeError:
        return None


def texts_of(out):
    records, rejects = records_of(out), rejects_of(out)
    assert not records.keys() & rejects.keys()
    return {
        **{key: record["text"].item().decode() for key, record in records.items()},
        **dict.fromkeys(rejects),
    }


def run_on_files(folder, out, *flags):
    """Runs the job on whole files; returns what each became, its text or None for a reject."""
    flags = ["--record", "file", "--label", "none", *flags]
    assert run("text", "--input", folder, "--output", out, *flags) == 0
    return texts_of(out)


def differing(folder, found, encoding):
    files = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*.*")}
    files = {key: path for key, path in files.items() if path.is_file()}
    assert found.keys() == files.keys()
    return {key for key in files if found[key] != decoded(files[key].read_bytes(), encoding)}


def test_files_are_records_if_they_are_utf_8_and_rejects_if_not(tmp_path):
    folder = unpack(CHARDET, r"[^/]*/tests/(.*\.(?!py).*)", tmp_path / "in")
    found = run_on_files(folder, tmp_path / "out")
    assert sum(text is None for text in found.values()) > 300
    wrong = differing(folder, found, "utf-8-sig")
    assert wrong == {key for keys in KNOWN.values() for key in keys}


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_files_are_decoded_as_python_decodes_them(encoding, tmp_path):
    folder = unpack(CHARDET, rf"[^/]*/tests/((?:{ENCODINGS[encoding]})/.*)", tmp_path / "in")
    found = run_on_files(folder, tmp_path / "out", "--text_encoding", encoding)
    assert differing(folder, found, encoding) == set()


def test_lines_are_those_between_line_feeds(tmp_path):
    folder = tmp_path / "in"
    unpack("golang-1.19-src_1.19.8-2_all.deb", r".*/src/(.*testdata/.*\.txt)", folder / "go")
    unpack(CHARDET, r"[^/]*/tests/(.*\.txt)", folder / "chardet")
    pattern = folder / "**" / "*.txt"
    assert run("text", "--input", pattern, "--output", tmp_path / "out", "--label", "none") == 0
    found = texts_of(tmp_path / "out")
    wrong, seen = set(), set()
    for path in folder.rglob("*.txt"):
        name = path.relative_to(folder).as_posix()
        data = path.read_bytes().removeprefix("\ufeff".encode())
        # A folder whose name begins with a dot is hidden from patterns, and UTF-16 is one reject.
        if "/." in name or name in found:
            continue
        for number, line in enumerate(data.split(b"\n"), 1):
            if line.strip():
                seen.add(f"{name}#{number}")
                text = decoded(line.removesuffix(b"\r"), "utf-8")
                if found.get(f"{name}#{number}", "no record") != text:
                    wrong.add(f"{name}#{number}")
    assert len(seen) > 10_000 and wrong == set()
