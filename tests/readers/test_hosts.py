"""`shard="auto"`: the host is found in what is already set up."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import warnings

import pytest
import tensorflow as tf

import readers
from readers import hosts
from readers.hosts import host_of
from tests.support.arrays import ids
from tests.support.checkout import ROOT
from tests.support.datasets import write_numbers

CLUSTER = {"chief": ["a:1"], "worker": ["b:1", "c:1"], "ps": ["d:1"]}


@pytest.fixture(autouse=True)
def alone(monkeypatch):
    launchers = [name for pair in hosts._LAUNCHERS for name in pair]
    for name in ("TF_CONFIG", "RANK", "WORLD_SIZE", *launchers):
        monkeypatch.delenv(name, raising=False)
    hosts._warn.cache_clear()


def tf_config(kind, index):
    return json.dumps({"cluster": CLUSTER, "task": {"type": kind, "index": index}})


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, (0, 1)),
        ({"RANK": "2", "WORLD_SIZE": "4"}, (2, 4)),
        ({"RANK": "2"}, (0, 1)),
        ({"TF_CONFIG": tf_config("chief", 0)}, (0, 3)),
        ({"TF_CONFIG": tf_config("worker", 1), "RANK": "0", "WORLD_SIZE": "9"}, (2, 3)),
        ({"TF_CONFIG": "{}", "RANK": "1", "WORLD_SIZE": "2"}, (1, 2)),
    ],
)
def test_the_environment_says_which_host_this_is(monkeypatch, environment, expected):
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert host_of("auto") == expected
    assert host_of((1, 5)) == (1, 5)


@pytest.mark.parametrize("shard", [None, "auto"])
def test_one_of_several_processes_of_a_launcher_is_warned(monkeypatch, recwarn, shard):
    monkeypatch.setenv("SLURM_PROCID", "0")  # An allocation without `srun` has no step.
    monkeypatch.setenv("SLURM_NTASKS", "4")
    assert host_of(shard) == (0, 1) and not recwarn
    for rank, size in hosts._LAUNCHERS:
        hosts._warn.cache_clear()
        monkeypatch.setenv(size, "4")
        with pytest.warns(UserWarning, match=rf"of 4, from {rank}, .* set shard=\(0, 4\)"):
            assert host_of(shard) == (0, 1)
        monkeypatch.delenv(size)


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        (
            {"RANK": "1", "WORLD_SIZE": "2"},
            "JAX knows only this process, which is 1 of 2, from RANK",
        ),
        ({"SLURM_PROCID": "1", "SLURM_STEP_NUM_TASKS": "2"}, "process 1 of 2, from SLURM_PROCID"),
    ],
)
def test_one_of_several_processes_of_which_jax_does_not_know_is_warned(
    monkeypatch, environment, message
):
    hosts._warn.cache_clear()
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with pytest.warns(UserWarning, match=rf"{message}.*set shard=\(1, 2\)"):
        assert hosts.jax_host((0, 1)) == (0, 1)
    hosts._warn.cache_clear()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert hosts.jax_host((1, 2)) == (1, 2)


def test_a_program_without_a_name_is_warned(monkeypatch):
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    hosts._warn.cache_clear()
    with pytest.warns(UserWarning, match="this is one of 2 processes"):
        eval("host_of(None)", {"host_of": host_of})


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        ({"TF_CONFIG": "{"}, "TF_CONFIG='{' is not valid"),
        ({"TF_CONFIG": "[1]"}, "is not valid"),
        ({"TF_CONFIG": tf_config("ps", 0)}, "the task 'ps' 0, which is not a chief or worker"),
        ({"TF_CONFIG": tf_config("worker", 2)}, "names the task 'worker' 2"),
        ({"RANK": "4", "WORLD_SIZE": "4"}, "RANK='4', WORLD_SIZE='4': expected numbers, the rank"),
        ({"RANK": "-1", "WORLD_SIZE": "4"}, "the rank below the size"),
    ],
)
def test_an_invalid_environment_is_an_error(monkeypatch, tmp_path, environment, message):
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ValueError, match=message) as caught:
        readers.as_numpy(write_numbers(tmp_path), batch_size=1, shard="auto")
    assert "\n" not in str(caught.value)


def test_both_readers_take_auto_and_an_input_context(monkeypatch, tmp_path, caplog):
    how = {"split": "train", "batch_size": 4}
    path = write_numbers(tmp_path)
    expected = ids(readers.as_numpy(path, **how, shard=(1, 2)))
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with caplog.at_level("INFO", "readers"):
        assert ids(readers.as_numpy(path, **how, shard="auto")) == expected
    assert caplog.messages == ["shard='auto': (1, 2), from RANK and WORLD_SIZE"]
    assert ids(readers.load(path, **how, shard="auto")) == expected
    context = tf.distribute.InputContext(num_input_pipelines=2, input_pipeline_id=1)
    assert ids(readers.load(path, **how, shard=context)) == expected
    with pytest.raises(ValueError, match=r"seed=None with shard=\(1, 2\)"):
        readers.as_numpy(path, **how, shuffle=True, seed=None, shard="auto")


def test_frameworks_are_neither_imported_nor_initialised():
    code = (
        "import sys; from readers.hosts import host_of; print(host_of('auto'))\n"
        "assert not {'torch', 'jax', 'tensorflow'} & {*sys.modules}"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert done.stdout == "(0, 1)\n", done.stderr


TORCH = """
import sys, torch, torch.distributed as dist, torch.utils.data as data
from readers.hosts import host_of

class Hosts(data.IterableDataset):
    def __iter__(self):
        yield host_of("auto")

if __name__ == "__main__":
    rank = int(sys.argv[1])
    dist.init_process_group("gloo", init_method=sys.argv[2], rank=rank, world_size=2)
    print(host_of("auto"), [*map(tuple, data.DataLoader(Hosts(), batch_size=None, num_workers=2))])
"""


@pytest.mark.frameworks
def test_ranks_of_torch_are_multiplied_by_the_workers_of_its_loader(tmp_path):
    (tmp_path / "program.py").write_text(TORCH)
    command = [sys.executable, str(tmp_path / "program.py")]
    ranks = [
        subprocess.Popen(
            [*command, str(rank), f"file://{tmp_path}/rendezvous"],
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        for rank in range(2)
    ]
    for rank, process in enumerate(ranks):
        workers = [(rank * 2 + worker, 4) for worker in range(2)]
        assert process.communicate()[0] == f"{(rank, 2)} {workers}\n"
