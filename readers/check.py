"""`readers.check`: looks for problems in the data of a dataset."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from readers.files.local import path_text
from readers.format.findings import SEVERITIES, CheckResult
from readers.format.manifest import Manifest

if TYPE_CHECKING:
    from readers.checks.facts import Facts


def check(
    path: str | os.PathLike[str],
    *,
    records: int = 10_000,
    against: str | os.PathLike[str] | None = None,
    group_by: str = "",
) -> CheckResult:
    """Looks for problems in the data of a dataset, in its manifest and in a sample of its records.

    docs/check/checks.md lists the checks and their thresholds. The sample is the first records of each split;
    splits are stored in the order of a hash of the keys.

    Args:
        path: The dataset's directory: a path, or a URL of an object store or another fsspec protocol.
        records: The maximum number of records to sample; fewer if they take more than 2 GiB or have four
            million values. Records of more than 256 MiB are left out.
        against: Another dataset to compare with, such as an earlier version.
        group_by: The groups that should be within one split, such as speakers: `column:NAME`, or a regular
            expression whose first group is the name of the group in a key.

    Raises:
        ValueError: `records` is below 1, or `group_by` is not a regular expression.
        CorruptRecordError: (a ValueError) The checksum of a record is wrong.
        DatasetError: (a ValueError) There is no manifest, or a shard differs from it.
        FileNotFoundError: A file is missing.
        StoreError: (an OSError) A store still fails after several retries.

    Example:
        >>> result = readers.check("shards/sensors", records=100)
        >>> result.fails("error")
        False
    """
    return check_facts(facts_of(path_text(path), records, group_by), records, against)


def check_facts(
    facts: Facts, records: int, against: str | os.PathLike[str] | None = None
) -> CheckResult:
    """Runs all checks on the facts; also compares them with another dataset, from at most `records` of its records."""
    from readers.checks.against import compare
    from readers.checks.registry import CHECKS

    findings = [finding for find in CHECKS.values() for finding in find(facts)]
    if against is not None:
        findings += compare(facts, facts_of(path_text(against), records))
    findings.sort(key=lambda finding: SEVERITIES.index(finding.severity))
    return CheckResult(
        sum(sample.seen for sample in facts.samples.values()),
        sum(split.records for split in facts.manifest.splits.values()),
        len(CHECKS),
        tuple(findings),
    )


def facts_of(directory: str, records: int, group_by: str = "") -> Facts:
    """Collects the facts for checks: the manifest of a dataset and a sample of its records; arguments as for `check`."""
    if records < 1:
        raise ValueError(f"records={records}: expected a number of at least 1")
    try:
        re.compile(group_by)
    except re.error as error:
        raise ValueError(f"group_by={group_by!r}: not a regular expression: {error}") from None
    # Imported here, because they would make `import readers` a fifth slower.
    from readers.checks.facts import Facts
    from readers.measures.sample import sample_of

    manifest = Manifest.read(directory)
    return Facts(manifest, sample_of(directory, manifest, records), group_by)
