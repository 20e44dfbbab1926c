"""Jobs that are written to a file and run later: `--output_executable_path`."""

from __future__ import annotations

import shlex
import zipfile

from apache_beam.options.pipeline_options import PipelineOptions, PortableOptions

from beam_jobs.engines.direct import on_this_machine


def executable_path(options: PipelineOptions) -> str:
    """The path of the jar that the job service writes instead of running the job; else empty."""
    if on_this_machine(options):
        return ""  # The DirectRunner ignores the flag.
    return options.view_as(PortableOptions).output_executable_path or ""


def how_to_run(path: str) -> str:
    """The line that runs the job in a jar, which the job service may have written on another machine."""
    jar = shlex.quote(path)
    # A classpath, because `flink run` does not find the job in a jar whose classes Flink has loaded
    # from its own folder, where docs/engines.md puts Beam's.
    flink = f'java -cp "$FLINK_HOME/lib/*:"{jar} org.apache.beam.runners.flink.FlinkPipelineRunner'
    spark = f"spark-submit --master $SPARK_MASTER {jar}"
    try:
        with zipfile.ZipFile(path) as file:
            main = file.read("META-INF/MANIFEST.MF").decode()
    except (OSError, KeyError, zipfile.BadZipFile):
        return f"{flink} (Flink), or {spark} (Spark)"
    return spark if "SparkPipelineRunner" in main else flink
