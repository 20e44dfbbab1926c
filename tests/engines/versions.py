"""Tries versions of Beam's runners with the installed Beam: `python -m tests.engines.versions [flink|spark VERSION SERVICE]`.

Without arguments it tries the newest versions in the Maven registry. Each pair is one row of the table in
docs/engines.md.
"""

from __future__ import annotations

import re
import sys
import tempfile
import urllib.error
import urllib.request
from pathlib import Path

import apache_beam

from beam_jobs.__main__ import main as run_job
from examples.samples import make_samples
from tests.engines.flink import Flink
from tests.engines.packages import FLINK_VERSION, SPARK_VERSION, Runner
from tests.engines.running import running
from tests.engines.services import EngineError
from tests.engines.spark import Spark
from tests.support.datasets import files_of

_REGISTRY = "https://repo1.maven.org/maven2/org/apache/beam"
_SERVICE = "beam-runners-java-job-service"

# The runners for the engines of the tests, the best first.
_MODULES = {
    "flink": ("beam-runners-flink-1.20", "beam-runners-flink-1.19"),
    "spark": ("beam-runners-spark-3",),
}
_ENGINES = {"flink": (Flink, f"Flink {FLINK_VERSION}"), "spark": (Spark, f"Spark {SPARK_VERSION}")}


def published(module: str) -> list[str]:
    """The versions of a module of Beam in the registry, the newest last; none if it lacks the module.

    Raises:
        EngineError: The registry does not answer.
    """
    try:
        with urllib.request.urlopen(f"{_REGISTRY}/{module}/maven-metadata.xml", timeout=30) as file:
            found = re.findall(r"<version>(\d+\.\d+\.\d+)</version>", file.read().decode())
    except urllib.error.HTTPError as error:
        if error.code == 404:
            return []
        raise EngineError(f"{_REGISTRY} does not answer ({error})") from None
    except OSError as error:
        raise EngineError(f"{_REGISTRY} does not answer ({error})") from None
    return sorted(found, key=_numbers)


def newest(engine: str) -> Runner:
    """The newest runner for an engine, with the newest job service that is not newer than it.

    Raises:
        EngineError: The registry does not answer, or has no such module.
    """
    for module in _MODULES[engine]:
        if versions := published(module):
            services = [v for v in published(_SERVICE) if _numbers(v) <= _numbers(versions[-1])]
            return Runner(module, versions[-1], services[-1])
    raise EngineError(f"{_REGISTRY} has none of {', '.join(_MODULES[engine])}")


def _numbers(version: str) -> list[int]:
    return [int(part) for part in version.split(".")]


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


def main(arguments: list[str]) -> int:
    """Prints the rows of one pair, or of the newest ones."""
    if arguments:
        engine, version, service = arguments
        pairs = {engine: Runner(_MODULES[engine][-1], version, service)}
    else:
        pairs = {engine: newest(engine) for engine in _MODULES}
    for engine, runner in pairs.items():
        print(row(engine, runner, tried(engine, runner)), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
