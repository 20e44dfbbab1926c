"""Texts as they are read from files of every kind, one by one and in batches."""

import dataclasses
import gzip
import io
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest

from beam_jobs.errors import UsageError
from beam_jobs.jobs.text.text_job import TextJob
from beam_jobs.jobs.text.text_reader import first_label
from beam_jobs.records.rejects import Reject
from beam_jobs.sources.chunks import CHUNK_BYTES, Chunk, Task, numbered_chunks
from beam_jobs.sources.inputs import Inputs
from beam_jobs.sources.labels import Labels, holds_lists
from beam_jobs.sources.rows import DEFAULT, Dialect
from beam_jobs.sources.source import NOT_UTF8, Label, Source
from readers.format.schema import Feature, Schema


class Text(NamedTuple):
    """A text as it is read: its key, its fields, its label and its columns; or an error."""

    key: str
    texts: tuple[str, ...]
    label: Label | None
    error: str = ""
    row: Mapping[str, Any] | None = None


def each_text(reader: TextJob, chunk: Chunk) -> Iterator[Text]:
    for texts in reader.each(chunk):
        for reject in texts.rejects:
            yield Text(reject.key, (), next(iter(texts.classes), None), reject.error)
        for key, label, *fields in zip(texts.keys, texts.labels, *texts.texts, strict=True):
            row = texts.rows[0] if texts.rows else None
            yield Text(key.decode(), tuple(text.decode() for text in fields), label, row=row)


def job(root: Path, **options) -> TextJob:
    labels = options.pop("labels", Labels())
    return TextJob(Inputs((f"{root}/**",), str(root)), labels, **options)


def read(root: Path, name: str, data: bytes | str, **options) -> list[Text]:
    """All texts of one file, chunk by chunk."""
    data = data.encode() if isinstance(data, str) else data
    (root / name).write_bytes(data)
    reader = job(root, **options)
    chunks = list(reader.chunks(Source(name, len(data))))
    if not chunks[0].first:
        chunks = list(numbered_chunks(reader.range_counter()(Task.of(list(chunks)))))
    return texts_of(reader, chunks)


def texts_of(reader: TextJob, chunks: list[Chunk]) -> list[Text]:
    """All texts of some chunks; `each` and `batches` must give the same."""
    texts = []
    for chunk in chunks:
        found = list(each_text(reader, chunk))
        batches = list(reader.batches(chunk))
        good = [text for text in found if text.texts]
        rows = [zip(b.keys, b.labels, *b.texts, strict=True) for b in batches]
        assert [row for batch in rows for row in batch] == [
            (text.key.encode(), text.label, *map(str.encode, text.texts)) for text in good
        ]
        assert [reject for batch in batches for reject in batch.rejects] == [
            Reject.of(text.key, "read", text.error) for text in found if not text.texts
        ]
        texts += found
    return texts


def numbered_texts(found: list[Text]) -> list[tuple[str, str | None]]:
    return [(text.key.rpartition("#")[2], *(text.texts or [None])) for text in found]


def only(found: list[Text]) -> Text:
    assert len(found) == 1
    return found[0]


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", []),
        (b"\n\n", []),
        (b"a", [("1", "a")]),
        (b"a\n\n  \n\t\nb\n", [("1", "a"), ("5", "b")]),
        (b"a\r\nb\r\n\r\nc", [("1", "a"), ("2", "b"), ("4", "c")]),
        (b"\xef\xbb\xbfa\n\xef\xbb\xbfb\n", [("1", "a"), ("2", "\ufeffb")]),
        (b"\xef\xbb\xbf\nb\n", [("2", "b")]),
        (b"a\rb\n", [("1", "a\rb")]),
        ("a\u2028b\u0085c\x0bd\x1ce\n".encode(), [("1", "a\u2028b\u0085c\x0bd\x1ce")]),
        (b"nul\0inside\n", [("1", "nul\0inside")]),
        (b"#1\n", [("1", "#1")]),
    ],
)
def test_only_newlines_end_a_line_and_blank_lines_are_skipped(tmp_path, data, expected):
    assert numbered_texts(read(tmp_path, "a.txt", data)) == expected
    assert numbered_texts(read(tmp_path, "a.txt.gz", gzip.compress(data))) == expected


@pytest.mark.parametrize("bad", [b"\xff", b"caf\xe9", b"\xed\xa0\x80", b"\xc3"])
def test_a_line_that_is_not_utf8_is_rejected_alone(tmp_path, bad):
    found = read(tmp_path, "a.txt", b"good\n" + bad + b"\nfine\n")
    assert numbered_texts(found) == [("1", "good"), ("2", None), ("3", "fine")]
    assert found[1].error.startswith("not UTF-8: ")


TEXTS = {
    "a.txt": "Grüße\n\nhello\n",
    "a.jsonl": '{"text": "Grüße"}\n\n{"text": "hello"}\n',
    "a.csv": 'text\nGrüße\n"hello"\n',
}


def read_all(root: Path, name: str, data: bytes, dialect=DEFAULT, **options) -> list[Text]:
    """All texts of a file or an archive."""
    (root / name).write_bytes(data)
    inputs = Inputs.of([f"{root}/{name}"], dialect=dialect)
    reader = TextJob(inputs, Labels(), **options)
    sources = inputs.sources(inputs.patterns[0])
    return [text for source in sources for text in texts_of(reader, list(reader.chunks(source)))]


@pytest.mark.parametrize("ending", ["", ".gz"])
@pytest.mark.parametrize(
    ("name", "encoding"), [*zip(TEXTS, ("utf-16", "utf-16-le", "utf-16-be"), strict=True)]
)
def test_utf16_is_one_reject_unless_it_is_asked_for(tmp_path, name, encoding, ending):
    data, stored = TEXTS[name].encode(encoding), name + ending
    data = gzip.compress(data) if ending else data
    found = only(read_all(tmp_path, stored, data))
    assert (found.texts, "#" in found.key) == ((), False)
    assert found.error == f"UTF-16 text: convert it to UTF-8, or add --text_encoding {encoding}"
    found = read_all(tmp_path, stored, data, Dialect(encoding))
    assert [text.texts for text in found] == [("Grüße",), ("hello",)]


def test_a_large_file_in_utf16_is_one_reject_too(tmp_path):
    data = ("Grüße aus Wien\n" * 100_000).encode("utf-16-le")
    assert len(data) > CHUNK_BYTES
    error = "UTF-16 text: convert it to UTF-8, or add --text_encoding utf-16-le"
    assert read(tmp_path, "a.txt", data) == [Text("a.txt", (), None, error)]


def test_a_large_file_in_another_encoding_is_read_as_a_whole(tmp_path, monkeypatch):
    monkeypatch.setattr("beam_jobs.jobs.text.text_reader.CHUNK_BYTES", 100)
    # Both bytes of the character U+0A0A are those of a newline.
    lines = [f"{number} \u0a0a ü" for number in range(200)]
    found = read_all(tmp_path, "a.txt", "\n".join(lines).encode("utf-16"), Dialect("utf-16"))
    assert [text.texts for text in found] == [(line,) for line in lines]
    assert found[-1].key == "a.txt#200"


def test_a_line_that_the_encoding_does_not_have_is_rejected_alone(tmp_path):
    found = read_all(tmp_path, "a.txt", b"caf\xe9\n\x81\nfine\n", Dialect("cp1252"))
    assert [text.texts for text in found] == [("café",), (), ("fine",)]
    assert found[1].error == "not CP1252"


def test_a_whole_file_may_be_a_record(tmp_path):
    data = "\ufeffline 1\r\n\r\nline 2\n"
    expected = [Text("a.txt", ("line 1\r\n\r\nline 2\n",), None)]
    assert read(tmp_path, "a.txt", data, record="file") == expected
    packed = read(tmp_path, "a.txt.gz", gzip.compress(data.encode()), record="file")
    assert packed == [Text("a.txt.gz", ("line 1\r\n\r\nline 2\n",), None)]
    assert read(tmp_path, "a.txt", b"", record="file") == [Text("a.txt", ("",), None)]
    broken = only(read(tmp_path, "a.txt", b"a\xff", record="file"))
    assert (broken.key, broken.texts) == ("a.txt", ())
    assert broken.error.startswith("not UTF-8")


@pytest.mark.parametrize("name", ["LICENSE", "a.html.GZ", "a.jsonl", "a.csv"])
def test_any_text_file_may_be_a_record(tmp_path, name):
    data = "# Grüße\n\nx;y\n".encode()
    stored = gzip.compress(data) if name.endswith("GZ") else data
    assert read(tmp_path, name, stored, record="file") == [Text(name, (data.decode(),), None)]


@pytest.mark.parametrize("name", ["a.png", "a.parquet"])
def test_files_that_are_no_text_are_rejected_as_records(tmp_path, name):
    found = only(read(tmp_path, name, b"\x89PNG\r\n", record="file"))
    assert (found.key, found.texts) == (name, ())
    assert found.error.startswith(("not UTF-8", "--record file is for text"))


@pytest.mark.parametrize("name", ["a.xlsx", "a", "a.gz", "a.tsv.xz", "a.txt.bz2", "a.parquet.gz"])
def test_files_of_other_kinds_are_rejected(tmp_path, name):
    found = only(read(tmp_path, name, b"x"))
    assert (found.key, found.texts) == (name, ())
    assert found.error.startswith("expected .txt, .csv, .tsv, .jsonl, .json (each also .gz)")


@pytest.mark.parametrize("name", ["a.json", "a.json.gz", "a.feather", "a.arrow"])
def test_texts_of_other_tables_are_those_of_the_same_rows_of_json_lines(tmp_path, name):
    rows = [{"text": f"é {n}" if n % 3 else None, "y": n % 2, "m": {"n": n}} for n in range(9)]
    table, buffer = pa.Table.from_pylist(rows), io.BytesIO()
    if name.startswith("a.json"):
        buffer.write(json.dumps(rows, indent=2, ensure_ascii=False).encode())
    elif name == "a.arrow":
        with pa.ipc.new_stream(buffer, table.schema) as writer:
            writer.write_table(table, 4)
    else:
        pyarrow.feather.write_feather(table, buffer, chunksize=4)
    data = buffer.getvalue()
    options = {"label_field": "y", "columns": ("m.n",)}
    found = read(tmp_path, name, gzip.compress(data) if name.endswith(".gz") else data, **options)
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    expected = read(tmp_path, "b.jsonl", lines, **options)
    assert [text._replace(key=text.key.replace(name, "b.jsonl")) for text in found] == expected


def test_a_record_is_a_json_object(tmp_path):
    lines = [
        '\ufeff{"text": "a\\nb", "x": [1]}',
        "",
        ' {"text": "", "text": "last"} ',
        '{"text":"\\u00e9🎉"}',
    ]
    found = read(tmp_path, "a.jsonl", "\r\n".join(lines))
    assert numbered_texts(found) == [("1", "a\nb"), ("3", "last"), ("4", "é🎉")]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"text": "a"', "not JSON: "),
        ("text", "not JSON: "),
        ('{"text": "a"} {"text": "b"}', "not JSON: Extra data"),
        ("[" * 100_000, "not JSON: "),
        ("[1]", "expected a JSON object, got list"),
        ('"a"', "expected a JSON object, got str"),
        ("null", "expected a JSON object, got NoneType"),
        ("{}", "no field 'text', it has no fields; name the field with the text: --text_field"),
        ('{"body": "a", "id": 1}', "no field 'text', it has body, id; name the field with the"),
        ('{"text": null}', "field 'text' is None, expected text"),
        ('{"text": 3}', "field 'text' is 3, expected text"),
        ('{"text": ["a"]}', "field 'text' is ['a'], expected text"),
        ('{"text": "half a pair \\ud800"}', "surrogates"),
        ('{"text": 1' + "0" * 5000 + "}", "not JSON: "),
    ],
)
def test_a_line_that_is_not_a_json_object_with_a_text_is_rejected(tmp_path, line, message):
    found = read(tmp_path, "a.jsonl", f'{line}\n{{"text": "fine"}}\n')
    assert numbered_texts(found) == [("1", None), ("2", "fine")]
    assert message in found[0].error


def test_a_long_wrong_value_is_shortened_in_the_error(tmp_path):
    found = only(read(tmp_path, "a.jsonl", json.dumps({"text": ["x" * 10_000]})))
    assert len(found.error) < 200


def test_several_fields_hold_texts(tmp_path):
    rows = [
        {"q": "Who?", "a": {"text": "Me."}},
        {"q": "", "a": {"text": ""}},
        {"q": "Why?", "a": {"text": None}},
        {"a": {"text": "So."}},
    ]
    data = "".join(json.dumps(row) + "\n" for row in rows)
    options = {"text_fields": ("q", "a.text")}
    first, second, *rest = read(tmp_path, "a.jsonl", data, **options)
    assert first == Text("a.jsonl#1", ("Who?", "Me."), None)
    assert second.texts == ("", "")
    assert [text.error for text in rest] == [
        "field 'a.text' is None, expected text; the record has q, a, a.text",
        "no field 'q', it has a, a.text; name the field with the text: --text_field",
    ]
    (line,) = read(tmp_path, "a.txt", "plain\n", **options)
    assert line.error == "plain text has no fields, such as 'q'"
    reader = job(tmp_path, tokens="words", **options)
    assert {*reader.schema} == {"q", "a.text", "q_tokens", "a.text_tokens", "key"}
    with pytest.raises(UsageError, match=r"no column 'a\.text', it has q"):
        read(tmp_path, "a.csv", "q,a\nx,y\n", **options)


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz", "a.parquet"])
def test_texts_labels_and_columns_may_be_fields_of_objects(tmp_path, name):
    rows = [
        {"translations": {"de": "Haus", "en": "house"}, "meta": {"cls": "noun", "n": 1}},
        {"translations": {"de": None, "en": "green"}, "meta": {"cls": "adjective", "n": 2}},
        {"translations": None, "meta": {"cls": "verb", "n": 3}},
        {"translations": {"de": "Baum", "en": "tree"}, "meta": None},
    ]
    options = {
        "text_fields": ("translations.de",),
        "label_field": "meta.cls",
        "columns": ("meta.n",),
    }
    data = "".join(json.dumps(row) + "\n" for row in rows).encode()
    if name.endswith(".parquet"):
        pq.write_table(pa.Table.from_pylist(rows), tmp_path / name)
        data = (tmp_path / name).read_bytes()
    first, *rest = read(tmp_path, name, gzip.compress(data) if ".gz" in name else data, **options)
    assert first == Text(f"{name}#1", ("Haus",), "noun", row={"meta.n": 1})
    errors = ["field 'translations.de' is None, expected text; the record has translations, "] * 2
    errors.append("column 'meta.cls': label None: expected text or a whole number")
    for text, error in zip(rest, errors, strict=True):
        assert text.error.startswith(error)


@pytest.mark.parametrize(
    ("value", "label"),
    [('"cat"', "cat"), ("3", "3"), ("-7", "-7"), ("true", "true"), ("3.0", "3"), ('"3.0"', "3")]
    + [(r'"\ud83c\udf89 é \u0000"', "🎉 é \0")],
)
def test_labels_are_text_or_whole_numbers(tmp_path, value, label):
    found = read(tmp_path, "a.jsonl", f'{{"text": "a", "y": {value}}}', label_field="y")
    assert found == [Text("a.jsonl#1", ("a",), label)]


def test_lines_and_whole_files_have_no_label_field(tmp_path):
    for record in ("line", "file"):
        found = only(read(tmp_path, "a.txt", "one", label_field="y", record=record))
        assert found.texts == ()
        assert found.error == "no column 'y'; it has none"


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ('"y": 1.5', "label 1.5: expected text or a whole number"),
        ('"y": 1e30', "label 1e+30: expected text or a whole number"),
        ('"y": null', "label None: expected text"),
        ('"y": ""', "label '': expected text"),
        ('"y": NaN', "label nan: expected text"),
        ('"y": "\\udfff"', "surrogates"),
        ('"z": 1', "no column 'y'; it has text, z"),
    ],
)
def test_a_record_without_a_usable_label_is_rejected(tmp_path, fields, message):
    found = only(read(tmp_path, "a.jsonl", f'{{"text": "a", {fields}}}', label_field="y"))
    assert found.texts == ()
    assert message in found.error


TABLE = 'id,text,y\n1,plain,cat\n2,"quoted, with ""quotes""\nand a newline",dog\n\n3,é,7\n'


@pytest.mark.parametrize(
    ("name", "start", "end"), [("a.csv", "", "\r\n"), ("a.csv.gz", "\ufeff", "\n")]
)
def test_a_record_is_a_row_of_a_table(tmp_path, end, start, name):
    data = (start + TABLE.replace("\n", end)).encode()
    stored = gzip.compress(data) if name.endswith("gz") else data
    assert read(tmp_path, name, stored, label_field="y") == [
        Text(f"{name}#1", ("plain",), "cat"),
        Text(f"{name}#2", (f'quoted, with "quotes"{end}and a newline',), "dog"),
        Text(f"{name}#3", ("é",), "7"),
    ]


def test_a_row_that_cannot_be_read_is_rejected(tmp_path):
    found = read(tmp_path, "a.csv", "id,text\n1\n1,fine\n")
    assert numbered_texts(found) == [("1", None), ("2", "fine")]
    assert found[0].error == "1 columns, the first line has 2"


@pytest.mark.parametrize("data", ["", "text,y\n"])
def test_a_table_without_rows_has_no_records(tmp_path, data):
    assert read(tmp_path, "a.csv", data) == []


@pytest.mark.parametrize("options", [{"text_fields": ("z",)}, {"label_field": "z"}])
def test_a_table_without_the_column_is_the_users_mistake(tmp_path, options):
    with pytest.raises(UsageError, match=r"a.csv: no column 'z', it has text, y"):
        read(tmp_path, "a.csv", "text,y\na,b\n", **options)


@pytest.mark.parametrize("name", ["a.txt", "a.jsonl", "a.txt.gz"])
def test_lines_that_end_in_carriage_returns_alone_are_one_reject(tmp_path, name):
    def found(text):
        data = text.encode()
        return read(tmp_path, name, gzip.compress(data) if name.endswith(".gz") else data)

    (reject,) = found('{"text": "a"}\r{"text": "b"}\r')
    assert (
        "its lines end in carriage returns alone: convert them, as tr '\\r' '\\n'" in reject.error
    )
    for text in ('{"text": "a"}\r\n{"text": "b"}', '{"text": "a"}\r', '{"text": "a"}\n\r'):
        assert not any(text.error for text in found(text))


def test_labels_with_a_fraction_are_refused_before_all_texts_are_read(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"text": "a"}\n{"text": "b", "score": -0.9}\n')
    message = r"'score' holds -0.9, .* classes: keep numbers with --target column:score instead"
    with pytest.raises(UsageError, match=message):
        holds_lists("score", first_label(job(tmp_path, label_field="score")))


def test_a_line_longer_than_any_text_is_one_reject(tmp_path, monkeypatch):
    for module in ("beam_jobs.sources.rows", "beam_jobs.jobs.text.text_reader"):
        monkeypatch.setattr(f"{module}.MAX_LINE_BYTES", 3 << 20)
    data = b"before\n" + b"x" * (6 << 20) + b"\nafter\n"
    found = read(tmp_path, "a.txt", data)
    assert numbered_texts([found[0], found[2]]) == [("1", "before"), ("3", "after")]
    assert (found[1].key, found[1].error[:11]) == ("a.txt#2", "longer than")
    assert len(found) == 3
    whole = only(read(tmp_path, "b.txt", data, record="file"))
    assert (whole.texts, whole.error[:11]) == ((), "longer than")


@pytest.mark.parametrize("kind", ["txt", "txt.gz", "csv", "jsonl", "json", "parquet", "feather"])
def test_texts_of_more_bytes_than_a_record_may_have_are_rejects(tmp_path, kind):
    texts = ["\u00e9" * 50, "\u00e9" * 50 + "x", "short"]
    path = tmp_path / f"a.{kind}"
    if kind.startswith("txt"):
        data = "\n".join(texts).encode()
        path.write_bytes(gzip.compress(data) if kind.endswith("gz") else data)
    elif kind == "csv":
        path.write_text("\n".join(["text", *texts]))
    elif kind.startswith("json"):
        rows = [json.dumps({"text": text}) for text in texts]
        path.write_text("\n".join(rows) if kind == "jsonl" else f"[{','.join(rows)}]")
    elif kind == "parquet":
        pq.write_table(pa.table({"text": texts}), path)
    else:
        pyarrow.feather.write_feather(pa.table({"text": texts}), path)
    inputs = dataclasses.replace(Inputs.of([str(path)]), max_bytes=120)
    reader = TextJob(inputs, Labels())
    (source,) = inputs.sources(inputs.patterns[0])
    assert [text.error for text in texts_of(reader, list(reader.chunks(source)))] == ["", "", ""]
    reader = TextJob(dataclasses.replace(inputs, max_bytes=100), Labels())
    first, second, third = texts_of(reader, list(reader.chunks(source)))
    assert (third.texts, third.error) == (("short",), "")
    assert re.fullmatch(
        r"it has \d+ bytes, more than 100: raise --max_record_bytes to keep it", second.error
    )
    # An array of Arrow takes some bytes beside those of its text.
    assert (first.texts == (texts[0],)) == (kind not in ("parquet", "feather"))


@pytest.mark.parametrize(
    ("name", "damage"), [("a.txt.gz", "cut"), ("a.jsonl.gz", "flipped"), ("a.csv.gz", "garbage")]
)
def test_a_damaged_gzip_file_is_reported_once_after_the_texts_before_the_damage(
    tmp_path, name, damage
):
    rng = np.random.default_rng(0)
    rows = ["text", *(f'{{"text": "{rng.integers(1 << 60)}"}}' for _ in range(5000))]
    whole = gzip.compress("\n".join(rows).encode())
    broken = {
        "cut": whole[: len(whole) // 2],
        "flipped": whole[:2000] + bytes(50) + whole[2050:],
        "garbage": b"no gzip",
    }[damage]
    found = read(tmp_path, name, broken)
    assert found[-1].key == name
    assert "to its end: " in found[-1].error
    assert (1000 if damage == "cut" else 0) < len(found) < 5000
    assert found == read(tmp_path, name, broken)


def test_a_file_that_is_gone_is_reported(tmp_path):
    found = only(texts_of(job(tmp_path), [Chunk(Source("none.txt"), 0, 0, 1, 0)]))
    assert (found.key, found.texts) == ("none.txt", ())
    assert found.error.startswith("cannot be read to its end")


def test_a_file_whose_name_is_not_utf8_is_one_reject(tmp_path):
    name = b"f\xff.txt".decode("utf-8", "surrogateescape")
    try:
        (tmp_path / name).write_text("x\ny\n")
    except OSError:
        pytest.skip("the filesystem does not accept this name")
    source = Source(name, 4)
    chunks = [Chunk(source, 0, 2, 1, 2), Chunk(source, 2, 4, 2, 2)]
    found = only(texts_of(job(tmp_path), chunks))
    assert (found.texts, found.error) == ((), NOT_UTF8)


def test_a_column_may_come_from_the_row_that_names_the_file(tmp_path):
    (tmp_path / "a.csv").write_text("text\nx\n")
    source = Source("a.csv", row={"site": "here", "other": 1})
    reader = job(tmp_path, columns=("site", "text"))
    found = only(texts_of(reader, [Chunk(source, 0, 0, 1, 0)]))
    assert (found.texts, found.row) == (("x",), {"site": "here", "text": "x"})


def test_the_label_of_a_file_is_the_label_of_all_its_records(tmp_path):
    (tmp_path / "cat").mkdir()
    found = read(tmp_path, "cat/a.txt", "x\ny\n", labels=Labels("parent"))
    assert [(text.key, text.label) for text in found] == [
        ("cat/a.txt#1", "cat"),
        ("cat/a.txt#2", "cat"),
    ]


def test_a_file_without_a_label_is_one_reject_however_many_chunks_it_has(tmp_path):
    (tmp_path / "a.txt").write_text("one\ntwo\n")
    reader = job(tmp_path, labels=Labels("parent"))
    source = Source("a.txt", 8)
    found = only(texts_of(reader, [Chunk(source, 0, 4, 1, 4), Chunk(source, 4, 8, 2, 4)]))
    assert (found.key, found.texts) == ("a.txt", ())


@pytest.mark.parametrize("kind", ["jsonl.gz", "jsonl", "csv", "parquet"])
@pytest.mark.parametrize(
    ("values", "in_json", "in_csv"),
    [
        ([True, False], ["true", "false"], ["True", "False"]),
        ([True, 1, "2", 0], ["true", "1", "2", "0"], ["True", "1", "2", "0"]),
        ([3.0, -1.0, 0.0], ["3", "-1", "0"], ["3", "-1", "0"]),
    ],
)
def test_booleans_and_whole_floats_are_the_same_labels_in_every_input(
    tmp_path, kind, values, in_json, in_csv
):
    rows = [{"text": "t", "y": value} for value in values]
    if kind == "parquet":
        if len(set(map(type, values))) > 1:
            pytest.skip("a column of Parquet has one type")
        pq.write_table(pa.Table.from_pylist(rows), tmp_path / "a.parquet")
        found = read(tmp_path, "a.parquet", (tmp_path / "a.parquet").read_bytes(), label_field="y")
    elif kind == "csv":
        lines = "".join(f"t,{value}\n" for value in values)
        found = read(tmp_path, "a.csv", f"text,y\n{lines}", label_field="y")
    else:
        data = "".join(json.dumps(row) + "\n" for row in rows).encode()
        data = gzip.compress(data) if kind == "jsonl.gz" else data
        found = read(tmp_path, f"a.{kind}", data, label_field="y")
    assert [text.label for text in found] == (in_csv if kind == "csv" else in_json)


def test_the_schema_has_tokens_and_labels_if_there_are_any(tmp_path):
    plain = {"text": Feature("string"), "key": Feature("string")}
    assert job(tmp_path).schema == Schema(plain)
    full = job(tmp_path, tokens="words", label_field="y", max_length=5).schema
    extra = {"tokens": Feature("int64", (None,), "list"), "label": Feature("int64")}
    assert full == Schema({**plain, **extra})


@pytest.mark.parametrize(
    ("name", "size", "options"),
    [(name, 10 * CHUNK_BYTES, {}) for name in ("a.txt.gz", "a.csv", "a.tsv")]
    + [("a.txt", 10 * CHUNK_BYTES, {"record": "file"}), ("a.txt", CHUNK_BYTES, {})],
)
def test_small_files_and_files_that_cannot_be_cut_are_one_chunk(tmp_path, name, size, options):
    source = Source(name, size)
    assert list(job(tmp_path, **options).chunks(source)) == [Chunk(source, 0, 0, 1, size)]


@pytest.mark.parametrize("size", [1, 500, 10**6])
def test_row_groups_are_read_one_by_one_or_several_at_a_time(tmp_path, monkeypatch, size):
    monkeypatch.setattr("beam_jobs.sources.chunks.CHUNK_BYTES", size)
    table = {"text": [f"text {n}" for n in range(100)], "other": list(range(100))}
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table(table), path, row_group_size=7)
    reader = job(tmp_path)
    chunks = list(reader.chunks(Source("a.parquet", path.stat().st_size)))
    assert len(chunks) == {1: 15, 10**6: 1}.get(size, len(chunks))
    assert [chunk.start for chunk in chunks] == [0, *(chunk.end for chunk in chunks[:-1])]
    assert chunks[-1].end == 15
    assert 0 <= path.stat().st_size - sum(chunk.size for chunk in chunks) < len(chunks)
    assert all(chunk.size >= size for chunk in chunks[:-1])
    expected = [Text(f"a.parquet#{n}", (f"text {n - 1}",), None) for n in range(1, 101)]
    assert texts_of(reader, chunks) == expected
    # The row groups of an archive's member are not known in advance.
    assert texts_of(reader, [Chunk(Source("a.parquet"), 0, 0, 1, 0)]) == expected


def test_a_parquet_file_that_cannot_be_read_is_one_reject(tmp_path):
    (tmp_path / "a.parquet").write_bytes(b"no table")
    reader = job(tmp_path)
    found = only(texts_of(reader, list(reader.chunks(Source("a.parquet", 8)))))
    assert (found.key, found.texts) == ("a.parquet", ())
    assert found.error.startswith("not a Parquet file that can be read: ")
    found = only(texts_of(reader, list(reader.chunks(Source("gone.parquet", 8)))))
    assert (found.key, found.error[:32]) == ("gone.parquet", "[Errno 2] No such file or direct")


def test_row_groups_without_rows_have_no_records(tmp_path):
    pq.write_table(pa.table({"text": pa.array([], pa.string())}), tmp_path / "a.parquet")
    reader = job(tmp_path)
    assert texts_of(reader, list(reader.chunks(Source("a.parquet", 100)))) == []


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"a.jsonl": '{"text": "a", "y": ["b"]}'}, True),
        ({"a.jsonl": '{"text": "a", "y": []}'}, True),
        ({"a.jsonl": '{"text": "a", "y": "b"}\n{"text": "a", "y": ["b"]}'}, False),
        (
            {"a.jsonl": '{"text": "a", "y": null}\n{\n{"text": "a"}\n{"text": "a", "y": ["b"]}'},
            True,
        ),
        ({"LICENSE": "x", "a.txt": "b", "b.jsonl": "", "c.jsonl": '{"text": "a", "y": [1]}'}, True),
        ({"a.csv": "text,y\na,[1]"}, True),
        ({"a.txt": "a"}, False),
    ],
)
def test_the_first_label_decides_whether_records_have_several_labels(tmp_path, files, expected):
    for name, data in files.items():
        (tmp_path / name).write_text(data)
    assert holds_lists("y", first_label(job(tmp_path, label_field="y"))) is expected
    assert first_label(job(tmp_path)) is None


def test_a_column_names_texts_whatever_the_table(tmp_path):
    rows = [{"text": "one", "id": "a"}, {"text": "two", "id": 7}, {"text": "three", "id": "c d"}]
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    expected = [("a", "one"), ("7", "two"), ("c d", "three")]
    for name, data in (("t.jsonl", lines), ("t.csv", "id,text\na,one\n7,two\nc d,three\n")):
        found = read(tmp_path, name, data, key_column="id")
        assert [(text.key, *text.texts) for text in found] == expected


def test_texts_without_a_name_are_rejects(tmp_path):
    lines = ['{"text": "x"}', '{"text": "x", "id": null}', '{"text": "x", "id": "a\\u0000b"}']
    found = read(tmp_path, "t.jsonl", "\n".join(lines), key_column="id")
    assert [(text.key, text.error) for text in found] == [
        ("t.jsonl#1", "no column 'id'; it has text"),
        ("t.jsonl#2", "column 'id' is None, expected text or a whole number"),
        (
            "t.jsonl#3",
            "column 'id' is 'a\\x00b', expected text without the character 0 or a whole number",
        ),
    ]
    with pytest.raises(UsageError, match="no column 'id', it has text"):
        read(tmp_path, "t.csv", "text\nx\n", key_column="id")
