"""Subword tokens against the `tokenizers` library, and tokenizers that are trained on texts."""

import functools
import itertools
import json
import pickle
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import tokenizers
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import models, normalizers, pre_tokenizers, processors, trainers

from beam_jobs.errors import UsageError
from beam_jobs.jobs.text import subwords
from beam_jobs.jobs.text.subwords import Subwords, check_vocabulary_size, train_bpe

CORPUS = [
    "The quick brown fox jumps over the lazy dog; the dog sleeps, the fox does not.",
    "Élan vital, ﬁnesse, naïveté: Ünïcödé! İSTANBUL Straße ΣΑΣ e\u0301 a\u0323\u0301",
    "日本語の文章 한국어 🎉🎉 a🎉b 👨\u200d👩\u200d👧 1234 ½ ①",
] * 3

# Characters that normalizers change: case, accents, compatibility forms, marks in another order.
texts = st.one_of(
    st.text("aB éÉßﬁ½日🎉\u0301\u0323\u200d\t\n\u00a0.'[]▁\0", max_size=30),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
    st.lists(st.sampled_from(" ".join(CORPUS).split()), max_size=6).map(" ".join),
)


def trained(model: object, trainer: object, **parts: object) -> str:
    tokenizer = tokenizers.Tokenizer(model)
    for name, part in parts.items():
        setattr(tokenizer, name, part)
    tokenizer.train_from_iterator(CORPUS, trainer)
    return tokenizer.to_str()


SPECIAL = {"show_progress": False, "special_tokens": ["[UNK]", "[CLS]", "[SEP]"]}
AROUND = processors.TemplateProcessing(
    single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 1), ("[SEP]", 2)]
)


@functools.cache
def file(kind: str) -> str:
    """The contents of a tokenizer's file."""
    if kind == "ours":
        return train_bpe([text.encode() for text in CORPUS], 400)
    if kind == "gpt2":
        return trained(
            models.BPE(),
            trainers.BpeTrainer(
                vocab_size=400, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), **SPECIAL
            ),
            pre_tokenizer=pre_tokenizers.ByteLevel(add_prefix_space=True),
            post_processor=processors.ByteLevel(trim_offsets=True),
        )
    if kind == "bert":
        return trained(
            models.WordPiece(unk_token="[UNK]"),
            trainers.WordPieceTrainer(vocab_size=200, **SPECIAL),
            normalizer=normalizers.BertNormalizer(lowercase=True),
            pre_tokenizer=pre_tokenizers.BertPreTokenizer(),
            post_processor=AROUND,
        )
    assert kind == "t5"
    return trained(
        models.Unigram(),
        trainers.UnigramTrainer(vocab_size=120, unk_token="[UNK]", **SPECIAL),
        normalizer=normalizers.NFKC(),
        pre_tokenizer=pre_tokenizers.Metaspace(),
    )


KINDS = ("ours", "gpt2", "bert", "t5")


def library(kind: str) -> tokenizers.Tokenizer:
    return tokenizers.Tokenizer.from_str(file(kind))


@pytest.mark.parametrize("kind", KINDS)
@given(batch=st.lists(texts, max_size=4))
@settings(max_examples=20, deadline=None)
@example(batch=["", "a", "[CLS] [UNK][PAD]"])
def test_ids_are_those_of_the_library(kind, batch):
    found = Subwords(file(kind)).encode_all([text.encode() for text in batch])
    assert [ids.tolist() for ids in found] == [library(kind).encode(text).ids for text in batch]
    assert all(ids.dtype == np.int64 for ids in found)


# Spaces of all kinds, in runs and alone, between words, marks and special tokens.
spaced = st.lists(
    st.sampled_from(
        [
            *"  \t\n\r\x1c\x85\u00a0\u2003\u200b\u3000",
            "the",
            "fox's",
            "1½.",
            "日本",
            "[UNK]",
            "e\u0301",
        ]
    ),
    max_size=12,
).map("".join)


@given(batches=st.lists(st.lists(spaced | texts, max_size=4), max_size=4))
@settings(max_examples=50, deadline=None)
@example(batches=[["a b", "", " a b", "a  b", "a \tb", "a\u00a0 b c", "[PAD] b[UNK] [CLS]"]])
def test_words_are_looked_up_once_and_have_the_ids_of_the_library(batches):
    for remembered, at_once in ((0, 1), (1 << 20, 3)):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(subwords, "_REMEMBERED_BYTES", remembered)
            patch.setattr(subwords, "_WORDS_AT_ONCE", at_once)
            patch.setattr(subwords, "_LONGEST_REMEMBERED", 5)
            whole, cut = Subwords(file("ours")), Subwords(file("ours"), 3)
            assert whole._words
            for batch in batches:
                expected = [library("ours").encode(text).ids for text in batch]
                octets = [text.encode() for text in batch]
                assert [ids.tolist() for ids in whole.encode_all(octets)] == expected
                assert [ids.tolist() for ids in cut.encode_all(octets)] == [
                    ids[:3] for ids in expected
                ]
                assert all(len(word) <= 5 for word in whole._words._ids)


def with_part(name: str, part: object) -> str:
    """The file of our own tokenizer with another part."""
    return json.dumps(json.loads(file("ours")) | {name: part})


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("normalizer", {"type": "Lowercase"}),
        ("post_processor", json.loads(file("bert"))["post_processor"]),
        ("pre_tokenizer", None),
        ("pre_tokenizer", json.loads(file("gpt2"))["pre_tokenizer"]),
        ("pre_tokenizer", {**json.loads(file("ours"))["pre_tokenizer"], "use_regex": False}),
        *(
            ("added_tokens", [json.loads(file("ours"))["added_tokens"][0] | change])
            for change in (
                {"single_word": True},
                {"lstrip": True},
                {"rstrip": True},
                {"content": "the fox"},
            )
        ),
    ],
)
def test_a_tokenizer_that_looks_beyond_words_gets_whole_texts(name, part):
    changed = with_part(name, part)
    assert Subwords(changed)._words is None
    expected = tokenizers.Tokenizer.from_str(changed)
    for text in ["the  fox [PAD] jumps", "a the fox b"]:
        assert (
            Subwords(changed).encode_all([text.encode()])[0].tolist() == expected.encode(text).ids
        )


def test_words_that_are_not_repeated_are_left_to_the_library(monkeypatch):
    monkeypatch.setattr(subwords, "_WORDS_AT_ONCE", 10)
    tokenizer = Subwords(file("ours"))
    once = [f"{number}a {number}b".encode() for number in range(20)]
    found = tokenizer.encode_all(once)
    assert [ids.tolist() for ids in found] == [library("ours").encode(t.decode()).ids for t in once]
    assert not tokenizer._words._ids
    tokenizer.encode_all([b"the fox"] * 20)
    assert tokenizer._words._ids.keys() == {"the", " fox"}


@pytest.mark.parametrize("kind", KINDS)
@given(text=texts, max_length=st.integers(2, 8))
@settings(max_examples=20, deadline=None)
def test_long_texts_are_cut_as_in_the_library(kind, text, max_length):
    cut, whole = library(kind), library(kind).encode(text).ids
    cut.enable_truncation(max_length)
    found = Subwords(file(kind), max_length).encode_all([text.encode()])[0].tolist()
    assert found == cut.encode(text).ids
    assert len(found) == min(len(whole), max_length)
    kept = whole[:max_length]
    # A special token at the end is kept.
    assert found == (kept if kind != "bert" else kept[:-1] + whole[-1:])


@pytest.mark.parametrize("kind", KINDS)
@given(text=texts)
@settings(max_examples=25, deadline=None)
@example(text="")
@example(text="ÉLAN a\u0323\u0301 ﬁ ½ 🎉 日 İ")
def test_spans_are_bytes_of_the_text_before_normalization(kind, text):
    octets, tokenizer = text.encode(), Subwords(file(kind))
    ids, spans = tokenizer.encode_spans(octets)
    expected = library(kind).encode(text, add_special_tokens=False)
    assert ids.tolist() == expected.ids
    assert ids.dtype == spans.dtype == np.int64
    assert [octets[start:end].decode() for start, end in spans.tolist()] == [
        text[start:end] for start, end in expected.offsets
    ]
    assert spans.shape == (len(ids), 2)
    assert (np.diff(spans, axis=0) >= 0).all()
    assert tokenizer.count(octets) == len(ids)


def test_truncation_padding_and_dropout_in_the_file_are_ignored():
    text = " ".join(CORPUS)
    tokenizer = library("ours")
    tokenizer.enable_truncation(5)
    tokenizer.enable_padding(length=9)
    fields = json.loads(tokenizer.to_str())
    assert fields["truncation"] and fields["padding"]
    fields["model"]["dropout"] = 0.5
    found = Subwords(json.dumps(fields))
    expected = library("ours").encode(text).ids
    for _ in range(3):
        assert found.encode_all([text.encode()])[0].tolist() == expected
        assert found.encode_spans(text.encode())[0].tolist() == expected
        assert found.encode_all([b""])[0].tolist() == []
    assert Subwords(json.dumps(fields), 7).encode_all([text.encode()])[0].tolist() == expected[:7]


def test_the_size_is_one_more_than_the_largest_id():
    assert Subwords(file("ours")).size == library("ours").get_vocab_size() > 258
    fields = json.loads(file("ours"))
    fields["added_tokens"][1] |= {"id": 5000}
    fields["model"]["vocab"]["[UNK]"] = 5000
    assert Subwords(json.dumps(fields)).size == 5001


def test_only_the_contents_of_the_file_are_pickled():
    tokenizer = Subwords(file("bert"), 5)
    before = pickle.dumps(tokenizer)
    ids = tokenizer.encode_all([b"the fox does not sleep"])[0].tolist()
    tokenizer.encode_spans(b"a")
    assert pickle.dumps(tokenizer) == before
    assert len(before) < len(file("bert").encode()) + 300
    again = pickle.loads(before)
    assert again == tokenizer
    assert again.encode_all([b"the fox does not sleep"])[0].tolist() == ids
    assert "quick" not in repr(tokenizer)


def refused(tmp_path: Path, data: bytes, max_length: int = 0) -> str:
    path = tmp_path / "t.json"
    path.write_bytes(data)
    with pytest.raises(UsageError) as caught:
        Subwords.read(str(path), max_length)
    message = caught.value.message
    assert "\n" not in message
    return message.replace(str(path), "t.json")


@pytest.mark.parametrize(
    "data",
    [b"", b"hello", b"[]", b"{}", b'{"model": 1}', b"[" * 100_000, b'{"tokens": ["a", "b"]}'],
    ids=lambda data: data[:20],
)
def test_a_file_that_is_not_a_tokenizer_is_refused(tmp_path, data):
    found = refused(tmp_path, data)
    assert found.startswith(
        "--tokens t.json: expected a tokenizer.json of Hugging Face tokenizers ("
    )


def test_a_file_that_cannot_be_read_is_refused(tmp_path, monkeypatch):
    with pytest.raises(
        UsageError, match=r"--tokens .*/none\.json: cannot be read \(no such file\)$"
    ):
        Subwords.read(f"{tmp_path}/none.json")
    assert refused(tmp_path, b"\xff\xfe").startswith("--tokens t.json: cannot be read ('utf-8'")
    monkeypatch.setattr(subwords, "_MAX_FILE_BYTES", 1 << 20)
    assert refused(tmp_path, b" " * ((1 << 20) + 1)) == "--tokens t.json: longer than 1 MiB"
    assert "expected a tokenizer.json" in refused(tmp_path, b" " * (1 << 20))


def test_a_limit_with_no_room_for_special_tokens_is_refused(tmp_path):
    assert refused(tmp_path, file("bert").encode(), 1) == (
        "--max_length 1: expected at least 2, the special tokens that the tokenizer adds to every "
        "text"
    )
    assert Subwords(file("bert"), 2).encode_all([b"the fox"])[0].tolist() == [1, 2]


def failing(kind: str) -> Subwords:
    """A tokenizer that fails on some texts."""
    if kind == "panic":
        fields = json.loads(file("bert"))
        del fields["post_processor"]["special_tokens"]["[SEP]"]
        return Subwords(json.dumps(fields))
    vocabulary = {"a": 0, "b": 1}
    model = models.WordLevel(vocabulary) if kind == "words" else models.Unigram([("a", -1.0)], None)
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    return Subwords(tokenizer.to_str())


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("words", "WordLevel error: Missing [UNK] token from the vocabulary"),
        ("pieces", "Encountered an unknown token but `unk_id` is missing"),
        ("panic", "no entry found for key"),
    ],
)
def test_a_tokenizer_that_fails_on_a_text_is_a_usage_error(kind, reason):
    tokenizer = failing(kind)
    uses = [
        lambda text: tokenizer.encode_all([text]),
        tokenizer.encode_spans,
        tokenizer.count,
        lambda text: tokenizer.encode_all([b"a", text]),
    ]
    for use in uses[:1] if kind == "panic" else uses:
        with pytest.raises(UsageError) as caught:
            use(b"a zebra")
        assert caught.value.message == f"--tokens: the tokenizer fails on a text ({reason})"


def test_a_panic_prints_no_backtrace(monkeypatch, capfd):
    monkeypatch.setenv("RUST_BACKTRACE", "1")
    with pytest.raises(UsageError, match="no entry found for key"):
        failing("panic").encode_all([b"a zebra"])
    assert "stack backtrace" not in capfd.readouterr().err


def test_interrupts_are_not_turned_into_usage_errors():
    for error in (KeyboardInterrupt, SystemExit):
        with pytest.raises(error), subwords._library_errors("failure"):
            raise error


def test_if_the_library_is_missing_the_error_states_how_to_install_it(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    found = refused(tmp_path, b"{}")
    assert found.startswith("--tokens FILE.json need tokenizers")
    assert found.endswith("pip install 'beam-shards[beam]'")
    with pytest.raises(UsageError, match="--tokens bpe need tokenizers"):
        train_bpe([b"a"], 300)


# Training.


def merges_of(trained_file: str) -> list[tuple[str, str]]:
    return [tuple(merge) for merge in json.loads(trained_file)["model"]["merges"]]


def test_reserved_ids_come_first_then_bytes_then_merges():
    vocabulary = json.loads(file("ours"))["model"]["vocab"]
    names = sorted(vocabulary, key=vocabulary.__getitem__)
    assert list(vocabulary.values()) == list(range(len(names)))
    assert names[:2] == ["[PAD]", "[UNK]"]
    assert names[2:258] == sorted(pre_tokenizers.ByteLevel.alphabet())
    assert names[258:] == ["".join(merge) for merge in merges_of(file("ours"))]
    assert Subwords(file("ours")).size == len(names) <= 400


def test_few_texts_give_a_smaller_vocabulary():
    assert Subwords(train_bpe([], 10_000)).size == 258
    assert Subwords(train_bpe([b"ab ac ad"], 10_000)).size == 259  # " a"
    assert Subwords(train_bpe([b"ab ac ad"] * 9, 258)).size == 258
    assert Subwords(train_bpe([b"ab ac ad"] * 9, 260)).size == 260


@pytest.mark.parametrize("size", [-1, 0, 3, 257, (1 << 24) + 1, 1 << 60])
def test_a_vocabulary_that_is_too_small_or_too_large_is_refused(size):
    with pytest.raises(UsageError) as caught:
        check_vocabulary_size(size)
    assert caught.value.message == (
        f"--vocabulary_size {size}: expected 258 to 16777216 with --tokens bpe, including 2 reserved ids "
        "and the 256 bytes"
    )


def learned_one_by_one(given_texts: list[str], size: int) -> list[tuple[str, str]]:
    """The merges, each from a count of all pairs: the most frequent, of several the smallest ids."""
    level = pre_tokenizers.ByteLevel(add_prefix_space=False)
    counts = Counter(word for text in given_texts for word, _ in level.pre_tokenize_str(text))
    names = sorted(pre_tokenizers.ByteLevel.alphabet())
    ids = {name: id_ for id_, name in enumerate(names)}
    split = {word: list(word) for word in counts}
    merges: list[tuple[str, str]] = []
    while len(names) < size - 2:
        pairs: Counter[tuple[str, str]] = Counter()
        for word, parts in split.items():
            for pair in itertools.pairwise(parts):
                pairs[pair] += counts[word]
        best = min(pairs, key=lambda pair: (-pairs[pair], ids[pair[0]], ids[pair[1]]), default=None)
        if best is None or pairs[best] < 2:
            break
        merges.append(best)
        ids["".join(best)] = len(names)
        names.append("".join(best))
        for parts in split.values():
            at = 0
            while at < len(parts) - 1:
                if (parts[at], parts[at + 1]) == best:
                    parts[at : at + 2] = ["".join(best)]
                at += 1
    return merges


# Few letters: most pairs come up as often as others.
tied = st.lists(st.text("aabcé '", max_size=30), max_size=8)


@given(tied, st.integers(258, 300), st.randoms(use_true_random=False))
@settings(max_examples=20, deadline=None)
@example(["aaaaaaa aaaa aaa", "ababababa bababab"], 300, None)
def test_ties_go_to_the_smaller_ids_whatever_the_order_of_texts(given_texts, size, random):
    found = train_bpe([text.encode() for text in given_texts], size)
    assert merges_of(found) == learned_one_by_one(given_texts, size)
    if random:
        random.shuffle(given_texts)
        assert train_bpe([text.encode() for text in given_texts], size) == found


def test_a_trained_file_is_pinned():
    found = train_bpe([b"low lower lowest newer newest wider widest"], 266)
    fields = json.loads(found)
    assert merges_of(found) == [
        ("w", "e"),
        ("l", "o"),
        ("s", "t"),
        ("d", "e"),
        ("e", "we"),
        ("i", "de"),
        ("n", "ewe"),
        ("w", "ide"),
    ]
    assert [token["content"] for token in fields["added_tokens"]] == ["[PAD]", "[UNK]"]
    assert fields["pre_tokenizer"]["type"] == fields["decoder"]["type"] == "ByteLevel"
    assert fields["pre_tokenizer"]["add_prefix_space"] is False
    assert fields["normalizer"] is None and fields["post_processor"] is None


@given(st.text("ab \n", max_size=60), st.integers(2, 12))
@settings(max_examples=50, deadline=None)
def test_pieces_are_the_text_cut_before_spaces(text, longest):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(subwords, "_MAX_WORD", longest)
        pieces = list(subwords.short_pieces(text))
    assert "".join(pieces) == text
    assert all(len(piece) <= longest for piece in pieces)
    for before, after in itertools.pairwise(pieces):
        assert after[0] == " " or " " not in before[1:]


def test_long_texts_teach_the_same_words_as_short_ones():
    words = [word for text in CORPUS for word in text.split()] * 30
    together = " ".join(words).encode()
    assert len(together) > 5000
    apart = [words[0].encode(), *(b" " + word.encode() for word in words[1:])]
    assert train_bpe([together], 500) == train_bpe(apart, 500)
