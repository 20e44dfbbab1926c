"""Places for datasets that a writer replaces again and again, and never while they are read."""

from __future__ import annotations

import contextlib
import fcntl
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

KINDS = ("images", "text", "sensors")
_PLACES = 2


@dataclass(frozen=True)
class Slot:
    """A place for a dataset.

    Attributes:
        kind: The job that writes it.
        folder: A local folder with its lock, and the keys that it must have.
        url: Its directory in the store.
    """

    kind: str
    folder: Path
    url: str

    def publish(self, values: dict[str, int]) -> None:
        """States the key of every record and the checksum of its value."""
        (self.folder / "expected.json").write_text(json.dumps(values))

    def expected(self) -> dict[str, int] | None:
        """The key of every record and the checksum of its value; None before the first job."""
        file = self.folder / "expected.json"
        return json.loads(file.read_text()) if file.exists() else None

    @contextlib.contextmanager
    def held(self, to_write: bool) -> Iterator[bool]:
        """Whether the slot is free, which it then stays for others of this kind alone during the context."""
        with (self.folder / "lock").open("w") as lock:
            try:
                fcntl.flock(lock, (fcntl.LOCK_EX if to_write else fcntl.LOCK_SH) | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
            else:
                yield True


def slots_of(folder: Path, bucket: str) -> list[Slot]:
    """All slots below a folder and a bucket, kinds in turn."""
    names = [(kind, f"{kind}-{place}") for place in range(_PLACES) for kind in KINDS]
    slots = [Slot(kind, folder / "slots" / name, f"s3://{bucket}/{name}") for kind, name in names]
    for slot in slots:
        slot.folder.mkdir(parents=True, exist_ok=True)
    return slots
