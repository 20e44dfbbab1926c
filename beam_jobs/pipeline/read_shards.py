"""`ReadShards`: a split of a dataset as a PCollection of records, read by all workers."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Sequence
from itertools import compress, pairwise
from typing import Any, NamedTuple

import apache_beam as beam
import numpy as np
from apache_beam.metrics import Metrics

from beam_jobs.errors import DataError, UsageError, did_you_mean
from beam_jobs.jobs.reshard.manifests import manifests_in
from beam_jobs.jobs.reshard.record_frames import frames_of
from beam_jobs.packages import check_crc32c
from beam_jobs.pipeline.steps import allow_notebooks
from beam_jobs.storage.files import files_of
from beam_jobs.storage.paths import absolute_path
from readers.format.decode.batches import ColumnDecoder
from readers.format.decode.records import owned_value
from readers.format.index import checked_offsets, head_crc32c, parse_head
from readers.format.lookup.stored import StoredSplit
from readers.format.manifest import MANIFEST, Manifest, index_path, join
from readers.format.schema import Schema
from readers.format.splits import Shard
from readers.format.tfrecord import MAX_RECORD_BYTES, intact

allow_notebooks()  # Imported here, because `ReadShards` begins pipelines.
RANGE_BYTES = 16 << 20  # The size of a task: enough for one request to a store.


class ShardRange(NamedTuple):
    """The bytes of a shard from `start` to `stop`, the number of the first record in them, and whether readers see each.

    The last is a bit for each record of the shard; empty if readers see all.
    """

    path: str
    start: int
    stop: int
    first: int
    seen: bytes


def shard_ranges(directory: str, shard: Shard, seen: bytes) -> list[ShardRange]:
    """The ranges of a shard, of about `RANGE_BYTES` each; the index of a larger shard states where records begin."""
    path = join(directory, shard.path)
    if shard.bytes <= RANGE_BYTES:
        return [ShardRange(path, 0, shard.bytes, 0, seen)]
    file = join(directory, index_path(shard))
    data = _read(file, 0, shard.index_bytes)
    try:
        offsets = checked_offsets(data, parse_head(data, file), file)
    except ValueError as error:
        raise DataError(str(error)) from None
    if head_crc32c(data) != shard.index_crc32c:
        raise DataError(f"{file}: not the index that {MANIFEST} lists; copy the dataset again")
    firsts = np.unique(np.searchsorted(offsets, np.arange(0, shard.bytes, RANGE_BYTES)))
    rows = np.union1d(firsts, [shard.records]).tolist()
    return [ShardRange(path, int(offsets[a]), int(offsets[b]), a, seen) for a, b in pairwise(rows)]


def _read(path: str, start: int, stop: int) -> bytes:
    try:
        return files_of(path).read(path, start, stop - start)
    except OSError as error:
        cure = "build the pipeline again if a job has replaced the dataset in the meantime"
        raise DataError(f"{path}: {error.strerror or error}; {cure}") from None


class _ReadRanges(beam.DoFn):
    """Range of a shard -> its records."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema

    def setup(self) -> None:
        check_crc32c()
        self._decoder = ColumnDecoder(self._schema)

    def process(self, part: ShardRange) -> Iterator[dict[str, Any]]:
        data = np.frombuffer(_read(part.path, part.start, part.stop), np.uint8)
        lengths, _, wrong = frames_of(data, MAX_RECORD_BYTES)
        stops = np.cumsum(lengths)
        columns, errors, _ = self._decoder.decode(data, stops - lengths, stops)
        damaged = np.flatnonzero(~intact(data, lengths)).tolist()
        faults = errors | dict.fromkeys(damaged, "it fails its CRC32C")
        if part.start + lengths.sum() < part.stop:
            faults[len(lengths)] = wrong or "it is cut off"
        if faults:
            row = min(faults)
            place = f"record {part.first + row} at byte {part.start + lengths[:row].sum()}"
            raise DataError(f"{part.path}: {place}: {faults[row]}")
        seen = np.unpackbits(np.frombuffer(part.seen or b"\xff" * len(lengths), np.uint8))
        seen = seen[part.first if part.seen else 0 :][: len(lengths)]
        for values in compress(zip(*(c.arrays() for c in columns.values()), strict=True), seen):
            yield dict(zip(columns, map(owned_value, values), strict=True))
        Metrics.counter("records", "read").inc(int(seen.sum()))


class ReadShards(beam.PTransform):
    """A pipeline -> a PCollection of the records of a split, dicts of their features, in any order.

    Values are as in `readers.RecordSource`: arrays, NumPy scalars, `bytes` of texts and encoded images, and lists.
    All workers read the generation that is the newest when the pipeline is built. A task reads 16 MiB of a shard.

    Args:
        directory: The path or URL of the dataset, on any Beam filesystem.
        split: The split to read; None is the only one, or `train`.
        columns: The features to read; None reads all.

    Raises:
        UsageError: When the pipeline is built: the dataset, the split or a feature does not exist.
        DataError: While it runs: a file is missing, or a record is damaged; the message names it.

    Example:
        >>> with beam.Pipeline() as pipeline:
        ...     records = pipeline | ReadShards("shards/images", "train", ["label"])
        ...     counts = records | beam.Map(lambda r: int(r["label"])) | beam.combiners.Count.PerElement()
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        split: str | None = None,
        columns: Sequence[str] | None = None,
    ) -> None:
        super().__init__()
        if columns is not None and (isinstance(columns, str) or not columns):
            raise UsageError(f"columns={columns!r}: expected a list of features, such as ['image']")
        self._directory, self._split, self._columns = os.fspath(directory), split, columns

    def expand(self, pipeline: beam.pvalue.PBegin) -> beam.PCollection[dict[str, Any]]:
        directory = absolute_path(self._directory)
        # Here, because the pipeline has the options of the store by now.
        manifest = manifests_in([directory])[directory]
        if not isinstance(manifest, Manifest):
            raise UsageError(manifest or f"directory {directory}: no dataset: it has no {MANIFEST}")
        names = list(manifest.splits)
        split = self._split or (names[0] if len(names) == 1 else "train")
        columns = list(self._columns or manifest.schema)
        _check_name("split", split, manifest.splits)
        for column in columns:
            _check_name("column", column, manifest.schema)
            if column not in manifest.features_of[""]:
                raise UsageError(f"column {column!r} is in other files: leave it out with columns=")
        of_split = manifest.splits[split]
        flags = StoredSplit(directory, manifest, of_split).flags()
        parts = np.split(flags, np.cumsum([shard.records for shard in of_split.shards]))
        shards = [
            (directory, shard, b"" if seen.all() else np.packbits(seen).tobytes())
            for shard, seen in zip(of_split.shards, parts, strict=False)
            if seen.any()
        ]
        ranges = pipeline | beam.Create(shards) | "Ranges" >> beam.FlatMapTuple(shard_ranges)
        if any(shard.bytes > RANGE_BYTES for _, shard, _ in shards):
            ranges |= "SpreadRanges" >> beam.Reshuffle()
        return ranges | "Read" >> beam.ParDo(_ReadRanges(manifest.schema.select(columns)))


def _check_name(kind: str, name: str, names: Collection[str]) -> None:
    if name not in names:
        hint = did_you_mean(str(name), names, "'", "'")
        raise UsageError(f"{kind} {name!r}: the dataset has {', '.join(names)}{hint}")
