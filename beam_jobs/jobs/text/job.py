"""The text job: a record is a line of a text file, a row of a table, or a whole file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import ClassVar, Literal

from beam_jobs.jobs.encodings import Encodings
from beam_jobs.jobs.near import Compared, Near, Sketched
from beam_jobs.jobs.passes import EncodingPlan, FirstPass, SecondPass
from beam_jobs.jobs.protocols import (
    Digester,
    Learns,
    LearnSubwords,
    LearnWords,
    RangeCounter,
    RecordJob,
    complete_schema,
)
from beam_jobs.jobs.split_rules import SplitRules
from beam_jobs.jobs.text.duplicates import text_digests, text_sketches
from beam_jobs.jobs.text.lines import count_lines, numbered_chunks
from beam_jobs.jobs.text.passes import TextFirstPass, TextSecondPass
from beam_jobs.jobs.text.reading import TextReader
from beam_jobs.jobs.text.sample import Sample, sample_below, sample_texts
from beam_jobs.records.rejects import OnReject
from beam_jobs.sources.chunks import Task
from beam_jobs.sources.classes import Names
from beam_jobs.sources.extra_features import ExtraFeature
from beam_jobs.sources.labels import LABEL, Labels
from readers.format.schema import Feature, Schema

Tokens = Literal["none", "words", "bytes", "bpe", "file"]


@dataclass(frozen=True)
class TextJob(TextReader, RecordJob):
    """What a text record is, in addition to how its text is read.

    Attributes:
        tokens: "words", "bytes", "bpe", "file" for a given tokenizer, or "none".
        vocabulary_size: The number of ids for "words" and "bpe", including the two reserved ones.
        max_length: The most tokens of a text that are kept; 0 keeps all.
        extras: The columns that become features.
        tokenizer: The contents of a given tokenizer's file; empty unless `tokens` is "file".
        window, stride: The length of windows that texts are cut into, and the distance from one to
            the next, both in tokens; 0 leaves texts whole.
        drop_duplicates: Whether only one of several equal texts is kept.
        encodings: The encodings of features that are chosen by name.
    """

    tokens: Tokens = "none"
    vocabulary_size: int = 20_000
    max_length: int = 0
    extras: tuple[ExtraFeature, ...] = ()
    tokenizer: str = ""
    window: int = 0
    stride: int = 0
    drop_duplicates: bool = False
    encodings: Encodings = field(default_factory=dict)

    vocabulary: ClassVar[tuple[bytes, ...]] = ()

    @property
    def class_names(self) -> Names:
        return {LABEL: self.label_names} if self.label_names else self.labels.class_names

    @property
    def has_windows(self) -> bool:
        return self.window > 0

    @property
    def has_labels(self) -> bool:
        """Whether records have labels."""
        return bool(self.label_field) or self.labels.mode != "none"

    @property
    def learns(self) -> Learns:
        if self.tokens == "words":
            return LearnWords(self.vocabulary_size)
        if self.tokens == "bpe":
            return LearnSubwords(self.vocabulary_size, self._sampler)
        return None

    @property
    def text_features(self) -> tuple[str, ...]:
        """The names of the features with the texts: `text`, or those of several fields."""
        return (self.text_field, *self.more_fields) if self.more_fields else ("text",)

    @property
    def token_features(self) -> tuple[str, ...]:
        """The names of the features with the tokens of each text; empty without tokens."""
        if self.tokens == "none":
            return ()
        return (
            tuple(f"{name}_tokens" for name in self.text_features)
            if self.more_fields
            else ("tokens",)
        )

    @property
    def schema(self) -> Schema:
        own = dict.fromkeys(self.text_features, Feature("string"))
        own |= dict.fromkeys(self.token_features, Feature("int64", (None,), "list"))
        labels = self.labels
        if self.label_field:
            labels = Labels("column", self.label_field, self.several_labels)
        return complete_schema(own, labels, self.extras, self.encodings)

    def first_pass(self, rules: SplitRules, on_reject: OnReject, tokenizer: str = "") -> FirstPass:
        return TextFirstPass(rules=rules, on_reject=on_reject, job=self, tokenizer=tokenizer)

    def second_pass(self, plan: EncodingPlan) -> SecondPass:
        return TextSecondPass(plan, self)

    def range_counter(self) -> RangeCounter | None:
        if self.record != "line":
            return None
        return RangeCounter(partial(count_lines, self.inputs), numbered_chunks)

    def digester(self, rules: SplitRules) -> Digester | None:
        return partial(text_digests, self, rules) if self.drop_duplicates else None

    @property
    def compared(self) -> Compared:
        return Compared("text", {name: self.schema[name] for name in self.text_features})

    def sketcher(self, near: Near, rules: SplitRules) -> Callable[[Task], Sketched]:
        return partial(text_sketches, self, near, rules)

    def _sampler(self, rules: SplitRules, size: int) -> Callable[[Task], Sample]:
        return partial(sample_texts, self, rules, sample_below(size))
