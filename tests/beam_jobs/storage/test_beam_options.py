from apache_beam.io.filesystems import FileSystems
from apache_beam.options.pipeline_options import PipelineOptions

from beam_jobs.storage.beam_files import BeamFiles

PARENT = {"job_name": "parent"}


def test_a_child_process_passes_its_parents_options_to_beam(monkeypatch):
    monkeypatch.setattr(FileSystems, "_pipeline_options", None)
    BeamFiles("/", PARENT)
    assert FileSystems._pipeline_options.get_all_options()["job_name"] == "parent"


def test_options_that_beam_has_already_are_kept(monkeypatch):
    own = PipelineOptions(["--job_name=own"])
    monkeypatch.setattr(FileSystems, "_pipeline_options", own)
    BeamFiles("/", PARENT)
    assert FileSystems._pipeline_options is own
