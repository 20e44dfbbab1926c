"""Parquet and Feather files: as recordings of the sensors job, and as rows of any job."""

from __future__ import annotations

import functools
import io
from typing import Any

import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet

from beam_jobs.errors import RejectError, UsageError
from beam_jobs.jobs.sensors.read_options import ReadOptions
from beam_jobs.sources.arrow_rows import class_names
from beam_jobs.sources.tables import column_names, read_rows
from tests.campaigns.fuzz.limits import Limits
from tests.campaigns.fuzz.target import Target
from tests.campaigns.fuzz.targets.recordings import MOST_BYTES, chosen, examining

_VARIANTS = (
    ReadOptions(max_bytes=MOST_BYTES),
    ReadOptions(max_bytes=MOST_BYTES, columns=("x",), time_column="t", times="sort"),
    ReadOptions(max_bytes=MOST_BYTES, columns=("x",), own_columns=("s",), recording_column="s"),
)


def _parquet(columns: dict[str, Any], **options: Any) -> bytes:
    out = io.BytesIO()
    pa.parquet.write_table(pa.table(columns), out, **options)
    return out.getvalue()


_COLUMNS = {
    "t": pa.array([0, 1000, 2000], pa.timestamp("ms")),
    "x": [1.0, None, 3.0],
    "s": ["a", "b", None],
    "m": [{"n": 1}, None, {"n": 3}],
}


def _recordings() -> list[bytes]:
    numbers = {name: _COLUMNS[name] for name in ("t", "x", "s")}
    return chosen(
        _parquet(numbers, compression="none"),
        _parquet({"x": [1, 2], "b": [True, False]}, use_dictionary=False),
        _parquet({"x": [0.5] * 30}, row_group_size=7, compression="zstd"),
        variants=len(_VARIANTS),
    )


def _examine_rows(kind: str, data: bytes) -> None:
    found, values = 0, 0
    try:
        for row in read_rows(io.BytesIO(data), kind, False):
            assert (row.values is None) == bool(row.error), row
            found, values = found + bool(row.number), values + len(repr(row.values))
            if found > 5000 or values > 1 << 22:  # A few bytes may stand for many rows.
                break
    except UsageError as error:
        assert "two columns are called" in error.message
    try:
        for name in column_names(io.BytesIO(data), kind, False):
            assert isinstance(name, str)
        if kind == "parquet":
            class_names(io.BytesIO(data), "x")
    except (RejectError, UsageError):
        pass


def _feathers() -> list[bytes]:
    found = []
    for compression in ("uncompressed", "lz4"):
        out = io.BytesIO()
        pyarrow.feather.write_feather(pa.table({"x": [1, 2], "s": ["a", None]}), out, compression)
        found.append(out.getvalue())
    out = io.BytesIO()
    table = pa.table({"x": [1, 2]})
    with pa.ipc.new_stream(out, table.schema) as stream:
        stream.write_table(table)
    return [*found, out.getvalue()]


# Arrow takes the sizes of pages from the file, and up to 64 MiB for its own.
_LIMITS = Limits(memory=192 << 20)

# Each row of a small file may repeat a large value, for which a batch takes up to 1 GiB.
_LIMITS_OF_ROWS = Limits(memory=1100 << 20, seconds=4)

TARGETS = (
    Target("parquet", _recordings, examining(".parquet", _VARIANTS), None, (b"PAR1",), 4096, _LIMITS),
    Target("parquet_rows", lambda: [_parquet(_COLUMNS), _parquet(_COLUMNS, compression="gzip", row_group_size=2)],
           functools.partial(_examine_rows, "parquet"), None, (b"PAR1",), 8192, _LIMITS_OF_ROWS),
    Target("feather_rows", _feathers, functools.partial(_examine_rows, "feather"), None, (b"ARROW1",),
           4096, _LIMITS),
)  # fmt: skip
