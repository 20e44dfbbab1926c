"""The text job: a record is a line of a text file, a row of a table, or a whole file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from beam_jobs.dataset.output import Output
from beam_jobs.jobs.job import Job, Learns, LearnSubwords, LearnWords, complete_schema, count_ranges
from beam_jobs.jobs.near import Compared, Near, Sketched
from beam_jobs.jobs.passes import FirstPass, Learned, SecondPass
from beam_jobs.jobs.split_rules import SplitRules
from beam_jobs.jobs.text.sample import Sample, bin_width, sample_texts
from beam_jobs.jobs.text.split_texts import text_sketches
from beam_jobs.jobs.text.text_passes import TextFirstPass, TextSecondPass
from beam_jobs.jobs.text.text_reader import TextSpec, count_lines
from beam_jobs.sources.chunks import RangeCount, Task
from beam_jobs.sources.labels import LABEL, Labels, Names
from readers.format.schema import Feature, Schema


@dataclass(frozen=True)
class TextJob(TextSpec, Job):
    """A text job: its records, and the passes over them."""

    @property
    def class_names(self) -> Names:
        return {LABEL: self.label_names} if self.label_names else self.labels.class_names

    @property
    def has_windows(self) -> bool:
        return self.window > 0

    @property
    def learns(self) -> Learns:
        if self.tokens == "words" and not self.vocabulary:
            return LearnWords(self.vocabulary_size)
        if self.tokens == "bpe":
            return LearnSubwords(self.vocabulary_size, self._sampler)
        return None

    @property
    def schema(self) -> Schema:
        own = dict.fromkeys(self.text_features, Feature("string"))
        own |= dict.fromkeys(self.token_features, Feature("int64", (None,), "list"))
        labels = self.labels
        if self.label_field:
            labels = Labels("column", self.label_field, self.several_labels)
        return complete_schema(own, labels, self.extras, self.encodings)

    def first_pass(self, rules: SplitRules, tokenizer: str = "") -> FirstPass:
        return TextFirstPass(rules=rules, spec=self, tokenizer=tokenizer)

    def second_pass(self, output: Output, learned: Learned) -> SecondPass:
        return TextSecondPass(output, learned, self)

    def range_counter(self) -> Callable[[Task], list[RangeCount]] | None:
        return partial(count_ranges, self.inputs, count_lines) if self.record == "line" else None

    def unlearned(self) -> TextJob:
        return replace(self, tokens="bytes") if self.learns else self

    @property
    def compared(self) -> Compared:
        return Compared("text", {name: self.schema[name] for name in self.text_features})

    def sketcher(self, near: Near, rules: SplitRules) -> Callable[[Task], Sketched]:
        return partial(text_sketches, self, near, rules)

    def _sampler(self, rules: SplitRules, size: int) -> Callable[[Task], Sample]:
        return partial(sample_texts, self, rules, bin_width(size))
