"""Records -> serialized Examples with their statistics, and the payloads that carry them."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from typing import Any

from apache_beam.pvalue import TaggedOutput
from apache_beam.transforms.window import GlobalWindows

from beam_jobs.errors import UsageError
from beam_jobs.output import Output
from beam_jobs.rejects import Reject
from beam_jobs.statistics import Statistics
from readers.format.example import Encoder
from readers.format.tfrecord import crc32c_is_native

# The tag of (split, Statistics), an output of every step that encodes records.
STATISTICS = "statistics"


def pack_record(key: str, body: bytes | Reject) -> bytes:
    """A payload: the key, and its serialized Example or the reason why there is none."""
    rejected = isinstance(body, Reject)
    name = key.encode("utf-8", "surrogateescape")
    tail = body.to_json().encode("utf-8", "surrogateescape") if isinstance(body, Reject) else body
    return b"".join((struct.pack("<?I", rejected, len(name)), name, tail))


def unpack_record(payload: bytes) -> tuple[bytes, bytes | Reject]:
    """The (key, body) that `pack_record` gave."""
    rejected, size = struct.unpack_from("<?I", payload)
    tail = payload[5 + size :]
    return payload[5 : 5 + size], Reject.from_json(tail) if rejected else tail


class RecordEncoder:
    """Checks, encodes and counts records, bundle by bundle.

    Args:
        output: The dataset.
    """

    def __init__(self, output: Output) -> None:
        self._schema = output.schema
        self._encoder = Encoder(output.schema)
        self._statistics: dict[int, Statistics] = {}

    def encode(self, split: int, record: Mapping[str, Any]) -> bytes:
        """The serialized Example of a record that goes into a split.

        Raises:
            ValueError: It does not fit the schema.
        """
        values = self._encoder.check(record)
        example = self._encoder.pack(values)
        # Last: a record that is rejected must be in no figure.
        if split not in self._statistics:
            self._statistics[split] = Statistics(self._schema)
        self._statistics[split].add(values)
        return example

    def statistics(self) -> Iterator[tuple[int, Statistics]]:
        """Yields (split, statistics) of the records since the last call."""
        yield from self._statistics.items()
        self._statistics = {}


def at_end_of_bundle(output: Any) -> Any:
    """An output as `finish_bundle` must hand it over: with a window of its own."""
    if isinstance(output, TaggedOutput):
        return TaggedOutput(output.tag, at_end_of_bundle(output.value))
    return GlobalWindows.windowed_value_at_end_of_window(output)


def check_crc32c() -> None:
    """Makes sure that checksums are computed by native code.

    Raises:
        UsageError: google-crc32c fell back to Python, a thousand times slower.
    """
    if not crc32c_is_native():
        raise UsageError(
            "google-crc32c has no native code here, which makes every checksum a thousand times "
            "slower; reinstall it: pip install --force-reinstall google-crc32c"
        )
