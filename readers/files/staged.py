"""Files that wait under another name until they are whole, where half a file could be seen."""

from __future__ import annotations

import abc
import uuid

from readers.files.files import Draft, WritableFiles


class StagedFiles(WritableFiles):
    """Files of a filesystem in which a file is seen before it is whole, and renamed in a moment."""

    @abc.abstractmethod
    def rename(self, path: str, name: str, replace: bool) -> None:
        """Gives a whole file another name, in a folder that is made if it is missing.

        Raises:
            ExistsError: A file has the name, and may not be replaced.
        """

    def create(self, path: str, staging: str, replace: bool = False) -> Draft:
        return _StagedFile(self, path, staging, replace)


class _StagedFile:
    """A file that gets its name when it is whole."""

    def __init__(self, files: StagedFiles, path: str, staging: str, replace: bool) -> None:
        self._files, self._path, self._replace = files, path, replace
        # Each attempt has its own name, so two attempts never write to the same file.
        self._staged = f"{staging}/{path.rsplit('/', 1)[1]}.{uuid.uuid4().hex}"
        self._draft = files.begin(self._staged)
        self.write, self.give_up = self._draft.write, self._draft.give_up

    def publish(self, synced: bool = False) -> None:
        # Nobody writes a file again that replaces no other, so its bytes must be there when its name is.
        self._draft.publish(synced or not self._replace)
        self._files.rename(self._staged, self._path, self._replace)
