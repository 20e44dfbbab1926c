import pytest

from beam_jobs.storage import atomic


def test_a_target_is_kept_if_the_file_that_replaces_it_is_missing(tmp_path, monkeypatch):
    monkeypatch.setattr(atomic, "is_local", lambda _: False)  # as on HDFS
    target = tmp_path / "target"
    target.write_bytes(b"good")
    with pytest.raises(OSError, match="Rename operation failed"):
        atomic.move_files([(str(tmp_path / "missing"), str(target))])
    assert target.read_bytes() == b"good"
