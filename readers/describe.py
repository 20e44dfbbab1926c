"""Describes a dataset and its first records as text, for `python -m readers info` and `head`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from readers.format.display import format_balance, format_bytes, format_table
from readers.format.manifest import TOKENIZER, Manifest, Split
from readers.format.schema import dtype_name, format_shape
from readers.shards.records import Records
from readers.shards.resolve import resolve

# How much to show of an array, a text, and a list of labels.
_VALUES_SHOWN, _CHARACTERS_SHOWN, _LABELS_SHOWN = 5, 100, 12


def describe(directory: str, manifest: Manifest) -> str:
    """The schema, splits, labels, vocabulary, rejected inputs and statistics as text."""
    return "\n".join(_lines(directory, manifest))


def _lines(directory: str, manifest: Manifest) -> Iterator[str]:
    yield directory
    yield ""
    features = [
        (name, f.dtype, format_shape(f.shape), f.encoding) for name, f in manifest.schema.items()
    ]
    yield format_table([("feature", "dtype", "shape", "encoding"), *features])
    yield ""
    splits = [_split_row(name, split) for name, split in manifest.splits.items()]
    header = ("split", "records", "shards", "records a shard", "bytes", "rejected", "duplicates")
    columns = None if manifest.duplicates else -1
    yield format_table(row[:columns] for row in (header, *splits))
    yield ""
    if manifest.label_names:
        yield f"labels      {len(manifest.label_names)}: {_shortened(manifest.label_names)}"
    elif numbers := _label_numbers(manifest):
        yield f"labels      {numbers}"
    for name, names in manifest.class_names.items():
        if names:
            yield f"{name:<10}  {len(names)}: {_shortened(names)}"
    if manifest.vocabulary:
        yield f"vocabulary  {manifest.vocabulary:,} tokens"
    if manifest.tokenizer:
        yield f"tokenizer   {manifest.tokenizer:,} ids, in {TOKENIZER}"
    yield f"rejected    {manifest.rejected:,}"
    if manifest.versions:
        yield f"written by  {', '.join(f'{k} {v}' for k, v in manifest.versions.items())}"
    for name, split in manifest.splits.items():
        if split.statistics:
            yield ""
            yield f"statistics of {name}"
            yield format_table(
                [("  feature", "of", "count", "min", "max", "mean", "std"), *_figures(split)]
            )


def _split_row(name: str, split: Split) -> tuple[str, ...]:
    return (
        name,
        f"{split.records:,}",
        f"{len(split.shards):,}",
        format_balance([shard.records for shard in split.shards]),
        format_bytes(split.bytes),
        f"{split.rejected:,}",
        f"{split.duplicates:,}",
    )


def _shortened(names: Sequence[str]) -> str:
    rest = len(names) - _LABELS_SHOWN
    return ", ".join(names[:_LABELS_SHOWN]) + (f" and {rest:,} more" if rest > 0 else "")


def _label_numbers(manifest: Manifest) -> str:
    """How many whole numbers are labels, and their range; empty without such labels."""
    found = [split.statistics.get("label") for split in manifest.splits.values()]
    figures = [each for each in found if isinstance(each, Mapping) and "min" in each]
    if not figures or manifest.schema["label"].dtype != "int64":
        return ""
    counts = manifest.counts_of("label")
    number = f"{len(counts):,} " if counts is not None else ""
    low, high = min(each["min"] for each in figures), max(each["max"] for each in figures)
    return f"{number}whole numbers, {low} to {high}"


def _figures(split: Split) -> Iterator[tuple[str, ...]]:
    """A row for the values of each feature, and one for each of its unknown dimensions."""
    columns = ("count", "min", "max", "mean", "std")
    for feature, figures in split.statistics.items():
        if not isinstance(figures, Mapping):
            continue
        rows = {"values": figures} if "count" in figures else {}
        lengths_of = figures.get("lengths")
        for what, lengths in lengths_of.items() if isinstance(lengths_of, Mapping) else ():
            rows[what if what == "bytes" else f"dimension {what}"] = lengths
        for what, row in rows.items():
            if isinstance(row, Mapping):
                yield (f"  {feature}", what, *(_number(row.get(column, "")) for column in columns))


def _number(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def first_records(directory: str, split: str | None, count: int) -> Iterator[str]:
    """Yields lines that show the first records of a split or a slice of one.

    Each array is shown by its dtype, shape and first values.

    Args:
        directory: The dataset's directory.
        split: The split or slice; None means the only split, or `train`.
        count: The number of records.

    Raises:
        ValueError: The count is below 1, or the dataset, split or a record cannot be read.
    """
    if count < 1:
        raise ValueError(f"-n {count}: expected a number of at least 1")
    records = Records(resolve(directory, split, None, None))
    shown = min(count, len(records))
    width = max(map(len, records.plan.schema))
    for number in range(shown):
        yield f"{records.plan.name}, record {number} of {len(records)}"
        for name, value in records.read([number])[0].items():
            yield f"  {name.ljust(width)}  {summary(value)}"
    if not shown:
        yield f"{records.plan.name} holds no records"


def summary(value: Any) -> str:
    """An array, or a list of arrays, in one line: dtype, shape, first values and range."""
    if isinstance(value, list):
        shown = "; ".join(summary(array) for array in value[:3])
        return f"{len(value)} arrays: {shown}{'; ...' if len(value) > 3 else ''}"
    kind = f"{dtype_name(value.dtype)} {format_shape(value.shape)}"
    first = value.reshape(-1)[:_VALUES_SHOWN]
    if value.dtype == object:
        shown = ", ".join(_text(item) for item in first)
    else:
        shown = ", ".join(f"{item}" for item in first)
    if value.size > _VALUES_SHOWN:
        shown += ", ..."
    if value.size > 1 and value.dtype.kind not in "Oc":
        shown += f"  ({value.min()} to {value.max()})"
    return f"{kind}  {shown}".rstrip()


def _text(data: bytes) -> str:
    text = data.decode("utf-8", "replace")
    cut = len(text) > _CHARACTERS_SHOWN
    return repr(text[:_CHARACTERS_SHOWN]) + ("..." if cut else "")
