"""Files of encoded records: a filesystem that refuses is reported, and locators are joined."""

import errno

import numpy as np
import pytest

from beam_jobs.columns import Ragged
from beam_jobs.errors import DataError
from beam_jobs.records.blocks import Block
from beam_jobs.records.spool import LOCATOR, LocatorsByShard, Spool, SpoolFile
from readers.files.local import LocalFiles


class Full:
    """A file on a full disk."""

    def write(self, data):
        raise OSError(errno.ENOSPC, "No space left on device")

    publish = give_up = lambda _: None


def test_a_full_disk_is_a_data_error_with_a_hint(tmp_path, monkeypatch):
    monkeypatch.setattr(LocalFiles, "begin", lambda *_: Full())
    file = SpoolFile(Spool(f"{tmp_path}/out/.staging/run"))
    with pytest.raises(DataError, match=r"cannot be kept there \(.*No space left.*make room") as e:
        file.append(Block(np.zeros(1, np.uint64), np.zeros(1, np.uint8), Ragged.of([b"record"])))
    assert e.value.message.startswith(f"{tmp_path}/out: ")


def test_a_directory_that_cannot_be_made_is_a_data_error(tmp_path):
    (tmp_path / "out").write_bytes(b"")
    with pytest.raises(DataError, match="cannot be kept there"):
        SpoolFile(Spool(f"{tmp_path}/out/.staging/run"))


def test_locators_are_joined_by_shard_and_no_element_is_above_a_megabyte():
    waiting = LocatorsByShard()
    locators = np.zeros(100_000, LOCATOR)
    locators["start"] = np.arange(len(locators))
    given = [(n % 3 and 7, locator.tobytes()) for n, locator in enumerate(locators)]
    released = [*waiting.add(given), *waiting.release()]
    assert max(len(packed) for _, packed in released) <= 1 << 20
    for key in (0, 7):
        found = b"".join(packed for k, packed in released if k == key)
        assert found == b"".join(locator for k, locator in given if k == key)
    assert list(waiting.release()) == []
