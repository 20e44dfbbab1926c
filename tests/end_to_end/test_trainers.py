"""Lightning and Orbax save training on our batches, and resume it with the batches that follow."""

from __future__ import annotations

import json
import logging

import pytest

import readers
from tests.support.datasets import write_numbers

pytestmark = pytest.mark.frameworks

HOW = {"split": "train", "batch_size": 4, "shuffle": True, "columns": ["id", "vector"]}
STEPS, EPOCHS = 5, 3  # of 20 records


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    return str(write_numbers(tmp_path_factory.mktemp("numbers")))


def trained(loaders, folder, stop=-1, checkpoint=None, **saving):
    """The epoch, the number and the records of each step; Lightning may stop after some, and saves."""
    import lightning
    import torch
    from lightning.pytorch.callbacks import ModelCheckpoint

    class Model(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.layer, self.seen = torch.nn.Linear(3, 1), []

        def train_dataloader(self):
            return loaders(self.trainer)

        def training_step(self, batch, index):
            self.seen.append((self.current_epoch, index, batch["id"].tolist()))
            return self.layer(batch["vector"]).mean()

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), 1e-3)

    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    saver = ModelCheckpoint(folder, filename="saved", **saving)
    shown = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    trainer = lightning.Trainer(
        accelerator="cpu", max_epochs=EPOCHS, max_steps=stop, callbacks=[saver], **shown
    )
    model = Model()
    trainer.fit(model, ckpt_path=checkpoint)
    return model.seen


def by_step(dataset, workers):
    """The loader of the step at which Lightning begins."""
    from torch.utils.data import DataLoader

    return lambda trainer: DataLoader(
        readers.torch_batches(dataset, **HOW, start_step=trainer.global_step),
        batch_size=None,
        num_workers=workers,
    )


@pytest.mark.parametrize(
    ("stop", "saving"),
    [
        (3, {"every_n_train_steps": 3}),
        (STEPS, {"every_n_train_steps": STEPS}),
        (STEPS, {"every_n_epochs": 1}),
        (STEPS + 2, {"every_n_train_steps": STEPS + 2}),
    ],
)
def test_lightning_resumes_at_every_step_on_other_workers(dataset, tmp_path, stop, saving):
    whole = trained(by_step(dataset, 0), tmp_path / "whole")
    before = trained(by_step(dataset, 0), tmp_path, stop, **saving)
    after = trained(by_step(dataset, 2), tmp_path / "after", checkpoint=tmp_path / "saved.ckpt")
    assert before + after == whole
    assert len(whole) == STEPS * EPOCHS


def test_lightning_resumes_a_stateful_loader_in_an_epoch(dataset, tmp_path):
    from torchdata.stateful_dataloader import StatefulDataLoader

    def loader(trainer):
        return StatefulDataLoader(
            readers.torch_batches(dataset, **HOW), batch_size=None, num_workers=2
        )

    stop = STEPS + 2
    whole = trained(loader, tmp_path / "whole")
    before = trained(loader, tmp_path, stop, every_n_train_steps=stop)
    after = trained(loader, tmp_path / "after", checkpoint=tmp_path / "saved.ckpt")
    assert before + after == whole


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
