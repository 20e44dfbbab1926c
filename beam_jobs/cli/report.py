"""The texts about a finished job or a dry run: its summary, warnings and notes."""

from __future__ import annotations

import re
import shlex
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from fractions import Fraction
from typing import Any

from beam_jobs.dataset.output import DEFAULT_SHARD_SIZE, Output
from beam_jobs.pipeline.dry_run import Findings, SplitSurvey
from beam_jobs.pipeline.tried_encodings import TriedEncoding
from beam_jobs.plan.shards import shard_sizes
from beam_jobs.records.rejects import MaxRejects, Reject
from beam_jobs.sources.labels import LABEL
from readers.format.display import (
    counted,
    features_table,
    first_names,
    format_balance,
    format_bytes,
    format_table,
    visible_line,
)
from readers.format.manifest import Manifest
from readers.format.rejects import Reason, reasons_of

# Labels whose counts are printed.
_MAX_LABELS = 20

# From this many shards on, those of fewer records and bytes than these cost more to open than to read.
_MANY_SHARDS = 100
_FEW_RECORDS = 10
_SMALL_SHARD = 1 << 20

# The lines about the reasons of rejects.
_MAX_REASONS = 5

_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,3})?")


def format_findings(findings: Findings) -> str:
    """The lines that a dry run prints; a column has the duplicates if there are any."""
    rows = [
        {
            "split": split.name,
            "records": f"{split.records:,}",
            "shards": f"{split.shards:,}",
            "records/shard": format_balance(shard_sizes(split.records, max(split.shards, 1))),
            "bytes (est.)": format_bytes(split.bytes),
            "bytes/shard": format_bytes(split.bytes / max(split.shards, 1)),
            "rejects": f"{split.rejected:,}",
            "duplicates": f"{split.duplicates:,}",
        }
        for split in findings.splits
    ]
    shown = None if any(split.duplicates for split in findings.splits) else -1
    lines = [format_table(features_table(findings.schema)), ""]
    lines.append(format_table([*row][:shown] for row in (rows[0], *(r.values() for r in rows))))
    for feature, counts in sorted(findings.labels.items()):
        lines.append(_label_line("labels" if feature == LABEL else feature, counts))
    if findings.rejects:
        lines.append("first rejects:")
        lines += [f"  {_shown(reject)}" for reject in findings.rejects]
    if findings.tried:
        lines.append(f"{findings.tried:,} records tried, {len(findings.failed):,} of them rejected")
        known = set(findings.rejects)
        lines += [f"  {_shown(reject)}" for reject in findings.failed if reject not in known]
    return "\n".join(lines)


def _shown(reject: Reject) -> str:
    # Names of files that are not UTF-8 hold lone surrogates, which say which bytes they have.
    return visible_line(str(reject).encode("utf-8", "backslashreplace").decode())


def _label_line(name: str, counts: dict[str, int]) -> str:
    most = sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))
    shown = first_names([f"{label}: {count:,}" for label, count in most], _MAX_LABELS)
    return f"{name}: {len(most):,} ({shown})"


def next_step(directory: str) -> str:
    """The line with the place of a finished dataset, and a command that shows it."""
    return f"written to {directory}; beam-shards head {shlex.quote(directory)} shows records"


def unused_classes(manifest: Manifest, feature: str) -> str:
    """Names the labels without a record, given their feature's name in Examples; empty for none."""
    counts = manifest.counts_of(feature)
    names = manifest.label_names
    unused = [name for id_, name in enumerate(names) if counts is not None and not counts[id_]]
    if not unused:
        return ""
    return (
        f"{first_names(unused, _MAX_LABELS)}: no record has these, of {len(names):,} labels; each keeps its "
        "id (docs/write/labels.md)"
    )


def fractions_as_names(manifest: Manifest) -> str:
    """A warning about numbers with fractions that became names of classes; empty if there are none."""
    names = manifest.label_names
    numbers = names if all(map(_NUMBER.fullmatch, names)) else ()
    fractions = [name for name in numbers if not float(name).is_integer()]
    if not fractions:
        return ""
    return (
        f"labels are classes, so numbers such as {fractions[0]} are names of {len(names):,} "
        "classes; --target column:NAME keeps numbers as they are"
    )


def splits_of(manifest: Manifest) -> tuple[SplitSurvey, ...]:
    """The splits of a finished dataset, as a dry run describes those of a future one."""
    return tuple(
        SplitSurvey(name, s.records, len(s.shards), s.bytes, s.rejected, s.duplicates)
        for name, s in manifest.splits.items()
    )


def warnings_of(
    output: Output, splits: Sequence[SplitSurvey], has_windows: bool, kept_out: int = 0
) -> Iterator[str]:
    """Yields a warning for each split or shard count that is probably not what the user wanted, and for kept out records.

    Args:
        output: The dataset that was asked for.
        splits: The splits that it has, in order.
        has_windows: Whether a recording or text may give several records, all in one split.
        kept_out: The number of records that are dropped because of `--keep_out`.
    """
    if kept_out:
        yield (
            f"--keep_out: {counted(kept_out, 'record')} dropped, nearly the same as records of the datasets "
            "to keep out"
        )
    records = sum(split.records for split in splits)
    if not records:
        return
    for split, share in zip(splits, output.placement.splits.fractions, strict=True):
        if not split.records:
            cause = _cause_of_empty(output, split, share, has_windows)
            yield f"split {split.name} is empty: {cause} (the dataset has {records:,} records)"
    for split, asked in zip(splits, output.num_shards, strict=True):
        if 0 < split.shards < asked:
            yield (
                f"split {split.name} has {split.shards:,} of {asked:,} shards: it has only "
                f"{counted(split.records, 'record')}, and a shard is never empty"
            )
    if small := _small_shards(output, splits):
        yield small


def tried_rejects(findings: Findings, limit: MaxRejects) -> str:
    """A warning if more of the tried records are rejected than the limit, a share of all, allows; else empty."""
    tried, failed = findings.tried, len(findings.failed)
    known = findings.tried_all or not isinstance(limit.limit, Fraction)
    if known or limit.allows(failed, tried):
        return ""
    return (
        f"{failed:,} of the {tried:,} records that were tried are rejected, more than {limit.text}: the job would "
        "probably fail"
    )


def alike_classes(names_by_feature: Mapping[str, Iterable[str]]) -> Iterator[str]:
    """Yields a warning for classes of a feature that differ only in case, blanks or Unicode form."""
    for feature, names in names_by_feature.items():
        alike: dict[str, list[str]] = {}
        for name in sorted(names):
            form = unicodedata.normalize("NFKC", name).casefold()
            alike.setdefault("".join(form.split()), []).append(name)
        groups = [_quoted(group) for group in alike.values() if len(group) > 1]
        if groups:
            yield (
                f"{feature}: {first_names(groups, _MAX_LABELS)} are different classes that differ only in "
                "case, blanks or Unicode form; if they mean the same, use one name for all their records"
            )


def _quoted(names: Sequence[str]) -> str:
    """Names whose differences can be seen."""
    alike = len({unicodedata.normalize("NFKC", name) for name in names}) < len(names)
    return " and ".join(map(ascii if alike else repr, names))


def format_encodings(tried: Sequence[TriedEncoding], inputs: int) -> str:
    """The table of encodings that a dry run prints, given the size of the inputs in bytes."""
    rows = [("encoding", "bytes/record", "bytes (est.)", "of inputs", "decoded/s", "")]
    for each in tried:
        rate = f"{float(f'{each.decoded_per_second:.2g}'):,.0f}" if each.decoded_per_second else "-"
        size, times = format_bytes(each.bytes), f"{each.bytes / max(inputs, 1):.2f}x"
        mean, mark = format_bytes(each.record_bytes), "chosen" * each.chosen
        rows.append((each.encoding, mean, size, times, rate, mark))
    count = counted(tried[0].tried, "record")
    title = f"\nencodings, tried on {count}, decoded by one core:\n"
    return title + format_table(rows)


def size_line(size: int, inputs: int) -> str:
    """How large a dataset is compared with its inputs, both in bytes; empty if one of them is 0, or not known."""
    if not (size and inputs):
        return ""
    times = size / inputs
    line = f"{format_bytes(size)} of records from {format_bytes(inputs)} of inputs"
    line += f", {times:.{0 if times >= 10 else 1}f} times their size"
    return f"{line}; plan compares the sizes of encodings" if times >= 1.5 else line


def _cause_of_empty(output: Output, split: SplitSurvey, share: float, has_windows: bool) -> str:
    placement = output.placement
    if split.rejected:
        return f"all {split.rejected:,} of its inputs were rejected"
    if placement.splits.kept:
        return "its shards in the input hold no record"
    if placement.split_column:
        return f"--split_column {placement.split_column} names it in no record; take it out of --splits"
    if placement.exact and not (placement.groups or has_windows):
        return "its share is less than one record; ask for fewer splits or folds"
    placed = "group" if placement.groups else "file or text" if has_windows else "record"
    return (
        f"no {placed} fell into it; give it more than {share:g}, or try another --seed such as "
        f"{placement.seed + 1}"
    )


def _small_shards(output: Output, splits: Sequence[SplitSurvey]) -> str:
    """A warning about many tiny shards; empty for a sensible number."""
    shards = sum(split.shards for split in splits)
    if shards <= _MANY_SHARDS:
        return ""
    records = sum(split.records for split in splits) / shards
    size = sum(split.bytes for split in splits) / shards
    by_size = not all(output.num_shards) and output.shard_size < _SMALL_SHARD
    by_number = any(output.num_shards) and records < _FEW_RECORDS
    if size >= _SMALL_SHARD or not (by_size or by_number):
        return ""
    cure = (
        f"drop --shard_size (the default is {format_bytes(DEFAULT_SHARD_SIZE)}), or give at least 1MiB"
        if by_size
        else "drop --num_shards, or give a smaller number"
    )
    return (
        f"{shards:,} shards of {format_bytes(size)} and {records:,.1f} records on average are slow "
        f"to open and to list; {cure}"
    )


def format_reasons(reasons: Sequence[Reason]) -> list[str]:
    """The most frequent reasons of rejects, one line each, with a count and the key of an example."""
    shown = reasons[: _MAX_REASONS if len(reasons) <= _MAX_REASONS else _MAX_REASONS - 1]
    lines = [f"  {each.count:,}: {each.reason}, such as {each.example}" for each in shown]
    if len(reasons) > len(shown):
        others = sum(reason.count for reason in reasons[len(shown) :])
        lines.append(f"  {others:,}: {len(reasons) - len(shown):,} other reasons")
    return lines


def format_seconds(seconds: Mapping[str, float]) -> str:
    """The line with the seconds of each phase; empty if only the start was reported."""
    phases = [f"{phase} {taken:.1f} s" for phase, taken in seconds.items()]
    return f"time: {', '.join(phases)}" if len(phases) > 1 else ""


def findings_as_json(findings: Findings) -> dict[str, Any]:
    """The findings that `format_findings` shows, as JSON values."""
    rejects = dict.fromkeys((*findings.rejects, *findings.failed))
    return {
        "dry_run": True,
        "schema": findings.schema.to_json(),
        "splits": splits_as_json(findings.splits),
        "labels": findings.labels,
        "tried": findings.tried,
        "rejects": reasons_as_json(reasons_of((each.key, each.error) for each in rejects)),
    }


def splits_as_json(splits: Iterable[SplitSurvey]) -> dict[str, dict[str, Any]]:
    """Split -> its records, shards, bytes, rejected inputs and dropped duplicates."""
    found = [asdict(split) for split in splits]
    return {split.pop("name"): split for split in found}


def reasons_as_json(reasons: Sequence[Reason]) -> list[dict[str, Any]]:
    """The most frequent reasons of rejects, each with a count and the key of an example."""
    return [asdict(reason) for reason in reasons[:_MAX_LABELS]]
