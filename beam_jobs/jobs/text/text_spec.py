"""The spec of the text job: its records and how their texts are read."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from beam_jobs.jobs.encodings import Encodings
from beam_jobs.jobs.text.text_reader import TextReader
from beam_jobs.sources.extra_features import ExtraFeature

Tokens = Literal["none", "words", "bytes", "bpe", "file"]


@dataclass(frozen=True)
class TextSpec(TextReader):
    """The records of a text job; `TextReader` reads their texts.

    Attributes:
        tokens: "words", "bytes", "bpe", "file" for a given tokenizer, or "none".
        vocabulary_size: The number of ids for "words" and "bpe", including the two reserved ones.
        max_length: The most tokens of a text that are kept; 0 keeps all.
        extras: The columns that become features.
        tokenizer: The contents of a given tokenizer's file; empty unless `tokens` is "file".
        vocabulary: All words of a given vocabulary by id; empty if it is learned, or not needed.
        window, stride: The length of windows, and the distance from one start to the next, both in
            tokens; 0 leaves texts whole.
        encodings: The encodings of features that are chosen by name.
    """

    tokens: Tokens = "none"
    vocabulary_size: int = 20_000
    max_length: int = 0
    extras: tuple[ExtraFeature, ...] = ()
    tokenizer: str = ""
    window: int = 0
    stride: int = 0
    encodings: Encodings = field(default_factory=dict)
    vocabulary: tuple[bytes, ...] = ()

    @property
    def has_labels(self) -> bool:
        """Whether records have labels."""
        return bool(self.label_field) or self.labels.mode != "none"

    @property
    def text_features(self) -> tuple[str, ...]:
        """The names of the features with the texts: `text`, or those of several fields."""
        return (self.text_field, *self.more_fields) if self.more_fields else ("text",)

    @property
    def token_features(self) -> tuple[str, ...]:
        """The names of the features with the tokens of each text; empty without tokens."""
        if self.tokens == "none":
            return ()
        if not self.more_fields:
            return ("tokens",)
        return tuple(f"{name}_tokens" for name in self.text_features)
