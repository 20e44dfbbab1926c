"""The sketches of texts, by which near duplicates are found."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from beam_jobs.jobs.near import Near, SketchBuilder, Sketched, joined_texts
from beam_jobs.jobs.split_rules import SplitRules
from beam_jobs.jobs.text.split_texts import all_texts, splits_of
from beam_jobs.sources.chunks import Task

if TYPE_CHECKING:
    from beam_jobs.jobs.text.job import TextJob


def text_sketches(job: TextJob, near: Near, rules: SplitRules, task: Task) -> Sketched:
    """The sketches of a task's texts, without those that are dropped because they are equal to others."""
    builder = SketchBuilder(near, task.id)
    dropped = task.dropped_rows
    first = 0
    for texts in all_texts(job, task):
        splits, errors = splits_of(job, texts, rules)
        rows = np.delete(np.arange(len(texts.keys)), list(errors))
        rows = rows[~np.isin(rows + first, dropped)]
        good = texts.take(rows)
        fields = zip(*map(good.of_field, range(len(job.text_features))), strict=True)
        values = list(map(joined_texts, fields))
        orders = rules.placement.orders(good.keys)
        builder.add(rows + first, orders, splits[rows], values)
        first += len(texts.keys)
    return builder.finish(len(task.chunks))
