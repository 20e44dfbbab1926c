import pytest
from apache_beam.io.filesystems import FileSystems
from apache_beam.options.pipeline_options import PipelineOptions

from beam_jobs.storage import options


@pytest.fixture
def adopted(monkeypatch):
    monkeypatch.setattr(options, "_adopted", {"job_name": "parent"})
    return options


def test_a_child_process_passes_its_parents_options_to_beam(adopted, monkeypatch):
    monkeypatch.setattr(FileSystems, "_pipeline_options", None)
    adopted.set_beam_options()
    assert FileSystems._pipeline_options.get_all_options()["job_name"] == "parent"


def test_options_that_beam_has_already_are_kept(adopted, monkeypatch):
    own = PipelineOptions(["--job_name=own"])
    monkeypatch.setattr(FileSystems, "_pipeline_options", own)
    adopted.set_beam_options()
    assert FileSystems._pipeline_options is own
