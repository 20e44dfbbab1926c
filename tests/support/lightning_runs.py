"""Trains with Lightning, in a process of its own.

`python -m tests.support.lightning_runs DATASET RUNS` prints, for each of the runs, which are the
arguments of `trained` in JSON, the epoch, the number and the records of each step.
"""

from __future__ import annotations

import json
import logging
import sys
from typing import Any

import readers

HOW: dict[str, Any] = {
    "split": "train",
    "batch_size": 4,
    "shuffle": True,
    "columns": ["id", "vector"],
}
EPOCHS = 3


def trained(dataset, folder, stop=-1, checkpoint=None, workers=0, stateful=False, saving=None):
    """What each step of a run saw, which stops after some and saves checkpoints in a folder."""
    import lightning
    import torch
    from lightning.pytorch.callbacks import ModelCheckpoint
    from torch.utils.data import DataLoader
    from torchdata.stateful_dataloader import StatefulDataLoader

    class Model(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.layer, self.seen = torch.nn.Linear(3, 1), []

        def train_dataloader(self):
            loader = StatefulDataLoader if stateful else DataLoader
            # A stateful loader finds its place by itself.
            begin = 0 if stateful else self.trainer.global_step
            batches = readers.torch_batches(dataset, **HOW, state=begin)
            return loader(batches, batch_size=None, num_workers=workers)

        def training_step(self, batch, index):
            self.seen.append((self.current_epoch, index, batch["id"].tolist()))
            return self.layer(batch["vector"]).mean()

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), 1e-3)

    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    saver = ModelCheckpoint(folder, filename="saved", **saving or {})
    shown = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    trainer = lightning.Trainer(
        accelerator="cpu", max_epochs=EPOCHS, max_steps=stop, callbacks=[saver], **shown
    )
    model = Model()
    trainer.fit(model, ckpt_path=checkpoint)
    return model.seen


if __name__ == "__main__":
    directory, runs = sys.argv[1:]
    print(json.dumps([trained(directory, **run) for run in json.loads(runs)]))
