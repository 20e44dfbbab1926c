"""Checks of single pictures, texts and signals."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator

import numpy as np

from readers.checks.facts import Check, Facts
from readers.format.findings import Finding

# Findings about a larger share of the records are notes: these records are normal for the dataset.
_USUAL = 0.5

# Selects records, bool [records], given a function from the name of a measure to its values, float64 [records].
_Chosen = Callable[[Callable[[str], np.ndarray]], np.ndarray]

# The predicate of a check, and its records.
_Row = tuple[str, _Chosen]

_NOTES = ("long_pictures", "gray_pictures", "markup", "few_letters")
_ERRORS = ("undecodable_pictures",)

# Kinds of features -> the checks of them.
_ROWS: dict[tuple[str, ...], dict[str, _Row]] = {
    ("picture",): {
        "undecodable_pictures": ("cannot be decoded", lambda m: m("undecodable") == 1),
        "dark_pictures": ("have 99% of their pixels below 0.2 of white", lambda m: m("dark") < 0.2),
        "light_pictures": (
            "have 95% of their pixels above 0.95 of white",
            lambda m: m("light") > 0.95,
        ),
        "flat_pictures": (
            "have less than 1 bit of information per pixel",
            lambda m: m("entropy") < 1,
        ),
        # Of sharp photographs, 99% of crops have a sharpness above 0.6; blurred by a Gaussian of two or three pixels and
        # saved as a JPEG of quality 75 or more, 95% are below 0.43 (tests/readers/measures/test_measures.py).
        "blurry_pictures": (
            "have edges as smooth as a photograph blurred by two pixels",
            lambda m: (m("sharpness") < 0.43) & (m("entropy") >= 1),
        ),
        "long_pictures": (
            "have one side more than three times as long as the other",
            lambda m: (m("aspect") > 3) | (m("aspect") < 1 / 3),
        ),
        "tiny_pictures": (
            "have a side shorter than 8 pixels",
            lambda m: (m("height") < 8) | (m("width") < 8),
        ),
        "gray_pictures": ("have equal color channels", lambda m: m("gray") == 1),
    },
    ("text",): {
        "empty_texts": ("have no words", lambda m: m("words") == 0),
        "wrong_encodings": (
            "have characters that look like UTF-8 read as Latin-1",
            lambda m: m("mojibake") > 0,
        ),
        "control_characters": (
            "have control characters, or replacements for bytes that were not UTF-8",
            lambda m: m("control") > 0,
        ),
        "markup": ("have HTML tags or entities", lambda m: m("markup") > 0),
        "few_letters": (
            "have 20 characters or more, but less than 30% letters",
            lambda m: (m("characters") >= 20) & (m("letters") < 0.3),
        ),
    },
    ("signal", "picture", "floats", "integers"): {
        "empty_arrays": ("are empty", lambda m: m("size") == 0),
        "missing_values": ("contain NaN or infinity", lambda m: m("missing") > 0),
    },
    ("signal",): {
        "constant_channels": (
            "have a channel with a single value other than 0",
            lambda m: m("constant") > m("dead"),
        ),
        "dead_channels": ("have a channel of only zeros", lambda m: m("dead") > 0),
        "clipped_signals": (
            "have a channel that stays at its extremes for more than 1% of the steps",
            lambda m: m("clipped") > 0.01,
        ),
    },
}


def _check(kinds: tuple[str, ...], name: str, finds: str, chosen: _Chosen) -> Check:
    severity = "error" if name in _ERRORS else "note" if name in _NOTES else "warning"

    def find(facts: Facts) -> Iterator[Finding]:
        for feature in facts.features.of_kind(*kinds):
            mask = chosen(functools.partial(facts.measured, feature))
            is_usual = severity != "error" and mask.sum() > _USUAL * len(mask)
            yield from facts.of_records(
                name, "note" if is_usual else severity, feature, mask, finds
            )

    return find


CHECKS: dict[str, Check] = {
    name: _check(kinds, name, *row) for kinds, rows in _ROWS.items() for name, row in rows.items()
}
