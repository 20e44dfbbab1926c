"""Batches and records in JAX: `as_numpy` feeds a jitted step, `RecordSource` a gather by index."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import readers
from tests.support.datasets import write_numbers, write_signals

TRUE_WEIGHTS = np.array([1.0, 2.0, 3.0], np.float32)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    return write_numbers(tmp_path_factory.mktemp("numbers"))


def test_a_jitted_step_compiles_once_for_all_batches_of_two_epochs(dataset):
    compiled = []

    @jax.jit
    def step(total, batch):
        compiled.append(batch["vector"].shape)  # runs only while JAX traces the function
        return total + batch["vector"].sum(), batch["id"] * 2

    batches = readers.as_numpy(
        dataset, batch_size=5, columns=["id", "vector"], shuffle=True, seed=1, repeat=2
    )
    total, doubled = jnp.float32(0), []
    for batch in batches:
        total, ids = step(total, batch)
        doubled += ids.tolist()
    assert compiled == [(5, 3)]
    assert float(total) == 2 * 3 * sum(range(20))
    first, second = doubled[:20], doubled[20:]
    assert sorted(first) == sorted(second) == list(range(0, 40, 2))
    assert first != second


@pytest.mark.parametrize(
    ("buckets", "shapes"), [(None, {(4, 7, 2)}), ([3], {(4, 2, 2), (4, 7, 2)})]
)
def test_a_jitted_step_compiles_once_for_each_length_that_batches_are_padded_to(
    tmp_path, buckets, shapes
):
    dataset = write_signals(tmp_path, [n % 9 for n in range(40)])

    @jax.jit
    def total(signal, mask):
        return (signal * mask[..., None]).sum()

    found = set()
    for batch in readers.as_numpy(
        dataset,
        batch_size=4,
        batching="padded",
        mask=True,
        max_length=7,
        pad_to="max_length",
        bucket_boundaries=buckets,
        drop_remainder=True,
        shuffle=True,
    ):
        assert total(batch["signal"], batch["signal_mask"]) == batch["signal"].sum()
        found.add(batch["signal"].shape)
    assert found == shapes
    assert total._cache_size() == len(shapes)


def test_padded_batches_with_a_mask_give_the_mean_of_the_true_values(tmp_path):
    lengths = (3, 0, 5, 1, 2)
    dataset = write_signals(tmp_path, lengths)

    @jax.jit
    def means(signal, mask):
        weights = mask[..., None]
        return (signal * weights).sum((1, 2)) / jnp.maximum(2 * mask.sum(1), 1)

    (batch,) = readers.as_numpy(dataset, batch_size=5, batching="padded", mask=True)
    found = means(batch["signal"], batch["signal_mask"])
    # The values of a record of n steps are 1, 2, ..., 2n.
    expected = [(2 * n + 1) / 2 if n else 0 for n in lengths]
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_gradients_train_a_model_to_known_weights(dataset):
    @jax.jit
    def update(weights, vectors, targets):
        error = lambda w: ((vectors @ w - targets) ** 2).mean()  # noqa: E731
        return weights - 0.1 * jax.grad(error)(weights)

    rng = np.random.default_rng(0)
    inputs = rng.normal(size=(20, 3)).astype(np.float32)
    weights = jnp.zeros(3)
    for batch in readers.as_numpy(dataset, batch_size=10, shuffle=True, seed=3, repeat=200):
        vectors = inputs[batch["id"]]
        weights = update(weights, vectors, vectors @ TRUE_WEIGHTS)
    np.testing.assert_allclose(weights, TRUE_WEIGHTS, atol=1e-3)


def test_records_picked_by_a_permutation_of_jax_are_stacked_on_the_device(dataset):
    source = readers.RecordSource(dataset, columns=["id", "vector"])
    order = jax.random.permutation(jax.random.key(0), len(source))
    records = source.__getitems__(order.tolist())
    stacked = jax.tree.map(lambda *values: jnp.stack(values), *records)
    assert stacked["vector"].dtype == jnp.float32
    assert stacked["id"].tolist() == order.tolist()
    assert (stacked["vector"] == order[:, None]).all()
