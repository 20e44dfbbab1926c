"""The flags of Beam that `--engine` stands for."""

from __future__ import annotations

import hashlib
import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

Engine = Literal["direct", "prism", "flink", "spark", "dataflow"]

# Engines behind a job service, which is named by --job_endpoint or started by the runner.
_WITH_JOB_SERVICE = ("prism", "flink", "spark")

_RUNNERS = {
    "dataflow": ["--runner=DataflowRunner"],
    "prism": ["--runner=PrismRunner"],
    # For Flink 2, Beam's default, Beam only has the translator for streaming pipelines.
    "flink": ["--runner=FlinkRunner", "--flink_version=1.20"],
    "spark": ["--runner=SparkRunner", "--spark_version=3"],
}

# For how many milliseconds idle workers are kept: starting new ones for the next stage takes 3 to
# 4 s. A dead worker is kept as long, too, and until then every retry fails.
_IDLE_MILLISECONDS = 5_000

# Dataflow refuses names with other characters, and pages of engines show no long ones.
_NOT_IN_A_NAME = re.compile(r"[^a-z0-9]+")
_MOST_OF_OUTPUT = 40


def job_name(job: str, output: str) -> str:
    """The name of a job on an engine, such as `beam-shards-text-data-shards-reviews`.

    Args:
        job: Which job it is, such as "text".
        output: The output directory; of a long one the end, and a digest of the whole.
    """
    place = _NOT_IN_A_NAME.sub("-", output.lower()).strip("-")
    if len(place) > _MOST_OF_OUTPUT:
        digest = hashlib.sha256(output.encode("utf-8", "surrogateescape")).hexdigest()[:6]
        place = f"{place[7 - _MOST_OF_OUTPUT :].strip('-')}-{digest}"
    return f"beam-shards-{job}-{place}".rstrip("-")


def engine_flags(engine: Engine, given: Sequence[str]) -> list[str]:
    """The flags of an engine, to put before those of the user, which take precedence.

    Args:
        engine: The engine's name.
        given: The user's flags for Beam.
    """
    names = {flag.split("=", 1)[0] for flag in given}
    if engine == "direct":
        return []
    portable = engine in _WITH_JOB_SERVICE and "--job_endpoint" in names
    runner = ["--runner=PortableRunner"] if portable else _RUNNERS[engine]
    # Listing the driver's packages takes a second, and no worker reads the list.
    flags = [*runner, "--experiments=disable_logging_submission_environment"]
    if engine not in _WITH_JOB_SERVICE:
        return flags
    flags += [f"--environment_cache_millis={_IDLE_MILLISECONDS}"]
    if "--environment_type" in names:
        return flags
    command = json.dumps({"command": worker_program()})
    return [*flags, "--environment_type=PROCESS", f"--environment_config={command}"]


def worker_program() -> str:
    """The path of `beam-shards-worker`, which starts workers in this environment."""
    return str(Path(sys.executable).with_name("beam-shards-worker"))
