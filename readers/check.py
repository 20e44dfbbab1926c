"""`readers.check`: looks for what may be wrong with the data of a dataset."""

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
    """Looks for what may be wrong with the data of a dataset, in its manifest and in a sample.

    docs/checks.md lists the checks and their thresholds. The sample is the first records of each split,
    which are in the order of a hash of their keys.

    Args:
        path: The dataset's directory: a path, or a URL of a store or of another protocol of fsspec.
        records: How many records to look at, at most; fewer if they have more than 2 GiB, or four million
            values of features. Records of more than 256 MiB are left out.
        against: Another dataset, such as a former version, with which to compare.
        group_by: What names groups that should be in one split: `column:NAME`, or a regular expression for
            keys, whose first group counts.

    Raises:
        ValueError: `records` is below 1, or `group_by` is no regular expression.
        CorruptRecordError: (a ValueError) The checksum of a record is wrong.
        DatasetError: (a ValueError) There is no manifest, or a shard differs from it.
        FileNotFoundError: A file is missing.
        StoreError: (an OSError) A store still fails after several retries.
    """
    return check_facts(facts_of(path_text(path), records, group_by), records, against)


def check_facts(
    facts: Facts, records: int, against: str | os.PathLike[str] | None = None
) -> CheckResult:
    """Looks for what may be wrong in the facts, also against another dataset, of which it sees `records` at most."""
    from readers.checks.against import compare
    from readers.checks.registry import CHECKS

    findings = [finding for each in CHECKS for finding in each.find(facts)]
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
    """The facts that checks look at: the manifest of a dataset, and a sample of its records; arguments as for `check`."""
    if records < 1:
        raise ValueError(f"records={records}: expected a number of at least 1")
    try:
        re.compile(group_by)
    except re.error as error:
        raise ValueError(f"group_by={group_by!r}: no regular expression: {error}") from None
    # Here, because they would add a fifth to the time in which `readers` is imported.
    from readers.checks.facts import Facts
    from readers.measures.sample import sample_of

    manifest = Manifest.read(directory)
    return Facts(manifest, sample_of(directory, manifest, records), group_by)
