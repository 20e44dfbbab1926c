"""The passes over texts: windows, duplicates, and what is learned."""

import gzip
import json
import zlib
from collections import Counter
from dataclasses import astuple, replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer as Library

from beam_jobs.dataset.output import Output
from beam_jobs.errors import DataError
from beam_jobs.jobs.near import Near
from beam_jobs.jobs.passes import FirstPassResult, Learned
from beam_jobs.jobs.split_rules import SplitRules
from beam_jobs.jobs.text import text_reader as reading
from beam_jobs.jobs.text.sample import sample_texts
from beam_jobs.jobs.text.split_texts import text_sketches
from beam_jobs.jobs.text.subwords import train_bpe
from beam_jobs.jobs.text.text_job import TextJob
from beam_jobs.jobs.text.text_passes import TextFirstPass, TextSecondPass
from beam_jobs.jobs.text.tokens import words
from beam_jobs.pipeline.planning.drop_near import with_dropped
from beam_jobs.plan.equality import Equality
from beam_jobs.plan.group_splits import GroupSplits
from beam_jobs.plan.near_keys import PAIR, candidates
from beam_jobs.plan.placement import Groups, Placement, Splits
from beam_jobs.plan.shards import Plan, SplitPlan
from beam_jobs.records.blocks import Block, frame_lengths, unpack_reject
from beam_jobs.records.rejects import Reject
from beam_jobs.sources.chunks import CHUNK_BYTES, Chunk, Task, batch_chunks, numbered_chunks
from beam_jobs.sources.extra_features import parse_extra_features
from beam_jobs.sources.inputs import Inputs
from beam_jobs.sources.labels import Labels
from beam_jobs.sources.source import Source
from readers.format.decode.records import Decoder
from readers.format.manifest import RESERVED_IDS, UNKNOWN
from tests.support.datasets import order_hash, parse_tfrecord, plain_sections
from tests.support.passes import Kept

quick = settings(
    max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)

VOCABULARY = (b"", UNKNOWN, b"a", b"b", "é".encode())
BPE = train_bpe([b"a ab B aB aa a ab"] * 2 + ["é日 é日".encode()], 265)
TOKENS = ("words", "bytes", "file", "bpe")

TRAIN_AND_VAL = Splits.parse("train=0.7,val=0.3")


def job(root: Path, **options) -> TextJob:
    labels = options.pop("labels", Labels())
    return TextJob(Inputs.of([str(root)]), labels, **options)


def numbered(reader: TextJob, source: Source) -> list[Chunk]:
    """The chunks of a source, as tasks get them."""
    chunks = list(reader.chunks(source))
    if chunks[0].first:
        return chunks
    return list(numbered_chunks(reader.range_counter()(Task.of(list(chunks)))))


def tasks_of(reader: TextJob) -> list[Task]:
    chunks = [
        chunk
        for pattern in reader.inputs.patterns
        for source in sorted(reader.sources(pattern))
        for chunk in numbered(reader, source)
    ]
    return list(batch_chunks(chunks))


def rules_of(splits: Splits = TRAIN_AND_VAL, strata: bytes = b"", **options) -> SplitRules:
    return SplitRules(Placement(0, splits, **options), strata)


def first_pass(reader: TextJob, rules: SplitRules, task: Task) -> FirstPassResult:
    one = TextFirstPass(rules=rules, spec=reader, tokenizer=BPE)
    return one.read(task)


def second_pass(reader: TextJob, rules: SplitRules, task: Task, names=()) -> list[Block]:
    every = len(rules.placement.splits.names)
    plan = Plan(tuple(SplitPlan(1, 0, 1, 1, np.empty(0, np.uint64)) for _ in range(every)))
    output, kept = Output("", reader.schema, rules.placement, (0,)), Kept()
    learned = Learned(reader.schema, {"label": names}, VOCABULARY, BPE, rules.strata)
    encode = TextSecondPass(output, learned, reader).encode
    assert encode(plan.pack(), kept, task)[0] == []
    return kept.blocks


def records_of(reader: TextJob, encoded: list[Block]) -> tuple[dict[str, dict], list[Reject]]:
    """The records of a task by key, with their splits; and the rejects."""
    decoder, found, rejects = Decoder(reader.schema), {}, []
    rows = [
        row
        for block in encoded
        for row in zip(block.splits, block.payloads, frame_lengths(block.payloads), strict=True)
    ]
    for split, payload, size in rows:
        if not size:
            rejects.append(unpack_reject(payload))
        else:
            (record,) = map(decoder.decode, parse_tfrecord(payload[:size]))
            key = record["key"].item()
            _, _, *numbers = plain_sections(reader.schema, [record], [0]).values()
            assert payload[size:] == b"".join(map(bytes, numbers)) + key
            assert key.decode() not in found
            found[key.decode()] = {**record, "split": int(split)}
    return found, rejects


def found_by(read: FirstPassResult) -> list[tuple[int, int]]:
    """(place in the order, split) of all records of the first pass, sorted."""
    return sorted(
        place
        for block in map(Block.unpack, read.blocks)
        for place in zip(block.hashes.tolist(), block.splits.tolist(), strict=True)
    )


def write_json(root: Path, rows: list[dict], name: str = "a.jsonl") -> None:
    (root / name).write_text("".join(json.dumps(row) + "\n" for row in rows))


# Windows.


def naive_tokens(kind: str, text: str) -> tuple[list[int], list[tuple[int, int]]]:
    """The ids of a text and their spans, in characters, or in bytes for "bytes"."""
    if kind in ("file", "bpe"):
        encoding = Library.from_str(BPE).encode(text, add_special_tokens=False)
        return encoding.ids, encoding.offsets
    if kind == "bytes":
        octets = text.encode()
        return [RESERVED_IDS + octet for octet in octets], [(n, n + 1) for n in range(len(octets))]
    ids = {word: id_ for id_, word in enumerate(VOCABULARY)}
    return [ids.get(word, 1) for word in words(text.encode())], []


def naive_windows(ids: list[int], window: int, stride: int) -> list[tuple[int, int]]:
    starts = [0]
    while starts[-1] + window < len(ids):
        starts.append(starts[-1] + stride)
    return [(start, min(start + window, len(ids))) for start in starts]


texts = st.one_of(st.text("aB é日🎉.,'\t\n\u00a0", max_size=30), st.text("aB é", max_size=9))


@pytest.mark.parametrize("kind", TOKENS)
@given(st.lists(texts, min_size=1, max_size=5), st.integers(1, 9), st.data())
@quick
def test_windows_equal_those_of_a_naive_implementation(tmp_path, kind, written, window, data):
    stride = data.draw(st.integers(1, window))
    rows = [{"text": text, "y": f"c{n % 2}", "n": n} for n, text in enumerate(written)]
    write_json(tmp_path, rows)
    reader = job(
        tmp_path,
        tokens=kind,
        window=window,
        stride=stride,
        label_field="y",
        extras=parse_extra_features("n:int32"),
        columns=("n",),
    )
    (task,) = tasks_of(reader)
    found, rejects = records_of(reader, second_pass(reader, rules_of(), task, ("c0", "c1")))
    assert rejects == []
    expected = {}
    for number, text in enumerate(written, 1):
        key = f"a.jsonl#{number}"
        ids, spans = naive_tokens(kind, text)
        bounds = naive_windows(ids, window, stride)
        assert {token for pair in bounds for token in range(*pair)} == set(range(len(ids)))
        for count, (start, stop) in enumerate(bounds, 1):
            expected[f"{key}@{count}"] = (number, ids[start:stop], text, spans[start:stop])
    assert found.keys() == expected.keys()
    for key, (number, ids, text, spans) in expected.items():
        record = found[key]
        assert record["tokens"].tolist() == ids
        assert (record["label"], record["n"]) == ((number - 1) % 2, number - 1)
        assert record["split"] == rules_of().placement.split(f"a.jsonl#{number}")
        part = record["text"].item()
        if kind == "words":
            assert part in text.encode()
            assert naive_tokens(kind, part.decode())[0] == ids
        elif not ids:
            assert part == b""
        elif kind == "bytes":
            assert text.encode()[spans[0][0] : spans[-1][1]] in part
            assert part.decode() in text
        else:
            assert part.decode() == text[spans[0][0] : spans[-1][1]]
    # Both passes find the same records and splits.
    read = first_pass(reader, rules_of(), task)
    order = partial(order_hash, rules_of().placement.seed)
    assert found_by(read) == sorted((order(key), row["split"]) for key, row in found.items())
    assert read.summary.labels["label"] == Counter(f"c{row['label']}" for row in found.values())


def test_the_label_of_a_file_is_a_class_even_if_all_its_texts_are_rejected(tmp_path):
    files = {
        "a/x.txt": b"text",
        "b/x.txt": b"\xff\xfe",
        "c/x.txt.gz": b"\x1f\x8b cut",
        "d/x.pdf": b"%",
    }
    files["e/x.jsonl"] = b"{}\n[]\n"
    for name, data in files.items():
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_bytes(data)
    (task,) = tasks_of(reader := job(tmp_path, labels=Labels("parent")))
    found = first_pass(reader, rules_of(), task).summary
    assert found.labels["label"] == {"a": 1, "b": 0, "c": 0, "d": 0, "e": 0}


@pytest.mark.parametrize(
    ("kind", "window"), [("none", 0), ("bytes", 0), ("words", 8), ("bpe", 8), ("file", 0)]
)
def test_the_sizes_of_records_are_estimated(tmp_path, kind, window):
    source = Path(json.__file__).with_name("decoder.py").read_text()
    write_json(tmp_path, [{"text": part} for part in source.split("\n\n")])
    reader = job(tmp_path, tokens=kind, window=window, stride=window)
    (task,) = tasks_of(reader)
    rules = rules_of(Splits())
    planned = first_pass(reader, rules, task).summary.splits[0].bytes
    written = sum(frame_lengths(b.payloads).sum() for b in second_pass(reader, rules, task))
    assert planned == pytest.approx(written, rel=0.5)


# Duplicates.


def without_duplicates(reader: TextJob, rules: SplitRules) -> list[Task]:
    """All tasks with the numbers of the texts that they drop, as the pipeline makes them."""
    near = Near(Equality(), reader.compared)
    tasks, partitions, blocks = tasks_of(reader), {}, {}
    for task in tasks:
        for block in text_sketches(reader, near, rules, task).blocks:
            blocks[block.name] = block.probes
            for part, keys in block.partitions():
                partitions.setdefault(part, []).append(keys)
    dropped: dict[str, set[int]] = {}
    for keys in partitions.values():
        for _, packed in candidates(keys, True, near.likeness, True):
            for _, second, block in np.frombuffer(packed, PAIR):
                probes = blocks[block.tobytes()]
                dropped.setdefault(probes.owner, set()).add(int(probes.numbers[second]))
    return [
        marked
        for task in tasks
        for marked in with_dropped(
            (task.id, ([task], [np.array(sorted(dropped.get(task.id, ())), "<i8").tobytes()]))
        )
    ]


COLUMN = st.sampled_from(["train", "val", "other", None, 7])


@given(
    st.lists(st.tuples(st.sampled_from([*"abc", 3]), COLUMN, st.sampled_from([1, 1, "x", None]))),
    st.integers(1, 60),
    st.booleans(),
)
@quick
def test_of_equal_texts_the_first_that_can_be_a_record_is_kept(
    tmp_path, monkeypatch, rows, size, packed
):
    monkeypatch.setattr(reading, "CHUNK_BYTES", size)  # so that a task has many batches
    lines = [json.dumps(dict(zip(("text", "split", "n"), row, strict=True))) for row in rows]
    stored = "\n".join(lines).encode()
    for old in tmp_path.iterdir():
        old.unlink()
    name = "a.jsonl.gz" if packed else "a.jsonl"
    (tmp_path / name).write_bytes(gzip.compress(stored) if packed else stored)
    reader = job(
        tmp_path,
        extras=parse_extra_features("n:int64"),
        columns=("split", "n"),
    )
    rules = rules_of(split_column="split")
    good, order = {}, partial(order_hash, rules.placement.seed)
    for number, (text, column, n) in enumerate(rows, 1):
        key = f"{name}#{number}"
        if text != 3 and column in ("train", "val") and n == 1:
            good.setdefault(text, []).append((order(key), key, column))
    stay = {min(found)[1]: min(found)[2] for found in good.values()}
    found, rejects, summary = {}, [], [Counter(), Counter()]
    for task in without_duplicates(reader, rules):
        read = first_pass(reader, rules, task)
        for split, part in enumerate(read.summary.splits):
            summary[split].update(
                records=part.records, rejected=part.rejected, duplicates=part.duplicates
            )
        some, bad = records_of(reader, second_pass(reader, rules, task))
        assert not found.keys() & some.keys()
        found |= some
        rejects += bad
    assert {key: ("train", "val")[row["split"]] for key, row in found.items()} == stay
    assert {key: row["text"].item().decode() for key, row in found.items()} == {
        key: rows[int(key.split("#")[1]) - 1][0] for key in stay
    }
    total = summary[0] + summary[1]
    assert total["records"] == len(stay)
    assert total["rejected"] == len(rejects) == len(rows) - sum(map(len, good.values()))
    assert total["duplicates"] == len(rows) - len(rejects) - len(stay)
    every = Counter(column for found in good.values() for _, _, column in found)
    every.subtract(stay.values())
    assert [part["duplicates"] for part in summary] == [every["train"], every["val"]]


def test_dropped_texts_are_counted_in_the_split_of_their_group(tmp_path):
    write_json(tmp_path, [{"text": "x", "g": group} for group in "aaabbb"])
    reader = job(tmp_path, columns=("g",))
    rules = rules_of(groups=Groups.parse("column:g"))
    hashes = np.sort(rules.placement.group_hashes([b"a", b"b"]))
    task = tasks_of(reader)[0].without(np.array([1, 2, 4, 5]))
    for dealt in ([0, 0], [0, 1], [1, 0], [1, 1]):
        strata = GroupSplits(1, hashes, np.array(dealt, np.uint8), rules.placement.splits).pack()
        splits = first_pass(reader, replace(rules, strata=strata), task).summary.splits
        assert [split.duplicates for split in splits] == [2 * split.records for split in splits]
        assert [split.records for split in splits] == [dealt.count(0), dealt.count(1)]


def test_dropped_numbers_count_through_all_files_of_a_task(tmp_path):
    for name in ("a.txt", "b.csv", "c.jsonl"):
        (tmp_path / name).write_text("text\nt\n" if name == "b.csv" else '{"text": "t"}\n"no"\n')
    reader = job(tmp_path)
    (task,) = tasks_of(reader)
    # Lines of a.txt are 0 and 1, the row of b.csv 2; the reject of c.jsonl has no number.
    task = task.without(np.array([3, 0]))
    found, rejects = records_of(reader, second_pass(reader, rules_of(), task))
    assert sorted(found) == ["a.txt#2", "b.csv#1"]
    assert [reject.key for reject in rejects] == ["c.jsonl#2"]


# What the first pass learns.


def sampled(reader: TextJob, rules: SplitRules, task: Task, width: int = 2**56) -> list[bytes]:
    """The texts of a task in the bins of some width, sorted."""
    pieces = sample_texts(reader, rules, width, task).pieces()
    return sorted(text for _, texts in pieces for text in texts)


def test_only_words_of_the_training_split_are_counted_and_sampled(tmp_path):
    rows = [
        {"text": f"word{n % 5} of {n}!", "split": "val" if n % 3 else "train"} for n in range(90)
    ]
    rows[4] = {"text": 5}
    write_json(tmp_path, rows)
    reader = job(tmp_path, tokens="words", columns=("split",))
    rules = rules_of(Splits(("val", "train"), (0.5, 0.5)), split_column="split")
    (task,) = tasks_of(reader)
    training = [row["text"] for row in rows if row.get("split") == "train"]
    read = first_pass(reader, rules, task)
    counts = read.learned.counts
    assert counts == Counter(word for text in training for word in words(text.encode()))
    assert counts.total() == 90
    assert read.summary.learned == sum(zlib.crc32(word) for word in counts.elements())
    keys = {
        f"a.jsonl#{n}": row["text"] for n, row in enumerate(rows, 1) if row.get("split") == "train"
    }
    assert sampled(reader, rules, task) == sorted(text.encode() for text in keys.values())
    below = 2**62
    expected = [
        keys[key].encode() for key in keys if rules.placement.orders([key.encode()])[0] < below
    ]
    assert sampled(reader, rules, task, below // 256) == sorted(expected)
    assert 0 < len(expected) < 30


def test_dropped_and_rejected_texts_are_neither_sampled_nor_counted(tmp_path):
    write_json(
        tmp_path, [{"text": "one", "n": 1}, {"text": "two", "n": "x"}, {"text": "one", "n": 1}]
    )
    reader = job(tmp_path, tokens="words", extras=parse_extra_features("n:int64"), columns=("n",))
    rules = rules_of(Splits())
    task = tasks_of(reader)[0].without(np.array([2]))
    assert sampled(reader, rules, task) == [b"one"]
    read = first_pass(reader, rules, task)
    assert read.learned.counts == {b"one": 1}
    split = read.summary.splits[0]
    assert (split.records, split.rejected, split.duplicates) == (1, 1, 1)
    assert read.summary.rejects[0].key == "a.jsonl#2"


# Several fields.


@pytest.mark.parametrize("kind", TOKENS)
def test_each_of_several_fields_has_its_text_and_its_tokens(tmp_path, kind):
    rows = [{"q": "a b é", "a": "b"}, {"q": "", "a": "é a"}, {"q": "c", "a": ""}]
    write_json(tmp_path, rows)
    options = {"tokens": kind, "text_fields": ("q", "a"), "max_length": 2}
    reader = job(tmp_path, **options)
    (task,) = tasks_of(reader)
    found, _ = records_of(reader, second_pass(reader, rules_of(), task))
    assert len(found) == len(rows)
    for number, row in enumerate(rows, 1):
        record = found[f"a.jsonl#{number}"]
        for name, text in row.items():
            assert record[name].item().decode() == text
            assert record[f"{name}_tokens"].tolist() == naive_tokens(kind, text)[0][:2]


def test_words_and_samples_come_from_all_fields(tmp_path):
    rows = [{"q": f"one{n % 3} word", "a": f"two{n % 5}"} for n in range(40)]
    write_json(tmp_path, rows)
    reader = job(tmp_path, tokens="words", text_fields=("q", "a"))
    rules = rules_of(Splits())
    (task,) = tasks_of(reader)
    read = first_pass(reader, rules, task)
    counts = read.learned.counts
    assert counts == Counter(w for row in rows for t in row.values() for w in words(t.encode()))
    expected = sorted(text.encode() for row in rows for text in row.values())
    assert sampled(reader, rules, task) == expected


def test_records_are_duplicates_if_all_fields_are_equal(tmp_path):
    pairs = [("x", "y"), ("x", "z"), ("x", "y"), ("xy", ""), ("", "xy"), ("y", "x")]
    write_json(tmp_path, [{"q": q, "a": a} for q, a in pairs])
    reader = job(tmp_path, text_fields=("q", "a"))
    near = Near(Equality(), reader.compared)
    (block,) = text_sketches(reader, near, rules_of(), tasks_of(reader)[0]).blocks
    found = [row.tobytes() for row in block.probes.rows]
    assert found[0] == found[2]
    assert len(set(found)) == 5
    (task,) = tasks_of(reader)
    task = task.without(np.array([2]))
    kept, _ = records_of(reader, second_pass(reader, rules_of(), task))
    texts = {key: (r["q"].item().decode(), r["a"].item().decode()) for key, r in kept.items()}
    assert texts == {f"a.jsonl#{n}": pair for n, pair in enumerate(pairs, 1) if n != 3}


# Failures.


def test_a_label_that_the_first_pass_did_not_see_ends_the_job(tmp_path):
    write_json(tmp_path, [{"text": "a", "y": "new"}])
    reader = job(tmp_path, label_field="y")
    with pytest.raises(DataError, match=r"'new' was not seen .* changed while the job ran"):
        second_pass(reader, rules_of(), tasks_of(reader)[0], ("old",))


def test_the_texts_of_a_file_without_a_usable_label_are_one_reject(tmp_path):
    (tmp_path / "a.txt").write_text("x\ny\n")
    reader = job(tmp_path, labels=Labels("column", "y"))
    (chunk,) = tasks_of(reader)[0].chunks
    for row, key, message in (
        ({"y": ""}, "a.txt", "column 'y': label '': expected text or a whole number"),
        ({}, "a.txt", "no column 'y'; it has none"),
    ):
        task = Task.of((chunk._replace(source=chunk.source._replace(row=row)),))
        found, rejects = records_of(reader, second_pass(reader, rules_of(), task))
        assert found == {}
        assert rejects == [Reject(key, "read", message)]
        assert first_pass(reader, rules_of(), task).summary.splits[0].records == 0
    task = Task.of((chunk._replace(source=chunk.source._replace(row={"y": "cat"})),))
    found, rejects = records_of(reader, second_pass(reader, rules_of(), task, ("cat",)))
    assert len(found) == 2 and not rejects


def test_several_labels_are_lists_of_ids(tmp_path):
    write_json(
        tmp_path, [{"text": "a", "y": ["p", "q"]}, {"text": "b", "y": []}, {"text": "c", "y": "q"}]
    )
    reader = job(tmp_path, label_field="y", several_labels=True, tokens="bytes", window=1, stride=1)
    found, _ = records_of(reader, second_pass(reader, rules_of(), tasks_of(reader)[0], ("p", "q")))
    assert {key: row["label"].tolist() for key, row in found.items()} == {
        "a.jsonl#1@1": [0, 1],
        "a.jsonl#2@1": [],
        "a.jsonl#3@1": [1],
    }
    counted = first_pass(reader, rules_of(), tasks_of(reader)[0]).summary.labels["label"]
    assert counted == {"p": 1, "q": 2}


def test_a_large_file_whose_lines_cannot_be_counted_is_one_reject(tmp_path):
    (tmp_path / "a.txt").write_text("x")
    reader = job(tmp_path)
    chunk, *others = numbered(reader, Source("gone.txt", 10 * CHUNK_BYTES))
    assert len(others) == 9
    assert all(other.is_empty and not list(reader.batches(other)) for other in others)
    assert (chunk.start, chunk.first, chunk.size) == (0, 1, 10 * CHUNK_BYTES)
    (texts,) = reader.batches(chunk)
    ((key, stage, error),) = map(astuple, texts.rejects)
    assert (texts.keys, key, stage) == ([], "gone.txt", "read")
    assert error.startswith("cannot be read to its end: [Errno 2] No such file")
