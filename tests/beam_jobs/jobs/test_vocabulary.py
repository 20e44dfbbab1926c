"""Words, their vocabulary and their ids, against those of Keras."""

from collections import Counter

import apache_beam as beam
import keras
import numpy as np
import pytest
import tensorflow as tf
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.testing import test_pipeline
from apache_beam.testing.util import assert_that, equal_to
from hypothesis import example, given, settings
from hypothesis import strategies as st

from beam_jobs.errors import DataError
from beam_jobs.jobs.text import tokens
from beam_jobs.jobs.text.tokens import (
    Tokenizer,
    WordCounts,
    frequent_words,
    marks,
    rank_words,
    smallest_wanted,
    words,
)
from beam_jobs.pipeline.planning.learn_tokens import build_vocabulary
from beam_jobs.pipeline.steps import AsMerged
from beam_jobs.plan.summary import Summary
from beam_jobs.records.pieces import merged
from readers.format.manifest import PADDING, RESERVED_IDS, UNKNOWN

# Texts that TensorFlow can take: no half surrogate pairs.
unicode_texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
ascii_texts = st.text(st.characters(max_codepoint=127), max_size=40)
# Few letters: many words come up equally often.
tied_texts = st.text("abAB \t.,'é-", max_size=40)
texts = st.one_of(unicode_texts, ascii_texts, tied_texts)

NASTY = [
    'It\'s a well-known fact: 100% of U.S. e-mails ~ [UNK] `x` {y} \\ /path|to^ <b>"q"</b>',
    "Ünïcödé İSTANBUL Straße ΣΑΣ ǅ",
    "no\u00a0break em\u2003space line\u2028sep next\u0085line \x1cfs \x1fus zero\u200bwidth",
    "tab\tnew\nline\r\nvertical\x0bform\x0cfeed nul\x00inside \x7f",
    "“curly” — dash … ¿qué? 日本語 한국어 🎉🎉 a🎉b",
    "unk [unk] UNK [UNK]",
    "... !!! '",
    "",
]


def vocabulary(counted: Counter[bytes], size: int) -> tuple[bytes, ...]:
    """The vocabulary that the pipeline builds, without a pipeline."""
    pieces = [piece for _, piece in WordCounts(counted).pieces()]
    found = [mark for piece in pieces for mark in marks(piece)]
    smallest = smallest_wanted(found, size - RESERVED_IDS)
    frequent = [frequent_words(piece, smallest) for piece in pieces]
    return rank_words(summary_of(counted), frequent, size)


def summary_of(counted: Counter[bytes]) -> Summary:
    return Summary([], learned=WordCounts(counted).contents())


def counts_of(given_texts: list[str]) -> Counter[bytes]:
    return Counter(word for text in given_texts for word in words(text.encode()))


@given(texts)
@settings(max_examples=20, deadline=None)
@example(" ".join(NASTY))
def test_words_equal_those_of_text_vectorization(text):
    layer = keras.layers.TextVectorization(max_tokens=10)
    standardised = tf.strings.regex_replace(
        tf.strings.lower(tf.constant([text])), r'[!"#$%&()\*\+,-\./:;<=>?@\[\\\]^_`{|}~\']', ""
    )
    assert words(text.encode()) == tf.strings.split(standardised)[0].numpy().tolist()
    assert layer._standardize == "lower_and_strip_punctuation"


@given(st.lists(texts, min_size=1, max_size=8), st.integers(3, 12))
@settings(max_examples=10, deadline=None)
@example(NASTY, 12)
@example(NASTY, 100)
@example(["b a c", "d d", "A b"], 5)
def test_vocabulary_and_ids_equal_those_of_text_vectorization(given_texts, size):
    # Keras refuses to adapt to no words at all, and sorts words with NumPy, which drops a NUL at
    # their end.
    given_texts = ["w", *(text.replace("\0", "") for text in given_texts)]
    layer = keras.layers.TextVectorization(max_tokens=size)
    layer.adapt(tf.constant(given_texts))
    learned = vocabulary(counts_of(given_texts), size)
    theirs = [word.encode() for word in layer.get_vocabulary()]
    assert list(learned) == theirs
    unseen = [*given_texts, "never seen before w"]
    tokenizer = Tokenizer("words", learned, 0)
    found = [ids.tolist() for ids in tokenizer.encode_all([text.encode() for text in unseen])]
    expected = layer(tf.constant(unseen)).numpy()
    longest = expected.shape[1]
    assert [ids + [0] * (longest - len(ids)) for ids in found] == expected.tolist()


def test_reserved_words_in_a_text_keep_their_ids():
    counted = Counter({PADDING: 9, UNKNOWN: 9, b"a": 1})
    assert vocabulary(counted, 7) == (PADDING, UNKNOWN, b"a")
    assert words(b"[UNK]") == [b"unk"]


counts = st.dictionaries(st.sampled_from(words(" ".join(NASTY).encode())), st.integers(1, 2**40))


@given(counts)
@settings(max_examples=25, deadline=None)
def test_pieces_hold_every_word_once_in_its_part(counted):
    pieces = list(WordCounts(counted).pieces())
    assert merged((piece for _, piece in pieces), WordCounts).counts == Counter(counted)
    assert sum(len(piece.counts) for _, piece in pieces) == len(counted)
    part_of = {word: part for part, piece in pieces for word in piece.counts}
    for word in counted:
        ((part, _),) = WordCounts({word: 1}).pieces()
        assert part == part_of[word]


@given(counts, st.integers(1, 60), st.integers(1, 5))
@settings(max_examples=60, deadline=None)
def test_few_words_are_ranked_but_all_that_may_be_in_the_vocabulary(counted, size, parts):
    pieces = [WordCounts(dict(list(counted.items())[n::parts])) for n in range(parts)]
    found = [mark for piece in pieces for mark in marks(piece)]
    smallest = smallest_wanted(found, size)
    chosen = [pair for piece in pieces for pair in frequent_words(piece, smallest).frequent]
    every = sorted(((n, word) for word, n in counted.items()), reverse=True)
    assert sorted(chosen, reverse=True)[:size] == every[:size]
    assert len(chosen) <= 2 * size + 2 * parts
    assert sum(more for _, more in found) == len(every)


def test_the_transform_merges_counts_of_all_bundles(monkeypatch):
    monkeypatch.setattr(tokens, "_WORDS_HELD", 1)
    texts = [*NASTY, "a a b"]
    parts = [WordCounts(counts_of(texts[:3])), WordCounts(counts_of(texts[3:]))]
    every = counts_of(texts)
    assert merged(parts, WordCounts).counts == every
    options = PipelineOptions(["--allow_unsafe_triggers"])
    with test_pipeline.TestPipeline(options=options) as pipeline:
        counted = pipeline | "Summary" >> beam.Create([summary_of(every)])
        summary = AsMerged(counted, "Merge", lambda: Summary([]))
        built = build_vocabulary(pipeline | beam.Create(parts), 9, summary)
        assert_that(built, equal_to([vocabulary(every, 9)]))


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda found: found[1:], "counted for the vocabulary"),
        (lambda found: [*found, found[0]], "counted for the vocabulary"),
        (lambda found: [found[1], found[1], *found[2:]], "counted for the vocabulary"),
        (
            lambda found: [found[0]._replace(frequent=[]), *found[1:]],
            "ranked for the vocabulary: 2 of 3",
        ),
    ],
)
def test_words_that_a_runner_lost_or_repeated_are_noticed(change, problem):
    pieces = [WordCounts(counts_of([text])) for text in ("a a", "b b", "c")]
    found = [frequent_words(piece, (0, b"")) for piece in pieces]
    summary = summary_of(counts_of(["a a b b c"]))
    assert len(rank_words(summary, found, 5)) == 5
    with pytest.raises(DataError, match=f"lost or repeated words that were {problem}"):
        rank_words(summary, change(found), 5)


def test_without_words_the_vocabulary_has_the_reserved_ones():
    assert vocabulary(Counter(), 100) == (PADDING, UNKNOWN)


def test_a_text_is_cut_to_max_length():
    tokenizer = Tokenizer("words", (PADDING, UNKNOWN, b"b", b"a"), 3)
    found, empty = tokenizer.encode_all([b"a! X, b a a", b""])
    assert found.tolist() == [3, 1, 2]
    assert empty.tolist() == []
    assert empty.dtype == np.int64


@given(unicode_texts, st.integers(0, 20))
@settings(max_examples=40, deadline=None)
def test_byte_tokens_are_the_bytes_of_utf8_after_the_reserved_ids(text, max_length):
    (ids,) = Tokenizer("bytes", (), max_length).encode_all([text.encode()])
    octets = text.encode()[: max_length or None]
    assert ids.dtype == np.int64
    assert bytes((ids - RESERVED_IDS).astype(np.uint8)) == octets
    assert all(RESERVED_IDS <= id_ < RESERVED_IDS + 256 for id_ in ids.tolist())
