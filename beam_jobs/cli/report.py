"""The printed summary of a finished job or a dry run."""

from __future__ import annotations

from beam_jobs.pipeline.dry_run import Findings
from beam_jobs.plan.shards import shard_sizes
from beam_jobs.sources.labels import LABEL
from readers.format.display import format_balance, format_bytes, format_table
from readers.format.manifest import Manifest
from readers.format.schema import Schema, format_shape

HEADER = ["job", "split", "records", "shards", "records a shard", "bytes", "rejects", "seconds"]

# Labels whose counts are printed.
_MAX_LABELS = 20


def format_findings(findings: Findings) -> str:
    """The lines that a dry run prints."""
    header = ["split", "records", "shards", "records a shard", "bytes, about", "a shard", "rejects"]
    some_dropped = any(split.duplicates for split in findings.splits)
    rows = []
    for split in findings.splits:
        sizes = shard_sizes(split.records, split.shards) if split.shards else []
        row = [
            split.name,
            f"{split.records:,}",
            f"{split.shards:,}",
            format_balance(sizes),
            format_bytes(split.bytes),
            format_bytes(split.bytes / max(split.shards, 1)),
            f"{split.rejected:,}",
        ]
        rows.append([*row, f"{split.duplicates:,}"] if some_dropped else row)
    lines = [_features(findings.schema), ""]
    lines.append(format_table([[*header, "duplicates"] if some_dropped else header, *rows]))
    for feature, counts in sorted(findings.labels.items()):
        lines.append(_label_line("labels" if feature == LABEL else feature, counts))
    if findings.rejects:
        lines.append("first rejects:")
        lines += [f"  {reject}" for reject in findings.rejects]
    if findings.tried:
        lines.append(f"{findings.tried} records tried, {len(findings.failed)} of them rejected")
        known = set(findings.rejects)
        lines += [f"  {reject}" for reject in findings.failed if reject not in known]
    # Names of files that are not UTF-8 hold lone surrogates, which terminals cannot print.
    return "\n".join(lines).encode("utf-8", "backslashreplace").decode()


def _features(schema: Schema) -> str:
    rows = [(n, f.dtype, format_shape(f.shape), f.encoding) for n, f in schema.items()]
    return format_table([("feature", "dtype", "shape", "encoding"), *rows])


def _label_line(name: str, counts: dict[str, int]) -> str:
    most = sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))
    shown = ", ".join(f"{label} {count:,}" for label, count in most[:_MAX_LABELS])
    more = f", and {len(most) - _MAX_LABELS:,} more" if len(most) > _MAX_LABELS else ""
    return f"{name}: {len(most):,} ({shown}{more})"


def unused_classes(manifest: Manifest, feature: str) -> str:
    """A warning that names the labels without a record; empty if there are none or nobody counted.

    Args:
        manifest: The manifest of a finished job.
        feature: The name of its labels in Examples.
    """
    counts = manifest.counts_of(feature)
    names = manifest.label_names
    unused = [name for id_, name in enumerate(names) if counts is not None and not counts[id_]]
    if not unused:
        return ""
    return (
        f"warning: {_shortened(unused)}: no record has this label, of {len(names):,}; each keeps its "
        "id (docs/writing.md#labels-and-keys)"
    )


def _shortened(names: list[str]) -> str:
    rest = len(names) - _MAX_LABELS
    return ", ".join(names[:_MAX_LABELS]) + (f" and {rest:,} more" if rest > 0 else "")


def summary_rows(job: str, manifest: Manifest, seconds: float) -> list[list[str]]:
    """A row of the columns `HEADER` for each split."""
    rows = []
    for name, split in manifest.splits.items():
        sizes = [shard.records for shard in split.shards]
        rows.append(
            [
                job,
                name,
                f"{split.records:,}",
                str(len(sizes)),
                format_balance(sizes),
                format_bytes(split.bytes),
                f"{split.rejected:,}",
                f"{seconds:.1f}",
            ]
        )
    return rows
