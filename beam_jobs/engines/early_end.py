"""Flags of Beam with which the command ends before the dataset is complete."""

from __future__ import annotations

import shlex

from apache_beam.options.pipeline_options import (
    GoogleCloudOptions,
    PipelineOptions,
    PortableOptions,
    StandardOptions,
)

from beam_jobs.engines.dataflow import on_dataflow
from beam_jobs.engines.direct import on_this_machine

EXECUTABLE, NO_WAIT = "--output_executable_path", "--no_wait_until_finish"


def ends_early(options: PipelineOptions) -> str:
    """The flag with which the command ends before the dataset is complete; empty if it waits for the job."""
    if on_this_machine(options):
        return ""  # The DirectRunner ignores all of them.
    if on_dataflow(options):
        flag, value = "--template_location", options.view_as(GoogleCloudOptions).template_location
    else:
        flag, value = EXECUTABLE, options.view_as(PortableOptions).output_executable_path
    if value:
        return flag
    return NO_WAIT if options.view_as(StandardOptions).no_wait_until_finish else ""


def how_to_run(path: str) -> str:
    """What runs the job in a jar that the job service has written instead of running it."""
    jar = shlex.quote(path)
    # A classpath, because `flink run` does not find the job in a jar whose classes Flink has loaded
    # from its own folder, where docs/engines.md puts Beam's.
    flink = f'java -cp "$FLINK_HOME/lib/*:"{jar} org.apache.beam.runners.flink.FlinkPipelineRunner'
    return f"on Flink: {flink}\non Spark: spark-submit --master $SPARK_MASTER {jar}"
