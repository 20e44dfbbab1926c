"""From files to a trained model: a job, a reader, transforms and `model.fit` for each kind of data."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

import readers
from examples.samples import make_texts
from readers.transforms import (
    Moments,
    normalize,
    random_brightness,
    random_crop,
    random_flip,
)
from tests.support.commands import run

pytestmark = pytest.mark.slow

SPLITS = ["--splits", "train=0.75,val=0.25", "--num_shards", "train=3,val=1"]

# There are two classes; always guessing the larger one is right in less than 0.65.
LEARNED = 0.9


def written(job: str, *arguments: object) -> str:
    """Runs a job with two splits; returns the directory of its dataset, the last argument."""
    *flags, out = arguments
    assert run(job, *flags, *SPLITS, "--output", out) == 0
    return str(out)


def accuracy(
    model: keras.Model, train: tf.data.Dataset, val: tf.data.Dataset, epochs: int
) -> float:
    """Trains a model; returns its accuracy on the held-out split."""
    loss = keras.losses.SparseCategoricalCrossentropy()
    model.compile(keras.optimizers.Adam(0.01), loss, metrics=["accuracy"])
    labels = np.concatenate([labels for _, labels in val])
    assert 0.35 < labels.mean() < 0.65
    model.fit(train, epochs=epochs, shuffle=False, verbose=0)
    return float(model.evaluate(val, verbose=0, return_dict=True)["accuracy"])


@pytest.fixture(autouse=True)
def seeded():
    keras.utils.set_random_seed(0)


def rng() -> np.random.Generator:
    return np.random.Generator(np.random.PCG64(0))


def make_stripes(directory: Path, per_class: int) -> None:
    """Writes JPEGs of many sizes and tints, with horizontal or vertical stripes."""
    generator = rng()
    for axis, name in enumerate(("horizontal", "vertical")):
        (directory / name).mkdir(parents=True)
        for number in range(per_class):
            places = np.indices(generator.integers(40, 90, 2))[axis]
            gray = np.sin(places * generator.uniform(0.3, 0.6) + generator.uniform(0, 6))
            pixels = 127.5 + 60 * gray[..., None] + generator.normal(0, 20, (1, 1, 3))
            image = Image.fromarray(pixels.clip(0, 255).astype(np.uint8))
            image.save(directory / name / f"{number}.jpg")


def test_a_model_learns_from_augmented_images(tmp_path):
    make_stripes(tmp_path / "in", 120)
    flags = ["--input", tmp_path / "in/*/*", "--image_size", "36x36"]
    dataset = written("images", *flags, tmp_path / "out")
    moments = Moments.of(readers.Manifest.read(dataset), "train", "image")

    def augmented(batch, keys):
        images = random_flip(batch["image"], keys)
        images = random_crop(images, keys, (32, 32))
        images = random_brightness(images, keys, 0.1)
        return {"image": normalize(images, moments), "label": batch["label"]}

    def cut(batch, keys):
        images = batch["image"][:, 2:-2, 2:-2]
        return {"image": normalize(images, moments), "label": batch["label"]}

    load = partial(readers.load, dataset, batch_size=32, as_supervised=("image", "label"))
    train = load(split="train", shuffle=True, transform=augmented)
    val = load(split="val", transform=cut)
    model = keras.Sequential(
        [
            keras.layers.Conv2D(8, 5, 2, activation="relu"),
            keras.layers.GlobalMaxPooling2D(),
            keras.layers.Dense(2, activation="softmax"),
        ]
    )
    assert accuracy(model, train, val, epochs=4) > LEARNED


def test_a_model_learns_from_texts_with_the_vocabulary_of_the_dataset(tmp_path):
    make_texts(tmp_path / "in", 600, rng())
    flags = ["--label_field", "label", "--tokens", "words", "--vocabulary_size", 40]
    texts = written("text", "--input", tmp_path / "in/*.jsonl", *flags, tmp_path / "out")
    vectorizer = keras.layers.TextVectorization(
        vocabulary=f"{texts}/vocabulary.txt", output_sequence_length=16
    )

    def ids(batch):
        return vectorizer(batch["text"]), batch["label"]

    columns = ["text", "label"]
    train = readers.load(texts, split="train", batch_size=32, shuffle=True, columns=columns).map(
        ids
    )
    val = readers.load(texts, split="val", batch_size=32, columns=columns).map(ids)
    model = keras.Sequential(
        [
            keras.layers.Embedding(vectorizer.vocabulary_size(), 8, mask_zero=True),
            keras.layers.GlobalAveragePooling1D(),
            keras.layers.Dense(2, activation="softmax"),
        ]
    )
    assert accuracy(model, train, val, epochs=4) > LEARNED
    unseen = vectorizer(tf.constant(["The room was QUICK and warm!", "a cold, noisy film"]))
    names = readers.Manifest.read(texts).label_names
    found = [names[i] for i in model.predict(unseen, verbose=0).argmax(axis=1)]
    assert found == ["positive", "negative"]
