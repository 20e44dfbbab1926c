import pytest

from tests.support.flink_service import FlinkService


@pytest.fixture
def service():
    """A JobManager without jobs."""
    started = FlinkService()
    yield started
    started.close()
