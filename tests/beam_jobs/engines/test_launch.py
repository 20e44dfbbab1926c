"""What a command shows of a job that fails, and of one that runs later."""

import io

import pytest

from beam_jobs.engines.early_end import how_to_run
from beam_jobs.engines.launch import _WithoutTracebacks, root_cause


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


def test_both_lines_that_run_a_jar_are_given():
    assert how_to_run("/my job.jar") == (
        "on Flink: java -cp \"$FLINK_HOME/lib/*:\"'/my job.jar' "
        "org.apache.beam.runners.flink.FlinkPipelineRunner\n"
        "on Spark: spark-submit --master $SPARK_MASTER '/my job.jar'"
    )
