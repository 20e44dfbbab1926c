"""Checks for equal and nearly equal records, within a split and between splits, and for constant features."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from readers.checks.facts import EXAMPLES, Check, Facts
from readers.format.findings import Finding

# A person did not write a text that so many records share for each of them: "no answer", for example.
_FEWEST_COPIES, _MOST_COPIES = 10, 0.01

# Fewer records may all differ by chance.
_FEWEST_NAMES = 100

# Values that should be unique to a record: pictures, texts and signals, or the rows of a table without them. Many
# records may share a scalar, or a short text that names a category, such as a city.
_KINDS = ("picture", "text", "signal")
_COLUMNS = ("floats", "integers", "text")

# Names that occur in ten records on average are categories, and equal ones are not copies.
_RECORDS_A_CATEGORY = 10

# Rows are compared if fewer equal pairs are expected by chance, with independent columns.
_PAIRS_BY_CHANCE = 0.01

# The digest of a row is a polynomial of the digests of its columns.
_FACTOR = np.uint64(0x9E3779B97F4A7C15)

# A feature, or empty for all features except the label; and digests of its values, uint64 [records].
_Content = tuple[str, np.ndarray]


def _contents_of(facts: Facts) -> list[_Content]:
    """Selects the pictures, texts and signals of a dataset, or the rows of its table if it has none of these."""
    features = [name for name in facts.features.of_kind(*_KINDS) if not _names_things(facts, name)]
    return [(name, facts.digests(name)) for name in features] or _rows(facts)


def _names_things(facts: Facts, feature: str) -> bool:
    """Whether the texts of a feature name categories or single records."""
    found = facts.digests(feature)
    different = len(np.unique(found))
    is_category = different * _RECORDS_A_CATEGORY <= len(found)
    return facts.is_name(feature) and (is_category or different == len(found))


def _rows(facts: Facts) -> list[_Content]:
    """The rows of a table, without the label and columns that name records; none if equal rows would occur by chance."""
    rows = np.zeros(len(facts.splits), np.uint64)
    pairs = len(rows) ** 2 / 2
    for name in facts.features.of_kind(*_COLUMNS):
        column = facts.digests(name)
        counts = np.unique(column, return_counts=True)[1]
        names_each = facts.features.kinds[name] != "floats" and len(counts) == len(column)
        if name != facts.label and not names_each:
            rows = rows * _FACTOR + column
            pairs *= float(np.square(counts / len(rows)).sum())
    return [("", rows)] if pairs < _PAIRS_BY_CHANCE else []


def _values(digests: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The number of the value of each record, given digests, and how many records have each value."""
    _, numbers, counts = np.unique(digests, return_inverse=True, return_counts=True)
    return numbers, counts


def _in_several(digests: np.ndarray, groups: np.ndarray) -> np.ndarray:
    """Which records share a value with a record of another group, bool [records]; empty values are ignored."""
    pairs = np.unique(np.stack([digests, groups.astype(np.uint64)]), axis=1)
    values, counts = np.unique(pairs[0], return_counts=True)
    return np.isin(digests, values[counts > 1]) & (digests != 0)


def _duplicates(facts: Facts) -> Iterator[Finding]:
    for feature, found in _contents_of(facts):
        in_split = _values(found)[0] * len(facts.samples) + facts.splits
        _, first, numbers = np.unique(in_split, return_index=True, return_inverse=True)
        firsts = first[numbers]
        again = (found != 0) & (firsts != np.arange(len(found)))
        finds = f"{_are_equal_to(feature)} an earlier record of the same split"
        pairs = np.stack([firsts[again], np.flatnonzero(again)], axis=1)
        yield from _of_pairs(facts, "duplicates", feature, again, finds, pairs)


def _of_pairs(
    facts: Facts, check: str, feature: str, mask: np.ndarray, finds: str, pairs: np.ndarray
) -> Iterator[Finding]:
    """Yields a warning about the records of a mask; its examples are the first of some pairs, int64 [pairs, 2]."""
    for finding in facts.of_records(check, "warning", feature, mask, finds):
        first = pairs[:EXAMPLES]
        examples = tuple(" and ".join(facts.names_of_records(pair)) for pair in first)
        yield replace(finding, examples=examples, places=facts.places(first.reshape(-1)))


def _leaks(facts: Facts) -> Iterator[Finding]:
    for feature, found in _contents_of(facts):
        mask = _in_several(found, facts.splits)
        words = f"{_are_equal_to(feature)} a record of another split"
        yield from facts.of_records("leaks", "error", feature, mask, words)


def _contradictions(facts: Facts) -> Iterator[Finding]:
    labels = [s.labels for s in facts.samples.values() if s.labels is not None]
    if not labels or len(labels) < len(facts.samples):
        return
    for feature, found in _contents_of(facts):
        mask = _in_several(found, np.concatenate(labels))
        words = f"{_are_equal_to(feature)} a record with another label"
        yield from facts.of_records("contradictions", "warning", feature, mask, words)


def _are_equal_to(feature: str) -> str:
    return "have the same value as" if feature else "have the same values, except for the label, as"


def _phrases(facts: Facts) -> Iterator[Finding]:
    texts = facts.features.of_kind("text")
    for feature, found in _contents_of(facts):
        values, counts = np.unique(found[found != 0], return_counts=True)
        is_repeated = counts.max(initial=0) >= max(_FEWEST_COPIES, _MOST_COPIES * len(found))
        if feature in texts and is_repeated and len(np.unique(found)) > 1:
            mask, words = found == values[counts.argmax()], "have the same text"
            yield from facts.of_records("repeated_texts", "warning", feature, mask, words)


def _constant(facts: Facts) -> Iterator[Finding]:
    for feature in facts.features.of_kind("picture", "text", "signal", "floats", "integers"):
        numbers, counts = _values(facts.digests(feature))
        if len(counts) == 1 and len(numbers) > 1:
            words = f"all {len(numbers):,} records have the same value"
            yield Finding("constant_features", "warning", words, feature, seen=len(numbers))


def _identifiers(facts: Facts) -> Iterator[Finding]:
    for feature in facts.features.of_kind("integers", "text"):
        numbers, counts = _values(facts.digests(feature))
        schema = facts.manifest.schema[feature]
        is_word = schema.dtype != "string" or bool((facts.measured(feature, "words") == 1).all())
        if is_word and not schema.shape and _FEWEST_NAMES <= len(numbers) == len(counts):
            words = f"all {len(numbers):,} records have different values, so a model can only memorise it"
            yield Finding("identifiers", "note", words, feature, seen=len(numbers))


def _near(facts: Facts, name: str, words: str, in_one_split: bool) -> Iterator[Finding]:
    splits = facts.splits
    for feature, (first, second) in facts.similar.items():
        chosen = (splits[first] == splits[second]) == in_one_split
        pairs = np.stack([first[chosen], second[chosen]], axis=1)
        mask = np.isin(np.arange(len(splits)), pairs)
        yield from _of_pairs(facts, name, feature, mask, f"are nearly the same as {words}", pairs)


CHECKS: dict[str, Check] = {
    "duplicates": _duplicates,
    "leaks": _leaks,
    "contradictions": _contradictions,
    "repeated_texts": _phrases,
    "constant_features": _constant,
    "identifiers": _identifiers,
    "near_duplicates": lambda facts: _near(
        facts, "near_duplicates", "another record of the same split", True
    ),
    "near_leaks": lambda facts: _near(facts, "near_leaks", "a record of another split", False),
}
