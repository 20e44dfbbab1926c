"""Lightning and Orbax save training on our batches, and resume it with the batches that follow."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

import readers
from tests.support.checkout import ROOT
from tests.support.datasets import write_numbers
from tests.support.lightning_runs import EPOCHS, HOW

pytestmark = pytest.mark.frameworks

STEPS = 5  # an epoch, of 20 records


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    return str(write_numbers(tmp_path_factory.mktemp("numbers")))


def trained(dataset, *runs):
    """What each of several runs of Lightning saw: see `tests/support/lightning_runs.py`."""
    # In a process of its own: where Beam and TensorFlow are loaded, importing Lightning aborts.
    command = [sys.executable, "-m", "tests.support.lightning_runs", dataset, json.dumps(runs)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert not done.returncode, done.stderr[-2000:]
    return json.loads(done.stdout.splitlines()[-1])


def test_lightning_resumes_at_a_step_on_other_workers(dataset, tmp_path):
    stop = STEPS + 2
    saving = {"every_n_train_steps": stop}
    whole, before, after = trained(
        dataset,
        {"folder": f"{tmp_path}/whole"},
        {"folder": f"{tmp_path}", "stop": stop, "saving": saving},
        {"folder": f"{tmp_path}/after", "workers": 2, "checkpoint": f"{tmp_path}/saved.ckpt"},
    )
    assert before + after == whole
    assert len(whole) == STEPS * EPOCHS


def test_orbax_saves_a_state_beside_the_model(dataset, tmp_path):
    import jax
    import orbax.checkpoint as ocp

    how = {**HOW, "repeat": EPOCHS}
    whole = [batch["id"].tolist() for batch in readers.jax_batches(dataset, **how)]
    batches = readers.jax_batches(dataset, **how)
    before = [next(batches)["id"].tolist() for _ in range(STEPS + 2)]
    model = {"weights": jax.numpy.ones(3)}
    with ocp.CheckpointManager(tmp_path) as manager:
        items = {
            "model": ocp.args.StandardSave(model),
            "data": ocp.args.JsonSave(json.loads(batches.state().to_json())),
        }
        manager.save(len(before), args=ocp.args.Composite(**items))
    with ocp.CheckpointManager(tmp_path) as manager:
        wanted = {"model": ocp.args.StandardRestore(model), "data": ocp.args.JsonRestore()}
        found = manager.restore(manager.latest_step(), args=ocp.args.Composite(**wanted))
    after = readers.jax_batches(dataset, **how, state=json.dumps(found.data))
    assert before + [batch["id"].tolist() for batch in after] == whole
