"""Files of encoded records: a filesystem that refuses is reported, and locators are joined."""

import errno

import pytest

from beam_jobs.errors import DataError
from beam_jobs.records.spool import HeldLocators, Locator, Spool, SpoolFile
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
        file.append(b"block")
    assert e.value.message.startswith(f"{tmp_path}/out: ")


def test_a_directory_that_cannot_be_made_is_a_data_error(tmp_path):
    (tmp_path / "out").write_bytes(b"")
    with pytest.raises(DataError, match="cannot be kept there"):
        SpoolFile(Spool(f"{tmp_path}/out/.staging/run"))


def test_locators_are_joined_by_shard_and_no_element_is_above_a_megabyte():
    held = HeldLocators()
    locators = [Locator(bytes([n % 256] * 16), n, 2 * n) for n in range(100_000)]
    given = [(n % 3 and 7, locator) for n, locator in enumerate(locators)]
    released = [*held.add(given), *held.release()]
    assert max(len(packed) for _, packed in released) <= 1 << 20
    for key in (0, 7):
        found = [one for k, packed in released if k == key for one in Locator.unpack_all(packed)]
        assert found == [locator for k, locator in given if k == key]
    assert list(held.release()) == []
