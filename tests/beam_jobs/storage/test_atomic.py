import pytest

from beam_jobs.errors import DataError
from beam_jobs.storage import atomic


def test_a_target_is_kept_if_the_file_that_replaces_it_is_missing(tmp_path, monkeypatch):
    monkeypatch.setattr(atomic, "is_local", lambda _: False)  # as on HDFS
    target = tmp_path / "target"
    target.write_bytes(b"good")
    with pytest.raises(OSError, match="Rename operation failed"):
        atomic.move_files([(str(tmp_path / "missing"), str(target))])
    assert target.read_bytes() == b"good"


@pytest.mark.parametrize("local", [True, False])
def test_a_file_replaces_only_what_was_seen(tmp_path, monkeypatch, local):
    monkeypatch.setattr(atomic, "is_local", lambda _: local)
    directory = str(tmp_path)
    before = atomic.look(directory, "x")
    assert before.version is None
    atomic.write_file(directory, "x", b"some", before)
    seen = atomic.look(directory, "x")
    assert seen == atomic.look(directory, "x") != before
    atomic.write_file(directory, "x", b"another", seen)
    for older in (before, seen):
        with pytest.raises(DataError, match=f"{directory}/x was changed by another worker or job"):
            atomic.write_file(directory, "x", b"some", older)
    assert (tmp_path / "x").read_bytes() == b"another"
    atomic.write_file(directory, "x", b"another", before)  # Another attempt has written the same.
    (tmp_path / "x").unlink()
    with pytest.raises(DataError, match="was changed by another"):
        atomic.write_file(directory, "x", b"some", seen)
    assert [path.name for path in tmp_path.iterdir()] == [".staging"]
    assert not list((tmp_path / ".staging").iterdir())


def test_syncing_waits_for_each_file_and_for_the_folders_that_name_them(tmp_path, monkeypatch):
    out = tmp_path / "out"
    (out / "rejects").mkdir(parents=True)
    for name in ("shard", "rejects/list"):
        (out / name).write_bytes(b"x")
    synced = []
    monkeypatch.setattr(atomic, "_sync", synced.append)
    atomic.sync_files(str(out), ["shard", "rejects/list"])
    assert set(synced[:2]) == {f"{out}/shard", f"{out}/rejects/list"}
    assert synced[2:] == [str(tmp_path), str(out), f"{out}/rejects"]
