import pytest

from beam_jobs.engines.traces import root_cause

FLINK = """\
org.apache.flink.client.program.ProgramInvocationException: Job failed (JobID: 12ab)
\tat org.apache.flink.client.ClientUtils.submit(ClientUtils.java:130) ~[flink-dist-1.20.5.jar:1.20.5]
\tat jdk.internal.reflect.GeneratedMethodAccessor12.invoke(Unknown Source)
Caused by: org.apache.flink.runtime.JobException: Recovery is suppressed by a strategy
\tat a.b.c.D$E.lambda$f$0(D.java:3)
\t... 12 more
Caused by: java.io.IOException: Cannot write record to fresh sort buffer. Record too large.
\tat java.base/java.lang.Thread.run(Thread.java:840)
"""
SPARK = """\
org.apache.spark.SparkException: Only one SparkContext should be running in this JVM.It was created at:
org.apache.spark.api.java.JavaSparkContext.<init>(JavaSparkContext.scala:58)
java.base/java.lang.Thread.run(Thread.java:840)"""
PYTHON = """\
Error received from SDK harness for instruction 5: Traceback (most recent call last):
  File "apache_beam/runners/common.py", line 3, in process
    return step(element)
           ^^^^^^^^^^^^^
KeyError: 'x'

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "a.py", line 3, in b
ValueError: bad [while running 'Write']

\tat org.apache.beam.A.b(A.java:3)
Caused by: java.lang.RuntimeException: another
"""
NAMELESS = "a.B: outer\n\tat c.D.e(D.java:3)\nCaused by: java.lang.NullPointerException\n\tat x.Y.z(Y.java:1)"


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        (
            FLINK,
            "java.io.IOException: Cannot write record to fresh sort buffer. Record too large.",
        ),
        (SPARK, SPARK.splitlines()[0]),
        (PYTHON, "ValueError: bad [while running 'Write']"),
        (NAMELESS, "a.B: outer"),
        ("\n  no workers  \nat 5 pm\n", "no workers"),
        ("java.base/java.lang.Thread.run(Thread.java:840)", ""),
        ("Traceback (most recent call last):", "Traceback (most recent call last):"),
        ("", ""),
        ("x" * 600, "x" * 500),
    ],
    ids=["flink", "spark", "python", "nameless", "text", "frames", "cut", "empty", "long"],
)
def test_the_root_cause_is_the_line_that_says_most(text, cause):
    assert root_cause(text) == cause
