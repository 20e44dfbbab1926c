"""Texts -> token ids, as the text job makes them: for new texts at inference time."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from readers.files.remote import open_file, path_text
from readers.format.decode.column import object_array
from readers.format.manifest import (
    PUNCTUATION,
    RESERVED_IDS,
    TOKENIZER,
    UNKNOWN_ID,
    VOCABULARY,
    DatasetError,
    Manifest,
    join,
)
from readers.transforms.operations import is_tensor

_BYTES = 256


class Vectorizer:
    """Converts text to token ids with a dataset's vocabulary, as the job that wrote it did.

    For TensorFlow's tensors, and in saved models, Keras' `TextVectorization(vocabulary=)` with the
    path of the dataset's `vocabulary.txt` gives the same ids of words.

    Args:
        directory: A dataset written by the text job with `--tokens words` or `--tokens bytes`.
        length: The number of ids per text: longer texts are truncated, shorter ones padded with 0.
            None keeps all ids.

    Attributes:
        size: The number of ids: 0 for padding, 1 for unknown tokens, and one for each token.

    Raises:
        ValueError: The dataset has no tokens, or `length` is not at least 1.
        DatasetError: (a ValueError) There is no manifest, or the vocabulary does not match it.
        FileNotFoundError: The vocabulary is missing.

    Example:
        >>> vectorizer = Vectorizer("shards/reviews", length=100)
        >>> vectorizer(["a nice place"]).shape
        (1, 100)
    """

    size: int

    def __init__(self, directory: str | os.PathLike[str], length: int | None = None) -> None:
        directory = path_text(directory)
        if length is not None and (type(length) is not int or length < 1):
            raise ValueError(f"length={length!r}: expected a number of ids of at least 1, or None")
        manifest = Manifest.read(directory)
        tokens, self._most = manifest.options.get("tokens"), _most(manifest.options)
        self._ids: dict[bytes, int] | None = None
        if tokens == "words":
            words = _words(join(directory, VOCABULARY), manifest)
            self._ids = {word: id_ for id_, word in enumerate(words, RESERVED_IDS)}
            self.size = RESERVED_IDS + len(words)
        elif tokens == "bytes":
            self.size = RESERVED_IDS + _BYTES
        elif manifest.tokenizer:
            raise ValueError(
                f"{directory}: it was tokenized by a tokenizer of another library: use "
                f"tokenizers.Tokenizer.from_file({join(directory, TOKENIZER)!r})"
            )
        else:
            raise ValueError(
                f"{directory}: it was written without tokens, so there is no vocabulary: run the "
                "text job with --tokens words or --tokens bytes"
            )
        self._length = length

    def __call__(self, texts: np.ndarray | Sequence[bytes | str]) -> np.ndarray:
        """The token ids of texts: int64 [B, length].

        Without `length`, they are an object array [B] of int64 arrays.

        Args:
            texts: [B], an array or a list of texts, bytes in UTF-8 or str.

        Raises:
            ValueError: `texts` is not a batch of texts, or a tensor of TensorFlow.
        """
        if is_tensor(texts):
            raise ValueError(
                "expected an array or a list of texts, found a tensor of TensorFlow: use "
                f"keras.layers.TextVectorization(vocabulary='.../{VOCABULARY}'), or texts.numpy()"
            )
        batch = np.asarray(texts, object)
        if batch.ndim != 1:
            raise ValueError(f"expected a batch of texts [B], found the shape {batch.shape}")
        rows = [self._ids_of(text.encode() if isinstance(text, str) else text) for text in batch]
        if self._length is None:
            return object_array(rows)
        out = np.zeros((len(rows), self._length), np.int64)
        for row, ids in zip(out, rows, strict=True):
            row[: len(ids)] = ids[: self._length]
        return out

    def _ids_of(self, text: bytes) -> np.ndarray:
        if self._ids is None:
            return np.frombuffer(text, np.uint8)[: self._most].astype(np.int64) + RESERVED_IDS
        words = text.lower().translate(None, PUNCTUATION).split()[: self._most]
        return np.array([self._ids.get(word, UNKNOWN_ID) for word in words], np.int64)


def _most(options: dict[str, Any]) -> int | None:
    """The number of tokens per text that the job kept; None for all."""
    found = options.get("max_length")
    return found if type(found) is int and found > 0 else None


def _words(path: str, manifest: Manifest) -> list[bytes]:
    """The words of a vocabulary, from id 2 on."""
    tokens = manifest.vocabulary
    try:
        with open_file(path) as file:
            content = file.read()
    except FileNotFoundError:
        raise FileNotFoundError(
            f"{path}: the manifest lists {tokens:,} tokens, but the file is missing"
        ) from None
    words = content.split(b"\n")
    if words.pop() or not tokens - RESERVED_IDS == len(words) == len(set(words)):
        raise DatasetError(
            f"{path}: expected {tokens - RESERVED_IDS:,} lines with a different word in each, found "
            f"{len(words):,} lines with {len(set(words)):,} different words; it is damaged or from "
            "another run of the job"
        )
    try:
        manifest.check_file(VOCABULARY, content)
    except ValueError as error:
        raise DatasetError(f"{path}: {error}") from None
    return words
