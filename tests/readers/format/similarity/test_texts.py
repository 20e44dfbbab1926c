from __future__ import annotations

import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from readers.format.similarity import texts as module
from readers.format.similarity.likeness import Likeness
from readers.format.similarity.texts import SIGNATURE_SIZE, TEXT_SIMILARITY, text_signatures

FIRST = [54755, 36128, 35257, 32061]
ALL = 2070491483
TEXTS = Likeness("text", TEXT_SIMILARITY)


def words(seed, number):
    rng = np.random.default_rng(seed)
    return ["".join(map(chr, 97 + rng.integers(0, 26, rng.integers(2, 10)))) for _ in range(number)]


LEXICON = words(0, 3000)


def made_text(seed):
    return " ".join(np.random.default_rng(seed).choice(LEXICON, 32))


def edited(text, seed, edits):
    rng = np.random.default_rng(seed)
    found = text.split()
    for place in rng.choice(len(found), edits, replace=False):
        found[place] = str(rng.choice(LEXICON))
    return " ".join(found)


def jaccard(one, other):
    runs = [{text[i : i + 5] for i in range(len(text) - 4)} for text in (one, other)]
    return len(runs[0] & runs[1]) / len(runs[0] | runs[1])


def estimates(ones, others):
    one, other = text_signatures(ones)[0], text_signatures(others)[0]
    return (one == other).mean(axis=1)


def test_estimates_are_as_exact_as_independent_permutations_would_make_them():
    ones = [made_text(seed) for seed in range(600)]
    others = [edited(text, seed, 1 + seed % 12) for seed, text in enumerate(ones)]
    exact = np.array([jaccard(*pair) for pair in zip(ones, others, strict=True)])
    assert exact.min() < 0.4 and exact.max() > 0.9
    changed = exact < 1
    exact, errors = exact[changed], (estimates(ones, others) - exact)[changed]
    scaled = errors / np.sqrt(exact * (1 - exact) / SIGNATURE_SIZE)
    assert abs(scaled.mean()) < 0.15
    assert 0.9 < scaled.std() < 1.1
    assert abs(scaled).max() < 4.5


@given(st.lists(st.text(max_size=30), max_size=12), st.integers(1, 40))
@settings(max_examples=100, deadline=None)
def test_a_signature_depends_on_no_other_text(texts, part):
    alone = [text_signatures([text]) for text in texts]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_PART", part)
        found, there = text_signatures(texts)
    assert found.shape == (len(texts), SIGNATURE_SIZE) and found.dtype == np.uint16
    for row, has_one, (signature, has) in zip(found, there, alone, strict=True):
        assert np.array_equal(row, signature[0]) and has_one == has[0]


def test_case_and_spaces_make_no_difference():
    same = ["Two small\nboats, at sea", "  two  SMALL boats, at sea\t\n"]
    found, there = text_signatures(same)
    assert np.array_equal(*found) and there.all()


def test_hostile_texts_have_a_signature_or_none():
    texts = [
        "",
        " \n\t",
        "a",
        "b",
        "a",
        "abcd",
        "\ud800\ud800",
        "\0",
        "\0\0",
        "日本語",
        "x" * 300_000,
    ]
    assert text_signatures(texts)[1].tolist() == [False, False] + [True] * 9
    assert text_signatures([])[0].shape == (0, SIGNATURE_SIZE)


def test_pairs_are_those_of_comparing_all_signatures():
    texts = [made_text(seed) for seed in range(200)]
    texts += [edited(text, seed, seed % 7) for seed, text in enumerate(texts)]
    # The first of equal texts stands for all.
    texts = [*dict.fromkeys(texts)]
    signatures, _ = text_signatures(texts)
    alike = (signatures[:, None] == signatures[None]).mean(axis=2) >= TEXT_SIMILARITY
    expected = set(zip(*np.nonzero(np.triu(alike, 1)), strict=True))
    found = list(zip(*TEXTS.pairs(TEXTS.sketch(texts)), strict=True))
    assert found == sorted(set(found)) and set(found) <= expected
    assert len(found) >= 0.99 * len(expected) > 50


def test_signatures_are_the_same_in_every_version():
    texts = ["a", "Two small boats, at sea", "日本語のテキスト、十分に長い"]
    found, _ = text_signatures(texts)
    assert found[1, :4].tolist() == FIRST
    assert zlib.crc32(found.astype("<u2").tobytes()) == ALL
