"""The worker's image is built, and its workers run a job."""

import sys

import numpy as np
import pytest

from beam_jobs.__main__ import main
from tests.engines.image import Builder
from tests.engines.pool import Pool
from tests.engines.running import running
from tests.support.datasets import files_of


@pytest.fixture
def builder(tmp_path):
    made = Builder(tmp_path / "images")
    made.folder.mkdir()
    yield made
    made.remove()


@pytest.mark.engines
@pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="the image has Python 3.11")
def test_a_job_on_workers_of_the_built_image_writes_the_same_bytes(tmp_path, builder):
    shared = tmp_path / "shared"
    shared.mkdir()
    for number in range(12):
        np.save(shared / f"{number}.npy", np.full((20, 3), number, np.float32))
    container = builder.build()
    flags = ["sensors", "--input", f"{shared}/*.npy", "--label", "none", "--output"]
    assert main([*flags, str(shared / "here")]) == 0
    within = tuple(builder.within(container, shared))
    program = "/opt/apache/beam/boot"
    with running(Pool, tmp_path / "pool", python="python", program=program, within=within) as pool:
        assert main([*flags, str(shared / "there"), *pool.flags]) == 0
    assert files_of(shared / "there") == files_of(shared / "here")
