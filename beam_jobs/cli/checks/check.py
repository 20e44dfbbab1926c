"""`--check`: what may be wrong with the dataset that a job has written, near duplicates among all of its records included."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import apache_beam as beam

from beam_jobs.cli.checks.near import dataset_job, threshold_of
from beam_jobs.errors import DataError, JobError, UsageError
from beam_jobs.jobs.near import Near
from beam_jobs.pipeline.near.survey import SURVEY, SurveyNear
from beam_jobs.storage.atomic import STAGING, delete_files, drop_empty_directory
from beam_jobs.storage.files import read_bytes
from readers.format.display import counted
from readers.format.manifest import Manifest, join
from readers.similarity.likeness import DEFAULTS, SMALLEST, Likeness

if TYPE_CHECKING:
    from readers.check import CheckReport
    from readers.checks.finding import Finding

_KEY = "key"

# The checks that look at all records here, and at a sample in `readers.check`.
_NEAR = {
    "near_duplicates": ("inside", "an earlier one in their split"),
    "near_leaks": ("across", "an earlier one in another split"),
}

# Runs a pipeline to its end.
Launch = Callable[[beam.PTransform], Any]


def checked(
    directory: str, manifest: Manifest, threshold: str, processes: int, launch: Launch
) -> CheckReport:
    """The findings about a dataset.

    Args:
        directory: The dataset.
        manifest: Its manifest.
        threshold: The value of `--drop_near_duplicates`; empty for the similarity of the checks.
        processes: The number of processes that read, in each of the runner's workers.
        launch: Runs the pipeline that compares all records.

    Raises:
        DataError: The dataset cannot be read, or the runner lost records.
    """
    from readers.check import check
    from readers.checks.finding import SEVERITIES

    try:
        report = check(directory)
        found = _near(directory, manifest, threshold, processes, launch)
    except (ValueError, OSError, JobError) as error:
        raise DataError(f"the dataset is written, but it could not be checked: {error}") from None
    if found is None:
        return report
    others = [finding for finding in report.findings if finding.check not in _NEAR]
    findings = sorted([*others, *found], key=lambda finding: SEVERITIES.index(finding.severity))
    return replace(report, findings=tuple(findings))


def _near(
    directory: str, manifest: Manifest, threshold: str, processes: int, launch: Launch
) -> list[Finding] | None:
    """The findings about near duplicates among all records; None if there is nothing to compare."""
    job = dataset_job(directory, "--check")
    try:
        compared = job.compared
    except UsageError:
        return None
    value = DEFAULTS[compared.kind]
    if threshold:
        value = max(threshold_of(threshold), SMALLEST[compared.kind])
    near = Near(Likeness(compared.kind, value, len(compared.features)), compared)
    records = sum(split.records for split in manifest.splits.values())
    launch(
        SurveyNear(directory, records, replace(job, tokenizer="", vocabulary=()), near, processes)
    )
    path = join(directory, SURVEY)
    survey = json.loads(read_bytes(path))
    delete_files([path])
    drop_empty_directory(join(directory, STAGING))
    feature = ", ".join(compared.features)
    return list(_findings(directory, manifest, survey, records, feature))


def _findings(
    directory: str, manifest: Manifest, survey: dict[str, Any], records: int, feature: str
) -> Iterator[Finding]:
    from readers.checks.finding import Finding

    for check, (where, words) in _NEAR.items():
        count = sum(survey[where].values())
        if count:
            message = f"{count:,} of all {counted(records, 'record')} are nearly the same as, or equal to, {words}"
            pairs = survey[f"{where}_examples"]
            examples = tuple(_named(directory, manifest, pair) for pair in pairs)
            yield Finding(check, "warning", message, feature, "", count, records, examples)


def _named(directory: str, manifest: Manifest, pair: Sequence[Sequence[Any]]) -> str:
    """The keys of two records, the one that is near the other last."""
    later, earlier = (_key(directory, manifest, file, number) for file, number in pair)
    return f"{earlier} = {later}"


def _key(directory: str, manifest: Manifest, file: str, number: int) -> str:
    """The key of a record, or its place if records have none."""
    from readers.source import RecordSource

    for name, split in manifest.splits.items():
        before = 0
        for shard in split.shards:
            if shard.file == file:
                if _KEY not in manifest.schema:
                    return f"{name}, record {before + number - 1}"
                source = RecordSource(directory, name, [_KEY])
                return bytes(source[before + number - 1][_KEY]).decode("utf-8", "replace")
            before += shard.records
    return f"{file}#{number}"


def fails(report: CheckReport, fail_on: str) -> bool:
    """Whether a finding is as bad as `--fail_on`."""
    from readers.checks.finding import SEVERITIES

    worst = report.worst()
    return worst != "" and SEVERITIES.index(worst) <= SEVERITIES.index(fail_on)


def lines_of(report: CheckReport) -> Iterable[str]:
    """The lines that are printed, the worst finding first."""
    return [*map(str, report.findings), str(report)]


def as_json(report: CheckReport) -> list[dict[str, Any]]:
    """The findings as JSON values."""
    return [asdict(finding) for finding in report.findings]
