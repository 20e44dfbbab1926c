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

from beam_jobs.jobs.text.tokens import (
    Tokenizer,
    most_frequent,
    pack_counts,
    rank_words,
    unpack_counts,
    vocabulary_file,
    words,
)
from beam_jobs.pipeline.text_steps import BuildVocabulary, CountWordsFn
from beam_jobs.plan.summary import Summary
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
    count = CountWordsFn(size - 2)
    parts: dict[int, list[Counter[bytes]]] = {}
    for partition, packed in pack_counts(counted):
        parts.setdefault(partition, []).append(count.add_input(count.create_accumulator(), packed))
    ranked = [count.extract_output(count.merge_accumulators(found)) for found in parts.values()]
    return rank_words(None, Summary([], words=counted.total()), ranked, size)


def counts_of(given_texts: list[str]) -> Counter[bytes]:
    return Counter(word for text in given_texts for word in words(text.encode()))


@given(texts)
@settings(max_examples=150, deadline=None)
@example(" ".join(NASTY))
def test_words_equal_those_of_text_vectorization(text):
    layer = keras.layers.TextVectorization(max_tokens=10)
    standardised = tf.strings.regex_replace(
        tf.strings.lower(tf.constant([text])), r'[!"#$%&()\*\+,-\./:;<=>?@\[\\\]^_`{|}~\']', ""
    )
    assert words(text.encode()) == tf.strings.split(standardised)[0].numpy().tolist()
    assert layer._standardize == "lower_and_strip_punctuation"


@given(st.lists(texts, min_size=1, max_size=8), st.integers(3, 12))
@settings(max_examples=25, deadline=None)
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
    found = [tokenizer(text.encode()).tolist() for text in unseen]
    expected = layer(tf.constant(unseen)).numpy()
    longest = expected.shape[1]
    assert [ids + [0] * (longest - len(ids)) for ids in found] == expected.tolist()


@pytest.mark.parametrize("size", [5, 10, 50, 1000])
def test_ties_are_broken_as_in_keras(size):
    many = [f"w{i}" for i in range(200)] + ["é", "Z", "zz", "0"]
    layer = keras.layers.TextVectorization(max_tokens=size)
    layer.adapt(tf.constant([" ".join(many)]))
    found = vocabulary(counts_of([" ".join(many)]), size)
    assert [word.decode() for word in found] == layer.get_vocabulary()


@pytest.mark.parametrize("size", [3, 17, 1000])
def test_a_written_vocabulary_loads_in_keras_and_gives_the_same_ids(tmp_path, size):
    learned = vocabulary(counts_of(NASTY), size)
    path = tmp_path / "vocabulary.txt"
    path.write_bytes(vocabulary_file(learned))
    tokenizer = Tokenizer("words", learned, 0)
    layer = keras.layers.TextVectorization(vocabulary=str(path))
    assert layer.get_vocabulary() == [word.decode() for word in learned]
    for text in NASTY:
        assert layer(text).numpy().tolist() == tokenizer(text.encode()).tolist()


def test_reserved_words_in_a_text_keep_their_ids():
    counted = Counter({PADDING: 9, UNKNOWN: 9, b"a": 1})
    assert most_frequent(counted.items(), 5) == [(1, b"a")]
    assert words(b"[UNK]") == [b"unk"]


@given(st.dictionaries(st.sampled_from(words(" ".join(NASTY).encode())), st.integers(1, 2**40)))
@settings(max_examples=50, deadline=None)
def test_packed_counts_hold_every_word_once_in_its_partition(counted):
    packed = list(pack_counts(Counter(counted)))
    unpacked = [unpack_counts(item) for _, item in packed]
    assert sum(unpacked, Counter()) == Counter(counted)
    assert sum(map(len, unpacked)) == len(counted)
    again = dict(pack_counts(Counter(dict(reversed(list(counted.items()))))))
    assert sorted(again) == sorted(partition for partition, _ in packed)
    for partition, item in packed:
        assert unpack_counts(again[partition]) == unpack_counts(item)


@pytest.mark.parametrize("size", [3, 9, 1000])
def test_the_transform_merges_counts_of_all_bundles(size):
    counted = counts_of([*NASTY, "a a b"])
    parts = [*pack_counts(counts_of(NASTY[:3])), *pack_counts(counts_of([*NASTY[3:], "a a b"]))]
    options = PipelineOptions(["--allow_unsafe_triggers"])
    with test_pipeline.TestPipeline(options=options) as pipeline:
        summary = pipeline | "Summary" >> beam.Create([Summary([], words=counted.total())])
        found = (pipeline | beam.Create(parts), summary) | BuildVocabulary(size)
        assert_that(found, equal_to([vocabulary(counted, size)]))


def test_without_words_the_vocabulary_has_the_reserved_ones():
    options = PipelineOptions(["--allow_unsafe_triggers"])
    with test_pipeline.TestPipeline(options=options) as pipeline:
        summary = pipeline | "Summary" >> beam.Create([Summary([])])
        found = (pipeline | beam.Create([]), summary) | BuildVocabulary(100)
        assert_that(found, equal_to([(PADDING, UNKNOWN)]))


def test_a_text_is_cut_to_max_length():
    tokenizer = Tokenizer("words", (PADDING, UNKNOWN, b"b", b"a"), 3)
    assert tokenizer(b"a! X, b a a").tolist() == [3, 1, 2]
    assert tokenizer(b"").tolist() == []
    assert tokenizer(b"").dtype == np.int64


@given(unicode_texts, st.integers(0, 20))
@settings(max_examples=100, deadline=None)
def test_byte_tokens_are_the_bytes_of_utf8_after_the_reserved_ids(text, max_length):
    ids = Tokenizer("bytes", (), max_length)(text.encode())
    octets = text.encode()[: max_length or None]
    assert ids.dtype == np.int64
    assert bytes((ids - RESERVED_IDS).astype(np.uint8)) == octets
    assert all(RESERVED_IDS <= id_ < RESERVED_IDS + 256 for id_ in ids.tolist())
