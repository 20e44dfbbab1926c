"""Texts: lengths, scripts, unknown tokens, control characters, and the most frequent words."""

from __future__ import annotations

import unicodedata
from typing import Any

import numpy as np

from readers.format.manifest import RESERVED_IDS, UNKNOWN_ID
from readers.measures.texts import CHARACTERS, Words, merged
from readers.page.charts import bars
from readers.page.distributions.drawings import histograms
from readers.page.numbers import part, percent, short
from readers.page.section import Section
from readers.page.study import Study

_WORDS, _SCRIPTS, _CONTROL = 20, 12, 12


def section(study: Study) -> Section | None:
    """The texts of each feature that holds them, and the tokens."""
    names = study.facts.features.of_kind("text")
    shown = [_text(study, name) for name in names if study.words(name)]
    tokens = _tokens(study)
    if not shown and not tokens:
        return None
    return Section.filled("texts", shown=shown, tokens=tokens)


def _text(study: Study, name: str) -> dict[str, Any]:
    found = merged(study.words(name).values())
    samples = {s: sample.measures[name] for s, sample in study.samples.items() if sample.seen}
    every = {
        measure: np.concatenate([measures[measure] for measures in samples.values()])
        for measure in ("characters", "words", "mojibake", "markup", "control")
    }
    anchor = study.anchor(name, kind="text")
    seen = len(every["characters"])
    letters = sum(count for script, count in found.scripts.items() if script)
    facts = [
        ("Characters a text", _middle(every["characters"])),
        ("Words a text", _middle(every["words"])),
        ("Different words", f"{len(found.words):,}"),
        ("Without a word", part(int((every["words"] == 0).sum()), seen)),
        ("With control characters", part(int((every["control"] > 0).sum()), seen)),
        ("With a wrong encoding", part(int((every["mojibake"] > 0).sum()), seen)),
        ("With markup", part(int((every["markup"] > 0).sum()), seen)),
    ]
    drawings = [
        histograms({s: m[measure] for s, m in samples.items()}, f"{anchor}-{measure}", caption)
        for measure, caption in (
            ("characters", "Texts by their number of characters"),
            ("words", "Texts by their number of words"),
        )
    ]
    scripts = [(s, n) for s, n in found.scripts.most_common() if s][:_SCRIPTS]
    return {
        "feature": name,
        "anchor": anchor,
        "facts": facts,
        "source": f"Of {seen:,} texts of the sample; words, scripts and control characters of the first "
        f"{CHARACTERS:,} characters of each.",
        "drawings": [drawing for drawing in drawings if drawing is not None],
        "words": bars(found.words.most_common(_WORDS), found.words.total()),
        "scripts": bars(scripts, letters),
        "control": _control(found),
    }


def _middle(values: np.ndarray) -> str:
    """The median, and the ends."""
    low, middle, high = np.quantile(values, (0, 0.5, 1), method="inverted_cdf")
    return f"{short(float(middle))} ({short(float(low))} to {short(float(high))})"


def _control(found: Words) -> list[tuple[str, int]]:
    """Control characters by their code points, and how often they occur."""
    return [
        (f"U+{code:04X} {unicodedata.name(chr(code), '')}".strip(), count)
        for code, count in found.control.most_common(_CONTROL)
    ]


def _tokens(study: Study) -> list[tuple[str, ...]]:
    """(split, tokens, unknown ones, padding, different ones) of all records of a dataset with a vocabulary of words or a tokenizer."""
    vocabulary = study.manifest.vocabulary or study.manifest.tokenizer
    feature, found = study.facts.features.named("tokens"), list[tuple[str, ...]]()
    for name, split in study.manifest.splits.items():
        counts = split.counts_of(feature)
        if not counts:
            continue
        total = counts.total()
        # The ids of a tokenizer have meanings of their own.
        reserved = range(RESERVED_IDS if study.manifest.vocabulary else 0)
        used = sum(1 for token in counts if token not in reserved)
        unknown, padding = (
            percent(counts[token] / total) if reserved else "" for token in (UNKNOWN_ID, 0)
        )
        size = f" of {vocabulary:,}" if vocabulary else ""
        found.append((name, f"{total:,}", unknown, padding, f"{used:,}{size}"))
    return found
