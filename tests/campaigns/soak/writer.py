"""A process that runs job after job, each in itself and to a store: `python -m tests.campaigns.soak.writer`."""

from __future__ import annotations

import contextlib
import io
import sys
from functools import partial
from pathlib import Path
from typing import Any

from beam_jobs.__main__ import main as run_job
from tests.campaigns.soak.inputs import write_inputs
from tests.campaigns.soak.slots import Slot, slots_of
from tests.campaigns.soak.steps import run_steps

# As options of records differ from job to job, so do the readers' ways through them.
_OPTIONS = {
    "images": (["--encoding", "tensor"], ["--encoding", "raw", "--image_size", "24x24"]),
    "text": ([], ["--tokens", "words"]),
    "sensors": (["--encoding", "tensor"], ["--encoding", "list"]),
}

_EVERY_WITH_TWO = 5


def write(slots: list[Slot], inputs: Path, number: int) -> dict[str, Any] | None:
    """Replaces the dataset of the next slot that nobody reads, and returns what was done."""
    for at in range(len(slots)):
        slot = slots[(number + at) % len(slots)]
        with slot.held(to_write=True) as is_free:
            if is_free:
                return _replace(slot, inputs, number)
    return None


def _replace(slot: Slot, inputs: Path, number: int) -> dict[str, Any]:
    expected = write_inputs(slot.kind, number, inputs)
    options = _OPTIONS[slot.kind][number // len(_OPTIONS) % 2]
    command = [slot.kind, "--input", str(inputs), "--output", slot.url, "--overwrite"]
    command += ["--label", "none"] if slot.kind != "text" else []
    command += ["--splits", "train=0.8,val=0.2", "--num_shards", "train=3,val=1"]
    # One works in this process itself, two are processes of their own.
    workers = "2" if number % _EVERY_WITH_TWO == _EVERY_WITH_TWO - 1 else "1"
    command += ["--seed", str(number), "--direct_num_workers", workers, *options]
    (slot.folder / "expected.json").unlink(missing_ok=True)
    with contextlib.redirect_stderr(io.StringIO()) as said, contextlib.redirect_stdout(said):
        code = run_job(command)
    if code:
        return {"job": slot.kind, "failure": f"exit code {code}: {said.getvalue()}"}
    slot.publish(expected)
    return {"job": slot.kind, "records": len(expected)}


def main(folder: Path, bucket: str, rest: float) -> None:
    """Runs until the process is ended."""
    run_steps("writer", partial(write, slots_of(folder, bucket), folder / "inputs"), folder, rest)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], float(sys.argv[3]))
