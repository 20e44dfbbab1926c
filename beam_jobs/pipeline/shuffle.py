"""The one shuffle: brings records, or references to them, to the shard that the plan assigns."""

from __future__ import annotations

import contextlib
import resource
import tempfile
from collections.abc import Iterable, Iterator
from typing import Any

import apache_beam as beam

from beam_jobs.dataset.encoded_records import (
    StoredRecords,
    copy_payloads,
    write_records,
    write_spooled,
)
from beam_jobs.dataset.output import Output
from beam_jobs.dataset.resume import ShardResult
from beam_jobs.dataset.shard_writer import ShardWriter
from beam_jobs.errors import DataError
from beam_jobs.pipeline.steps import AsWhole, ShardStep, at_end_of_bundle, count_shard
from beam_jobs.plan.shards import Plan, assign_shards
from beam_jobs.records.blocks import Block
from beam_jobs.records.spool import HeldLocators, Spool, SpoolReader
from beam_jobs.storage.atomic import STAGING
from beam_jobs.storage.paths import is_local
from readers.format.manifest import join


class _AssignShards(beam.DoFn):
    def __init__(self, compress: bool) -> None:
        self._compress = compress

    def process(self, packed: bytes, plan: bytes) -> Iterator[tuple[int, bytes]]:
        for key, part in assign_shards(Block.unpack(packed), Plan.unpack(plan)):
            yield key, part.pack(self._compress)


class _AssignSpooled(beam.DoFn):
    """Locators of blocks -> (split and shard, locators of the parts that belong to that shard)."""

    def __init__(self, spool: Spool) -> None:
        self._spool = spool

    def start_bundle(self) -> None:
        self._locators = HeldLocators()

    def process(self, locator: bytes, plan: bytes) -> Iterator[tuple[int, bytes]]:
        with SpoolReader(self._spool) as reader:
            blocks = [block for _, _, block in reader.blocks(locator)]
        for block in blocks:
            parts = assign_shards(block, Plan.unpack(plan))
            yield from self._locators.add(
                (key, self._spool.append(part.pack())) for key, part in parts
            )

    def finish_bundle(self) -> Iterator[Any]:
        self._spool.hand_over()
        yield from map(at_end_of_bundle, self._locators.release())


class GroupByShard(beam.PTransform):
    """(packed blocks, packed plan) -> PCollection of (split and shard, packed blocks of it).

    Args:
        compress: Whether the payloads are compressed.
        spool: Holds the blocks, so that only locators come in and go out; None to pass blocks.
    """

    def __init__(self, compress: bool = False, spool: Spool | None = None) -> None:
        super().__init__()
        self._assign = _AssignSpooled(spool) if spool else _AssignShards(compress)

    def expand(self, inputs: tuple[beam.PCollection, beam.PCollection]) -> beam.PCollection:
        blocks, plan = inputs
        return (
            blocks
            | "Assign" >> beam.ParDo(self._assign, AsWhole(plan))
            | "GroupByShard" >> beam.GroupByKey()
        )


class WriteEncoded(beam.DoFn):
    """Writes shards of encoded records, each packed by `pack_record`.

    They arrive in any order, as a stream that may be larger than memory. A local file takes them,
    and the shard is copied from it in the order of the hashes.
    """

    def __init__(self, output: Output) -> None:
        self._output = output

    def process(self, element: tuple[int, Iterable[bytes]], plan: bytes) -> Iterator[ShardResult]:
        key, blocks = element
        writer = ShardWriter(self._output, Plan.unpack(plan), key)
        with tempfile.TemporaryFile() as file:
            try:
                records = StoredRecords([file], copy_payloads(file, blocks))
            except OSError as error:
                raise DataError(
                    f"{writer.name}: its records cannot be kept in {tempfile.gettempdir()} "
                    f"({error}); make room, or set TMPDIR to another place"
                ) from error
            result = write_records(writer, records)
        count_shard(result)
        yield result


class WriteSpooled(ShardStep[ShardResult]):
    """(split and shard, locators of its records) -> its result."""

    def __init__(self, output: Output, processes: int, spool: Spool) -> None:
        super().__init__(processes)
        self._output, self._spool = output, spool

    def setup(self) -> None:
        super().setup()
        # A shard may have records of every task, and each task has a file of its own.
        with contextlib.suppress(ValueError, OSError):
            _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))

    def process(self, element: tuple[int, Iterable[bytes]], plan: bytes) -> Iterator[ShardResult]:
        key, references = element
        writer = ShardWriter(self._output, Plan.unpack(plan), key)
        yield from self.submit(write_spooled, writer, self._spool, list(references))

    def outputs(self, result: ShardResult) -> Iterator[ShardResult]:
        count_shard(result)
        yield result


def spool_of(output: Output, name: str = "") -> Spool | None:
    """Files on the output's disk for encoded records; None if the output is in a store.

    Args:
        name: The start of the files' names.
    """
    if not is_local(output.directory):
        return None
    return Spool(join(output.directory, STAGING), name)


def write_encoded(
    output: Output, processes: int, spool: Spool | None, plan: beam.PCollection
) -> beam.PTransform:
    """(split and shard, packed records or locators of them) -> the result of each shard."""
    write = WriteSpooled(output, processes, spool) if spool else WriteEncoded(output)
    return beam.ParDo(write, AsWhole(plan))
