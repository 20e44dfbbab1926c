"""Subword tokens of Hugging Face's `tokenizers`, read from a file or trained on texts."""

from __future__ import annotations

import contextlib
import functools
import itertools
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from beam_jobs.errors import UsageError, reason_of
from beam_jobs.packages import require
from beam_jobs.storage.files import open_file
from readers.format.manifest import RESERVED_IDS, UNKNOWN

# The tokens of the reserved ids; the tokenizer's file needs a name for padding, too.
_RESERVED = ["[PAD]", UNKNOWN.decode()]

# Every byte has an id. The trainer allocates memory for all ids at once, and the process dies if
# there is too little; the largest vocabularies in use have 2 ** 18.
_SIZES = range(RESERVED_IDS + 256, (1 << 24) + 1)

# Eight times the size of the largest files in use.
_MAX_FILE_BYTES = 256 << 20

# A pair of tokens that occurs once is not typical of the language.
_MIN_FREQUENCY = 2

# Approximate bytes of words and their ids that a tokenizer remembers: about 300,000 words.
_REMEMBERED_BYTES = 32 << 20

# The memory for a word in addition to its characters and ids.
_WORD_BYTES = 130

# The longest word to remember, in characters. Texts with anything but single spaces are not cut.
_LONGEST_REMEMBERED = 100

# Words passed to the library at once; each takes half a kilobyte.
_WORDS_AT_ONCE = 1 << 13

# Training time grows with the square of a word's length: 0.5 s for 50,000 letters, 8 s for 200,000.
_MAX_WORD = 1000


@dataclass(frozen=True)
class Subwords:
    """Text -> token ids, by a Hugging Face tokenizer.

    Truncation, padding and dropout in the file are ignored: texts are cut here, and the same text
    always has the same ids.

    Attributes:
        json: The contents of the tokenizer's file, `tokenizer.json`.
        max_length: The most ids of a text that are kept, including special tokens; 0, as for windows, keeps all.
    """

    json: str = field(repr=False)
    max_length: int = 0

    @classmethod
    def read(cls, path: str, max_length: int = 0) -> Subwords:
        """The tokenizer in a file.

        Raises:
            UsageError: The file is not a tokenizer, or `max_length` leaves no room for its special
                tokens.
        """
        try:
            with open_file(path) as file:
                data = file.read(_MAX_FILE_BYTES + 1)
            if len(data) > _MAX_FILE_BYTES:
                raise UsageError(f"--tokens {path}: longer than {_MAX_FILE_BYTES >> 20} MiB")
            subwords = cls(data.decode(), max_length)
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"--tokens {path}: cannot be read ({reason_of(error)})") from None
        with _library_errors(
            f"--tokens {path}: expected a tokenizer.json of Hugging Face tokenizers"
        ):
            subwords._tokenizer  # noqa: B018  (build it now, to report a broken file at once)
        return subwords

    @functools.cached_property
    def _tokenizer(self) -> Any:
        tokenizers = require("tokenizers", "beam", "--tokens FILE.json")
        # Every core has its own process, so the library's threads gain nothing: two processes on two
        # cores take 60 µs for a text of 200 characters with and without them.
        os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
        tokenizer = tokenizers.Tokenizer.from_str(self.json)
        tokenizer.no_truncation()
        tokenizer.no_padding()
        if getattr(tokenizer.model, "dropout", None):
            tokenizer.model.dropout = None
        if self.max_length:
            special = tokenizer.num_special_tokens_to_add(False)
            if self.max_length < special:
                raise UsageError(
                    f"--max_length {self.max_length}: expected at least {special}, the special tokens "
                    "that the tokenizer adds to every text"
                )
            # Not `ids[:max_length]`: the library keeps the special tokens at the end, such as [SEP].
            tokenizer.enable_truncation(self.max_length)
        return tokenizer

    @functools.cached_property
    def _words(self) -> _Words | None:
        return _Words(self._tokenizer) if _has_words_apart(json.loads(self.json)) else None

    def __reduce__(self) -> tuple[type[Subwords], tuple[str, int]]:
        return Subwords, (self.json, self.max_length)

    @property
    def size(self) -> int:
        """One more than the largest id: the number of rows that an embedding needs."""
        return 1 + max(self._tokenizer.get_vocab().values(), default=-1)

    def encode_all(self, texts: Sequence[bytes]) -> list[np.ndarray]:
        """The ids of each text, int64 [n], as `tokenizers` returns them in `encode(text).ids`.

        They include the special tokens that the file adds to every text, such as [CLS] and [SEP]. A
        text that spells out a special token has its id there.

        Args:
            texts: In UTF-8.

        Raises:
            UsageError: The tokenizer fails on a text, for example if it has no unknown token.
        """
        with _library_errors("--tokens: the tokenizer fails on a text"):
            decoded = [text.decode() for text in texts]
            if self._words and (ids := self._words.encode_all(decoded, self.max_length)):
                return ids
            # A tenth faster than `encode_batch`, which also computes the spans of the tokens.
            encodings = self._tokenizer.encode_batch_fast(decoded)
        return [np.array(encoding.ids, np.int64) for encoding in encodings]

    def encode_spans(self, text: bytes) -> tuple[np.ndarray, np.ndarray]:
        """All ids of a text without added special tokens, int64 [n], and their spans, int64 [n, 2].

        Args:
            text: In UTF-8. Spans are positions of bytes in it, whatever the tokenizer's normalizer
                does.

        Raises:
            UsageError: The tokenizer fails on the text.
        """
        with _library_errors("--tokens: the tokenizer fails on a text"):
            encoding = self._tokenizer.encode(text.decode(), add_special_tokens=False)
        spans = np.array(encoding.offsets, np.int64).reshape(-1, 2)
        if not text.isascii():
            spans = _character_starts(text)[spans]
        return np.array(encoding.ids, np.int64), spans

    def count(self, text: bytes) -> int:
        """The number of ids that `encode_spans` returns.

        Raises:
            UsageError: The tokenizer fails on the text.
        """
        with _library_errors("--tokens: the tokenizer fails on a text"):
            return len(
                self._tokenizer.encode_batch_fast([text.decode()], add_special_tokens=False)[0]
            )


def _has_words_apart(file: dict[str, Any]) -> bool:
    """Whether the ids of a text are those of its words, if it has single spaces between them.

    The expression of `ByteLevel` cuts a text before each space that follows a letter, digit or mark, and
    no other part of such a tokenizer looks beyond a cut. A word here begins with the space before it.
    """
    cutter, after = file["pre_tokenizer"] or {}, file["post_processor"] or {"type": "ByteLevel"}
    added = file["added_tokens"]
    return (
        file["model"].get("type") == "BPE"
        and file["normalizer"] is None
        and cutter.get("type") == "ByteLevel"
        and not cutter["add_prefix_space"]
        and cutter.get("use_regex", True)
        and after["type"] == "ByteLevel"
        and not any(token["single_word"] or token["lstrip"] or token["rstrip"] for token in added)
        and all(token["content"].split() == [token["content"]] for token in added)
    )


class _Words:
    """Remembers the ids of words, because the library takes 3 µs to cut out a word and look it up.

    Args:
        tokenizer: A tokenizer of the library, for which `_has_words_apart`.
    """

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._ids: dict[str, bytes] = {}
        self._bytes = 0

    def encode_all(self, texts: list[str], max_length: int) -> list[np.ndarray] | None:
        """The first `max_length` ids of each text, int64 [n], 0 for all; None if hardly a word is repeated."""
        words = list(map(_words_of, texts))
        if self._bytes > _REMEMBERED_BYTES:
            self._ids, self._bytes = {}, 0
        new = set(itertools.chain.from_iterable(words)) - self._ids.keys()
        if 4 * len(new) > sum(map(len, words)) > _WORDS_AT_ONCE:
            return None  # The library is faster with whole texts.
        for word, ids in self._looked_up(list(new)):
            self._ids[word] = ids
            self._bytes += len(word) + len(ids) + _WORD_BYTES
        every = (b"".join(map(self._ids.__getitem__, some)) for some in words)
        joined = [np.frombuffer(ids, np.int64)[: max_length or None] for ids in every]
        for word in new:
            if len(word) > _LONGEST_REMEMBERED:
                self._bytes -= len(word) + len(self._ids.pop(word)) + _WORD_BYTES
        return joined

    def _looked_up(self, words: list[str]) -> Iterator[tuple[str, bytes]]:
        for start in range(0, len(words), _WORDS_AT_ONCE):
            some = words[start : start + _WORDS_AT_ONCE]
            encodings = self._tokenizer.encode_batch_fast(some, add_special_tokens=False)
            for word, encoding in zip(some, encodings, strict=True):
                yield word, np.array(encoding.ids, np.int64).tobytes()


def _words_of(text: str) -> list[str]:
    """The words of a text, all but the first with the space before them; the whole text if it has other spaces."""
    words = text.split()
    apart = " ".join(words)
    return apart.replace(" ", "\n ").split("\n") if apart == text else [text]


def _character_starts(text: bytes) -> np.ndarray:
    """The byte at which each character of a text in UTF-8 begins, and the text's length, int64."""
    continues = (np.frombuffer(text, np.uint8) & 0xC0) == 0x80
    return np.append(np.flatnonzero(~continues), len(text))


@contextlib.contextmanager
def _library_errors(failure: str) -> Iterator[None]:
    """Turns any error of the library into a UsageError."""
    os.environ["RUST_BACKTRACE"] = "0"  # A panic would print its own message.
    try:
        yield
    except (UsageError, KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # A panic in Rust is not an Exception.
        raise UsageError(f"{failure} ({error})") from None


def check_vocabulary_size(vocabulary_size: int) -> None:
    """Checks that a byte-pair vocabulary is large enough for all bytes and fits in memory.

    Raises:
        UsageError: The size is out of range.
    """
    if vocabulary_size not in _SIZES:
        raise UsageError(
            f"--vocabulary_size {vocabulary_size}: expected {_SIZES[0]} to {_SIZES[-1]} with --tokens "
            f"bpe, including {RESERVED_IDS} reserved ids and the 256 bytes"
        )


def train_bpe(texts: Iterable[bytes], vocabulary_size: int) -> str:
    """The contents of a `tokenizer.json` with byte pairs learned from texts in any order.

    Ids 0 and 1 are [PAD] and [UNK]; then come the 256 bytes, then the merges, most frequent first.

    Args:
        texts: In UTF-8.
        vocabulary_size: The maximum number of ids, after `check_vocabulary_size`; there are fewer if too few
            pairs occur twice.
    """
    tokenizers = require("tokenizers", "beam", "--tokens bpe")
    level = tokenizers.pre_tokenizers.ByteLevel
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE(unk_token=_RESERVED[1]))
    tokenizer.pre_tokenizer = level(add_prefix_space=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    # The trainer iterates over hash maps whose order differs from process to process, but the
    # result does not: counts are exact, ties go to the smaller ids, the alphabet is sorted, and a
    # pair is in the queue only once, because a merge removes all its occurrences. (With a
    # `continuing_subword_prefix`, tokens are numbered in the order of a map:
    # huggingface/tokenizers#2066.)
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=vocabulary_size,
        min_frequency=_MIN_FREQUENCY,
        special_tokens=_RESERVED,
        initial_alphabet=level.alphabet(),
        show_progress=False,
    )
    pieces = (piece for text in texts for piece in short_pieces(text.decode()))
    tokenizer.train_from_iterator(pieces, trainer)
    return str(tokenizer.to_str())


def short_pieces(text: str) -> Iterator[str]:
    """Yields a text in pieces that limit the length of a word, cut before a space if one is near."""
    start = 0
    while len(text) - start > _MAX_WORD:
        space = text.rfind(" ", start + 1, start + _MAX_WORD)
        end = space if space > 0 else start + _MAX_WORD
        yield text[start:end]
        start = end
    yield text[start:]
