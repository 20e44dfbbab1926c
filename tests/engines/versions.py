"""Tries versions of Beam's runners with the installed Beam: `python -m tests.engines.versions flink|spark VERSION SERVICE`.

It prints one row of the table in docs/engines.md.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import apache_beam

from beam_jobs.__main__ import main as run_job
from examples.samples import make_samples
from tests.engines.flink import Flink
from tests.engines.packages import FLINK_VERSION, RUNNERS, SPARK_VERSION, Runner
from tests.engines.running import running
from tests.engines.services import EngineError
from tests.engines.spark import Spark
from tests.support.datasets import files_of

_ENGINES = {"flink": (Flink, f"Flink {FLINK_VERSION}"), "spark": (Spark, f"Spark {SPARK_VERSION}")}


def row(engine: str, runner: Runner, outcome: str) -> str:
    """The row of the table for versions with which a job had an outcome."""
    _, title = _ENGINES[engine]
    cells = [apache_beam.__version__, f"{runner.module} {runner.version}", runner.service, title]
    return f"| {' | '.join([*cells, outcome])} |"


def tried(engine: str, runner: Runner) -> str:
    """What becomes of a job with a version of the runner: "the same", or what goes wrong."""
    kind, _ = _ENGINES[engine]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_samples(folder / "in", per_class=20)
        flags = ["text", "--input", f"{folder}/in/text", "--label_field", "label"]
        flags += ["--tokens", "words", "--num_shards", "4"]
        if run_job([*flags, "--output", f"{folder}/here"]):
            return "the job fails on this machine"
        try:
            with running(kind, folder / engine, runner=runner) as started:
                code = run_job([*flags, "--output", f"{folder}/there", *started.flags])
        except EngineError as error:
            return str(error).splitlines()[-1][:200]
        if code:
            return f"exit code {code}"
        same = files_of(folder / "here") == files_of(folder / "there")
        return "the same" if same else "other bytes"


def main(engine: str, version: str, service: str) -> None:
    """Prints the row of one pair."""
    runner = RUNNERS[engine]._replace(version=version, service=service)
    print(row(engine, runner, tried(engine, runner)))


if __name__ == "__main__":
    main(*sys.argv[1:])
