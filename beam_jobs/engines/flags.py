"""`--engine`: the flags of Beam that send a job to an engine, which nobody remembers."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

ENGINES = ("direct", "prism", "flink", "spark", "dataflow")

# Engines that a job service speaks to: one that is named, or one that the runner starts.
_WITH_JOB_SERVICE = ("prism", "flink", "spark")

_RUNNERS = {
    "dataflow": ["--runner=DataflowRunner"],
    "prism": ["--runner=PrismRunner"],
    # Of Flink 2, Beam's default, Beam has the translator of streaming pipelines only.
    "flink": ["--runner=FlinkRunner", "--flink_version=1.20"],
    "spark": ["--runner=SparkRunner", "--spark_version=3"],
}

# Workers without a stage live on for so many milliseconds: the next stage would start them anew, which
# takes 3 to 4 s. A worker that died is kept as long, and until then every new attempt fails with it.
_WORKERS_LIVE_ON = 5_000


def engine_flags(engine: str, given: Sequence[str]) -> list[str]:
    """The flags of an engine; those that are given follow them, and win.

    Args:
        engine: One of `ENGINES`.
        given: Flags for Beam.
    """
    names = {flag.split("=", 1)[0] for flag in given}
    if engine == "direct":
        return []
    portable = engine in _WITH_JOB_SERVICE and "--job_endpoint" in names
    runner = ["--runner=PortableRunner"] if portable else _RUNNERS[engine]
    # The list of the driver's packages costs a second, and no worker reads it.
    flags = [*runner, "--experiments=disable_logging_submission_environment"]
    if engine not in _WITH_JOB_SERVICE:
        return flags
    flags += [f"--environment_cache_millis={_WORKERS_LIVE_ON}"]
    if "--environment_type" in names:
        return flags
    command = json.dumps({"command": worker_program()})
    return [*flags, "--environment_type=PROCESS", f"--environment_config={command}"]


def worker_program() -> str:
    """Where this environment has `beam-shards-worker`, which starts its workers."""
    return str(Path(sys.executable).with_name("beam-shards-worker"))
