"""The progress of a job on an engine: each worker notes its progress in a file, and the command adds them up.

An engine's counters are not enough: on Flink they change only when a task ends, with its stage.
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass

from apache_beam.options.pipeline_options import DebugOptions, PipelineOptions, SetupOptions
from apache_beam.options.value_provider import RuntimeValueProvider

from beam_jobs import progress
from beam_jobs.errors import JobError
from beam_jobs.storage.atomic import list_files, write_file
from beam_jobs.storage.files import content_of
from readers.format.manifest import join

# An option of Beam that reaches every worker.
_EXPERIMENT = "beam_shards_progress"

# A worker notes its progress this often, or less often if that would take more than a fiftieth of its time.
_SECONDS, _SHARE = 2.0, 50

_FOLDER, _READ_AT_ONCE = "progress", 16


@dataclass
class Phase:
    """The progress of one phase.

    Attributes:
        unit: The unit of the numbers; "B" for bytes.
        total: The size of the work; 0 if unknown.
        done: The finished part; more than the total if tasks were repeated.
        rejected: The number of rejected inputs in it.
        began: When it began, in seconds since 1970; 0 if it has not.
    """

    unit: str = "files"
    total: int = 0
    done: int = 0
    rejected: int = 0
    began: float = 0.0


def note_progress(options: PipelineOptions, staging: str) -> None:
    """Sets a pipeline's options so that its workers note their progress in the folder of the run."""
    options.view_as(DebugOptions).add_experiment(f"{_EXPERIMENT}={staging}")
    setup = options.view_as(SetupOptions)
    setup.beam_plugins = [*(setup.beam_plugins or ()), __name__]  # Workers import it.


def progress_in(staging: str) -> tuple[str, Phase] | None:
    """The latest phase that workers have noted in the folder of a run, and its name; None before the first.

    Raises:
        OSError, UsageError, DataError: The folder cannot be listed.
    """
    paths = [file.path for file in list_files(join(staging, _FOLDER))]
    with ThreadPoolExecutor(_READ_AT_ONCE) as threads:
        notes = [json.loads(data) for data in threads.map(content_of, paths) if data]
    phases: dict[str, Phase] = {}
    for name, noted in (item for note in notes for item in note.items()):
        phase, more = phases.setdefault(name, Phase()), Phase(**noted)
        phase.unit = more.unit if more.total else phase.unit
        phase.total += more.total
        phase.done += more.done
        phase.rejected += more.rejected
        phase.began = min(filter(None, (phase.began, more.began)), default=0.0)
    begun = [item for item in phases.items() if item[1].began]
    return max(begun, key=lambda item: item[1].began, default=None)


class WorkerProgress:
    """Notes the progress of this process in a file, in a separate thread: a new phase at once.

    Args:
        staging: The folder of the run.
    """

    def __init__(self, staging: str) -> None:
        self._staging = staging
        self._path = join(staging, f"{_FOLDER}/{uuid.uuid4().hex}.json")
        self._lock, self._is_new = threading.Lock(), threading.Event()
        self._phases: dict[str, Phase] = {}
        threading.Thread(target=self._keep_noting, daemon=True).start()

    def expect(self, phase: str, total: int, unit: str) -> None:
        with self._lock:
            if phase not in self._phases:
                self._is_new.set()
            known = self._phases.setdefault(phase, Phase())
            known.total, known.unit = known.total + total, unit

    def advance(self, phase: str, amount: int, rejected: int) -> None:
        with self._lock:
            known = self._phases.setdefault(phase, Phase())
            if not known.began:
                known.began = time.time()
                self._is_new.set()
            known.done += amount
            known.rejected += rejected

    def _keep_noting(self) -> None:
        noted, took = b"", 0.0
        while True:
            is_new = self._is_new.wait(max(_SECONDS, _SHARE * took))
            self._is_new.clear()
            began = time.monotonic()
            with self._lock:
                phases = {name: asdict(phase) for name, phase in self._phases.items()}
            data = json.dumps(phases).encode()
            # The job does not need its progress, and one that has ended has deleted the file.
            with contextlib.suppress(OSError, ValueError, JobError):
                if data != noted and (is_new or content_of(self._path)):
                    write_file(self._path, data, self._staging, replace=True)
                    noted = data
            took = time.monotonic() - began


for _text in RuntimeValueProvider.experiments:  # In a worker.
    _name, _, _value = _text.partition("=")
    if _name == _EXPERIMENT:
        progress.report_to(WorkerProgress(_value))
