"""Starts and stops engines on this machine: `./run_local.sh engines start flink`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tests.engines import packages
from tests.engines.flink import Flink
from tests.engines.pool import Pool
from tests.engines.prism import Prism
from tests.engines.services import EngineError, pids, start, stop
from tests.engines.spark import Spark

ENGINES = {"flink": Flink, "spark": Spark, "prism": Prism, "pool": Pool}


def main(arguments: list[str]) -> int:
    """Runs the command; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="run_local.sh engines",
        description="Real engines on this machine for trying jobs: a Flink cluster of one "
        "JobManager and two TaskManagers, a Spark cluster of one master and two workers, Prism, and "
        f"Beam's worker pool. What they need is downloaded once, to {packages.CACHE} (or "
        "$BEAM_SHARDS_ENGINES).",
    )
    parser.add_argument("action", choices=["start", "stop", "status"])
    parser.add_argument("engine", choices=[*ENGINES, "all"])
    parser.add_argument(
        "--folder",
        type=Path,
        default=packages.CACHE / "running",
        help="for logs, settings and temporary files, with one subfolder per engine",
    )
    flags = parser.parse_args(arguments)
    try:
        for name in ENGINES if flags.engine == "all" else [flags.engine]:
            engine = ENGINES[name](flags.folder.absolute() / name)
            if flags.action == "start":
                started = start(engine.folder, engine.services())
                print(
                    f"{name} runs (started {', '.join(started) or 'nothing'}); its logs are in {engine.folder}"
                )
                print(f"  {' '.join(engine.flags)}")
            elif flags.action == "stop":
                print(f"{name}: stopped {', '.join(stop(engine.folder)) or 'nothing'}")
            else:
                print(f"{name}: {', '.join(pids(engine.folder)) or 'not running'}")
    except EngineError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
