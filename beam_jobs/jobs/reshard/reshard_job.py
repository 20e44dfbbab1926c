"""The reshard job: turns existing TFRecord files into a dataset. Records keep their bytes.

Files are read twice: first to learn the schema from their first records and to plan the splits, then to
check all records and hand them over. Large ones are cut into ranges, whose records are counted before.
Nothing here imports Beam.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from beam_jobs.dataset.output import Output
from beam_jobs.errors import RejectError, UsageError, did_you_mean
from beam_jobs.jobs.job import Job, Learns, LearnSchema, count_ranges
from beam_jobs.jobs.near import Compared, Near, Sketched, compared_of
from beam_jobs.jobs.passes import FirstPass, Learned, SecondPass
from beam_jobs.jobs.reshard.example_passes import (
    ReshardFirstPass,
    ReshardSecondPass,
    example_sketches,
)
from beam_jobs.jobs.reshard.examples import ReshardSpec
from beam_jobs.jobs.reshard.manifests import (
    MAX_TEXT_BYTES,
    ReadText,
    description_of,
    manifests_in,
    place_of,
    read_text,
    refuse_hidden,
    splits_of,
)
from beam_jobs.jobs.reshard.record_ranges import RANGE_BYTES, count_records
from beam_jobs.jobs.reshard.schema_guess import SchemaGuess
from beam_jobs.jobs.split_rules import SplitRules
from beam_jobs.sources.chunks import Chunk, RangeCount, Task, byte_ranges
from beam_jobs.sources.inputs import Inputs
from beam_jobs.sources.labels import LABEL
from beam_jobs.sources.source import Source
from readers.format.manifest import (
    CHANNELS,
    INDEX_SUFFIX,
    MANIFEST,
    SAMPLE_RATE,
    TAGS,
    TEXT_INDEX_SUFFIX,
    TOKENIZER,
    UNITS,
    VOCABULARY,
    Manifest,
)
from readers.format.schema import Feature, Schema

# The schema until a record is known.
UNKNOWN_SCHEMA = Schema({"unknown": Feature("string")})

# The feature that names the input of a record.
_KEY = "key"

# The feature that a vocabulary or tokenizer describes.
_TOKENS = "tokens"

# Other files that are found next to TFRecord files.
_NO_RECORDS = (INDEX_SUFFIX, TEXT_INDEX_SUFFIX, ".done", ".json", ".jsonl", ".txt", ".md", ".csv")

# The most bytes of a tag: a number and a SHA-256.
_TAG_BYTES = 100


@dataclass(frozen=True)
class ReshardJob(ReshardSpec, Job):
    """A reshard job: its inputs, and the passes over them."""

    def sources(self, pattern: str, limit: int | None = None) -> Iterator[Source]:
        """Yields the files that match a pattern, except indexes and texts next to shards."""
        for source in self.inputs.sources(pattern, limit):
            if _has_records(source):
                yield source

    def chunks(self, source: Source) -> Iterator[Chunk]:
        """Yields the ranges of a large file, or the whole of a small one or a member of an archive."""
        whole_file = source.location is None and not source.error
        if whole_file and source.size > 2 * RANGE_BYTES:
            return byte_ranges(source, RANGE_BYTES)
        return super().chunks(source)

    def range_counter(self) -> Callable[[Task], list[RangeCount]]:
        return partial(count_ranges, self.inputs, count_records)

    @property
    def schema(self) -> Schema:
        """The schema of the records that are written, or a placeholder until they are read."""
        return self.schema_of(SchemaGuess())

    def decoded(self) -> ReshardJob:
        self._given_for("--map needs")
        return self

    def _given_for(self, needs: str) -> Schema:
        """The schema, which a flag needs before any record is read."""
        if not self.given:
            raise UsageError(
                f"{needs} to know the features of the records, but no manifest.json is next to them: "
                "add --schema"
            )
        return self.given

    @property
    def record_rate(self) -> float | None:
        return self.stated.get(SAMPLE_RATE)

    @property
    def facts(self) -> Mapping[str, Any]:
        return self.stated

    @property
    def learns(self) -> Learns:
        return LearnSchema(SchemaGuess, self.schema_of)

    def first_pass(self, rules: SplitRules, tokenizer: str = "") -> FirstPass:
        return ReshardFirstPass(rules=rules, spec=self)

    def second_pass(self, output: Output, learned: Learned) -> SecondPass:
        return ReshardSecondPass(output, learned, self)

    @property
    def compared(self) -> Compared:
        given = self._given_for("--drop_near_duplicates and --keep_out need")
        features = {name: feature for name, feature in given.items() if name != _KEY}
        return compared_of(features, tuple(self.class_names))

    def sketcher(self, near: Near, rules: SplitRules) -> Callable[[Task], Sketched]:
        return partial(example_sketches, self, near, rules)

    def schema_of(self, guess: SchemaGuess, needed: Collection[str] = ()) -> Schema:
        """The schema of the records that are written.

        Args:
            guess: The facts learned from the first records of each file.
            needed: The features that determine the splits.

        Raises:
            UsageError: The records contradict each other, no feature is kept, or a feature named by
                a flag does not exist.
            DataError: No record is an Example.
        """
        if not (self.given or guess.records or guess.broken):
            return UNKNOWN_SCHEMA
        schema = self.given or guess.schema()
        for name in (*self.keep, *self.drop, *sorted(needed)):
            if name not in schema:
                hint = did_you_mean(name, schema)
                raise UsageError(f"no feature {name!r}: the records have {', '.join(schema)}{hint}")
        chosen = [name for name in schema if self.keeps(name)]
        if not chosen:
            raise UsageError(f"--drop {','.join(self.drop)}: no feature would be left")
        return schema.select(chosen)


def reshard_job(
    inputs: Inputs, schema: str, keep: tuple[str, ...], drop: tuple[str, ...]
) -> ReshardJob:
    """The job for some files.

    Args:
        inputs: The files.
        schema: A file with the schema; empty to take it from the manifests next to the files or to
            learn it.
        keep: The features to keep; all if empty.
        drop: The features to drop.

    Raises:
        UsageError: No input is a TFRecord file, the schema cannot be read, or manifests disagree.
    """
    files: dict[str, list[str]] = {}
    companions: dict[str, Source] = {}
    for pattern in inputs.patterns:
        for source in inputs.sources(pattern):
            path = inputs.path(source.key)
            folder, name = place_of(path)
            if source.archive and name.rpartition("/")[2] in (MANIFEST, VOCABULARY, TOKENIZER):
                companions[path] = source
            if not _has_records(source):
                continue
            if source.packed:
                raise UsageError(
                    f"--input {source.key}: an archive that can only be read from its front: unpack "
                    "it, or make it a .tar or a .zip"
                )
            files.setdefault(folder, []).append(name)
    if not files:
        raise UsageError(
            "--input: no TFRecord files among these: indexes, texts and files under --output are "
            "skipped"
        )

    def read(path: str) -> bytes:
        if path not in companions:
            return read_text(path)
        with inputs.stream(companions[path]) as file:
            return file.read(MAX_TEXT_BYTES)

    manifests = manifests_in(files, read)
    refuse_hidden(files, manifests)
    rates = {m.sample_rate if isinstance(m, Manifest) else 0.0 for m in manifests.values()}
    rate = rates.pop() if len(rates) == 1 else 0.0
    job = ReshardJob(
        inputs,
        keep=keep,
        drop=drop,
        splits=splits_of(files, manifests),
        stated={SAMPLE_RATE: rate} if rate else {},
    )
    description = description_of(manifests, schema)
    return _described(job, *description, schema, read) if description else job


def _described(
    job: ReshardJob, folder: str, manifest: Manifest, schema: str, read: ReadText
) -> ReshardJob:
    """The job whose records a manifest describes, which was given as `--schema` unless that is empty."""
    dropped = {name for name in manifest.schema if not job.keeps(name)}
    names = {LABEL: manifest.label_names, **manifest.class_names}
    names = {name: classes for name, classes in names.items() if name not in dropped}
    try:
        vocabulary, tokenizer = manifest.tokens(folder, read)
    except (OSError, ValueError, RejectError) as error:
        wrong = f"--schema {schema}: {error}" if schema else f"{folder}/{MANIFEST}: {error}"
        raise UsageError(wrong if schema else f"{wrong}; or give a --schema") from None
    if _TOKENS in dropped:
        vocabulary, tokenizer = (), ""
    stated = dict(job.stated)
    for fact, texts in ((CHANNELS, manifest.channels), (UNITS, manifest.units)):
        if kept := {name: list(each) for name, each in texts.items() if name not in dropped}:
            stated[fact] = kept
    return replace(
        job,
        given=manifest.schema,
        class_names=names,
        vocabulary=vocabulary,
        tokenizer=tokenizer,
        stated=stated,
    )


def has_records(name: str) -> bool:
    """Whether a file may be a TFRecord file, by its name."""
    return not name.lower().endswith(_NO_RECORDS)


def _has_records(source: Source) -> bool:
    is_tag = f"/{source.key}".rpartition("/")[0].endswith(f"/{TAGS}") and source.size < _TAG_BYTES
    return has_records(source.key) and not is_tag
