"""Describes a dataset by its manifest, as text for `beam-shards info`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from readers.format.display import (
    features_table,
    first_names,
    format_table,
    splits_table,
    visible_line,
)
from readers.format.manifest import TOKENIZER, Manifest
from readers.format.splits import Split

# Classes shown without --labels.
_CLASSES_SHOWN = 12


def describe(directory: str, manifest: Manifest, all_labels: bool = False) -> str:
    """The schema, splits, labels, vocabulary, rejected inputs and statistics as text."""
    return "\n".join(_lines(directory, manifest, None if all_labels else _CLASSES_SHOWN))


def _lines(directory: str, manifest: Manifest, shown: int | None) -> Iterator[str]:
    yield visible_line(directory)
    yield ""
    yield format_table(features_table(manifest.schema))
    yield ""
    yield format_table(splits_table(manifest.splits))
    yield ""
    counted, names = manifest.counted_label, manifest.classes
    if counted:
        rows = list(_label_counts(manifest, counted, names.get(counted, ())))
        yield format_table([(f"records by {counted}", *manifest.splits), *rows[:shown]])
        if len(rows) > len(rows[:shown]):
            yield f"and {len(rows) - len(rows[:shown]):,} more; --labels shows all"
        yield ""
    if not manifest.label_names:
        yield from _label_numbers(manifest)
    if manifest.num_classes:
        yield f"classes     {manifest.num_classes:,}"
    for feature, found in names.items():
        if feature != counted:
            title = "labels" if feature == (manifest.label or "label") else feature
            yield f"{title:<10}  {len(found):,}: {first_names(found, shown)}"
    if manifest.vocabulary:
        yield f"vocabulary  {manifest.vocabulary:,} tokens"
    if manifest.tokenizer:
        yield f"tokenizer   {manifest.tokenizer:,} ids, in {manifest.files[TOKENIZER].path}"
    for feature, channels in manifest.channel_titles.items():
        yield f"channels    {feature}: {first_names(channels, shown)}"
    yield f"rejected    {manifest.rejected:,}"
    yield from (f"remark      {line}" for line in manifest.remarks.lines())
    if manifest.versions:
        yield f"written by  {', '.join(f'{k} {v}' for k, v in manifest.versions.items())}"
    for name, split in manifest.splits.items():
        if split.statistics:
            yield ""
            yield f"statistics of {name}"
            yield format_table(_statistics(split))


def _label_counts(
    manifest: Manifest, feature: str, names: Sequence[str]
) -> Iterator[tuple[str, ...]]:
    """Yields a row for each label by id: the id with its name, and its records in each split."""
    splits = [split.counts_of(feature) or Counter() for split in manifest.splits.values()]
    for label in sorted({*range(len(names)), *(value for counts in splits for value in counts)}):
        yield (named(label, names), *(f"{counts.get(label, 0):,}" for counts in splits))


def named(label: int, names: Sequence[str]) -> str:
    """A label as text, with the name of its class if it has one: `3 (cat)`."""
    return f"{label} ({names[label]})" if 0 <= label < len(names) else str(label)


def _label_numbers(manifest: Manifest) -> Iterator[str]:
    """Yields the number and the range of integer labels, and why a loss may not accept them as class ids."""
    if not manifest.label_range:
        return
    counts, classes = manifest.counts_of(manifest.label), manifest.num_classes
    low, high = manifest.label_range
    number = "" if counts is None else f"{len(counts):,} "
    yield f"labels      {number}whole numbers, {low} to {high}"
    if classes is None:
        yield "            some are negative: convert them for a loss that needs ids from 0"
    elif counts is not None and len(counts) < classes:
        first = next(n for n in range(classes) if n not in counts)
        rest = f"{classes - len(counts):,} of 0 to {classes - 1} have no records, such as {first}"
        yield f"            {rest}"


def _statistics(split: Split) -> Iterator[tuple[str, ...]]:
    """The table of a split's statistics, with a column for values that are not finite if there are any."""
    figures = list(_figures(split))
    columns = {name: name for name in ("count", "nan", "min", "max", "mean", "std")}
    columns["nan"] = "nan or inf"
    if split.gone or split.rows:  # Records with the extremes may be gone.
        columns |= {"min": "min at least", "max": "max at most"}
    if not any("nan" in row for _, _, row in figures):
        del columns["nan"]
    yield ("  feature", "of", *columns.values())
    for feature, what, row in figures:
        yield (f"  {feature}", what, *(_number(row.get(column, "")) for column in columns))


def _figures(split: Split) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    """Yields (feature, `values`, `bytes` or a dimension of unknown size, its statistics)."""
    for feature, figures in split.statistics.items():
        if not isinstance(figures, Mapping):
            continue
        if "count" in figures:
            yield feature, "values", figures
        lengths = figures.get("lengths")
        for what, row in lengths.items() if isinstance(lengths, Mapping) else ():
            if isinstance(row, Mapping):
                yield feature, what if what == "bytes" else f"dimension {what}", row


def _number(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:,.6g}"
    return f"{value:,}" if isinstance(value, int) else str(value)
