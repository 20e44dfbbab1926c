"""The texts of a task that become records, their splits, and the sketches that find equal and near ones."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

import numpy as np

from beam_jobs.errors import RejectError
from beam_jobs.jobs.near import Near, SketchBuilder, Sketched
from beam_jobs.jobs.split_rules import SplitRules
from beam_jobs.jobs.text.text_reader import TextSpec
from beam_jobs.jobs.text.texts import Texts
from beam_jobs.records.rejects import Reject
from beam_jobs.sources.chunks import Task
from beam_jobs.sources.extra_features import extra_values
from beam_jobs.storage.files import reading_ahead


def all_texts(spec: TextSpec, task: Task) -> Iterator[Texts]:
    """Yields the texts of a task, including those that are dropped as duplicates."""
    with reading_ahead(chain.from_iterable(map(spec.reads, task.chunks))):
        for chunk in task.chunks:
            yield from spec.batches(chunk)


def split_texts(
    spec: TextSpec, task: Task, rules: SplitRules
) -> Iterator[tuple[Texts, np.ndarray, np.ndarray]]:
    """Yields the texts of a task that become records.

    Yields:
        The texts, without those that are dropped or rejected; uint8 [n], the split of each; and uint8
        [m], the splits of those that are dropped.
    """
    dropped = task.dropped_rows
    first = 0
    for texts in all_texts(spec, task):
        rows = np.arange(len(texts.keys))
        low, high = np.searchsorted(dropped, [first, first + len(rows)])
        keys = [key + b"@1" for key in texts.keys] if spec.window else texts.keys
        without = np.union1d(dropped[low:high] - first, rules.placement.skipped(keys))
        first += len(rows)
        duplicates = np.empty(0, np.uint8)
        if len(without):
            duplicates, _ = splits_of(spec, texts.take(without), rules.of_dropped)
            texts = texts.take(np.delete(rows, without))
        splits, errors = splits_of(spec, texts, rules)
        if errors:
            texts.rejects.extend(
                Reject.of(texts.keys[row].decode(), "read", error) for row, error in errors.items()
            )
            kept = np.delete(np.arange(len(texts.keys)), list(errors))
            texts, splits = texts.take(kept), splits[kept]
        yield texts, splits, duplicates


def splits_of(spec: TextSpec, texts: Texts, rules: SplitRules) -> tuple[np.ndarray, dict[int, str]]:
    """The split of each text, uint8 [n], and why some rows must be rejected."""
    splits, errors = rules.splits_of(texts.keys, texts.rows, texts.labels)
    if spec.extras:
        for number, row in enumerate(texts.rows):
            try:
                extra_values(spec.extras, row)
            except RejectError as error:
                errors.setdefault(number, str(error))
    return splits, errors


def text_sketches(spec: TextSpec, near: Near, rules: SplitRules, task: Task) -> Sketched:
    """The sketches of a task's texts, without those that an earlier search has dropped."""
    builder = SketchBuilder(near, task.id)
    dropped = task.dropped_rows
    first = 0
    for texts in all_texts(spec, task):
        _, errors = splits_of(spec, texts, rules)
        rows = np.delete(np.arange(len(texts.keys)), list(errors))
        rows = rows[~np.isin(rows + first, dropped)]
        good = texts.take(rows)
        values = list(map(near.value_of_texts, zip(*good.texts, strict=True)))
        orders = rules.placement.orders(good.keys)
        builder.add(rows + first, orders, values)
        first += len(texts.keys)
    return builder.finish(task.count)
