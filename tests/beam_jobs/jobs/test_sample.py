"""The sample of texts from which a tokenizer is learned."""

import pickle

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from beam_jobs.errors import DataError
from beam_jobs.jobs.text import sample as module
from beam_jobs.jobs.text.sample import Sample, bin_width, fitting, learn
from beam_jobs.jobs.text.subwords import train_bpe

LIMIT = 20
TEXTS = st.lists(st.tuples(st.integers(0, 255), st.binary(max_size=12)), max_size=40)


def expected_in(texts: list[tuple[int, bytes]], limit: int) -> list[tuple[int, bytes]]:
    """The texts of the first bins that have at most `limit` bytes, at least one bin with a text."""
    numbers = sorted({number for number, text in texts if text})
    last = numbers[0] if numbers else 0
    for number in range(256):
        if sum(len(text) for other, text in texts if other <= number) <= limit:
            last = max(last, number)
    return sorted((number, text) for number, text in texts if number <= last and text)


def sample_of(texts: list[tuple[int, bytes]], inputs: int = 0) -> Sample:
    sample = Sample(inputs)
    sample.add(np.array([number for number, _ in texts], np.int64), [text for _, text in texts])
    return sample


@given(TEXTS, st.lists(st.integers(0, 3), min_size=40, max_size=40))
@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_a_sample_has_the_first_bins_that_fit_however_it_is_merged(monkeypatch, texts, owners):
    monkeypatch.setattr(module, "_SAMPLE_BYTES", LIMIT)
    parts = [[t for t, owner in zip(texts, owners, strict=False) if owner == n] for n in range(4)]
    bundles = [pickle.loads(pickle.dumps(sample_of(part))) for part in parts]
    sizes = np.sum([bundle.sizes for bundle in bundles], axis=0)
    sent = [piece for bundle in bundles for piece in bundle.pieces() if piece[0] < fitting(sizes)]
    found = sorted((number, text) for number, some in sent for text in some if text)
    assert found == expected_in(texts, LIMIT)
    merged = Sample()
    for bundle in bundles:
        merged.merge(bundle)
    kept = sorted((number, text) for number, some in merged.pieces() for text in some if text)
    assert kept == found


def test_the_memory_of_a_sample_is_bounded(monkeypatch):
    monkeypatch.setattr(module, "_SAMPLE_BYTES", 1000)
    sample, rng = Sample(), np.random.default_rng(0)
    for _ in range(200):
        sample.add(rng.integers(256, size=20), [b"x" * 50] * 20)
        assert len(pickle.dumps(sample)) < 8000


@pytest.mark.parametrize(
    ("size", "share"),
    [(0, 1), (64 << 20, 1), (128 << 20, 1 / 2), (10**12, (64 << 20) / 1e12)],
)
def test_the_share_of_sampled_places_follows_from_the_size_of_all_files(size, share):
    width = bin_width(size)
    assert 0 < width <= 2**56
    assert width * 256 / 2**64 == pytest.approx(share)


def learned_from(texts: list[tuple[int, bytes]]) -> str:
    sample = sample_of(texts)
    return learn(sample.pieces(), sample.sizes, 3, [2, 1], 270)


def test_a_tokenizer_is_learned_only_from_texts_in_the_sample(monkeypatch):
    texts = [(0, b"alpha beta gamma")] * 4 + [(100, b"omega psi")] * 9
    assert learned_from(texts) == train_bpe([text for _, text in texts], 270)
    monkeypatch.setattr(module, "_SAMPLE_BYTES", 4 * len(b"alpha beta gamma"))
    learned = learned_from(texts)
    assert learned == train_bpe([b"alpha beta gamma"] * 4, 270)
    assert not any("om" in token for token in Tokenizer.from_str(learned).get_vocab())


def test_a_long_text_travels_in_parts_that_train_as_the_whole_does():
    words = " ".join(f"word{n % 97} {'x' * (n % 2000)}" for n in range(3000)).encode()
    pieces = list(sample_of([(0, words)]).pieces())
    assert max(sum(map(len, texts)) for _, texts in pieces) <= module.PIECE_BYTES
    assert b"".join(text for _, texts in pieces for text in texts) == words
    assert learned_from([(0, words)]) == train_bpe([words], 270)


def test_lost_or_repeated_inputs_and_pieces_are_noticed():
    sample = sample_of([(1, b"a"), (2, b"b" * 70_000)])
    pieces = list(sample.pieces())
    with pytest.raises(DataError, match="inputs with training text: 2 of 3 arrived"):
        learn(pieces, sample.sizes, 2, [3], 270)
    for wrong in (pieces[1:], [*pieces, pieces[0]]):
        with pytest.raises(DataError, match=r"bytes of training text: \d+ of 70001 arrived"):
            learn(wrong, sample.sizes, 3, [3], 270)
