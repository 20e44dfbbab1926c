"""The sample of texts from which a tokenizer is learned."""

import pickle

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from beam_jobs.errors import DataError
from beam_jobs.jobs.text import sample as module
from beam_jobs.jobs.text.sample import Sample, learn, sample_below, wanted_pieces
from beam_jobs.jobs.text.subwords import train_bpe

LIMIT = 20

# The text at each place in the order; some are larger than a sample, some have no bytes at all.
texts_by_order = st.dictionaries(st.integers(0, 2**64 - 1), st.binary(max_size=30))


def sampled(limit: int, texts: dict[int, bytes]) -> list[bytes]:
    """The texts of a sample of up to `limit` bytes, chosen one by one in their order."""
    found, size = [], 0
    for _, text in sorted(texts.items()):
        size += len(text)
        if found and size > limit:
            break
        found.append(text)
    return found


def sample_of(texts: dict[int, bytes]) -> Sample:
    sample = Sample()
    sample.add(np.array(list(texts), np.uint64), list(texts.values()))
    return sample


@given(texts_by_order, st.lists(st.integers(0, 5), max_size=40), st.booleans())
@settings(
    max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_a_sample_holds_the_first_texts_that_fit_however_it_is_merged(
    monkeypatch, texts, owners, travels
):
    monkeypatch.setattr(module, "_SAMPLE_BYTES", LIMIT)
    parts: dict[int, dict[int, bytes]] = {}
    for number, (order, text) in enumerate(texts.items()):
        owner = owners[number] if number < len(owners) else 0
        parts.setdefault(owner, {})[order] = text
    merged = Sample()
    for part in parts.values():
        found = sample_of(part)
        merged.merge(pickle.loads(pickle.dumps(found)) if travels else found)
    found = list(merged.texts())
    expected = sampled(LIMIT, texts)
    # If texts fill it to the last byte, empty texts may or may not follow.
    assert [text for text in found if text] == [text for text in expected if text]
    assert b"".join(found) == b"".join(expected)


def test_the_memory_of_a_sample_is_bounded(monkeypatch):
    monkeypatch.setattr(module, "_SAMPLE_BYTES", 1000)
    sample, rng = Sample(), np.random.default_rng(0)
    for _ in range(200):
        sample.add(rng.integers(2**64, size=20, dtype=np.uint64), [b"x" * 50] * 20)
        assert len(pickle.dumps(sample)) < 8000
    assert sum(map(len, sample.texts())) == 1000


@pytest.mark.parametrize(
    ("size", "share"),
    [(0, 1), (64 << 20, 1), (128 << 20, 1 / 2), (10**12, (64 << 20) / 1e12)],
)
def test_the_share_of_sampled_places_follows_from_the_size_of_all_files(size, share):
    below = sample_below(size)
    assert 0 < below < 2**64
    assert below / 2**64 == pytest.approx(share)


def test_a_tokenizer_is_learned_only_from_texts_in_the_sample(monkeypatch):
    texts = dict.fromkeys(range(4), b"alpha beta gamma")
    texts |= dict.fromkeys(range(100, 109), b"omega psi")
    assert learned_from(texts) == train_bpe(texts.values(), 270)
    monkeypatch.setattr(module, "_SAMPLE_BYTES", 4 * len(b"alpha beta gamma"))
    learned = learned_from(texts)
    assert learned == train_bpe([b"alpha beta gamma"] * 4, 270)
    assert not any("om" in token for token in Tokenizer.from_str(learned).get_vocab())


def learned_from(texts: dict[int, bytes]) -> str:
    pieces = list(sample_of(texts).pieces())
    wanted = wanted_pieces(piece.span for piece in pieces)
    return learn(pieces, wanted, [2, 1], [3], 270)


def test_lost_or_repeated_inputs_and_pieces_are_noticed():
    pieces = list(sample_of({1: b"a", 2: b"b" * 70_000}).pieces())
    wanted = wanted_pieces(piece.span for piece in pieces)
    with pytest.raises(DataError, match="inputs with training text: 2 of 3 arrived"):
        learn(pieces, wanted, [2], [3], 270)
    for wrong in (pieces[1:], [*pieces, pieces[0]]):
        with pytest.raises(DataError, match=r"bytes of training text: \d+ of 70001 arrived"):
            learn(wrong, wanted, [3], [3], 270)


@given(
    st.dictionaries(st.integers(0, 2**64 - 1), st.lists(st.binary(max_size=30), max_size=3)),
    st.integers(1, 4),
    st.randoms(),
)
@settings(
    max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_pieces_of_all_bundles_hold_the_sample_and_little_more(
    monkeypatch, records, bundles, random
):
    for name, value in {"_SAMPLE_BYTES": LIMIT, "_PART_BYTES": 7, "_ROW_BYTES": 1}.items():
        monkeypatch.setattr(module, name, value)
    whole, parts = Sample(), [Sample() for _ in range(bundles)]
    for order, fields in records.items():
        part = random.choice(parts)
        for field, text in enumerate(fields):
            for sample in (part, whole):
                sample.add(np.array([order], np.uint64), [text], field)
    pieces = [pickle.loads(pickle.dumps(piece)) for part in parts for piece in part.pieces()]
    assert all(piece.span.bytes <= 14 for piece in pieces)
    wanted = wanted_pieces(piece.span for piece in pieces)
    chosen = [piece for piece in pieces if piece.span.first <= wanted.last]
    random.shuffle(chosen)
    assert b"".join(Sample.of(chosen).texts()) == b"".join(whole.texts())
    longest = max((len(text) for fields in records.values() for text in fields), default=0)
    assert wanted.bytes <= LIMIT + 14 * bundles + 3 * longest
