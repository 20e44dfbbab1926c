"""Checks of single records: pictures, texts and signals that are odd by themselves."""

from __future__ import annotations

from collections.abc import Iterator

from readers.checks.facts import Check, Facts, records_with
from readers.format.findings import Finding


def _undecodable(facts: Facts) -> Iterator[Finding]:
    for feature in facts.features.of_kind("picture"):
        broken = facts.measured(feature, "undecodable") == 1
        yield from facts.of_records(
            "undecodable_pictures", "error", feature, broken, "cannot be decoded"
        )


CHECKS = (
    Check(
        "undecodable_pictures",
        "pictures whose bytes cannot be decoded; no other check sees them",
        _undecodable,
    ),
    records_with(
        "dark_pictures",
        "warning",
        "picture",
        "have 99 % of their pixels below 0.2 of white",
        lambda m: m["dark"] < 0.2,
    ),
    records_with(
        "light_pictures",
        "warning",
        "picture",
        "have 95 % of their pixels above 0.95 of white",
        lambda m: m["light"] > 0.95,
    ),
    records_with(
        "flat_pictures",
        "warning",
        "picture",
        "have less than 1 bit of information a pixel",
        lambda m: m["entropy"] < 1,
    ),
    # Of crops of real photographs, 99 % have a sharpness above 0.6; blurred by a Gaussian of two or three pixels and
    # then saved as a JPEG of quality 75 or more, 95 % have one below 0.43 (tests/readers/measures/test_measures.py).
    records_with(
        "blurry_pictures",
        "warning",
        "picture",
        "have edges as smooth as those of a photograph blurred by two pixels",
        lambda m: (m["sharpness"] < 0.43) & (m["entropy"] >= 1),
    ),
    records_with(
        "long_pictures",
        "note",
        "picture",
        "have one side more than three times the other",
        lambda m: (m["aspect"] > 3) | (m["aspect"] < 1 / 3),
    ),
    records_with(
        "tiny_pictures",
        "warning",
        "picture",
        "have a side of less than 8 pixels",
        lambda m: (m["height"] < 8) | (m["width"] < 8),
    ),
    records_with(
        "gray_pictures",
        "note",
        "picture",
        "have the same value in all channels",
        lambda m: m["gray"] == 1,
    ),
    records_with("empty_texts", "warning", "text", "have no word", lambda m: m["words"] == 0),
    records_with(
        "wrong_encodings",
        "warning",
        "text",
        "have characters as UTF-8 has when it is read as Latin-1",
        lambda m: m["mojibake"] > 0,
    ),
    records_with(
        "control_characters",
        "warning",
        "text",
        "have control characters, or replacements of bytes that were no text",
        lambda m: m["control"] > 0,
    ),
    records_with(
        "markup", "note", "text", "have tags or entities of HTML", lambda m: m["markup"] > 0
    ),
    records_with(
        "few_letters",
        "note",
        "text",
        "of 20 characters or more have less than 30 % letters",
        lambda m: (m["characters"] >= 20) & (m["letters"] < 0.3),
    ),
    records_with("empty_arrays", "warning", "value", "are empty", lambda m: m["size"] == 0),
    records_with(
        "missing_values", "warning", "value", "contain NaN or infinity", lambda m: m["missing"] > 0
    ),
    records_with(
        "constant_channels",
        "warning",
        "signal",
        "have a channel of one value, which is not 0",
        lambda m: m["constant"] > m["dead"],
    ),
    records_with(
        "dead_channels", "warning", "signal", "have a channel of zeros", lambda m: m["dead"] > 0
    ),
    records_with(
        "clipped_signals",
        "warning",
        "signal",
        "have a channel that stays at its extremes for more than 1 % of the steps",
        lambda m: m["clipped"] > 0.01,
    ),
)
