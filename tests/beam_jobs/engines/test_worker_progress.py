"""What workers note of their progress, and how the command adds it up."""

import sys
import time
from dataclasses import replace

from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.options.value_provider import RuntimeValueProvider

from beam_jobs import progress
from beam_jobs.engines import worker_progress
from beam_jobs.engines.worker_progress import (
    Phase,
    WorkerProgress,
    note_progress,
    progress_in,
)


def until(staging, phase, seconds=60.0):
    """Waits until a phase is noted, whatever the time when it began; returns its name."""
    deadline = time.monotonic() + seconds
    while (found := progress_in(str(staging))) is None or replace(found[1], began=0) != phase:
        assert time.monotonic() < deadline, found
        time.sleep(0.005)
    return found[0]


def test_the_progress_of_all_workers_is_added_up_and_the_latest_phase_is_shown(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(worker_progress, "_SECONDS", 0.01)
    assert progress_in(str(tmp_path)) is None
    one, other = WorkerProgress(str(tmp_path)), WorkerProgress(str(tmp_path))
    one.advance("listing", 0, 0)
    assert until(tmp_path, Phase()) == "listing"
    one.expect("reading", 600, "B")
    one.expect("reading", 400, "B")
    one.advance("reading", 300, 1)
    other.advance("reading", 50, 2)
    until(tmp_path, Phase("B", 1000, 350, 3))
    one.expect("writing", 7, "records")  # Expected, and not begun.
    one.advance("reading", 100, 0)
    until(tmp_path, Phase("B", 1000, 450, 3))
    other.advance("writing", 0, 0)
    assert until(tmp_path, Phase("records", 7)) == "writing"


def test_a_worker_notes_a_new_phase_at_once(tmp_path, monkeypatch):
    monkeypatch.setattr(worker_progress, "_SECONDS", 600)
    one = WorkerProgress(str(tmp_path))
    for name, count in (("reading", 1), ("writing", 5)):
        one.advance(name, count, 0)
        assert until(tmp_path, Phase(done=count)) == name
        one.advance(name, 1, 0)
        time.sleep(0.02)
        assert progress_in(str(tmp_path))[1].done == count


def test_nothing_is_noted_once_the_job_has_deleted_the_notes(tmp_path, monkeypatch):
    monkeypatch.setattr(worker_progress, "_SECONDS", 0.005)
    one = WorkerProgress(str(tmp_path))
    one.advance("writing", 1, 0)
    until(tmp_path, Phase(done=1))
    (file,) = (tmp_path / "progress").iterdir()
    file.unlink()
    one.advance("writing", 1, 0)
    time.sleep(0.1)
    assert list((tmp_path / "progress").iterdir()) == []


def test_progress_that_cannot_be_noted_does_not_end_a_task(tmp_path):
    (tmp_path / "file").touch()
    for folder in (f"{tmp_path}/file", "none://x"):
        WorkerProgress(folder).advance("reading", 1, 0)
    assert (tmp_path / "file").read_bytes() == b""


def test_a_worker_of_a_job_reports_to_the_folder_in_the_options_of_the_job(tmp_path, monkeypatch):
    options = PipelineOptions(["--beam_plugin=json"])
    note_progress(options, str(tmp_path))
    sent = options.get_all_options()
    assert sent["beam_plugins"] == ["json", worker_progress.__name__]
    monkeypatch.setattr(progress, "_reported", None)
    monkeypatch.setattr(RuntimeValueProvider, "experiments", {*sent["experiments"], "other"})
    monkeypatch.delitem(sys.modules, worker_progress.__name__)
    __import__(sent["beam_plugins"][1])  # As Beam's worker does.
    progress.advance("writing", 3)
    assert until(tmp_path, Phase(done=3)) == "writing"
    assert 0 < progress_in(str(tmp_path))[1].began <= time.time()
