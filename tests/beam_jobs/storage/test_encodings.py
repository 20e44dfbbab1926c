import codecs
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from beam_jobs.errors import RejectError
from beam_jobs.storage.encodings import UTF8, as_utf8, check_head, encoding_name

TEXT = "Grüße\r\nhello, it's a line\n\nlast\n"


def decoded(data: bytes, encoding: str) -> bytes:
    return as_utf8(io.BytesIO(data), encoding).read()


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "utf-16-le", "utf-32-be", "cp1252"])
def test_a_text_is_the_same_in_every_encoding(encoding):
    assert decoded(TEXT.encode(encoding), encoding) == TEXT.encode()


@given(st.text(max_size=200), st.integers(1, 9))
def test_characters_may_be_cut_between_blocks(text, size):
    class Slow(io.RawIOBase):
        data = io.BytesIO(text.encode("gb18030"))

        def read(self, _=-1):
            return self.data.read(size)

    assert as_utf8(Slow(), "gb18030").read() == text.encode()


@pytest.mark.parametrize(
    ("data", "encoding", "lines"),
    [
        (b"a\x81b\nfine\n", "cp1252", ["", "fine"]),
        ("ab\ud800c\nfine\n".encode("utf-16-be", "surrogatepass"), "utf-16-be", ["", "fine"]),
        ("fine\n".encode("utf-16") + b"x", "utf-16", ["fine", ""]),
        (b"\x81\nfine", "shift_jis", ["", "fine"]),
    ],
)
def test_only_a_line_with_undecodable_bytes_is_not_utf8(data, encoding, lines):
    found = decoded(data, encoding).splitlines()
    for line, expected in zip(found, lines, strict=True):
        if expected:
            assert line.decode() == expected
        else:
            with pytest.raises(UnicodeDecodeError):
                line.decode()


def test_utf16_without_a_mark_needs_the_order_of_its_bytes():
    with pytest.raises(RejectError, match="not UTF-16: UTF-16 stream does not start with BOM"):
        decoded(b"a\0b\0", "utf-16")


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (TEXT.encode("utf-16"), "utf-16"),
        (codecs.BOM_UTF16_BE + TEXT.encode("utf-16-be"), "utf-16"),
        (TEXT.encode("utf-32"), "utf-32"),
        (TEXT.encode("utf-16-le"), "utf-16-le"),
        (TEXT.encode("utf-32-be"), "utf-32-be"),
        (codecs.BOM_UTF16_LE, "utf-16"),
    ],
)
def test_text_of_several_bytes_a_character_is_refused_as_text_of_one(data, found):
    message = f"{found[:6].upper()} text: convert it to UTF-8, or add --text_encoding {found}"
    for encoding in (UTF8, "cp1252"):
        with pytest.raises(RejectError, match=f"^{message}$"):
            decoded(data, encoding)
    assert decoded(data, found).decode().removeprefix("\ufeff") in (TEXT, "")


@pytest.mark.parametrize(
    "data",
    [
        b"",
        bytes(4096),
        b"nul\0inside\n",
        b"a\0b\0" + b"few NULs" * 9,
        b"\xef\xbb\xbfa\n",
        "日本\n".encode(),
    ],
)
def test_other_bytes_are_read_as_utf8(data):
    check_head(data, UTF8)
    assert decoded(data, UTF8) == data


def test_a_pointer_of_git_lfs_is_not_text():
    """BKCS-HUST/LSTM-MI#2: the lines of the pointer became records."""
    pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:b51f\nsize 21484555\n"
    for encoding in (UTF8, "cp1252"):
        with pytest.raises(RejectError, match="git lfs pull"):
            decoded(pointer, encoding)
    assert decoded(b"# " + pointer, UTF8) == b"# " + pointer


def test_names_of_encodings_are_those_of_python():
    assert encoding_name("UTF8") == UTF8
    assert encoding_name("Shift-JIS") == "shift_jis"
    for name in (
        "",
        "nonsense",
        "zlib",
        "a\0",
        "unicode_escape",
        "UTF7",
    ):
        with pytest.raises(LookupError):
            encoding_name(name)
