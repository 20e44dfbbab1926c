"""The passes over the files of a text job, in any process: nothing here imports Beam."""

from __future__ import annotations

import functools
import hashlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import chain, compress
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from beam_jobs.errors import RejectError
from beam_jobs.jobs.passes import (
    EncodedRecords,
    FirstPass,
    FoundRecords,
    Learner,
    NoLearner,
    SecondPass,
    SplitRules,
)
from beam_jobs.jobs.text.sample import Sample
from beam_jobs.jobs.text.subwords import Subwords
from beam_jobs.jobs.text.texts import Texts
from beam_jobs.jobs.text.tokens import AnyTokenizer, Tokenizer, WordCounts, pack_counts, words
from beam_jobs.jobs.text.windows import slice_of, window_bounds
from beam_jobs.records.encode import RecordEncoder
from beam_jobs.records.rejects import Reject
from beam_jobs.sources.chunks import Task
from beam_jobs.sources.extra_features import extra_values
from readers.format.encode import checked

if TYPE_CHECKING:
    from beam_jobs.jobs.text.job import TextJob

# What tokens take, and what an Example adds to its text, its key and them: names, lengths, framing.
# Only sizes of shards depend on it.
_BYTES_PER_TOKEN = {"bytes": 1, "words": 2}

_BYTES_PER_SUBWORD = 2

_OVERHEAD_BYTES = 50

_OF_TOKENS, _OF_LABEL, _OF_EXTRA = 40, 16, 30

# Text that makes a token, in bytes, where tokens are not counted: that takes as long as to make them.
_BYTES_OF_A_TOKEN = {"words": 6, "bytes": 1}

_BYTES_OF_A_SUBWORD = 4

_DIGEST_BYTES = 16


def tokenizer_of(job: TextJob, vocabulary: tuple[bytes, ...], file: str) -> AnyTokenizer | None:
    """What makes tokens of texts; None without any.

    Args:
        vocabulary: All words by id; empty where they are not known yet.
        file: The text of the tokenizer's file; empty without subwords.
    """
    if job.tokens == "none":
        return None
    if job.tokens in ("words", "bytes"):
        return Tokenizer(job.tokens, vocabulary, job.max_length)
    return Subwords(file, job.max_length)


def _token_bytes(job: TextJob) -> int:
    return _BYTES_PER_TOKEN.get(job.tokens, _BYTES_PER_SUBWORD)


def _overhead(job: TextJob) -> int:
    """What an Example adds to its text, its key and its tokens."""
    of_tokens = _OF_TOKENS if job.tokens != "none" else 0
    of_label = _OF_LABEL if job.labelled else 0
    return _OVERHEAD_BYTES + of_tokens + of_label + _OF_EXTRA * len(job.extras)


class _Kept(NamedTuple):
    """The texts of some task that become records, and what becomes of them.

    Attributes:
        texts: Without those that are dropped or rejected.
        splits: uint8 [n].
        duplicates: uint8 [m], the splits of those that are dropped.
    """

    texts: Texts
    splits: np.ndarray
    duplicates: np.ndarray


def _all_texts(job: TextJob, task: Task) -> Iterator[Texts]:
    return chain.from_iterable(map(job.batches, task.chunks))


def _kept(job: TextJob, task: Task, rules: SplitRules) -> Iterator[_Kept]:
    """Yields the texts of some task."""
    dropped = np.sort(np.frombuffer(task.dropped, "<i8"))
    first = 0
    for texts in _all_texts(job, task):
        rows = np.arange(len(texts.keys))
        low, high = np.searchsorted(dropped, [first, first + len(rows)])
        gone = dropped[low:high] - first
        first += len(rows)
        duplicates = np.empty(0, np.uint8)
        if len(gone):
            # The strata know the labels of those alone that stay.
            duplicates, _ = _placed(job, texts.take(gone), replace(rules, strata=b""))
            texts = texts.take(np.delete(rows, gone))
        splits, errors = _placed(job, texts, rules)
        if errors:
            rejects = [
                Reject.of(texts.keys[row].decode(), "read", error) for row, error in errors.items()
            ]
            stay = np.delete(np.arange(len(texts.keys)), list(errors))
            texts, splits = texts.take(stay), splits[stay]
            texts.rejects.extend(rejects)
        yield _Kept(texts, splits, duplicates)


def _placed(job: TextJob, texts: Texts, rules: SplitRules) -> tuple[np.ndarray, dict[int, str]]:
    """The split of each text, uint8 [n], and why some must be rejected, by row."""
    splits, errors = rules.splits_of(texts.keys, texts.rows, texts.labels)
    if job.extras:
        for number, row in enumerate(texts.rows):
            try:
                extra_values(job.extras, row)
            except RejectError as error:
                errors.setdefault(number, str(error))
    return splits, errors


class WordLearner:
    """Counts the words of the training split."""

    def __init__(self) -> None:
        self._counts: Counter[bytes] = Counter()

    def add(self, part: list[bytes], /) -> None:
        self._counts.update(part)

    def elements(self) -> Iterator[tuple[int, WordCounts]]:
        return pack_counts(self._counts)


@dataclass(frozen=True, kw_only=True)
class TextFirstPass(FirstPass):
    """Task -> keys, labels and words of texts.

    Attributes:
        job: What a record is.
        tokenizer: The text of the tokenizer's file; empty without subwords.
    """

    job: TextJob
    tokenizer: str = ""

    @functools.cached_property
    def _tokenizer(self) -> Any:
        return tokenizer_of(self.job, (), self.tokenizer)

    def learner(self) -> Learner:
        return WordLearner() if self.job.tokens == "words" else NoLearner()

    def found(self, task: Task) -> Iterator[FoundRecords]:
        for texts, splits, duplicates in _kept(self.job, task, self.rules):
            training = (splits == self.rules.placement.splits.training).tolist()
            counted: list[bytes] | None = None
            of_a_token: float = _BYTES_OF_A_TOKEN.get(self.job.tokens, _BYTES_OF_A_SUBWORD)
            if self.job.tokens == "words":
                together = b" ".join(compress(texts.texts, training))
                counted = words(together)
                of_a_token = len(together) / len(counted) if counted else of_a_token
            if self.job.window:
                found = self._windows(texts, splits)
            else:
                sizes = self._sizes(texts, of_a_token)
                found = FoundRecords(texts.keys, splits, sizes, texts.labels, texts.rejects)
            yield found._replace(
                learned=counted,
                words=len(counted or ()),
                duplicates=duplicates,
                texts=len(texts.keys),
            )

    def _sizes(self, texts: Texts, of_a_token: float) -> np.ndarray:
        lengths = np.fromiter(map(len, texts.texts), np.int64, len(texts.texts))
        keys = np.fromiter(map(len, texts.keys), np.int64, len(texts.keys))
        tokens = (lengths / of_a_token).astype(np.int64)
        if self.job.tokens == "none":
            tokens = np.zeros_like(lengths)
        return lengths + keys + _overhead(self.job) + _token_bytes(self.job) * tokens

    def _windows(self, texts: Texts, splits: np.ndarray) -> FoundRecords:
        """The windows of texts; about as many bytes of a text fall to each of its tokens."""
        job = self.job
        keys: list[bytes] = []
        sizes: list[int] = []
        repeats = np.zeros(len(texts.keys), np.int64)
        for row, (key, text) in enumerate(zip(texts.keys, texts.texts, strict=True)):
            if job.tokens == "bpe" and len(text) <= job.window:
                # One window whatever the tokens: none is of less than a byte.
                tokens = len(text) // _BYTES_OF_A_SUBWORD
            else:
                tokens = self._tokenizer.count(text)
            bounds = window_bounds(tokens, job.window, job.stride)
            repeats[row] = len(bounds)
            keys += window_keys(key, len(bounds))
            each = len(text) / max(tokens, 1) + _token_bytes(job)
            fixed = len(key) + _overhead(job)
            sizes += [fixed + int(each * (stop - start)) for start, stop in bounds]
        labels = [texts.labels[row] for row in np.repeat(np.arange(len(repeats)), repeats)]
        every = np.repeat(splits, repeats)
        return FoundRecords(keys, every, np.array(sizes, np.int64), labels, texts.rejects)


def window_keys(key: bytes, windows: int) -> list[bytes]:
    """The keys of the windows of a text, numbered from 1."""
    return [b"%s@%d" % (key, number) for number in range(1, windows + 1)]


@dataclass(frozen=True)
class TextSecondPass(SecondPass):
    """Task -> encoded texts.

    Attributes:
        job: Defines the records.
    """

    job: TextJob

    @functools.cached_property
    def _tokenizer(self) -> Any:
        return tokenizer_of(self.job, self.known.vocabulary, self.known.tokenizer)

    def encoded(self, task: Task, encoder: RecordEncoder) -> Iterator[EncodedRecords]:
        for texts, splits, _ in _kept(self.job, task, self.known.rules):
            columns = self._columns(texts)
            if self.job.window:
                repeats = [len(tokens) for tokens in columns["tokens"]]
                columns = _flattened(columns, repeats)
                splits = np.repeat(splits, repeats)
            frames = encoder.encode_all(splits, columns)
            yield EncodedRecords(columns["key"], splits, frames, texts.rejects)

    def _columns(self, texts: Texts) -> dict[str, list[Any]]:
        """The columns of the texts; with windows, those of each text are lists of windows."""
        columns: dict[str, list[Any]] = {"key": texts.keys, "text": texts.texts}
        if self.job.labelled:
            labels = [label for label in texts.labels if label is not None]
            ids = {label: self.label_ids[label] for label in set(labels)}
            columns["label"] = [self._label(ids[label]) for label in labels]
        if self._tokenizer and not self.job.window:
            columns["tokens"] = self._tokenizer.encode_all(texts.texts)
        elif self._tokenizer:
            pairs = list(map(self._windows, texts.texts))
            columns["text"] = [text for text, _ in pairs]
            columns["tokens"] = [tokens for _, tokens in pairs]
            columns["key"] = [
                window_keys(key, len(tokens))
                for key, (_, tokens) in zip(texts.keys, pairs, strict=True)
            ]
        if self.job.extras:
            rows = [extra_values(self.job.extras, row) for row in texts.rows]
            for name, feature in self.job.extras:
                columns[name] = [checked(name, feature, row[name]) for row in rows]
        return columns

    def _label(self, ids: int | list[int]) -> Any:
        return np.array(ids, np.int64) if isinstance(ids, list) else ids

    def _windows(self, text: bytes) -> tuple[list[bytes], list[np.ndarray]]:
        """The parts of a text, and the tokens of each."""
        ids, spans = self._tokenizer.encode_spans(text)
        bounds = window_bounds(len(ids), self.job.window, self.job.stride)
        parts = [slice_of(text, spans, start, stop) for start, stop in bounds]
        return parts, [ids[start:stop] for start, stop in bounds]


def _flattened(columns: dict[str, list[Any]], repeats: list[int]) -> dict[str, list[Any]]:
    """The columns of all windows: a list for each text is taken apart, other values repeated."""
    flat = {}
    for name, values in columns.items():
        if name in ("key", "text", "tokens"):
            flat[name] = list(chain.from_iterable(values))
        else:
            pairs = zip(values, repeats, strict=True)
            flat[name] = [value for value, times in pairs for _ in range(times)]
    return flat


@dataclass(frozen=True)
class TextDigests:
    """Task -> the digest of each text, by which equal ones are found.

    Attributes:
        job: What a record is.
        rules: Where records go: of equal texts, the first in the global order stays.
    """

    job: TextJob
    rules: SplitRules

    def digests(self, task: Task) -> tuple[str, tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """The id of some task, and of each of its texts that is not rejected:

        its number among all of them, int64 [n], its digest, uint8 [n, 16], and its place in the
        order, uint64 [n].
        """
        numbers = [np.empty(0, np.int64)]
        digests: list[bytes] = []
        orders = [np.empty(0, np.uint64)]
        first = 0
        for texts in _all_texts(self.job, task):
            _, errors = _placed(self.job, texts, self.rules)
            rows = np.delete(np.arange(len(texts.keys)), list(errors))
            good = texts.take(rows)
            numbers.append(rows + first)
            digests += [
                hashlib.blake2b(text, digest_size=_DIGEST_BYTES).digest() for text in good.texts
            ]
            orders.append(self.rules.placement.orders(good.keys))
            first += len(texts.keys)
        found = np.frombuffer(b"".join(digests), np.uint8).reshape(-1, _DIGEST_BYTES)
        return task.id, (np.concatenate(numbers), found, np.concatenate(orders))


@dataclass(frozen=True)
class TextSample:
    """Task -> texts of the training split, from which a tokenizer is learned.

    Attributes:
        job: What a record is.
        rules: Where records go.
        below: Those are taken whose place in the order is below it.
    """

    job: TextJob
    rules: SplitRules
    below: int

    def sample(self, task: Task) -> Sample:
        """Those of some task."""
        found = Sample(len(task.chunks))
        training = self.rules.placement.splits.training
        for texts, splits, _ in _kept(self.job, task, self.rules):
            orders = self.rules.placement.orders(texts.keys)
            chosen = (splits == training) & (orders < np.uint64(self.below))
            found.add(orders[chosen], list(compress(texts.texts, chosen.tolist())))
        return found
