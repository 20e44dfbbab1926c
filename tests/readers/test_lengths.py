"""Truncation, padding and lengths, against arrays made by hand."""

from __future__ import annotations

import numpy as np
import pytest

import readers
from readers.format.schema import Feature, Schema
from tests.readers.batches.test_collate import VARYING, arrays, batch_of
from tests.support.datasets import write_dataset

SCHEMA = Schema(
    {
        "tokens": ("int64", (None,), "list"),
        "signal": ("float32", (None, 2)),
        "words": ("string", (None,), "list"),
        "parts": ("int16", (None, 3), "sequence"),
        "plane": ("int32", (None, None)),
        "label": ("int64", ()),
    }
)


def records(count=30, seed=0):
    rng = np.random.default_rng(seed)
    return [
        {
            "tokens": rng.integers(1, 99, n),
            "signal": rng.standard_normal((n, 2)).astype("f4"),
            "words": [f"w{i}" for i in range(n)],
            "parts": [rng.integers(1, 9, 3).astype("i2") for _ in range(n)],
            "plane": rng.integers(1, 9, (n, 2 + n % 3)).astype("i4"),
            "label": label,
        }
        for label, n in enumerate(rng.integers(1, 12, count).tolist())
    ]


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    found = records()
    shards = [found[:17], found[17:]]
    return str(write_dataset(tmp_path_factory.mktemp("d"), SCHEMA, {"train": shards}))


@pytest.mark.parametrize("limit", [2, 99])
@pytest.mark.parametrize(("shape", "found"), VARYING)
def test_the_first_unknown_dimension_is_truncated_to_its_limit(shape, found, limit):
    values = arrays(found)
    feature = Feature("float32", shape)
    axis = shape.index(None)
    expected = [value[(slice(None),) * axis + (slice(limit),)] for value in values]
    for kind in (readers.Padded, readers.Ragged):
        found = batch_of(feature, values, kind(limit))["x"]
        by_hand = batch_of(feature, expected, kind())["x"]
        for one, other in zip(found, by_hand, strict=True):
            np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
    ("shape", "counts"), [((None, 3), (0, 2, 5)), ((None, None), (1, 3)), ((2, None), (2, 2))]
)
@pytest.mark.parametrize("limit", [1, 3])
def test_a_sequence_is_truncated_as_a_list_or_within_its_arrays(shape, counts, limit):
    feature = Feature("int32", shape, "sequence")
    size = [4 if d is None else d for d in shape[1:]]
    values = [[np.full(size, n, np.int32) for n in range(count)] for count in counts]
    if shape[0] is None:
        expected = [value[:limit] for value in values]
    else:
        expected = [[array[:limit] for array in value] for value in values]
    batch = batch_of(feature, values, readers.Padded(limit, mask=True))
    by_hand = batch_of(feature, expected, readers.Padded(mask=True))
    for name in ("x", "x_mask"):
        np.testing.assert_array_equal(batch[name], by_hand[name])


@pytest.mark.parametrize(("shape", "found"), VARYING)
def test_the_first_unknown_dimension_is_padded_to_max_length_in_every_batch(shape, found):
    values, feature = arrays(found), Feature("float32", shape)
    axis, longest = feature.first_unknown, max(each[feature.first_unknown] for each in found)
    usual = batch_of(feature, values, readers.Padded(mask=True))
    for limit in (longest, longest + 3):
        fixed = readers.Padded(limit, mask=True, to="max_length")
        batch = batch_of(feature, values, fixed)
        for name, plain in usual.items():
            more = np.zeros((plain.ndim, 2), int)
            more[axis + 1, 1] = limit - longest
            np.testing.assert_array_equal(batch[name], np.pad(plain, more))


def test_shapes_of_one_length_are_static(dataset):
    limits = {"tokens": 5, "signal": 6, "words": 7, "parts": 8, "plane": 9}
    padded = readers.Padded(limits, mask=True, lengths=True, to="max_length")
    ds = readers.load(dataset, 8, batching=padded, remainder="drop")
    found = {name: spec.shape.as_list() for name, spec in ds.element_spec.items()}
    assert found["tokens"] == found["tokens_mask"] == [8, 5]
    assert found["signal"] == [8, 6, 2] and found["signal_mask"] == [8, 6]
    assert found["words"] == [8, 7] and found["parts"] == [8, 8, 3]
    assert found["plane"] == found["plane_mask"] == [8, 9, None]
    assert (found["tokens_length"], found["plane_length"]) == ([8], [8, 2])


@pytest.mark.parametrize("order", ["global", "interleave"])
def test_padding_values_and_lengths_match_the_arguments(dataset, order):
    padding = {"tokens": -7, "signal": np.nan, "words": "<pad>", "parts": 5}
    how = {"batching": readers.Padded(values=padding, mask=True, lengths=True)}
    written, seen = records(), []
    ds = readers.load(dataset, batch_size=8, shuffle=readers.Order(False, by=order), **how)
    for batch in ds.as_numpy_iterator():
        seen += batch["label"].tolist()
        rows = [written[label] for label in batch["label"]]
        lengths = [len(row["tokens"]) for row in rows]
        for name in ("tokens", "signal", "words", "parts"):
            assert batch[f"{name}_length"].tolist() == lengths
        assert batch["plane_length"].tolist() == [list(row["plane"].shape) for row in rows]
        for i, (row, n) in enumerate(zip(rows, lengths, strict=True)):
            np.testing.assert_array_equal(batch["tokens"][i, :n], row["tokens"])
            assert (batch["tokens"][i, n:] == -7).all()
            np.testing.assert_array_equal(batch["signal"][i, :n], row["signal"])
            assert np.isnan(batch["signal"][i, n:]).all()
            assert batch["words"][i].tolist() == [
                *(word.encode() for word in row["words"]),
                *[b"<pad>"] * (max(lengths) - n),
            ]
            assert (batch["parts"][i, n:] == 5).all()
            assert (batch["plane"][i, n:] == 0).all()
            assert batch["tokens_mask"][i].tolist() == [True] * n + [False] * (max(lengths) - n)
    assert seen == list(range(30))


def test_a_single_padding_value_applies_to_all_numeric_features(dataset):
    how = {"columns": ["tokens", "words"], "batching": readers.Padded(values=-1)}
    (batch,) = readers.as_numpy(dataset, batch_size=30, **how)
    shortest = int((batch["tokens"] != -1).sum(axis=1).argmin())
    assert batch["tokens"][shortest, -1] == -1
    assert batch["words"][shortest, -1] == b""


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"batching": readers.Padded(max_length={"label": 3})}, "max_length names 'label'"),
        (
            {"batching": readers.Padded(max_length={"parts": 3}, to="max_length")},
            "'plane', int32 .*, has no max_length; set max_length={'plane': ...}",
        ),
        (
            {"batching": readers.Padded(mask=True), "as_supervised": ["tokens", "label"]},
            r"Padded\(mask=True\) adds tokens_mask, which as_supervised leaves out: add it there",
        ),
        (
            {"batching": readers.Padded(lengths=True), "as_supervised": ["words", "tokens"]},
            r"Padded\(lengths=True\) adds tokens_length, words_length, which as_supervised leaves out",
        ),
        ({"batching": readers.Padded(values={"no": 3})}, "values names 'no'"),
        ({"batching": readers.Padded(values={"tokens": 1.5})}, "1.5 does not fit 'tokens'"),
        ({"batching": readers.Padded(values=2**70)}, "does not fit 'parts'"),
    ],
)
def test_invalid_arguments_are_rejected(dataset, how, message):
    with pytest.raises(ValueError, match=message):
        readers.as_numpy(dataset, batch_size=4, **how)


@pytest.mark.parametrize(
    ("kind", "how", "message"),
    [
        (readers.Padded, {"max_length": 0}, "max_length=0: expected numbers of at least 1"),
        (readers.Padded, {"to": "longst"}, "to='longst': expected one of longest, max_length"),
        (readers.Padded, {"buckets": []}, r"buckets=\[\]: expected increasing whole numbers"),
        (readers.Ragged, {"buckets": [5, 5]}, "expected increasing whole numbers"),
        (readers.Padded, {"buckets": np.array([2.5, 4])}, "whole numbers of at least 1"),
        (readers.Padded, {"buckets": {"a": [1], "b": [2]}}, "a dict with one feature's name"),
    ],
)
def test_values_of_a_format_are_checked(kind, how, message):
    with pytest.raises(ValueError, match=message):
        kind(**how)


@pytest.mark.parametrize(
    ("batching", "message"),
    [
        ("bucketed?", "batching='bucketed.': expected 'dense', 'padded', 'ragged', readers.Padded"),
        ("packed", r"lacks the length of a row: use readers.Packed\(512\)"),
        (None, "batching=None: expected 'dense'"),
    ],
)
def test_what_is_no_format_is_refused(dataset, batching, message):
    with pytest.raises(ValueError, match=message):
        readers.as_numpy(dataset, 4, batching=batching)


@pytest.mark.parametrize("length", [2**40, 2**61, 2**70])
def test_padding_that_no_memory_holds_is_refused_in_one_line(tmp_path, length):
    path = write_dataset(tmp_path, SCHEMA, {"train": [records(4)]})
    padded = readers.Padded({"signal": length}, to="max_length")
    with pytest.raises(ValueError, match=r"a padded batch \[4, .*\] of float32 does not fit into"):
        next(iter(readers.as_numpy(path, 4, batching=padded, columns=["signal"])))
