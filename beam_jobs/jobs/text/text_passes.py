"""The two passes of a text job: the first finds records, the second encodes them."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import compress
from typing import Any

import numpy as np

from beam_jobs.errors import UsageError
from beam_jobs.jobs.passes import (
    EncodedRecords,
    FirstPass,
    FoundRecords,
    SecondPass,
    mapped_records,
)
from beam_jobs.jobs.text.split_texts import split_texts
from beam_jobs.jobs.text.subwords import Subwords
from beam_jobs.jobs.text.text_reader import TextSpec
from beam_jobs.jobs.text.texts import Texts
from beam_jobs.jobs.text.tokens import Tokenizer, WordCounts, slice_of, window_bounds, words
from beam_jobs.plan.group_splits import GroupSizes
from beam_jobs.plan.strata import LabelHashes
from beam_jobs.records.encode import RecordEncoder
from beam_jobs.sources.chunks import Task
from beam_jobs.sources.extra_features import extra_values
from beam_jobs.sources.source import Label

# Estimates in bytes that affect only the sizes of shards: of a token in an Example, of the text of a
# token (counting tokens would take as long as making them), and of the names, lengths and framing
# that an Example adds.
_TOKEN_BYTES = {"none": 0, "bytes": 1, "words": 2, "bpe": 2, "file": 2}
_TEXT_BYTES_PER_TOKEN = {"none": 1, "bytes": 1, "words": 6, "bpe": 4, "file": 4}
_EXAMPLE_BYTES, _TOKENS_BYTES, _LABEL_BYTES, _EXTRA_BYTES = 50, 40, 16, 30


def _overhead(spec: TextSpec) -> int:
    """The approximate bytes that an Example adds to its text, its key and its tokens."""
    tokens = _TOKENS_BYTES * len(spec.token_features)
    extras = _EXTRA_BYTES * (len(spec.text_features) - 1 + len(spec.extras))
    return _EXAMPLE_BYTES + tokens + extras + _LABEL_BYTES * spec.has_labels


def _tokenizer_of(
    spec: TextSpec, vocabulary: tuple[bytes, ...], file: str
) -> Tokenizer | Subwords | None:
    """The tokenizer of a job; None without tokens.

    Args:
        vocabulary: All words by id; empty if they are not known yet.
        file: The contents of the tokenizer's file; empty without subwords.
    """
    if spec.tokens == "none":
        return None
    if spec.tokens in ("words", "bytes"):
        return Tokenizer(spec.tokens, vocabulary, spec.max_length)
    return Subwords(file, spec.max_length)


@dataclass(frozen=True, kw_only=True)
class TextFirstPass(FirstPass):
    """Task -> keys, labels and words of texts.

    Attributes:
        spec: Defines the records.
        tokenizer: The contents of the tokenizer's file; empty without subwords.
    """

    spec: TextSpec
    tokenizer: str = ""

    @functools.cached_property
    def _tokenizer(self) -> Any:
        return _tokenizer_of(self.spec, (), self.tokenizer)

    def found(self, task: Task) -> Iterator[FoundRecords]:
        for texts, splits, duplicates in split_texts(self.spec, task, self.rules):
            counted: WordCounts | None = None
            text_per_token: float = _TEXT_BYTES_PER_TOKEN[self.spec.tokens]
            if self.spec.tokens == "words":
                training = (splits == self.rules.placement.splits.training).tolist()
                joined = b" ".join(text for own in texts.texts for text in compress(own, training))
                counts = Counter(words(joined))
                text_per_token = len(joined) / counts.total() if counts else text_per_token
                counted = None if self.spec.vocabulary else WordCounts(counts)
            if self.spec.window:
                found = self._windows(texts, splits)
            else:
                sizes = self._sizes(texts, text_per_token)
                found = FoundRecords(texts.keys, splits, sizes, texts.labels, texts.rejects)
            yield found._replace(
                classes=texts.classes,
                learned=counted,
                duplicates=duplicates,
                texts=len(texts.keys),
            )

    def group_sizes(self, task: Task) -> GroupSizes:
        sizes = GroupSizes(inputs=task.count)
        for texts, groups, _ in split_texts(self.spec, task, self.rules):
            # Windows are not known yet if their tokens are learned from a split; bytes approximate them.
            lengths = map(len, texts.texts[0]) if self.spec.window else None
            labels = self.rules.placement.strata(texts.labels)
            sizes.add(LabelHashes.of(labels, groups), lengths)
        return sizes

    def _sizes(self, texts: Texts, text_per_token: float) -> np.ndarray:
        lengths = np.sum(list(map(_lengths, texts.texts)), axis=0)
        keys = _lengths(texts.keys)
        tokens = (lengths / text_per_token).astype(np.int64)
        return lengths + keys + _overhead(self.spec) + _TOKEN_BYTES[self.spec.tokens] * tokens

    def _windows(self, texts: Texts, splits: np.ndarray) -> FoundRecords:
        """The windows of texts; their sizes assume that all tokens of a text have the same length."""
        spec = self.spec
        keys, sizes, rows = list[bytes](), list[int](), list[int]()
        for row, (key, text) in enumerate(zip(texts.keys, texts.texts[0], strict=True)):
            if spec.tokens == "bpe" and len(text) <= spec.window:
                # No token is shorter than a byte, so this is one window; it need not be tokenized.
                tokens = len(text) // _TEXT_BYTES_PER_TOKEN["bpe"]
            else:
                tokens = self._tokenizer.count(text)
            bounds = window_bounds(tokens, spec.window, spec.stride)
            rows += [row] * len(bounds)
            keys += _window_keys(key, len(bounds))
            each = len(text) / max(tokens, 1) + _TOKEN_BYTES[spec.tokens]
            fixed = len(key) + _overhead(spec)
            sizes += [fixed + int(each * (stop - start)) for start, stop in bounds]
        labels = [texts.labels[row] for row in rows]
        return FoundRecords(keys, splits[rows], np.array(sizes, np.int64), labels, texts.rejects)


def _lengths(values: list[bytes]) -> np.ndarray:
    return np.fromiter(map(len, values), np.int64, len(values))


def _window_keys(key: bytes, windows: int) -> list[bytes]:
    """The keys of the windows of a text, numbered from 1."""
    return [b"%s@%d" % (key, number) for number in range(1, windows + 1)]


@dataclass(frozen=True)
class TextSecondPass(SecondPass):
    """Task -> encoded texts.

    Attributes:
        spec: Defines the records.
    """

    spec: TextSpec

    @functools.cached_property
    def _tokenizer(self) -> Any:
        learned = self.learned
        return _tokenizer_of(self.spec, learned.vocabulary, learned.tokenizer)

    def encoded(self, task: Task, encoder: RecordEncoder) -> Iterator[EncodedRecords]:
        for texts, splits, _ in split_texts(self.spec, task, self.rules):
            windows = list[np.ndarray]()
            if self.spec.window:
                texts, rows, windows = self._windows(texts)
                splits = splits[rows]
            columns = self._columns(texts, windows)
            if self.output.mapper:
                record = functools.partial(_record_of, columns)
                yield mapped_records(encoder, texts.keys, splits, record, texts.rejects)
                continue
            frames, encoded = encoder.encode_all(splits, columns)
            yield EncodedRecords(texts.keys, splits, frames, encoded, texts.rejects)

    def _columns(self, texts: Texts, windows: list[np.ndarray]) -> dict[str, list[Any]]:
        """The columns of texts, given the tokens of each if they are windows."""
        columns: dict[str, list[Any]] = {"key": texts.keys}
        columns |= zip(self.spec.text_features, texts.texts, strict=True)
        if self.spec.has_labels:
            labels = [label for label in texts.labels if label is not None]
            ids = {label: self._label(label) for label in set(labels)}
            columns["label"] = [ids[label] for label in labels]
        for name, own in zip(self.spec.token_features, texts.texts, strict=False):
            columns[name] = windows or self._encoded(texts.keys, own)
        extras, schema = self.spec.extras, self.job_schema
        rows = [extra_values(extras, row) for row in texts.rows] if extras else []
        columns |= {extra.name: [row[extra.name] for row in rows] for extra in extras}
        for name in dict.fromkeys([*(extra.name for extra in extras), *self.spec.encodings]):
            checked = functools.partial(schema[name].codec.checked, name, schema[name])
            columns[name] = list(map(checked, columns[name]))
        return columns

    def _encoded(self, keys: list[bytes], texts: list[bytes]) -> list[np.ndarray]:
        """The ids of each text; an error names the first text that the tokenizer cannot encode."""
        try:
            found: list[np.ndarray] = self._tokenizer.encode_all(texts)
        except UsageError:
            for key, text in zip(keys, texts, strict=True):
                try:
                    self._tokenizer.encode_all([text])
                except UsageError as error:
                    name = key.decode(errors="backslashreplace")
                    raise UsageError(f"{error.message}: {name}") from None
            raise
        return found

    def _label(self, label: Label) -> Any:
        ids = self.class_ids.of(label)
        return np.array(ids, np.int64) if isinstance(ids, list) else ids

    def _windows(self, texts: Texts) -> tuple[Texts, np.ndarray, list[np.ndarray]]:
        """The windows of texts, the row of the text of each, int64 [n], and the tokens of each."""
        keys, parts, rows, tokens = list[bytes](), list[bytes](), list[int](), list[np.ndarray]()
        for row, (key, text) in enumerate(zip(texts.keys, texts.texts[0], strict=True)):
            ids, spans = self._tokenizer.encode_spans(text)
            bounds = window_bounds(len(ids), self.spec.window, self.spec.stride)
            keys += _window_keys(key, len(bounds))
            parts += [slice_of(text, spans, start, stop) for start, stop in bounds]
            tokens += [ids[start:stop] for start, stop in bounds]
            rows += [row] * len(bounds)
        text_of = np.array(rows, np.int64)
        return texts.take(text_of)._replace(keys=keys, texts=[parts]), text_of, tokens


def _record_of(columns: dict[str, list[Any]], row: int) -> dict[str, Any]:
    return {name: values[row] for name, values in columns.items()}
