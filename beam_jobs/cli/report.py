"""The printed summary of a finished job or a dry run."""

from __future__ import annotations

import shlex

from beam_jobs.errors import JobError
from beam_jobs.pipeline.dry_run import Findings
from beam_jobs.plan.shards import ONE_KEY, shard_sizes
from beam_jobs.sources.labels import LABEL
from readers.format.display import format_balance, format_bytes, format_table
from readers.format.manifest import Manifest
from readers.format.schema import Schema, format_shape

# What gives two records of a job one key.
_ONE_KEY_OF_FILES = (
    "every record needs a key of its own; do two --input patterns match the same file, does an "
    "archive have two members of one name, or do two rows of a --table name the same file (--key row "
    "distinguishes them)?"
)

HEADER = ["job", "split", "records", "shards", "records/shard", "bytes", "rejects", "seconds"]

# Labels whose counts are printed.
_MAX_LABELS = 20


def format_error(error: JobError) -> str:
    """The line that reports the end of a job that failed."""
    return f"error: {error.message.replace(ONE_KEY, _ONE_KEY_OF_FILES)}"


def format_findings(findings: Findings) -> str:
    """The lines that a dry run prints."""
    header = [
        "split",
        "records",
        "shards",
        "records/shard",
        "bytes (est.)",
        "bytes/shard",
        "rejects",
    ]
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
        lines.append(f"{findings.tried:,} records tried, {len(findings.failed):,} of them rejected")
        known = set(findings.rejects)
        lines += [f"  {reject}" for reject in findings.failed if reject not in known]
    # Names of files that are not UTF-8 hold lone surrogates, which terminals cannot print.
    return "\n".join(lines).encode("utf-8", "backslashreplace").decode()


def _features(schema: Schema) -> str:
    rows = [(n, f.dtype, format_shape(f.shape), f.encoding) for n, f in schema.items()]
    return format_table([("feature", "dtype", "shape", "encoding"), *rows])


def _label_line(name: str, counts: dict[str, int]) -> str:
    most = sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))
    shown = ", ".join(f"{label}: {count:,}" for label, count in most[:_MAX_LABELS])
    more = f", and {len(most) - _MAX_LABELS:,} more" if len(most) > _MAX_LABELS else ""
    return f"{name}: {len(most):,} ({shown}{more})"


def next_step(directory: str) -> str:
    """The line that says where a finished dataset is, and which command shows it."""
    return f"written to {directory}; python -m readers head {shlex.quote(directory)} shows records"


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
                f"{len(sizes):,}",
                format_balance(sizes),
                format_bytes(split.bytes),
                f"{split.rejected:,}",
                f"{seconds:.1f}",
            ]
        )
    return rows
