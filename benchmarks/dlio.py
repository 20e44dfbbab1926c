"""MLPerf Storage's own program, DLIO: how many emulated H100s are busy 90 % of the time?

    python benchmarks/dlio.py

DLIO writes the TFRecord files of its workloads, and runs a process for each accelerator, which reads a
batch and sleeps as long as the step takes; after each step, all processes wait for the slowest. It
reads with its own reader, tf.data, which parses records and decodes no picture; and with ours as a
plug-in, `rivals/dlio_loader.py`, which returns all values in a random order of all records.

The number of accelerators is searched for as in `mlperf_storage.py`. The utilisation is what DLIO
states, in the mean of its epochs. All files are in the page cache.
"""

from __future__ import annotations

import argparse
import json
import shutil
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from environment import make_environment, rival_python, rival_variables
from measure import HERE, BenchmarkError, run
from mlperf_storage import most_accelerators

_EPOCHS = 2


@dataclass(frozen=True)
class Workload:
    """A configuration of DLIO.

    Attributes:
        config: Its name.
        files: The number of files, of about 6 GB.
    """

    config: str
    files: int


WORKLOADS = {
    "resnet50": Workload("resnet50_h100", 44),
    "cosmoflow": Workload("cosmoflow_h100", 2048),
}
# The settings beside those of the configuration.
READERS = {
    "tf.data": [],
    "as_numpy": [
        "++workload.reader.data_loader_classname=dlio_loader.Loader",
        "++workload.reader.data_loader_sampler=iterative",
    ],
}


def _dlio(data: Path, workload: Workload, ranks: int, settings: list[str]) -> Path:
    """Runs DLIO in some processes; returns the folder of its results."""
    python, out = Path(rival_python(data, "dlio")), data / "out"
    shutil.rmtree(out, ignore_errors=True)
    variables = rival_variables() | {
        "PYTHONPATH": f"{HERE.parent}:{HERE / 'rivals'}",
        "PATH": f"{python.parent}:{rival_variables()['PATH']}",
        "TF_CPP_MIN_LOG_LEVEL": "3",
    }
    command = [str(python.parent / "mpiexec"), "-n", str(ranks)]
    command += [str(python), "-m", "dlio_benchmark.main", f"workload={workload.config}", *settings]
    command += [
        f"++workload.dataset.data_folder={data / workload.config}",
        f"++workload.dataset.num_files_train={workload.files}",
        f"++workload.train.epochs={_EPOCHS}",
        f"++hydra.run.dir={out}",
    ]
    run(f"run DLIO with {ranks} processes", command, data / "dlio.log", env=variables)
    return out


def make(data: Path, workload: Workload) -> None:
    """Lets DLIO write the files of a workload, unless they exist."""
    written = data / workload.config / "written"
    if written.exists():
        return
    # DLIO calls this program of DALI's for each file, and none of the readers uses what it writes.
    index = Path(rival_python(data, "dlio")).parent / "tfrecord2idx"
    index.unlink(missing_ok=True)
    index.symlink_to(shutil.which("true") or "/bin/true")
    flags = ["++workload.workflow.generate_data=True", "++workload.workflow.train=False"]
    _dlio(data, workload, 2, flags)
    written.touch()


def utilisation(data: Path, workload: Workload, settings: list[str], ranks: int) -> float:
    """The share of time that accelerators spend in steps, as DLIO states it."""
    flags = ["++workload.workflow.generate_data=False", *settings]
    summary = json.loads((_dlio(data, workload, ranks, flags) / "summary.json").read_text())
    return float(summary["metric"]["train_au_mean_percentage"]) / 100


def main() -> None:
    """Prints a row for each workload and reader."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--data", type=Path, default=Path("benchmark_data/dlio"))
    parser.add_argument("--workloads", default=",".join(WORKLOADS))
    parser.add_argument("--readers", default=",".join(READERS))
    parser.add_argument("--target", type=float, default=0.9, help="share of time in steps")
    parser.add_argument(
        "--ranks", type=int, nargs="*", help="these numbers of processes, no search"
    )
    flags = parser.parse_args()
    data = flags.data.absolute()
    data.mkdir(parents=True, exist_ok=True)
    try:
        make_environment(data, "dlio")
        print("| workload | reader | accelerators | utilisation |", flush=True)
        for name in flags.workloads.split(","):
            make(data, WORKLOADS[name])
            for reader in flags.readers.split(","):
                measure = partial(utilisation, data, WORKLOADS[name], READERS[reader])
                found = [(ranks, measure(ranks)) for ranks in flags.ranks or []]
                for ranks, share in found or [most_accelerators(measure, flags.target)]:
                    print(f"| {name} | {reader} | {ranks} | {share:.2f} |", flush=True)
    except BenchmarkError as error:
        raise SystemExit(f"error: {error}") from None


if __name__ == "__main__":
    main()
