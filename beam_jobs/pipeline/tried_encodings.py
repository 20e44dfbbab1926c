"""The encodings that the records of a job could have, tried on a few: their sizes, and how fast they are decoded."""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

import numpy as np

from beam_jobs.dataset.output import Output, renamed_schema
from beam_jobs.dataset.shard_writer import Stretch
from beam_jobs.errors import UsageError
from beam_jobs.jobs.file_shards import Loader
from beam_jobs.jobs.job import FileJob
from beam_jobs.jobs.passes import Learned
from beam_jobs.pipeline.dry_run import Findings
from beam_jobs.plan.shards import mean_bytes
from readers.format.decode.batches import ColumnDecoder
from readers.format.decode.images import decode_image
from readers.format.schema import Schema

_ENCODINGS = ("source", "jpeg", "png", "tensor", "raw", "list", "zlib", "zlib_shuffled")

# Bytes of files that are loaded for each encoding, about a second for photographs, and of a file that is too large.
_FILE_BYTES, _LARGEST = 1 << 20, 16 << 20

# Bytes of records that are decoded at a time, and the seconds of decoding for all encodings.
_BATCH_BYTES, _SECONDS = 3 << 20, 0.3


class TriedEncoding(NamedTuple):
    """An encoding, and what it makes of some records.

    Attributes:
        encoding: Its name.
        chosen: Whether the job stores its records so.
        tried: The number of records.
        record_bytes: The approximate mean size of a framed record.
        bytes: That of the dataset.
        decoded_per_second: Records that one core decodes per second; 0 if they are too large to be timed.
    """

    encoding: str
    chosen: bool
    tried: int
    record_bytes: float
    bytes: int
    decoded_per_second: float


def try_encodings(
    findings: Findings, output: Output, encoded: Callable[[str], FileJob]
) -> Iterator[TriedEncoding]:
    """Yields each encoding that holds the first of the records that a dry run has tried.

    `encoded` returns the job with an encoding, or raises UsageError.
    """
    good = [(r, n) for r, n in findings.sampled if isinstance(n, int) and r.size < _LARGEST]
    before = itertools.accumulate((record.size for record, _ in good), initial=0)
    some = [pair for pair, read in zip(good, before, strict=False) if read < _FILE_BYTES]
    hashes, references = np.zeros(len(some), np.uint64), [record.reference for record, _ in some]
    tried: list[tuple[str, Schema, Stretch]] = []
    for encoding in _ENCODINGS if some and not output.mapper else ():
        with contextlib.suppress(UsageError):
            job = encoded(encoding)
            loader = Loader(output, Learned(job.schema, None), job)
            records = loader.load(loader.encoder(), hashes, references)
            if not records.rejects:
                tried.append((encoding, job.schema, records))
    if not tried:
        return
    count = _BATCH_BYTES // max(int(records.lengths.max()) for *_, records in tried)
    number = sum(split.records for split in findings.splits)
    mean = partial(mean_bytes, findings.input_bytes / number, [record.size for record, _ in some])
    scale = sum(split.bytes for split in findings.splits) / mean([size for _, size in some])
    for encoding, schema, records in tried:
        stored, size = renamed_schema(schema, output.feature_names), mean(records.lengths.tolist())
        rate = decoding_rate(stored, records, count, _SECONDS / len(tried)) if count else 0.0
        whole, chosen = round(scale * size), schema == output.schema
        yield TriedEncoding(encoding, chosen, len(some), whole / number, whole, rate)


def decoding_rate(schema: Schema, records: Stretch, count: int, seconds: float) -> float:
    """Records that one core decodes per second, in the fastest of several batches of the first `count`."""
    data, stops = np.frombuffer(records.frames, np.uint8), np.cumsum(records.lengths)[:count]
    starts, decoder, times = stops - records.lengths[:count], ColumnDecoder(schema), list[float]()
    while len(times) < 3 or times[-1] < times[0] + seconds:
        times.append(time.process_time())  # Of all threads.
        columns = decoder.decode(data, starts, stops).columns
        for name, feature in schema.items():
            for image in columns[name].arrays() if feature.is_image else ():
                decode_image(name, feature, image)
    return len(starts) / min(end - start for start, end in itertools.pairwise(times))
