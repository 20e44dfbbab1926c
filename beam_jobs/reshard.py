"""The reshard job: TFRecord files of anybody to a dataset; records keep their bytes.

Files are read twice: once to learn the schema from all records, and to find those that are broken,
once to hand the records over. Nothing here imports Beam.
"""

from __future__ import annotations

import contextlib
import functools
import io
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, cast

import numpy as np

from beam_jobs.assign import Placement
from beam_jobs.chunks import Work
from beam_jobs.descriptions import Description, known_of
from beam_jobs.encode import RecordCounter
from beam_jobs.errors import RejectError, UsageError
from beam_jobs.example_lists import parsed_lists
from beam_jobs.example_walk import walked_lists
from beam_jobs.framed import Stretch, stretches, unpacked
from beam_jobs.inference import SchemaGuess
from beam_jobs.inputs import Inputs
from beam_jobs.labels import Names
from beam_jobs.passes import FirstPass, Found, Made, Places, SecondPass
from beam_jobs.rejects import Reject
from beam_jobs.sources import Source
from readers.format.columns import ColumnDecoder
from readers.format.manifest import INDEX_SUFFIX
from readers.format.parse import Decoder, parse_example
from readers.format.schema import Feature, Schema
from readers.format.tfrecord import FOOTER_BYTES, FRAME_BYTES, HEADER_BYTES, frame
from readers.format.wire import BYTES_LIST, INT64_LIST, fields, unpacked_varints, varint

# As long as no record is known.
UNKNOWN = Schema({"unknown": Feature("string")})

# Records of a stretch that are measured without the features that go.
_MEASURED = 16

# The feature that vocabularies and tokenizers are of.
_TOKENS = "tokens"

# Serialized records, uint8 [n], and where each begins and ends -> rows that are broken, and why.
BrokenAmong = Callable[[np.ndarray, np.ndarray, np.ndarray], list[tuple[int, str]]]

# What lies beside TFRecord files and is none.
_NO_RECORDS = (INDEX_SUFFIX, ".json", ".jsonl", ".txt", ".md", ".csv")


@dataclass(frozen=True)
class ReshardJob:
    """What a record is: an Example or a SequenceExample of a TFRecord file, GZIP or not.

    Attributes:
        inputs: The files.
        given: The schema, where it need not be learned.
        keep: The features that stay; all if empty.
        drop: Those that go.
        class_names: Of the labels of datasets that were written here.
        vocabulary, tokenizer: Of their tokens, as `TokenFiles`.
    """

    inputs: Inputs
    given: Schema | None = None
    keep: tuple[str, ...] = ()
    drop: tuple[str, ...] = ()
    class_names: Names = field(default_factory=dict)
    vocabulary: tuple[bytes, ...] = ()
    tokenizer: str = ""

    def sources(self, pattern: str) -> Iterator[Source]:
        """Yields the files that a pattern matches, but what lies beside shards."""
        for source in self.inputs.sources(pattern):
            if not source.key.lower().endswith(_NO_RECORDS):
                yield source

    def schema_of(self, guess: SchemaGuess, deciding: Collection[str] = ()) -> Schema:
        """The schema of the records that are written.

        Args:
            deciding: The features that decide their splits.

        Raises:
            UsageError: The records contradict each other, none of their features stays, or one has
                not the name that a flag gives it.
        """
        if not (self.given or guess.records):
            return UNKNOWN
        schema = self.given or guess.schema()
        for name in (*self.keep, *self.drop, *sorted(deciding)):
            if name not in schema:
                raise UsageError(f"no feature {name!r}: the records have {', '.join(schema)}")
        chosen = [name for name in schema if self.stays(name)]
        if not chosen:
            raise UsageError(f"--drop {','.join(self.drop)}: no feature would be left")
        return schema.select(chosen)

    def stays(self, name: str) -> bool:
        """Whether a feature is kept."""
        return (not self.keep or name in self.keep) and name not in self.drop

    @property
    def changes_records(self) -> bool:
        """Whether features go."""
        return bool(self.keep or self.drop)


def reshard_job(
    inputs: Inputs, schema: str, keep: tuple[str, ...], drop: tuple[str, ...]
) -> ReshardJob:
    """The job for some files.

    Args:
        schema: A file with the schema; empty to take that of the manifests beside the files, or to
            learn it.

    Raises:
        UsageError: There are no TFRecord files, the schema cannot be read, or manifests disagree.
    """
    job = ReshardJob(inputs, keep=keep, drop=drop)
    folders: set[str] = set()
    for pattern in inputs.patterns:
        for source in job.sources(pattern):
            if source.packed:
                raise UsageError(
                    f"--input {source.key}: an archive that can only be read from its front: unpack "
                    "it, or make it a .tar or a .zip"
                )
            folders.add(inputs.path(source.key).rpartition("/")[0])
    if not folders:
        raise UsageError("--input: no TFRecord files among these, which are indexes and texts")
    described = known_of(sorted(folders), schema)
    return _described(job, described) if described else job


def _described(job: ReshardJob, described: Description) -> ReshardJob:
    """The job for records of which this is known."""
    left_out = {name for name in described.schema if not job.stays(name)}
    names = {name: classes for name, classes in described.names if name not in left_out}
    job = replace(job, given=described.schema, class_names=names)
    if _TOKENS in left_out:
        return job
    return replace(job, vocabulary=described.vocabulary, tokenizer=described.tokenizer)


def _stretches(job: ReshardJob, source: Source) -> Iterator[Stretch | Reject]:
    """Yields the records of a file, or why it cannot be read."""
    try:
        if source.error:
            raise RejectError(source.error)
        with job.inputs.stream(source) as file:
            yield from stretches(unpacked(cast(io.BufferedReader, file)))
    except RejectError as error:
        yield Reject.of(source.key, "read", error)
    except OSError as error:
        yield Reject.of(source.key, "read", f"cannot be read: {error}")


class _Records(NamedTuple):
    """The Examples of a stretch that have a split.

    Attributes:
        keys: In UTF-8.
        splits: uint8 [n].
        starts, stops: int64 [n], where the data of each stands in the stretch.
        rejects: What else there is.
    """

    keys: list[bytes]
    splits: np.ndarray
    starts: np.ndarray
    stops: np.ndarray
    rejects: list[Reject]


def _records(
    places: Places, source: Source, stretch: Stretch, broken_among: BrokenAmong
) -> _Records:
    """The records of a stretch, the same ones in both passes.

    Args:
        broken_among: Tells which are no Examples, as `broken_examples`.
    """
    data, stops = stretch.data, stretch.stops - FOOTER_BYTES
    starts = stretch.stops - stretch.lengths + HEADER_BYTES
    filled = np.flatnonzero(stretch.good & (starts < stops))
    empty = np.flatnonzero(stretch.good & (starts == stops)).tolist()
    broken = dict.fromkeys(empty, "it is empty")
    for at, error in broken_among(data, starts[filled], stops[filled]):
        broken[int(filled[at])] = error
    rejects = [_reject(source, place.number, place.error) for place in stretch.broken]
    for row, error in broken.items():
        where = f"byte {stretch.offset + int(starts[row]) - HEADER_BYTES:,}"
        rejects.append(_reject(source, stretch.first + row, f"{where}: not an Example: {error}"))
    rows = filled[~np.isin(filled, list(broken))] if broken else filled
    prefix = f"{source.key}#".encode("utf-8", "surrogateescape")
    keys = [b"%s%d" % (prefix, number) for number in (rows + stretch.first).tolist()]
    columns = _columns(places, data, starts[rows], stops[rows])
    splits, without = places.splits_of(keys, columns, [])
    if without:
        rejects += [
            _reject(source, stretch.first + int(rows[at]), error) for at, error in without.items()
        ]
        kept = np.delete(np.arange(len(rows)), list(without))
        keys, splits, rows = [keys[at] for at in kept.tolist()], splits[kept], rows[kept]
    return _Records(keys, splits, starts[rows], stops[rows], rejects)


def _reject(source: Source, number: int, error: str) -> Reject:
    return Reject.of(f"{source.key}#{number}", "read", error)


def broken_examples(
    data: np.ndarray, starts: np.ndarray, stops: np.ndarray
) -> list[tuple[int, str]]:
    """The rows of records that are neither Examples nor SequenceExamples, as `SchemaGuess.add`."""
    _, usual = walked_lists(data, starts, stops)
    _, _, broken = parsed_lists(data, starts, stops, np.flatnonzero(~usual))
    return broken


@dataclass(frozen=True, kw_only=True)
class ReshardFirstPass(FirstPass):
    """Work -> keys of records, and what they hold.

    Attributes:
        job: What a record is.
    """

    job: ReshardJob

    def found(self, work: Work) -> Iterator[Found]:
        nothing = np.empty(0, np.uint8)
        for chunk in work.chunks:
            source = chunk.source
            for stretch in _stretches(self.job, source):
                if isinstance(stretch, Reject):
                    yield Found([], nothing, nothing.astype(np.int64), [], [stretch])
                    continue
                guess = None if self.job.given else SchemaGuess()
                found = _records(
                    self.places, source, stretch, guess.add if guess else broken_examples
                )
                sizes = self._sizes(stretch.data.data, found)
                labels = [None] * len(found.keys)
                yield Found(found.keys, found.splits, sizes, labels, found.rejects, guess=guess)

    def _sizes(self, view: memoryview, found: _Records) -> np.ndarray:
        """The bytes of the frame of each record; where features go, estimated from a few records."""
        sizes = found.stops - found.starts + FRAME_BYTES
        if not self.job.changes_records or not len(sizes):
            return sizes
        rows = np.linspace(0, len(sizes) - 1, min(_MEASURED, len(sizes))).astype(np.int64).tolist()
        left = sum(
            len(with_features(view[found.starts[row] : found.stops[row]], self._stays))
            + FRAME_BYTES
            for row in rows
        )
        return np.maximum(sizes * (left / int(sizes[rows].sum())), FRAME_BYTES).astype(np.int64)

    def _stays(self, name: str) -> bool:
        return self.job.stays(name.removesuffix("/shape"))


def _columns(
    places: Places, data: np.ndarray, starts: np.ndarray, stops: np.ndarray
) -> list[dict[str, Any]]:
    """The features that decide the splits of records; no rows where none does."""
    names = deciding(places.placement)
    if not names:
        return []
    return [
        single_values(data.data[start:stop], names)
        for start, stop in zip(starts.tolist(), stops.tolist(), strict=True)
    ]


def deciding(placement: Placement) -> set[str]:
    """The features that decide the splits of records."""
    return {name for name in (placement.groups.column, placement.split_column) if name}


def single_values(data: memoryview, names: set[str]) -> dict[str, Any]:
    """Those of some features of an Example that are one text or one integer."""
    values: dict[str, Any] = {}
    for name, (kind, chunks) in parse_example(data, names).items():
        if len(chunks) != 1:
            continue
        if kind == BYTES_LIST:
            with contextlib.suppress(UnicodeDecodeError):
                values[name] = str(chunks[0], "utf-8")
        elif kind == INT64_LIST and len(numbers := unpacked_varints(chunks[0])) == 1:
            values[name] = int(numbers[0])
    return values


@dataclass(frozen=True, kw_only=True)
class ReshardSecondPass(SecondPass):
    """Work -> records, as they are or without some features, and their statistics.

    Attributes:
        job: What a record is.
    """

    job: ReshardJob

    @functools.cached_property
    def _columns(self) -> ColumnDecoder:
        return ColumnDecoder(self.schema)

    @functools.cached_property
    def _decoder(self) -> Decoder:
        return Decoder(self.schema)

    def counter(self) -> RecordCounter:
        return RecordCounter({n: f for n, f in self.schema.items() if not f.step})

    def made(self, work: Work, encoder: RecordCounter) -> Iterator[Made]:
        nothing = np.empty(0, np.uint8)
        for chunk in work.chunks:
            source = chunk.source
            for stretch in _stretches(self.job, source):
                if isinstance(stretch, Reject):
                    yield Made([], nothing, [], [stretch])
                else:
                    yield self._made(source, stretch, encoder)

    def _made(self, source: Source, stretch: Stretch, encoder: RecordCounter) -> Made:
        found = _records(self.places, source, stretch, broken_examples)
        columns, errors = self._decoded(stretch.data, found.starts, found.stops)
        late = []
        for at, error in sorted(errors.items()):
            where = f"byte {stretch.offset + int(found.starts[at]) - HEADER_BYTES:,}"
            key = found.keys[at].decode("utf-8", "surrogateescape")
            late.append((Reject.of(key, "decode", f"{where}: {error}"), int(found.splits[at])))
        good = [at for at in range(len(found.keys)) if at not in errors]
        splits = found.splits[good]
        encoder.count(splits, {n: [v[at] for at in good] for n, v in columns.items()})
        view = stretch.data.data
        spans = zip(found.starts[good].tolist(), found.stops[good].tolist(), strict=True)
        frames = [self._frame(view, start, stop) for start, stop in spans]
        return Made([found.keys[at] for at in good], splits, frames, found.rejects, late)

    def _frame(self, view: memoryview, start: int, stop: int) -> bytes | memoryview:
        if self.job.changes_records:
            return frame(with_features(view[start:stop], self._stays))
        return view[start - HEADER_BYTES : stop + FOOTER_BYTES]

    def _stays(self, name: str) -> bool:
        """Whether what has this name in an Example does: a feature, or the shapes of one."""
        of, schema = name.removesuffix("/shape"), self.schema
        if self.job.keep:
            return name in schema or (of in schema and schema[of].has_companion)
        return name not in self.job.drop and (of not in self.job.drop or name in schema)

    def _decoded(
        self, data: np.ndarray, starts: np.ndarray, stops: np.ndarray
    ) -> tuple[dict[str, list[Any]], dict[int, str]]:
        """The values of every feature that is counted, and why records do not fit the schema."""
        found, regular = self._columns.decode(data, starts, stops)
        whole = {name for name, feature in self.schema.items() if not feature.step}
        odd = np.setdiff1d(np.arange(len(starts)), regular)
        left = [name for name in self.schema if name not in found]
        errors: dict[int, str] = {}
        values: dict[str, list[Any]] = {name: [None] * len(starts) for name in whole}
        for name, column in found.items():
            for at, value in zip(regular.tolist(), column.arrays(), strict=True):
                values[name][at] = value
        if not left and not len(odd):
            return values, errors
        rest = Decoder(self.schema.select(left)) if left else None
        view = data.data
        odd_rows = set(odd.tolist())
        for at in range(len(starts)) if rest else odd.tolist():
            decoder = self._decoder if at in odd_rows or rest is None else rest
            try:
                record = decoder.decode(view[int(starts[at]) : int(stops[at])])
            except ValueError as error:
                errors[at] = str(error)
                continue
            for name in record.keys() & whole:
                value = record[name]
                values[name][at] = value.item() if self.schema[name].encoding == "text" else value
        return values, errors


def with_features(data: memoryview, stays: Callable[[str], bool]) -> bytes:
    """The Example or SequenceExample with some of its features alone, the others as they stand.

    Args:
        stays: Whether a feature does, by its name.
    """
    messages = []
    for number, _, message in fields(data):
        entries = [
            b"\x0a" + varint(len(entry)) + bytes(entry)
            for _, _, entry in fields(message)
            if stays(_name(entry))
        ]
        body = b"".join(entries)
        messages.append(bytes([number << 3 | 2]) + varint(len(body)) + body)
    return b"".join(messages)


def _name(entry: memoryview) -> str:
    for number, _, content in fields(entry):
        if number == 1:
            return str(content, "utf-8")
    return ""
