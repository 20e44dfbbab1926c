"""This project: its checks, and all records that they name, not only the first five."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

import readers
from readers.checks.facts import Facts
from readers.checks.registry import CHECKS
from readers.format.findings import Finding
from readers.format.manifest import Manifest
from readers.measures.sample import sample_of

# Check -> kind of fault, where records are named.
_RECORDS = {
    "duplicates": "exact duplicates",
    "leaks": "leaks",
    "contradictions": "contradictions",
    "near_duplicates": "near duplicates",
    "near_leaks": "near leaks",
    "repeated_texts": "repeated text",
    "dark_pictures": "dark",
    "light_pictures": "light",
    "blurry_pictures": "blurry",
    "flat_pictures": "low information",
    "gray_pictures": "gray",
    "long_pictures": "odd aspect",
    "tiny_pictures": "tiny",
    "outlier_sizes": "huge",
    "empty_texts": "empty",
    "wrong_encodings": "wrong encoding",
    "control_characters": "control characters",
    "markup": "markup",
    "few_letters": "few letters",
    "outlier_lengths": "outlier lengths",
    "outlier_levels": "outlier levels",
    "missing_values": "missing values",
    "dead_channels": "dead channel",
    "constant_channels": "constant channel",
    "clipped_signals": "clipped",
    "empty_arrays": "empty",
}

# Check -> kind of fault, where features are named.
_FEATURES = {
    "imbalance": "imbalance",
    "sorted_labels": "sorted order",
    "constant_features": "constant column",
    "identifiers": "identifier",
    "split_drift": "drift between splits",
}
_OF_TABLES = {"missing_values": "missing values", "outlier_levels": "outliers"}
_ROWS_OF_TABLES = {"duplicates": "equal rows"}


class _AllNames(Facts):
    """Facts that remember the names of all records of each finding."""

    named: dict[str, set[str]]

    def of_records(
        self, check: str, severity: str, feature: str, chosen: np.ndarray, finds: str
    ) -> Iterator[Finding]:
        self.named.setdefault(check, set()).update(self.names_of_records(np.flatnonzero(chosen)))
        return super().of_records(check, severity, feature, chosen, finds)


def _of_findings(dataset: str, findings: list[Finding]) -> dict[str, set[str]]:
    """Kind -> the features, or splits and classes, that findings name."""
    kinds = _FEATURES | (_OF_TABLES if dataset == "table" else {})
    named: dict[str, set[str]] = {kind: set() for kind in kinds.values()}
    named |= {"missing class": set(), "labels follow from brightness": set()}
    for finding in findings:
        if finding.check in kinds:
            named[kinds[finding.check]].add(finding.feature)
        if finding.check == "missing_classes":
            classes = [name.rpartition("(")[2].rstrip(")") for name in finding.examples]
            named["missing class"] |= {f"{finding.split}, {name}" for name in classes}
        if finding.check == "telling_numbers":
            named["labels follow from brightness"].add(finding.message.split()[-1])
    return named


def check(shards: str, records: int) -> None:
    """Checks as the command does, which would exit with 1, as there are errors to find."""
    print(readers.check(shards, records=records))


def names(dataset: str, shards: str) -> dict[str, list[str]]:
    """Returns which records and features the checks name for each kind of fault."""
    manifest = Manifest.read(shards)
    facts = _AllNames(manifest, sample_of(shards, manifest, 1 << 40))
    object.__setattr__(facts, "named", {})
    findings = [finding for find in CHECKS.values() for finding in find(facts)]
    named: dict[str, set[str]] = {
        kind: set() for kind in (*_RECORDS.values(), *_ROWS_OF_TABLES.values())
    }
    named |= _of_findings(dataset, findings)
    records = _RECORDS | (_ROWS_OF_TABLES if dataset == "table" else {})
    for check, found in facts.named.items():
        if check in records and not (dataset == "table" and check in _OF_TABLES):
            named[records[check]] |= found
    return {kind: sorted(found) for kind, found in named.items()}
