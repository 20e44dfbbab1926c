"""`jax_batches` on several devices and in several processes."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import textwrap

import jax
import numpy as np
import pytest

import readers
from tests.support.checkout import ROOT
from tests.support.datasets import write_dataset, write_numbers, write_signals

SHUFFLED = {"split": "train", "batch_size": 8, "shuffle": True, "seed": 5}


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    return str(write_numbers(tmp_path_factory.mktemp("numbers"), (50, 40, 30, 17)))


def ids(batches):
    return [np.asarray(batch["id"]).tolist() for batch in batches]


def test_batches_are_arrays_of_jax_of_one_size(dataset):
    batches = readers.jax_batches(dataset, **SHUFFLED)
    found = list(batches)
    assert all(isinstance(array, jax.Array) for batch in found for array in batch.values())
    assert sorted(found[0]) == ["id", "vector"]
    assert ids(found) == ids(readers.as_numpy(dataset, **SHUFFLED, remainder="drop"))
    assert len(batches) == len(found) == 137 // 8
    epochs = ids(readers.as_numpy(dataset, **SHUFFLED, remainder="drop", repeat=2))
    assert ids(batches) == epochs[len(found) :]


@pytest.mark.parametrize("prefetch", [0, 1, 3])
def test_a_state_counts_the_batches_returned(dataset, prefetch):
    whole = ids(readers.jax_batches(dataset, **SHUFFLED))
    begun = readers.jax_batches(dataset, **SHUFFLED, prefetch=prefetch)
    assert [ids([next(begun)])[0] for _ in range(5)] == whole[:5]
    saved = json.loads(begun.state().to_json())  # As Orbax keeps it.
    assert ids(readers.jax_batches(dataset, **SHUFFLED, state=json.dumps(saved))) == whole[5:]


def test_padded_batches_compile_once(tmp_path):
    path = str(write_signals(tmp_path / "signals", [n * 5 % 9 for n in range(31)]))
    compiled = []

    @jax.jit
    def step(batch):
        compiled.append(batch["signal"].shape)  # Runs only while JAX traces the function.
        return (batch["signal"].sum(axis=(1, 2)) * batch["batch_mask"]).sum()

    how = {"batch_size": 4, "remainder": "pad"}
    padded = readers.Padded(max_length=8, to="max_length")
    batches = readers.jax_batches(path, **how, batching=padded, columns=["signal"])
    total = sum(float(step(batch)) for batch in batches)
    assert compiled == [(4, 8, 2)]
    arrays = readers.as_numpy(path, batch_size=1, batching="ragged", columns=["signal"])
    assert total == sum(float(batch["signal"][0].sum()) for batch in arrays)


def in_process(code, *arguments, devices=1):
    flags = f"--xla_force_host_platform_device_count={devices}"
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)],
        cwd=ROOT,
        env={"PATH": "/usr/bin:/bin", "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"},
        stdout=subprocess.PIPE,
        text=True,
    )


def answer(process):
    out, _ = process.communicate(timeout=240)
    assert process.returncode == 0, out
    return json.loads(out.splitlines()[-1])


@pytest.mark.slow
def test_a_sharding_divides_batches_between_devices(dataset):
    code = """
        import sys, json, jax, numpy as np, readers
        from jax.sharding import NamedSharding, PartitionSpec
        sharding = NamedSharding(jax.make_mesh((4,), ("data",)), PartitionSpec("data"))
        found = list(readers.jax_batches(
            sys.argv[1], split="train", batch_size=8, shuffle=True, seed=5, sharding=sharding))
        assert all(a.sharding == sharding for batch in found for a in batch.values())
        assert {s.data.shape for s in found[0]["vector"].addressable_shards} == {(2, 3)}
        print(json.dumps([np.asarray(batch["id"]).tolist() for batch in found]))
    """
    found = answer(in_process(code, dataset, devices=4))
    assert found == ids(readers.as_numpy(dataset, **SHUFFLED, remainder="drop"))


@pytest.mark.slow
def test_two_processes_make_global_arrays_and_one_state(dataset):
    code = """
        import sys, json, jax, numpy as np, readers
        jax.distributed.initialize(sys.argv[2], num_processes=2, process_id=int(sys.argv[3]))
        from jax.experimental import multihost_utils
        from jax.sharding import NamedSharding, PartitionSpec
        sharding = NamedSharding(jax.make_mesh((4,), ("data",)), PartitionSpec("data"))
        batches = readers.jax_batches(
            sys.argv[1], split="train", batch_size=8, shuffle=True, seed=5, sharding=sharding,
            remainder="pad")
        found = []
        for batch in batches:
            assert batch["id"].shape == (16,)
            whole = multihost_utils.process_allgather(batch, tiled=True)
            found.append(whole["id"][whole["batch_mask"]].tolist())
            if len(found) == 3:
                state = batches.state().to_json()
        print(json.dumps([found, json.loads(state)]))
    """
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    both = [in_process(code, dataset, address, number, devices=2) for number in range(2)]
    (found, state), other = [answer(process) for process in both]
    assert other == [found, state]
    how = {**SHUFFLED, "batch_size": 16}
    assert [sorted(batch) for batch in found] == [
        sorted(batch) for batch in ids(readers.as_numpy(dataset, **how))
    ]
    rest = ids(readers.as_numpy(dataset, **how, state=json.dumps(state)))
    assert rest == ids(readers.as_numpy(dataset, **how))[3:]


def test_integers_that_do_not_fit_into_32_bits_are_refused(tmp_path):
    schema = readers.Schema({"time": ("int64", ()), "small": ("int64", ())})
    records = [{"time": 2**40 + n, "small": -n} for n in range(4)]
    path = write_dataset(tmp_path, schema, {"train": [records]})
    with pytest.raises(ValueError, match=r"'time' has the number 1099511627776, .*jax_enable_x64"):
        next(iter(readers.jax_batches(path, batch_size=2)))
    assert next(iter(readers.jax_batches(path, batch_size=2, columns=["small"])))
    jax.config.update("jax_enable_x64", True)
    try:
        batch = next(iter(readers.jax_batches(path, batch_size=2)))
    finally:
        jax.config.update("jax_enable_x64", False)
    assert batch["time"].tolist() == [2**40, 2**40 + 1]


def test_floats_of_64_bits_are_rounded_with_a_warning(tmp_path):
    schema = readers.Schema({"x": ("float64", ())})
    records = [{"x": 0.1}] * 2
    path = write_dataset(tmp_path, schema, {"train": [records]})
    with pytest.warns(UserWarning, match="'x' is float64, and JAX keeps half of its bits: .*x64"):
        next(iter(readers.jax_batches(path, batch_size=2)))


def test_what_jax_has_no_arrays_of_is_refused(dataset, tmp_path):
    path = str(write_signals(tmp_path / "signals", [3, 5, 7, 2]))
    with pytest.raises(ValueError, match=r"'signal': JAX has no arrays of .*readers.Padded"):
        next(readers.jax_batches(path, 2, batching="ragged"))
    with pytest.raises(ValueError, match=r"'name': JAX has no arrays of .*transform="):
        next(readers.jax_batches(dataset, 2, columns=["name"]))
