"""Finds the near duplicates among all records of a dataset, and writes their counts to a file."""

from __future__ import annotations

import json
from functools import partial

import apache_beam as beam
from apache_beam.pvalue import AsSingleton

from beam_jobs.dataset.output import STAGING
from beam_jobs.jobs.near import Near
from beam_jobs.jobs.reshard.example_passes import dataset_sketches
from beam_jobs.jobs.reshard.reshard_job import ReshardJob
from beam_jobs.jobs.split_rules import SplitRules
from beam_jobs.pipeline.planning.drop_near import find_near, sketches_of
from beam_jobs.pipeline.planning.list_tasks import ListTasks
from beam_jobs.pipeline.steps import once
from beam_jobs.plan.near_pairs import NearSurvey, NearTally
from beam_jobs.plan.placement import Placement, Splits
from beam_jobs.records.pieces import merged
from beam_jobs.storage.atomic import write_file
from readers.format.manifest import join

# The file for the process that started the pipeline, which deletes it.
SURVEY = f"{STAGING}/near-duplicates.json"


def _report(survey: NearSurvey, tally: NearTally, directory: str, records: int) -> None:
    """Writes the survey after checking that all records were compared."""
    tally.check(records)
    data = json.dumps(vars(survey)).encode()
    write_file(join(directory, SURVEY), data, join(directory, STAGING), replace=True)


class SurveyNear(beam.PTransform):
    """A pipeline -> nothing; the `NearSurvey` of a dataset is in `SURVEY` of its directory.

    Args:
        directory: The dataset.
        records: The number of its records.
        job: Reads it.
        near: The rules for near duplicates.
        processes: The number of processes that read, in each of the runner's workers.
    """

    def __init__(
        self, directory: str, records: int, job: ReshardJob, near: Near, processes: int
    ) -> None:
        super().__init__()
        self._directory, self._records = directory, records
        self._job, self._near, self._processes = job, near, processes

    def expand(self, pipeline: beam.Pipeline) -> beam.PCollection:
        placement = Placement(seed=0, splits=Splits.of_shards(self._job.splits.names))
        sketch = partial(dataset_sketches, self._job, self._near, SplitRules(placement))
        listed = pipeline | "ListTasks" >> ListTasks(self._job, self._processes, [self._near.phase])
        sketches = sketches_of(
            listed.tasks, listed.found, sketch, self._processes, self._near.phase
        )
        pairs, tally = find_near([sketches], self._near)
        survey = (
            pairs
            | "Survey" >> beam.MapTuple(NearSurvey.of)
            | "MergeSurveys" >> beam.CombineGlobally(partial(merged, empty=NearSurvey))
        )
        sides = AsSingleton(survey), tally, self._directory, self._records
        return once(pipeline, "Report", _report, *sides)
