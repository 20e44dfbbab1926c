"""The limit on what pyarrow allocates."""

import resource
import threading
from pathlib import Path

import pyarrow as pa
import pytest

from beam_jobs.engines.memory import limited

pytestmark = pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="of Linux alone")


def test_more_than_the_limit_is_a_memory_error_and_the_process_goes_on_without_one():
    before = resource.getrlimit(resource.RLIMIT_DATA)
    with limited(64 << 20):
        assert pa.allocate_buffer(32 << 20).size == 32 << 20
        with pytest.raises(MemoryError):
            pa.allocate_buffer(1 << 30)
    assert resource.getrlimit(resource.RLIMIT_DATA) == before
    assert pa.allocate_buffer(256 << 20).size == 256 << 20


def test_threads_share_their_limits():
    before = resource.getrlimit(resource.RLIMIT_DATA)
    inside, leave = threading.Event(), threading.Event()

    def wait() -> None:
        with limited(256 << 20):
            inside.set()
            leave.wait(30)

    thread = threading.Thread(target=wait)
    thread.start()
    inside.wait(30)
    with limited(16 << 20):
        assert pa.allocate_buffer(128 << 20).size == 128 << 20
    assert resource.getrlimit(resource.RLIMIT_DATA) != before
    leave.set()
    thread.join()
    assert resource.getrlimit(resource.RLIMIT_DATA) == before
