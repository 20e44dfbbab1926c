"""The tables of `check_shards.py`: what each contender finds, and what that takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from planted.bench import Result
from planted.contender import CONTENDERS
from planted.truth import Truth


def format_results(dataset: str, truth: Truth, results: Sequence[Result]) -> str:
    """Returns the table of a dataset in Markdown, and a line for each contender that has no row."""
    done = [result for result in results if not result.problem]
    titles = [CONTENDERS[result.contender].title for result in done]
    kinds = list(truth.faults)
    rows = [[dataset, *titles]]
    rows += [[kind, *(str(result.scores.get(kind, "-")) for result in done)] for kind in kinds]
    rows += [
        ["seconds", *(f"{result.seconds:.1f}" for result in done)],
        ["peak GB", *(f"{result.peak_bytes / 1e9:.2f}" for result in done)],
        ["page: seconds more", *(_or_none(result.page_seconds, "{:.1f}") for result in done)],
        ["page: MB", *(_or_none(_megabytes(result), "{:.2f}") for result in done)],
        ["page: needs the network", *(_network(result) for result in done)],
    ]
    lines = [f"| {' | '.join(row)} |" for row in rows]
    lines.insert(1, "|---|" + "--:|" * len(done))
    notes = [f"- {CONTENDERS[r.contender].title}: {r.problem}" for r in results if r.problem]
    notes += [
        f"- {CONTENDERS[r.contender].title} has no page: {r.page_problem}"
        for r in results
        if r.page_problem
    ]
    return "\n".join([f"{truth.records:,} {dataset}", "", *lines, *([""] if notes else []), *notes])


def _or_none(value: float | None, form: str) -> str:
    return "no page" if value is None else form.format(value)


def _megabytes(result: Result) -> float | None:
    return None if result.page_bytes is None else result.page_bytes / 1e6


def _network(result: Result) -> str:
    if result.page_bytes is None:
        return "no page"
    return "yes" if result.needs_network else "no"


def to_json(results: Sequence[Result]) -> list[dict[str, Any]]:
    """Returns the results as JSON."""
    return [asdict(result) for result in results]
