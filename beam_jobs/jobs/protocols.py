"""What the pipeline needs of a job."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Protocol

from beam_jobs.errors import UsageError
from beam_jobs.sources.classes import Names
from beam_jobs.sources.extra_features import ExtraFeature
from beam_jobs.sources.inputs import Inputs
from beam_jobs.sources.labels import LABEL, Labels
from beam_jobs.sources.source import Source
from readers.format.schema import Feature, Schema


def complete_schema(
    own: Mapping[str, Feature], labels: Labels, extras: Iterable[ExtraFeature]
) -> Schema:
    """The schema of records: their own features, and those of every job: key, label, extra columns.

    Raises:
        UsageError: Two features would have one name.
    """
    features = {**own, "key": Feature("string")}
    if labels.feature:
        features[LABEL] = labels.feature
    for extra in extras:
        if extra.name in features:
            raise UsageError(
                f"--extra_features {extra.name}: the records have a feature of this name; rename "
                "the column"
            )
        features[extra.name] = extra.feature
    return Schema(features)


class FileJob(Protocol):
    """A job whose record is a file, or a member of an archive."""

    @property
    def inputs(self) -> Inputs:
        """Where the records come from."""

    @property
    def labels(self) -> Labels:
        """Where their labels come from."""

    @property
    def extras(self) -> tuple[ExtraFeature, ...]:
        """Columns that are kept as features."""

    @property
    def class_names(self) -> Names:
        """Names of classes that are known before any record is, by feature."""

    def sources(self, pattern: str) -> Iterator[Source]:
        """Yields the sources that one of the inputs' patterns matches."""

    def classes_of(self, source: Source) -> Mapping[str, Iterable[str]]:
        """The names of the classes in a record, by feature; `label` is not among them.

        Raises:
            RejectError: As `load`.
        """

    def load(self, source: Source) -> dict[str, Any]:
        """The features of one record but those of `row_features`; classes by their names.

        Raises:
            RejectError: The file cannot become a record.
            UsageError: It can, but does not fit the others.
        """


class PartsJob(FileJob, Protocol):
    """A job whose records can be made of the bytes of a file."""

    def unpacked(self, source: Source) -> Iterator[tuple[Source, bytes]]:
        """Yields the members of a `.tar.gz` and their bytes, as `Inputs.unpacked`."""

    def parts_of(self, source: Source, data: bytes) -> list[tuple[str, int]]:
        """The keys of the records in a file, and about how many bytes each takes in its shard.

        Raises:
            RejectError: The file holds none.
        """

    def records_of(self, source: Source, data: bytes) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yields the keys and features of the records of a file, as `parts_of` and `load` have them.

        Raises:
            RejectError, UsageError: As `load`.
        """
