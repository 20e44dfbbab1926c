"""From the flags `--drop_near_duplicates` and `--keep_out` to which records are dropped."""

from __future__ import annotations

from collections.abc import Mapping

from beam_jobs.cli.flags import names_in
from beam_jobs.errors import UsageError
from beam_jobs.jobs.near import Compared, Near, compared_of
from beam_jobs.jobs.protocols import RecordJob
from beam_jobs.jobs.reshard.reshard_job import ReshardJob, reshard_job
from beam_jobs.pipeline.near.rules import KeptOut, NearRules
from beam_jobs.sources.inputs import Inputs
from readers.format.schema import Feature
from readers.format.similarity.likeness import DEFAULTS, Kind, Likeness

_KEY = "key"


def near_of(
    threshold: str, keep_out: str, job: RecordJob, feature_names: Mapping[str, str]
) -> NearRules | None:
    """Which near duplicates a job drops; None if it keeps them.

    Args:
        threshold: The similarity from which records of the job are dropped; empty keeps them.
        keep_out: Directories of datasets whose records are kept out, separated by commas.
        job: Defines the records.
        feature_names: Names of features in Examples that differ from those in the schema.

    Raises:
        UsageError: The threshold is out of the range for this kind of record, or a directory holds no dataset, or a dataset
            whose records cannot be compared with these.
    """
    if not (threshold or keep_out):
        return None
    compared = job.compared
    likeness = _likeness(threshold, compared)
    others = tuple(
        _kept_out(directory, likeness, compared, feature_names) for directory in names_in(keep_out)
    )
    return NearRules(likeness, compared, bool(threshold), keep_out=others)


def _likeness(threshold: str, compared: Compared) -> Likeness:
    value = threshold_of(threshold) if threshold else DEFAULTS[compared.kind]
    try:
        return Likeness(compared.kind, value, len(compared.features))
    except ValueError as error:
        raise UsageError(f"--drop_near_duplicates {error}") from None


def threshold_of(text: str) -> float:
    """The number in a value of `--drop_near_duplicates`.

    Raises:
        UsageError: The value is not a number.
    """
    try:
        return float(text)
    except ValueError:
        raise UsageError(
            f"--drop_near_duplicates {text}: expected a similarity such as {DEFAULTS['text']:g} of texts or "
            f"{DEFAULTS['picture']:g} of pictures and recordings"
        ) from None


def dataset_job(directory: str, flag: str) -> ReshardJob:
    """Reads the records of a dataset.

    Raises:
        UsageError: There is no dataset in the directory.
    """
    try:
        job = reshard_job(Inputs.of([directory]), "", (), ())
    except UsageError as error:
        raise UsageError(f"{flag} {directory}: no dataset: {error}") from None
    if job.given is None or job.splits.lone:
        raise UsageError(
            f"{flag} {directory}: no dataset: {job.splits.lone or 'it has no manifest.json'}"
        )
    return job


def _kept_out(
    directory: str, likeness: Likeness, compared: Compared, feature_names: Mapping[str, str]
) -> KeptOut:
    """A dataset whose records are kept out."""
    job = dataset_job(directory, "--keep_out")
    schema = {name: feature for name, feature in (job.given or {}).items() if name != _KEY}
    names = [feature_names.get(name, name) for name in compared.features]
    theirs = {name: schema[name] for name in names if name in schema}
    if len(theirs) < len(names) or _kind(theirs, job) != compared.kind:
        theirs = dict(compared_of(schema, tuple(job.class_names)).features)
        if len(theirs) != len(names) or _kind(theirs, job) != compared.kind:
            raise UsageError(
                f"--keep_out {directory}: its records have {', '.join(schema)}, expected a {compared.kind} in "
                f"{', '.join(names)}"
            )
    near = Near(likeness, Compared(compared.kind, theirs), kept_out=f"{directory}: ")
    return KeptOut(job.without_tokenizer(), near)


def _kind(features: Mapping[str, Feature], job: ReshardJob) -> Kind | None:
    try:
        return compared_of(features, tuple(job.class_names)).kind
    except UsageError:
        return None
