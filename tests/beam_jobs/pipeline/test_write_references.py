"""Shards of whole files are the same, whoever writes them."""

import numpy as np
import pytest

from readers.format.manifest import Manifest
from tests.support.commands import ONE, TWO, run
from tests.support.datasets import files_of


@pytest.fixture(scope="module")
def recordings(tmp_path_factory):
    folder = tmp_path_factory.mktemp("in")
    rng = np.random.default_rng(0)
    for number in range(60):
        np.save(folder / f"{number:02}.npy", rng.normal(size=(1 + number, 3)).astype(np.float32))
    (folder / "07.npy").write_bytes(b"broken")
    return folder


@pytest.mark.parametrize("shards", ["1", "2", "3"])
def test_pieces_of_two_processes_make_the_shards_of_one(recordings, tmp_path, shards):
    """Two processes write pieces of one or three shards, and two whole ones."""
    flags = ["sensors", "--input", recordings / "*.npy", "--label", "none", "--num_shards", shards]
    assert run(*flags, *ONE, "--output", tmp_path / "one") == 0
    assert run(*flags, *TWO, "--output", tmp_path / "two") == 0
    assert files_of(tmp_path / "two") == files_of(tmp_path / "one")
    manifest = Manifest.read(tmp_path / "two")
    assert (manifest.rejected, len(manifest.splits["train"].shards)) == (1, int(shards))


def test_pieces_of_a_shard_in_a_store_are_those_of_a_shard_on_a_disk(s3, recordings, tmp_path):
    flags = ["sensors", "--input", recordings / "*.npy", "--label", "none", "--num_shards", "1"]
    assert run(*flags, *ONE, "--output", tmp_path / "disk") == 0
    assert run(*flags, *TWO, "--output", f"{s3.url}/out") == 0
    (shard,) = Manifest.read(tmp_path / "disk").splits["train"].shards
    assert s3.get(f"{s3.url}/out/{shard.path}") == (tmp_path / "disk" / shard.path).read_bytes()
