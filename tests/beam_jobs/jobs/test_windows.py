"""Windows over tokens, and the parts of a text in them."""

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from beam_jobs.jobs.text.subwords import Subwords, train_bpe
from beam_jobs.jobs.text.tokens import Tokenizer, slice_of, window_bounds, words
from readers.format.manifest import UNKNOWN

# Characters of one to four bytes, ASCII and other whitespace, and punctuation.
texts = st.one_of(
    st.text("aB é日🎉\t\n\x0b\x0c\r\x1c\u00a0.,'_\0", max_size=40),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=30),
)

VOCABULARY = (b"", UNKNOWN, b"a", b"b", "é".encode(), b"aa", b"ab")
TOKENIZERS: dict[str, Tokenizer | Subwords] = {
    "words": Tokenizer("words", VOCABULARY, 0),
    "bytes": Tokenizer("bytes", (), 0),
    "subwords": Subwords(train_bpe([b"a ab B aB aa a ab"] * 2 + ["é日 é日".encode()], 265)),
}


def windows_one_by_one(tokens: int, window: int, stride: int) -> list[tuple[int, int]]:
    bounds, start = [(0, min(window, tokens))], 0
    while bounds[-1][1] < tokens:
        start += stride
        bounds.append((start, min(start + window, tokens)))
    return bounds


@given(st.integers(0, 300), st.integers(1, 40), st.data())
@settings(max_examples=60, deadline=None)
def test_windows_equal_those_of_a_naive_implementation(tokens, window, data):
    stride = data.draw(st.integers(1, window))
    found = window_bounds(tokens, window, stride)
    assert found == windows_one_by_one(tokens, window, stride)
    assert {token for bounds in found for token in range(*bounds)} == set(range(tokens))
    assert all(stop - start == window for start, stop in found[:-1])


@pytest.mark.parametrize("kind", TOKENIZERS)
@given(text=texts, data=st.data())
@settings(max_examples=40, deadline=None)
def test_spans_never_decrease_and_slices_are_whole_characters(kind, text, data):
    tokenizer, octets = TOKENIZERS[kind], text.encode()
    ids, spans = tokenizer.encode_spans(octets)
    assert ids.dtype == spans.dtype == np.int64
    assert spans.shape == (len(ids), 2)
    assert tokenizer.count(octets) == len(ids)
    assert ids.tolist() == tokenizer.encode_all([octets])[0].tolist()
    assert (spans[:, 0] < spans[:, 1]).all()
    assert (np.diff(spans, axis=0) >= 0).all()
    assert (spans >= 0).all() and (spans <= len(octets)).all()
    stop = data.draw(st.integers(0, len(ids)))
    start = data.draw(st.integers(0, stop))
    part = slice_of(octets, spans, start, stop)
    assert part.decode() in text
    if start < stop:
        first, end = spans[start, 0], spans[stop - 1, 1]
        assert octets[first:end] in part
        # Not wider than necessary: a character has at most three bytes more.
        assert len(part) - (end - first) <= 6
    else:
        assert part == b""


@pytest.mark.parametrize("kind", TOKENIZERS)
@given(batch=st.lists(texts, max_size=4))
@settings(max_examples=15, deadline=None)
def test_texts_encoded_together_have_the_same_ids_as_alone(kind, batch):
    octets = [text.encode() for text in batch]
    found = TOKENIZERS[kind].encode_all(octets)
    alone = [TOKENIZERS[kind].encode_all([text])[0] for text in octets]
    assert [ids.tolist() for ids in found] == [ids.tolist() for ids in alone]
    assert all(ids.dtype == np.int64 for ids in found)


@given(texts, st.integers(1, 5))
@settings(max_examples=40, deadline=None)
@example("!!! a-b ... 'c' -- é, \x1c. ,d", 1)
def test_a_slice_has_the_words_of_its_window(text, window):
    octets = text.encode()
    tokenizer = TOKENIZERS["words"]
    ids, spans = tokenizer.encode_spans(octets)
    assert [words(octets[start:end]) for start, end in spans.tolist()] == [
        [word] for word in words(octets)
    ]
    for start, stop in window_bounds(len(ids), window, window):
        assert words(slice_of(octets, spans, start, stop)) == words(octets)[start:stop]
    # Each span reaches from whitespace to whitespace.
    runs = octets.split()
    assert [octets[start:end] for start, end in spans.tolist()] == [
        run for run in runs if words(run)
    ]


def test_tokens_without_bytes_have_no_text():
    spans = np.array([[0, 1], [1, 1], [4, 4]])
    text = "a日".encode()
    assert slice_of(text, spans, 1, 2) == b""
    assert slice_of(text, spans, 2, 3) == b""
    assert slice_of(text, spans, 0, 3) == text
