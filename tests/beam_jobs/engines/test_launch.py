"""What a command shows of a job that fails, and of one that runs later."""

import io

import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.utils.subprocess_server import JavaJarServer

from beam_jobs.engines.launch import (
    _WithoutTracebacks,
    check_job_service,
    how_to_run,
)
from beam_jobs.errors import UsageError, root_cause


def test_only_tracebacks_are_left_out():
    shown = io.StringIO()
    stream = _WithoutTracebacks(shown)
    for text in (
        "warning: one",
        "\n",
        "Traceback (most recent call last):\n  File ...",
        "\n",
        "two",
        "\n",
    ):
        assert stream.write(text) == len(text)
    assert shown.getvalue() == "warning: one\ntwo\n"


FULL = "java.io.IOException: Cannot write record to fresh sort buffer. Record too large."
SPARK = """\
org.apache.spark.SparkException: Only one SparkContext should be running in this JVM.It was created at:
org.apache.spark.api.java.JavaSparkContext.<init>(JavaSparkContext.scala:58)"""
PYTHON = """\
java.lang.RuntimeException: Error received from SDK harness for instruction 5: Traceback (most recent call last):
  File "apache_beam/runners/common.py", line 3, in process
    return step(element)
           ^^^^^^^^^^^^^
KeyError: 'x'

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "a.py", line 3, in b
ValueError: bad [while running 'Write']

"""


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        (f"Pipeline beam-shards-text_1-2 failed in state FAILED: {FULL}", FULL),
        (SPARK, SPARK.splitlines()[0]),
        (PYTHON, "ValueError: bad [while running 'Write']"),
        ("\n  no workers  \nat 5 pm\n", "no workers"),
        ("Traceback (most recent call last):", "Traceback (most recent call last):"),
        ("", ""),
        ("x" * 600, "x" * 500),
    ],
    ids=["flink", "spark", "python", "text", "cut", "empty", "long"],
)
def test_the_root_cause_is_the_line_that_says_most(text, cause):
    assert root_cause(text) == cause


@pytest.mark.parametrize(
    ("flags", "name"),
    [
        (["--runner=FlinkRunner", "--flink_version=1.20"], "beam-runners-flink-1.20-job-server-"),
        (["--runner=SparkRunner", "--spark_version=3"], "beam-runners-spark-3-job-server-"),
    ],
)
def test_without_the_jar_of_the_job_server_one_line_says_which_and_where(
    tmp_path, monkeypatch, capsys, flags, name
):
    for repository in ("MAVEN_CENTRAL_REPOSITORY", "GOOGLE_MAVEN_MIRROR"):
        monkeypatch.setattr(JavaJarServer, repository, f"http://localhost:1/{repository}")
    options = PipelineOptions([*flags, f"--jar_cache_dir={tmp_path}"])
    with pytest.raises(UsageError) as caught:
        check_job_service(options)
    url = f"http://localhost:1/MAVEN_CENTRAL_REPOSITORY/org/apache/beam/{name[:-1]}/"
    said = caught.value.message
    assert f": download {url}" in said and f"/{name}" in said
    assert "Connection refused" in said and "Internet" not in said
    assert (
        f"put it into {tmp_path}, or name it with --{flags[0][9:14].lower()}_job_server_jar" in said
    )
    assert said.endswith("; or add --job_endpoint HOST:PORT of a running job server")
    assert capsys.readouterr().err.startswith(f"downloading Beam's job server: {url}")
    (tmp_path / said.split(name)[1].split(".jar")[0].join([name, ".jar"])).touch()
    check_job_service(options)
    assert capsys.readouterr().err == ""


def test_a_jar_that_is_not_there_is_named(tmp_path):
    flags = ["--runner=FlinkRunner", f"--flink_job_server_jar={tmp_path}/a.jar"]
    with pytest.raises(
        UsageError, match=r"^the jar of Beam's job server is missing: name it with --flink_"
    ):
        check_job_service(PipelineOptions(flags))


def test_both_lines_that_run_a_jar_are_given():
    assert how_to_run("/my job.jar") == (
        "on Flink: java -cp \"$FLINK_HOME/lib/*:\"'/my job.jar' "
        "org.apache.beam.runners.flink.FlinkPipelineRunner\n"
        "on Spark: spark-submit --master $SPARK_MASTER '/my job.jar'"
    )
