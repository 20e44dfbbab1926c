"""Subword tokens: tokenizers of Hugging Face's `tokenizers`, from their files or trained on texts."""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from beam_jobs.errors import UsageError
from beam_jobs.packages import require
from beam_jobs.storage.files import open_file

_RESERVED = ("[PAD]", "[UNK]")

# All bytes have an id. The trainer takes room for the most ids at once, and the process dies where
# there is none; the largest vocabularies in use have 2 ** 18.
_SIZES = range(len(_RESERVED) + 256, (1 << 24) + 1)

# The files of the largest vocabularies in use are an eighth of it.
_MAX_FILE_BYTES = 256 << 20

# A pair of tokens that comes up once says nothing about the language.
_MIN_FREQUENCY = 2

# The trainer takes the square of a word's length: 0.5 s for 50,000 letters, 8 s for 200,000.
_MAX_WORD = 1000


@dataclass(frozen=True)
class Subwords:
    """Text -> token ids, by a tokenizer of Hugging Face.

    What the file says of truncation, padding and dropout is passed over: texts are cut here, and
    the same text always has the same ids.

    Attributes:
        json: The text of its file, `tokenizer.json`.
        max_length: How many ids of a text are kept, special tokens among them; 0 for all.
    """

    json: str = field(repr=False)
    max_length: int = 0

    @classmethod
    def read(cls, path: str, max_length: int = 0) -> Subwords:
        """The tokenizer of a file.

        Raises:
            UsageError: It is no tokenizer, or leaves no room for its special tokens.
        """
        try:
            with open_file(path) as file:
                data = file.read(_MAX_FILE_BYTES + 1)
            if len(data) > _MAX_FILE_BYTES:
                raise UsageError(f"--tokens {path}: longer than {_MAX_FILE_BYTES >> 20} MiB")
            subwords = cls(data.decode(), max_length)
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"--tokens {path}: cannot be read ({error})") from None
        with _named(f"--tokens {path}: expected a tokenizer.json of Hugging Face tokenizers"):
            subwords._cut  # noqa: B018  (build it now: a broken file is a mistake to name at once)
        return subwords

    def _build(self) -> Any:
        tokenizers = require("tokenizers", "tokens", "--tokens FILE.json")
        # There is a process for each core. Threads in each, which the library starts otherwise, bring
        # nothing: on two cores, two processes take 60 us a text of 200 characters with and without.
        os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
        tokenizer = tokenizers.Tokenizer.from_str(self.json)
        tokenizer.no_truncation()
        tokenizer.no_padding()
        if getattr(tokenizer.model, "dropout", None):
            tokenizer.model.dropout = None
        return tokenizer

    @functools.cached_property
    def _whole(self) -> Any:
        return self._build()

    @functools.cached_property
    def _cut(self) -> Any:
        # Not `ids[:max_length]`: the library keeps the special tokens at the end, such as [SEP].
        if not self.max_length:
            return self._whole
        tokenizer = self._build()
        special = tokenizer.num_special_tokens_to_add(False)
        if self.max_length < special:
            raise UsageError(
                f"--max_length {self.max_length}: expected at least {special}, the special tokens "
                "that the tokenizer adds to every text"
            )
        tokenizer.enable_truncation(self.max_length)
        return tokenizer

    def __getstate__(self) -> tuple[str, int]:
        return self.json, self.max_length

    def __setstate__(self, state: tuple[str, int]) -> None:
        self.__dict__.update(json=state[0], max_length=state[1])

    @property
    def size(self) -> int:
        """One more than the largest id: the rows that an embedding needs."""
        return 1 + max(self._whole.get_vocab().values(), default=-1)

    def __call__(self, text: bytes) -> np.ndarray:
        """As `encode_all`, of one text."""
        return self.encode_all([text])[0]

    def encode_all(self, texts: Sequence[bytes]) -> list[np.ndarray]:
        """The ids of each text, int64 [n]: `tokenizer.encode(text).ids` of the library.

        So the special tokens that the file adds to every text are among them, such as [CLS] and
        [SEP], and a text that spells one has its id there.

        Args:
            texts: In UTF-8.

        Raises:
            UsageError: The tokenizer fails at a text, for want of an unknown token for example.
        """
        with _named("--tokens: the tokenizer fails at a text"):
            # A tenth faster than `encode_batch`, which finds out where the tokens stand as well.
            encodings = self._cut.encode_batch_fast([text.decode() for text in texts])
        return [np.array(encoding.ids, np.int64) for encoding in encodings]

    def encode_spans(self, text: bytes) -> tuple[np.ndarray, np.ndarray]:
        """All ids of a text without added special tokens, int64 [n], and their spans, int64 [n, 2].

        Args:
            text: In UTF-8; spans are bytes of it, as it was before the tokenizer's normalizer.

        Raises:
            UsageError: As `encode_all`.
        """
        with _named("--tokens: the tokenizer fails at a text"):
            encoding = self._whole.encode(text.decode(), add_special_tokens=False)
        spans = np.array(encoding.offsets, np.int64).reshape(-1, 2)
        if not text.isascii():
            spans = _character_starts(text)[spans]
        return np.array(encoding.ids, np.int64), spans

    def count(self, text: bytes) -> int:
        """How many ids `encode_spans` gives.

        Raises:
            UsageError: As `encode_all`.
        """
        with _named("--tokens: the tokenizer fails at a text"):
            return len(self._whole.encode_batch_fast([text.decode()], add_special_tokens=False)[0])


def _character_starts(text: bytes) -> np.ndarray:
    """Where each character of a text begins in UTF-8, and its length at the end, int64."""
    continues = (np.frombuffer(text, np.uint8) & 0xC0) == 0x80
    return np.append(np.flatnonzero(~continues), len(text))


@contextlib.contextmanager
def _named(failure: str) -> Iterator[None]:
    """Turns whatever the library raises into a UsageError."""
    try:
        yield
    except (UsageError, KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # A panic of Rust is no Exception.
        raise UsageError(f"{failure} ({error})") from None


def check_vocabulary_size(vocabulary_size: int) -> None:
    """Refuses a vocabulary of byte pairs that has no room for all bytes, or that memory has none for.

    Raises:
        UsageError: It is one.
    """
    if vocabulary_size not in _SIZES:
        raise UsageError(
            f"--vocabulary_size {vocabulary_size}: expected {_SIZES[0]} to {_SIZES[-1]} with --tokens "
            f"bpe, {len(_RESERVED)} reserved ids and the 256 bytes among them"
        )


def train_bpe(texts: Iterable[bytes], vocabulary_size: int) -> str:
    """The text of a `tokenizer.json`: byte pairs, learned from texts in any order.

    Ids 0 and 1 are [PAD] and [UNK], then come the 256 bytes, then merges, most frequent first.

    Args:
        texts: In UTF-8.
        vocabulary_size: How many ids at most; there are fewer where too few pairs come up twice.

    Raises:
        UsageError: As `check_vocabulary_size`.
    """
    check_vocabulary_size(vocabulary_size)
    tokenizers = require("tokenizers", "tokens", "--tokens bpe")
    level = tokenizers.pre_tokenizers.ByteLevel
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE(unk_token=_RESERVED[1]))
    tokenizer.pre_tokenizer = level(add_prefix_space=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    # The trainer walks hash maps whose order differs in every process. What it learns does not:
    # counts are exact, ties go to the smaller ids, the alphabet is sorted, and a pair is in the
    # queue once, as a merge leaves none of its own behind. (A `continuing_subword_prefix` would
    # number tokens in the order of a map: huggingface/tokenizers#2066.)
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=vocabulary_size,
        min_frequency=_MIN_FREQUENCY,
        special_tokens=list(_RESERVED),
        initial_alphabet=level.alphabet(),
        show_progress=False,
    )
    pieces = (piece for text in texts for piece in _pieces(text.decode()))
    tokenizer.train_from_iterator(pieces, trainer)
    found: str = tokenizer.to_str()
    return found


def _pieces(text: str) -> Iterator[str]:
    """Yields a text in pieces that bound the length of a word, cut before a space if one is near."""
    start = 0
    while len(text) - start > _MAX_WORD:
        space = text.rfind(" ", start + 1, start + _MAX_WORD)
        end = space if space > 0 else start + _MAX_WORD
        yield text[start:end]
        start = end
    yield text[start:]
