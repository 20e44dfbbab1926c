"""Makes the table of formats of texts and tables in docs/write/text.md, from one file of each."""

import bz2
import gzip
import io
import json
import re
from pathlib import Path

import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq

from beam_jobs.errors import UsageError
from beam_jobs.jobs.text.text_job import TextJob
from beam_jobs.sources.inputs import Inputs
from beam_jobs.sources.labels import Labels
from beam_jobs.sources.source import Source
from beam_jobs.sources.table_inputs import TableInputs

DOCS = Path(__file__).parents[3] / "docs/write/text.md"

BEGIN, END = "<!-- formats: made by test_formats_of_tables.py -->\n", "<!-- end of formats -->\n"

ROWS = [{"path": "a.jpg", "text": "one"}, {"path": "b.jpg", "text": "two"}]

CSV = "path,text\na.jpg,one\nb.jpg,two\n"

TABLE = pa.Table.from_pylist(ROWS)


def written(write) -> bytes:
    buffer = io.BytesIO()
    write(buffer)
    return buffer.getvalue()


def stream(buffer: io.BytesIO) -> None:
    with pa.ipc.new_stream(buffer, TABLE.schema) as writer:
        writer.write_table(TABLE)


JSONL = "".join(json.dumps(row) + "\n" for row in ROWS).encode()
TEXT = {
    ".txt": b"one\ntwo\n",
    ".jsonl": JSONL,
    ".json": json.dumps(ROWS).encode(),
    ".csv": CSV.encode(),
    ".tsv": CSV.replace(",", "\t").encode(),
}
FILES = {
    **{name: data for ending, data in TEXT.items() for name, data in (
        (f"t{ending}", data), (f"t{ending}.gz", gzip.compress(data)))},
    "t.parquet": written(lambda buffer: pq.write_table(TABLE, buffer)),
    "t.feather": written(lambda buffer: pyarrow.feather.write_feather(TABLE, buffer)),
    "t.arrow": written(stream),
    "utf-16.csv": CSV.encode("utf-16"),
    "semicolons.csv": CSV.replace(",", ";").encode(),
    "t.md": b"# one\n",
    "t.csv.bz2": bz2.compress(CSV.encode()),
    "t.parquet.gz": gzip.compress(b"PAR1\xff"),
    "t.xlsx": b"PK\x03\x04\xff",
    "t.pkl": b"\x80\x04N.",
    "t.xml": b"<rows/>",
}  # fmt: skip


def as_texts(folder: Path, name: str, **options) -> str:
    reader = TextJob(Inputs((f"{folder}/**",), str(folder)), Labels(), **options)
    try:
        chunks = reader.chunks(Source(name, (folder / name).stat().st_size))
        texts = [text for chunk in chunks for text in reader.each(chunk)]
    except UsageError as error:
        return error.message
    errors = [reject.error for text in texts for reject in text.rejects]
    assert not errors or len(texts) == 1
    return errors[0] if errors else f"{len(texts)} record{'s' if len(texts) > 1 else ''}"


def as_table(folder: Path, name: str) -> str:
    try:
        inputs = TableInputs.of_tables([str(folder / name)], "", "", ("text",))
    except UsageError as error:
        return error.message.replace(f"{folder}/", "")
    (pattern,) = inputs.patterns
    found = [(source.file, source.row["text"]) for source in inputs.sources(pattern)]
    assert found == [(row["path"], row["text"]) for row in ROWS]
    return f"{len(found)} rows"


def table_of_formats(folder: Path) -> str:
    """A row for each file, with the numbers of the lines that follow the table."""
    rows: dict[tuple[str, ...], list[str]] = {}
    lines: dict[str, int] = {}

    def cell(outcome: str, name: str) -> str:
        if outcome[0].isdigit():
            return outcome
        # Which byte is wrong depends on the library that wrote the file.
        line = re.sub(r"(not UTF-8: ).*", r"\1…", outcome.replace(name, "FILE"))
        return f"({lines.setdefault(line, len(lines) + 1)})"

    for name, data in FILES.items():
        (folder / name).write_bytes(data)
        outcomes = (
            as_texts(folder, name),
            as_texts(folder, name, record="file"),
            as_table(folder, name),
        )
        rows.setdefault(tuple(cell(o, name) for o in outcomes), []).append(name.removeprefix("t"))
    made = ["| file | `text` | `text --record file` | `--table` |", "|---|---|---|---|"]
    for cells, names in rows.items():
        made.append(f"| {' '.join(f'`{name}`' for name in names)} | {' | '.join(cells)} |")
    listed = [f"{number}. `{line}`" for line, number in lines.items()]
    return "\n".join([*made, "", *listed]) + "\n"


def test_the_docs_have_the_table_of_formats(tmp_path):
    made = table_of_formats(tmp_path)
    _, begin, rest = DOCS.read_text(encoding="utf-8").partition(BEGIN)
    stated, end, _ = rest.partition(END)
    assert begin and end
    assert stated == made, f"docs/write/text.md should have:\n{made}"
