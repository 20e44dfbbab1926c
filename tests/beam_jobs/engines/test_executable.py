"""Jobs that are written to a jar instead of being run."""

import zipfile

import pytest

from beam_jobs.engines.executable import how_to_run


@pytest.mark.parametrize(
    ("runner", "expected"),
    [
        (
            "flink.FlinkPipelineRunner",
            "java -cp \"$FLINK_HOME/lib/*:\"'{jar}' org.apache.beam.runners.",
        ),
        ("spark.SparkPipelineRunner", "spark-submit --master $SPARK_MASTER '{jar}'"),
    ],
)
def test_the_line_that_runs_a_jar_follows_from_its_main_class(tmp_path, runner, expected):
    jar = tmp_path / "my job.jar"
    with zipfile.ZipFile(jar, "w") as file:
        file.writestr("META-INF/MANIFEST.MF", f"Main-Class: org.apache.beam.runners.{runner}\n")
    assert how_to_run(str(jar)).startswith(expected.format(jar=jar))


def test_of_a_jar_on_another_machine_both_lines_are_given():
    assert how_to_run("/none/job.jar") == (
        'java -cp "$FLINK_HOME/lib/*:"/none/job.jar org.apache.beam.runners.flink.FlinkPipelineRunner '
        "(Flink), or spark-submit --master $SPARK_MASTER /none/job.jar (Spark)"
    )
