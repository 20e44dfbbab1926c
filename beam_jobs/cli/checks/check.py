"""`--check`: what may be wrong with the dataset that a job has written, near duplicates among all of its records included."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import apache_beam as beam

from beam_jobs.cli.checks.near import dataset_job, threshold_of
from beam_jobs.cli.checks.readers_command import run_readers
from beam_jobs.dataset.topup import read_index
from beam_jobs.errors import DataError, JobError, UsageError
from beam_jobs.jobs.near import Near
from beam_jobs.pipeline.near.survey import SURVEY, SurveyNear
from beam_jobs.storage.atomic import delete_files
from beam_jobs.storage.files import open_seekable, read_bytes
from readers.format.decode.records import Decoder
from readers.format.display import counted
from readers.format.findings import SEVERITIES, CheckReport, Finding
from readers.format.manifest import Manifest, join
from readers.format.schema import Schema
from readers.format.similarity.likeness import DEFAULTS, SMALLEST, Likeness
from readers.format.splits import Shard
from readers.format.tfrecord import unframe

_KEY = "key"

# The checks that look at all records here, and at a sample in `readers.check`.
_NEAR = {
    "near_duplicates": ("within", "an earlier one in their split"),
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
    try:
        report = CheckReport.from_json(run_readers("check", directory))
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
    feature = ", ".join(compared.features)
    return list(_findings(directory, manifest, survey, records, feature))


def _findings(
    directory: str, manifest: Manifest, survey: dict[str, Any], records: int, feature: str
) -> Iterator[Finding]:
    shards = {
        shard.path: (name, sum(before.records for before in split.shards[:number]), shard)
        for name, split in manifest.splits.items()
        for number, shard in enumerate(split.shards)
    }
    for check, (where, words) in _NEAR.items():
        count = sum(survey[where].values())
        if not count:
            continue
        message = f"{count:,} of all {counted(records, 'record')} are nearly the same as, or equal to, {words}"
        examples, places = [], []
        for later, earlier in survey[f"{where}_examples"]:
            names = []
            for file, number in (earlier, later):
                split, before, shard = shards[file]
                place = split, before + number - 1
                places.append(place)
                names.append(
                    _key(directory, shard, number - 1)
                    if _KEY in manifest.schema
                    else f"{split}, record {place[1]}"
                )
            examples.append(" = ".join(names))
        yield Finding(
            check, "warning", message, feature, "", count, records, tuple(examples), tuple(places)
        )


def _key(directory: str, shard: Shard, number: int) -> str:
    """The key of a record of a shard."""
    lengths = read_index(directory, shard).lengths
    offset, length = int(lengths[:number].sum()), int(lengths[number])
    path = join(directory, shard.path)
    with open_seekable(path) as stream:
        stream.seek(offset)
        data = unframe(stream.read(length), path, offset, number)
    record = Decoder(Schema({_KEY: ("string", ())})).decode(data)
    return bytes(record[_KEY].item()).decode("utf-8", "replace")
