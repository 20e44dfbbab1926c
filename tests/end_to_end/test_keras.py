"""Keras on its three backends, and the strategies of `tf.distribute`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import keras
import pytest
import tensorflow as tf

import readers
from tests.support.checkout import ROOT
from tests.support.datasets import write_numbers

pytestmark = pytest.mark.filterwarnings("ignore:`shuffle=True` was passed")

MODEL = """
import sys, json, keras, readers

def model():
    keras.utils.set_random_seed(1)
    layers = [keras.Input((3,)), keras.layers.Dense(4, activation="tanh"), keras.layers.Dense(1)]
    made = keras.Sequential(layers)
    made.compile("sgd", "mse")
    return made

directory = sys.argv[1]
how = {"split": "train", "batch_size": 4, "as_supervised": ("vector", "id")}
"""


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    return str(write_numbers(tmp_path_factory.mktemp("numbers")))


def started(program: str, *arguments: str, **environment: str) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "-c", program, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**os.environ, "CUDA_VISIBLE_DEVICES": "-1", **environment},
    )


def printed(process: subprocess.Popen):
    out, errors = process.communicate(timeout=240)
    assert not process.returncode, errors[-2000:]
    return json.loads(out.splitlines()[-1])


FIT = """
train = readers.as_numpy(directory, **how, shuffle=True, repeat=None)
val = readers.as_numpy(directory, **how)
fitted = model()
found = []
validate = keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: found.append(
    fitted.evaluate((batch for batch in val), verbose=0)))
history = fitted.fit((batch for batch in train), steps_per_epoch=len(val), epochs=3, verbose=0,
                     callbacks=[validate]).history["loss"]

# The same, batch by batch.
plain, losses, validated = model(), [], []
train = readers.as_numpy(directory, **how, shuffle=True, repeat=None)
for _ in range(3):
    losses.append(0.0)
    for _ in range(5):
        vectors, numbers = next(train)
        losses[-1] += float(plain.test_on_batch(vectors, numbers)) / 5
        plain.train_on_batch(vectors, numbers)
    validated.append(sum(float(plain.test_on_batch(*batch)) / 5 for batch in val))
print(json.dumps([keras.backend.backend(), history, losses, found, validated]))
"""


@pytest.mark.parametrize(
    "backend",
    [
        pytest.param("tensorflow", marks=pytest.mark.slow),
        pytest.param("jax", marks=pytest.mark.slow),
        pytest.param("torch", marks=pytest.mark.frameworks),
    ],
)
def test_a_generator_of_batches_trains_on_every_backend(dataset, backend):
    name, history, losses, found, validated = printed(
        started(MODEL + FIT, dataset, KERAS_BACKEND=backend)
    )
    assert name == backend
    assert history == pytest.approx(losses, rel=1e-4)
    assert found == pytest.approx(validated, rel=1e-4)


def test_workers_of_a_strategy_share_batches_by_their_rows(dataset):
    batches = readers.load(dataset, split="train", batch_size=4, shuffle=True)
    policy = batches.options().experimental_distribute.auto_shard_policy
    assert policy == tf.data.experimental.AutoShardPolicy.DATA


class _Killed(Exception):
    pass


class _Killing(keras.callbacks.Callback):
    """Ends the training in the middle of its third epoch."""

    def on_train_batch_begin(self, batch, logs=None):
        if (self.model.optimizer.iterations.numpy(), batch) == (12, 2):
            raise _Killed


@pytest.mark.slow
def test_backup_and_restore_resumes_to_the_losses_of_an_undisturbed_run(dataset, tmp_path):
    steps = 5

    def losses(backup: Path, *callbacks: keras.callbacks.Callback) -> list[float]:
        keras.utils.set_random_seed(1)
        layers = [keras.Input((3,)), keras.layers.Dense(4, "tanh"), keras.layers.Dense(1)]
        model = keras.Sequential(layers)
        model.compile(keras.optimizers.Adam(0.1), "mse")
        metadata = backup / "training_metadata.json"
        epoch = json.loads(metadata.read_text())["epoch"] if metadata.exists() else 0
        train = readers.load(
            dataset,
            split="train",
            batch_size=4,
            shuffle=True,
            as_supervised=("vector", "id"),
            repeat=None,
            state=epoch * steps,
        )
        callbacks = (*callbacks, keras.callbacks.BackupAndRestore(str(backup)))
        history = model.fit(
            train, epochs=5, steps_per_epoch=steps, verbose=0, callbacks=[*callbacks]
        )
        return list(history.history["loss"])

    undisturbed = losses(tmp_path / "undisturbed")
    assert len(undisturbed) == 5
    with pytest.raises(_Killed):
        losses(tmp_path / "backup", _Killing())
    resumed = losses(tmp_path / "backup")
    assert resumed == pytest.approx(undisturbed[2:], rel=1e-5)


MIRRORED = """
import tensorflow as tf
cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
ds = strategy.distribute_datasets_from_function(
    lambda context: readers.load(
        directory, split="train", batch_size=context.get_per_replica_batch_size(4), shuffle=True,
        shard=context))
found = [value.numpy().tolist() for batch in ds
         for value in strategy.experimental_local_results(batch["id"])]
how |= {"shuffle": True, "repeat": None}
alone = model().fit(readers.load(directory, **how), steps_per_epoch=5, epochs=2, verbose=0)
with strategy.scope():
    mirrored = model()
both = mirrored.fit(readers.load(directory, **how), steps_per_epoch=5, epochs=2, verbose=0)
print(json.dumps([found, alone.history["loss"], both.history["loss"]]))
"""


@pytest.mark.slow
def test_mirrored_replicas_share_the_batches_and_train_as_one_device(dataset):
    found, alone, both = printed(started(MODEL + MIRRORED, dataset, KERAS_BACKEND="tensorflow"))
    assert {len(part) for part in found} == {2}
    assert sorted(number for part in found for number in part) == [*range(20)]
    assert both == pytest.approx(alone, rel=1e-4)
