"""The reshard job: TFRecord files of anybody to a dataset; records keep their bytes.

Files are read twice: once to learn the schema from all records, and to find those that are broken,
once to hand the records over. Nothing here imports Beam.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field, replace

from beam_jobs.errors import UsageError
from beam_jobs.jobs.passes import EncodingPlan, FirstPass, SecondPass, SplitRules
from beam_jobs.jobs.protocols import Learns, LearnSchema, RecordJob
from beam_jobs.jobs.reshard.manifests import Description, known_of
from beam_jobs.jobs.reshard.passes import ReshardFirstPass, ReshardSecondPass
from beam_jobs.jobs.reshard.schema_guess import SchemaGuess
from beam_jobs.records.rejects import OnReject
from beam_jobs.sources.chunks import Chunk
from beam_jobs.sources.classes import Names
from beam_jobs.sources.inputs import Inputs
from beam_jobs.sources.source import Source
from readers.format.manifest import INDEX_SUFFIX
from readers.format.schema import Feature, Schema

# As long as no record is known.
UNKNOWN = Schema({"unknown": Feature("string")})

# The feature that vocabularies and tokenizers are of.
_TOKENS = "tokens"

# What lies beside TFRecord files and is none.
_NO_RECORDS = (INDEX_SUFFIX, ".json", ".jsonl", ".txt", ".md", ".csv")


@dataclass(frozen=True)
class ReshardJob(RecordJob):
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

    @property
    def learns(self) -> Learns:
        return LearnSchema(SchemaGuess, self.schema_of)

    def chunks(self, source: Source) -> Iterator[Chunk]:
        yield Chunk(source, 0, 0, 1, source.size)

    def first_pass(self, rules: SplitRules, on_reject: OnReject, tokenizer: str = "") -> FirstPass:
        return ReshardFirstPass(rules=rules, on_reject=on_reject, job=self)

    def second_pass(self, known: EncodingPlan) -> SecondPass:
        return ReshardSecondPass(known, self)

    def without_tokenizer(self) -> ReshardJob:
        return replace(self, tokenizer="")

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
