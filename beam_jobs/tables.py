"""Tables: the rows of .csv, .tsv, .jsonl and .parquet files, one by one in constant memory."""

from __future__ import annotations

import contextlib
import csv
import gzip
import io
import itertools
import json
import zlib
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from typing import Any, BinaryIO, NamedTuple

import orjson

from beam_jobs.errors import RejectError, UsageError
from beam_jobs.labels import label_text
from beam_jobs.optional import optional

_DELIMITERS = {"csv": ",", "tsv": "\t"}

# A row longer than this is none; it would be held in memory whole.
MAX_LINE_BYTES = 64 << 20

# Rows of Parquet in memory at once: those of pictures are few, and each batch costs 0.1 ms.
_BATCH_ROWS = 1024
_BATCH_BYTES = 8 << 20
_BUFFER_BYTES = 1 << 20

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"

# Python's own limit of 128 KiB for a field of a table is less than a long document.
csv.field_size_limit(MAX_LINE_BYTES)


class Row(NamedTuple):
    """One row of a table.

    Attributes:
        number: From 1: of the rows of .csv and .tsv that are not blank, the header not counted;
            of the lines of .jsonl; of the rows of .parquet. 0 for the file itself.
        values: By the names of the columns; None where it cannot be read.
        error: Why it cannot be read.
    """

    number: int
    values: dict[str, Any] | None
    error: str = ""


def table_kind(path: str) -> tuple[str, bool] | None:
    """A table's kind ("csv", "tsv", "jsonl" or "parquet") by its name, and whether it is gzipped.

    None for a file that is no table.
    """
    name = path.lower()
    packed = name.endswith(".gz")
    _, dot, kind = name.removesuffix(".gz").rpartition(".")
    if not dot or kind not in (*_DELIMITERS, "jsonl", "parquet"):
        return None
    return None if packed and kind == "parquet" else (kind, packed)


def read_rows(
    file: BinaryIO, kind: str, gzipped: bool, columns: Collection[str] | None = None
) -> Iterator[Row]:
    """Yields every row of a table, those that cannot be read included.

    The values are text in .csv and .tsv, what JSON has in .jsonl, and Python's own in .parquet:
    dates and times are ISO 8601 there (those with a time zone in UTC), decimal numbers text.
    A file that cannot be read to its end ends with a row of number 0.

    Args:
        file: At its beginning; of .parquet one that can seek.
        kind, gzipped: As `table_kind` gives them.
        columns: Those to read of .parquet, of which there may be fewer; other tables give all.

    Raises:
        UsageError: Two columns have one name.
    """
    try:
        if kind == "parquet":
            yield from _parquet_rows(_open_parquet(file), columns)
            return
        with _read_to_its_end():
            text = _unpacked(file, gzipped)
            if kind == "jsonl":
                yield from itertools.starmap(json_row, _lines(text))
            else:
                yield from _delimited_rows(text, _DELIMITERS[kind])
    except RejectError as error:
        yield Row(0, None, str(error))


def column_names(file: BinaryIO, kind: str, gzipped: bool) -> tuple[str, ...]:
    """The names of a table's columns; of .jsonl the keys of the first line that is an object.

    Args:
        file, kind, gzipped: As `read_rows` takes them.

    Raises:
        RejectError: The file cannot be read.
        UsageError: Two columns have one name.
    """
    if kind == "parquet":
        names = _open_parquet(file).schema_arrow.names
        _check_names(names)
        return tuple(names)
    if kind == "jsonl":
        for row in read_rows(file, kind, gzipped):
            if row.values is not None:
                return tuple(row.values)
            if not row.number:
                raise RejectError(row.error)
        return ()
    with _read_to_its_end():
        rows = _split_rows(_unpacked(file, gzipped), _DELIMITERS[kind])
        return tuple(_header(rows))


def row_groups(file: BinaryIO) -> list[int]:
    """How many rows each row group of a Parquet file has.

    Raises:
        RejectError: The file cannot be read.
    """
    footer = _open_parquet(file).metadata
    return [footer.row_group(i).num_rows for i in range(footer.num_row_groups)]


def read_row_groups(
    file: BinaryIO, groups: Iterable[int], columns: Collection[str] | None = None, first: int = 1
) -> Iterator[Row]:
    """Yields the rows of row groups of a Parquet file, as `read_rows` does.

    One that cannot be read to its end ends with a row of number 0, and the next one follows.

    Args:
        file: One that can seek.
        groups: Consecutive numbers, from 0.
        columns: As `read_rows` takes them.
        first: Number of the first row.

    Raises:
        RejectError: The file cannot be read.
        UsageError: As `read_rows`.
    """
    table = _open_parquet(file)
    for group in groups:
        try:
            yield from _group_rows(table, group, columns, first)
        except RejectError as error:
            yield Row(0, None, str(error))
        first += table.metadata.row_group(group).num_rows


def distinct(rows: Iterable[Row], column: str, limit: int) -> list[str]:
    """The different labels that a column holds, sorted.

    Rows without a usable one are passed over: they are rejected where records are made.

    Raises:
        UsageError: There are more than `limit`.
    """
    found: set[str] = set()
    for row in rows:
        with contextlib.suppress(RejectError):
            found.add(label_text((row.values or {}).get(column)))
        if len(found) > limit:
            raise UsageError(
                f"column {column!r} has more than {limit} different values: these are no "
                "classes; name another column"
            )
    return sorted(found)


def json_row(number: int, line: bytes | None) -> Row:
    """The row that a line of .jsonl is.

    Args:
        line: None for one that is longer than `MAX_LINE_BYTES`.
    """
    if line is None:
        return Row(number, None, f"longer than {MAX_LINE_BYTES >> 20} MiB")
    try:
        values = parse_json(line)
    except UnicodeError as error:
        return Row(number, None, f"not UTF-8: {error}")
    except (ValueError, RecursionError) as error:
        return Row(number, None, f"not JSON: {error}")
    if not isinstance(values, dict):
        return Row(number, None, f"expected a JSON object, got {type(values).__name__}")
    return Row(number, values)


def parse_json(text: bytes) -> Any:
    """The value of a JSON text, as `json.loads` reads it, all of whose texts are UTF-8.

    Raises:
        ValueError, RecursionError: As `json.loads`; UnicodeError where something is not UTF-8.
    """
    try:
        return orjson.loads(text)  # in a third of the time
    except orjson.JSONDecodeError:
        # Takes NaN, and says in the usual words what is wrong.
        value = json.loads(text.decode())
        # JSON may hold half a surrogate pair, which no UTF-8 can.
        json.dumps(value, ensure_ascii=False).encode()
        return value


def _unpacked(file: BinaryIO, gzipped: bool) -> Any:
    return gzip.GzipFile(fileobj=file) if gzipped else file


@contextlib.contextmanager
def _read_to_its_end() -> Iterator[None]:
    """Makes a RejectError of what ends the reading of a table of text."""
    try:
        yield
    except (OSError, EOFError, zlib.error) as error:
        raise RejectError(f"cannot be read to its end: {error}") from None
    except csv.Error as error:
        raise RejectError(f"not a table that can be read to its end: {error}") from None


def _lines(file: Any) -> Iterator[tuple[int, bytes | None]]:
    """Yields (number from 1, line without its end) of the lines that are not blank.

    The line is None where it is longer than any row.
    """
    number = 1
    while line := file.readline(MAX_LINE_BYTES):
        text: bytes | None = line.rstrip(b"\r\n")
        while not line.endswith(b"\n") and (line := file.readline(MAX_LINE_BYTES)):
            text = None
        if text and number == 1:
            text = text.removeprefix(_BYTE_ORDER_MARK)
        if text is None or text.strip():
            yield number, text
        number += 1


def _delimited_rows(file: Any, delimiter: str) -> Iterator[Row]:
    rows = _split_rows(file, delimiter)
    header = _header(rows)
    for number, row in enumerate(rows, 1):
        if len(row) != len(header):
            error = f"{len(row)} columns, the first line has {len(header)}"
            yield Row(number, None, error)
        elif not _is_utf8(row):
            yield Row(number, None, "not UTF-8")
        else:
            yield Row(number, dict(zip(header, row, strict=True)))


def _split_rows(file: Any, delimiter: str) -> Iterator[list[str]]:
    """Yields the fields of every row that is not blank, bytes that are no UTF-8 as surrogates.

    Raises:
        csv.Error: A row is longer than any, or the file ends within quotes.
    """
    text = io.TextIOWrapper(file, "utf-8-sig", "surrogateescape", newline="")
    room, ended = MAX_LINE_BYTES, False

    def lines() -> Iterator[str]:
        nonlocal room, ended
        while line := text.readline(MAX_LINE_BYTES):
            room -= len(line)
            if room <= 0:
                raise csv.Error(f"a row is longer than {MAX_LINE_BYTES >> 20} MiB")
            yield line
        ended = True

    try:
        for row in csv.reader(lines(), delimiter=delimiter):
            # A whole row comes before the next line is asked for.
            if ended:
                raise csv.Error("it ends within quotes")
            room = MAX_LINE_BYTES
            if row:
                yield row
    finally:
        # The file is not ours to close, as the wrapper would. It may be closed by now.
        with contextlib.suppress(ValueError):
            text.detach()


def _header(rows: Iterator[list[str]]) -> list[str]:
    header = next(rows, [])
    if not _is_utf8(header):
        raise csv.Error("its first line is not UTF-8")
    _check_names(header)
    return header


def _is_utf8(row: list[str]) -> bool:
    text = "".join(row)
    try:
        return text.isascii() or bool(text.encode())
    except UnicodeEncodeError:
        return False


def _check_names(names: Iterable[str]) -> None:
    # Programs write several columns without a name, of which nobody asks for one.
    counts = Counter(filter(None, names))
    if repeated := next((name for name, count in counts.items() if count > 1), None):
        raise UsageError(f"two columns are called {repeated!r}: give each a name of its own")


def _open_parquet(file: BinaryIO) -> Any:
    """The `pyarrow.parquet.ParquetFile` of an open file, whose schema Arrow can read.

    Raises:
        RejectError: It is none.
        UsageError: pyarrow is not installed.
    """
    parquet = optional("pyarrow.parquet", "parquet", ".parquet files")
    try:
        table = parquet.ParquetFile(
            file,
            # By default all that a row group has of a column is read at once.
            pre_buffer=False,
            buffer_size=_BUFFER_BYTES,
            # The default, nanoseconds, ends in the year 2262 and begins again.
            coerce_int96_timestamp_unit="us",
            page_checksum_verification=True,
        )
        table.schema_arrow  # noqa: B018  (it is made when it is first asked for)
    except Exception as error:  # Arrow raises nearly everything on broken input
        raise RejectError(f"not a Parquet file that can be read: {error}") from None
    return table


def _parquet_rows(table: Any, columns: Collection[str] | None) -> Iterator[Row]:
    first = 1
    for number in range(table.num_row_groups):
        yield from _group_rows(table, number, columns, first)
        first += table.metadata.row_group(number).num_rows


def _group_rows(
    table: Any, number: int, columns: Collection[str] | None, first: int
) -> Iterator[Row]:
    names = table.schema_arrow.names
    _check_names(names)
    group = table.metadata.row_group(number)
    wanted = [name for name in names if columns is None or name in columns]
    fit = _BATCH_BYTES * group.num_rows // max(group.total_byte_size, 1)
    at = first
    try:
        for batch in table.iter_batches(
            batch_size=max(1, min(fit, _BATCH_ROWS)),
            row_groups=[number],
            # How many rows there are is told by what is read, not by what the footer says.
            columns=wanted or names[:1],
            use_threads=False,
        ):
            for values, error in _batch_rows(batch):
                yield Row(at, values, error)
                at += 1
    except Exception as error:
        raise RejectError(f"cannot be read to its end: {error}") from None
    if at - first != group.num_rows:
        raise RejectError(
            f"cannot be read to its end: row group {number} should have {group.num_rows} rows, "
            f"it has {at - first}"
        )


def _batch_rows(batch: Any) -> Iterator[tuple[dict[str, Any] | None, str]]:
    """Yields the values of every row of a batch, or None and why they cannot be read."""
    try:
        batch.validate(full=True)
        columns = [_values(column) for column in batch.columns]
    except Exception as error:
        if batch.num_rows == 1:
            yield None, f"cannot be read: {error}"
        else:
            for i in range(batch.num_rows):
                yield from _batch_rows(batch.slice(i, 1))
        return
    names = batch.schema.names
    for row in zip(*columns, strict=True):
        yield dict(zip(names, row, strict=True)), ""


def _values(array: Any) -> list[Any]:
    """What an Arrow array holds, as Python's own values."""
    pa = optional("pyarrow", "parquet", ".parquet files")
    kind, types = array.type, pa.types
    if isinstance(array, pa.ExtensionArray):
        return _values(array.storage)
    if types.is_dictionary(kind):  # in a tenth of the time of its own to_pylist
        return _values(array.dictionary_decode())
    if types.is_struct(kind):
        names = [field.name for field in kind]
        rows = zip(*(_values(array.field(i)) for i in range(len(names))), strict=True)
        valid = array.is_valid().to_pylist()
        return [
            dict(zip(names, row, strict=True)) if whole else None
            for whole, row in zip(valid, rows, strict=True)
        ]
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        items = iter(_values(array.flatten()))
        lengths = array.value_lengths().to_pylist()
        return [None if n is None else list(itertools.islice(items, n)) for n in lengths]
    if types.is_timestamp(kind) or types.is_date(kind):
        return _iso_texts(array)
    if types.is_temporal(kind) or types.is_decimal(kind):
        return array.cast(pa.string()).to_pylist()
    return array.to_pylist()


def _iso_texts(array: Any) -> list[str | None]:
    """Dates and times as ISO 8601 has them, None where there is none.

    Python's own end in the year 9999, know no nanoseconds, and need a database of time zones.
    """
    zone = "+00:00" if getattr(array.type, "tz", None) else ""
    texts = array.to_numpy(zero_copy_only=False).astype(str).tolist()
    return [None if text == "NaT" else _iso_text(text) + zone for text in texts]


def _iso_text(text: str) -> str:
    """A time without a fraction that is zero, as Python writes it."""
    whole, _, fraction = text.partition(".")
    return text if fraction.strip("0") else whole
