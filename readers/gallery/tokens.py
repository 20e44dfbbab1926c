"""The texts of token ids, from the vocabulary of a dataset.

A `tokenizer.json` is read as the JSON that it is, so no library is needed, and none runs what a dataset says.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from readers.files.remote import read_file
from readers.format.manifest import (
    RESERVED_IDS,
    TOKENIZER,
    UNKNOWN,
    UNKNOWN_ID,
    VOCABULARY,
    Manifest,
    join,
)

# What is raised where a file holds something else than expected; infinity is a number of JSON.
_DAMAGED = (ValueError, TypeError, LookupError, AttributeError, OverflowError, RecursionError)

_PUNCTUATION = rb"""!"#$%&()*+,-./:;<=>?@[\]^_`{|}~'"""


@dataclass(frozen=True)
class Token:
    """A token of a text.

    Attributes:
        text: What it stands for, with the space before it if it has one.
        is_unknown: Whether it stands for all that the vocabulary lacks.
    """

    text: str
    is_unknown: bool = False


@dataclass(frozen=True)
class Vocabulary:
    """The texts of the ids of a dataset.

    Attributes:
        kind: `words`, `bytes`, `subwords`, or empty if only numbers are known.
        texts: Id -> the bytes that it stands for, of words and subwords.
        unknown: The id of whatever the vocabulary lacks; -1 without one.
    """

    kind: str = ""
    texts: Mapping[int, bytes] | None = None
    unknown: int = -1

    def tokens(self, ids: np.ndarray, text: bytes) -> list[Token]:
        """The tokens of some ids.

        Args:
            ids: The first ids of a text, integers [n].
            text: The text, or its beginning, in which unknown words are looked up.
        """
        if self.kind == "bytes":
            octets = (
                bytes([id_]) if 0 <= id_ < 256 else b"" for id_ in (ids - RESERVED_IDS).tolist()
            )
            return [Token(octet.decode("ascii", "backslashreplace")) for octet in octets]
        found = [self._token(id_) for id_ in ids.tolist()]
        return _with_words(found, text) if self.kind == "words" else found

    def _token(self, id_: int) -> Token:
        data = (self.texts or {}).get(id_)
        if data is None:
            return Token(f" {id_}", id_ == self.unknown)
        space = b" " if self.kind == "words" else b""
        return Token((space + data).decode("utf-8", "backslashreplace"), id_ == self.unknown)


def vocabulary_of(directory: str, manifest: Manifest) -> Vocabulary:
    """The vocabulary of a dataset; one that knows numbers alone if it has none, or a damaged one.

    Args:
        directory: The dataset's directory.
        manifest: Its manifest.

    Raises:
        StoreError: (an OSError) A store still fails after several retries.
    """
    if manifest.options.get("tokens") == "bytes":
        return Vocabulary("bytes")
    try:
        if manifest.vocabulary:
            words = read_file(join(directory, VOCABULARY)).split(b"\n")
            texts = dict(enumerate(words, RESERVED_IDS)) | {0: b"[PAD]", UNKNOWN_ID: UNKNOWN}
            return Vocabulary("words", texts, UNKNOWN_ID)
        if manifest.tokenizer:
            return _of_tokenizer(json.loads(read_file(join(directory, TOKENIZER))))
    except (FileNotFoundError, *_DAMAGED):
        pass
    return Vocabulary()


def _of_tokenizer(file: Any) -> Vocabulary:
    """The vocabulary in a `tokenizer.json` of Hugging Face: BPE, WordPiece, WordLevel or Unigram."""
    model, added = file["model"], file.get("added_tokens") or []
    if isinstance(model["vocab"], list):
        ids = {str(token): number for number, (token, _) in enumerate(model["vocab"])}
        unknown = model.get("unk_id")
    else:
        ids = dict(model["vocab"])
        unknown = ids.get(model.get("unk_token"))
    special = {int(token["id"]): str(token["content"]) for token in added}
    spelled = _spelling(file)
    texts = {int(number): spelled(str(token)) for token, number in ids.items()}
    texts |= {number: token.encode("utf-8", "replace") for number, token in special.items()}
    return Vocabulary("subwords", texts, -1 if unknown is None else int(unknown))


def _spelling(file: Mapping[str, Any]) -> Any:
    """The function from a token, as a tokenizer's file spells it, to its bytes."""
    if _has(file, "ByteLevel"):
        octets = _octets_of_characters()

        def of_characters(token: str) -> bytes:
            if all(character in octets for character in token):
                return bytes(octets[character] for character in token)
            return token.encode("utf-8", "replace")

        return of_characters
    if _has(file, "WordPiece"):
        return lambda token: (token[2:] if token.startswith("##") else f" {token}").encode(
            "utf-8", "replace"
        )
    return lambda token: token.replace("\u2581", " ").encode("utf-8", "replace")


def _has(file: Mapping[str, Any], kind: str) -> bool:
    """Whether a part of a tokenizer, or one of a sequence of parts, is of a kind."""
    parts: list[Any] = [file.get("decoder"), file.get("pre_tokenizer")]
    for part in list(parts):
        if isinstance(part, Mapping):
            parts += [*(part.get("decoders") or []), *(part.get("pretokenizers") or [])]
    return any(isinstance(part, Mapping) and part.get("type") == kind for part in parts)


@functools.cache
def _octets_of_characters() -> dict[str, int]:
    """The byte of each character by which GPT-2 writes bytes: those that print stand for themselves."""
    printed = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [octet for octet in range(256) if octet not in printed]
    return {chr(octet): octet for octet in printed} | {
        chr(256 + place): octet for place, octet in enumerate(others)
    }


def _with_words(tokens: Sequence[Token], text: bytes) -> list[Token]:
    """Tokens with the words of the text in place of those of the vocabulary, where they are the same."""
    words = [word for word in text.split() if word.translate(None, _PUNCTUATION)]
    found = []
    for token, word in zip(tokens, words, strict=False):
        plain = word.lower().translate(None, _PUNCTUATION).decode("utf-8", "backslashreplace")
        if not token.is_unknown and token.text != f" {plain}":
            return list(tokens)
        found.append(Token(f" {word.decode('utf-8', 'backslashreplace')}", token.is_unknown))
    return [*found, *tokens[len(found) :]]
