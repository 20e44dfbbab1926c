"""The sketches of texts, by which equal and near ones are found without bringing the texts together."""

from __future__ import annotations

import numpy as np

from beam_jobs.jobs.near import Near, SketchBuilder, Sketched
from beam_jobs.jobs.split_rules import SplitRules
from beam_jobs.jobs.text.spec import TextSpec
from beam_jobs.jobs.text.split_texts import all_texts, splits_of
from beam_jobs.sources.chunks import Task


def text_sketches(spec: TextSpec, near: Near, rules: SplitRules, task: Task) -> Sketched:
    """The sketches of a task's texts, without those that an earlier search has dropped."""
    builder = SketchBuilder(near, task.id)
    dropped = task.dropped_rows
    first = 0
    for texts in all_texts(spec, task):
        splits, errors = splits_of(spec, texts, rules)
        rows = np.delete(np.arange(len(texts.keys)), list(errors))
        rows = rows[~np.isin(rows + first, dropped)]
        good = texts.take(rows)
        fields = zip(*map(good.of_field, range(len(spec.text_features))), strict=True)
        values = list(map(near.value_of_texts, fields))
        orders = rules.placement.orders(good.keys)
        builder.add(rows + first, orders, splits[rows], values)
        first += len(texts.keys)
    return builder.finish(task.count)
