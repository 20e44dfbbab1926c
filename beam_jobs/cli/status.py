"""python -m beam_jobs status DIR: what a job does, or did, that writes a dataset there."""

from __future__ import annotations

import argparse
import dataclasses
import shlex
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from apache_beam.io.filesystems import FileSystems
from apache_beam.options.pipeline_options import PipelineOptions, PortableOptions

from beam_jobs.cli.command import unknown_to_beam
from beam_jobs.cli.flags import Parser
from beam_jobs.cli.run import Report
from beam_jobs.dataset.directory import NOTES, relative_names, submitted
from beam_jobs.dataset.output import resolve
from beam_jobs.dataset.reservation import last_command
from beam_jobs.dataset.resume import noted_shards
from beam_jobs.engines.remote.job import NoAnswer, RemoteJob, Seen
from beam_jobs.engines.remote.lines import Lines, Shards
from beam_jobs.engines.remote.look import addresses, cancel, located, look, name_of, page_of
from beam_jobs.engines.traces import root_cause
from beam_jobs.errors import UsageError
from beam_jobs.storage.atomic import STAGING, list_files
from readers.format.display import counted
from readers.format.manifest import MANIFEST

_EPILOG = """\
Options of Beam that reach the output or the engine, such as --s3_endpoint_url, are those of the job.

exit code: 0 the dataset is complete (with --cancel: the job has stopped), 1 no job writes there and the
dataset is not complete, 2 a mistake in the command, or nothing was ever written there, 3 a job runs
(with --cancel: it may continue), 4 the engine does not say whether a job runs"""

_FOLLOW_SECONDS = 10.0

_AGAIN = "run the same command again: it keeps the shards that are done"

State = Literal["complete", "running", "unfinished", "unknown"]

_EXIT_CODES: dict[State, int] = {"complete": 0, "unfinished": 1, "running": 3, "unknown": 4}


@dataclass(frozen=True)
class Status:
    """What is known of a dataset and of the job that writes it.

    Attributes:
        complete: Whether there is a manifest.
        leftovers: Whether there is work of a job that has not ended well.
        shards: The shards that are noted.
        command: The command that writes there, or was killed; empty for none.
        command_runs: Whether that command runs.
        job: The job on an engine; None for none.
        seen: What the engine says about it; None if it says nothing.
        silence: Why the engine says nothing.
    """

    complete: bool = False
    leftovers: bool = False
    shards: Shards = field(default_factory=Shards)
    command: str = ""
    command_runs: bool = False
    job: RemoteJob | None = None
    seen: Seen | None = None
    silence: str = ""

    @property
    def state(self) -> State:
        """What becomes of the dataset."""
        if self.command_runs or (self.seen and self.seen.is_active):
            return "running"
        if self.complete and not self.leftovers:
            return "complete"
        return "unknown" if self.job and not self.seen else "unfinished"


def look_at(directory: str, page: str, options: PipelineOptions) -> Status:
    """What is known of a dataset and of the job that writes it.

    Args:
        directory: The dataset's directory.
        page: The address of the engine's page, if its user gave one.
        options: Beam's options.

    Raises:
        UsageError: The directory cannot be read, or no job has ever written there.
    """
    try:
        names = relative_names(directory, list_files(directory))
        command, command_runs = last_command(directory) or ("", False)
        note = submitted(directory)
    except (OSError, ValueError) as error:
        raise UsageError(f"{directory}: {error}") from None
    staged = [name for name in names if name.startswith(f"{STAGING}/")]
    job = RemoteJob.parse(note or b"")
    if not (job or command or staged or MANIFEST in names):
        raise UsageError(f"{directory}: no job has written here, and there is no dataset")
    status = Status(
        complete=MANIFEST in names,
        leftovers=any(not name.startswith(NOTES) for name in staged),
        shards=Shards(*noted_shards(names)),
        command=command,
        command_runs=command_runs,
        job=job and _located(job, page, options),
    )
    return _asked(status, options)


def _located(job: RemoteJob, page: str, options: PipelineOptions) -> RemoteJob:
    """The job with the engine's own id, if its page is known or was given."""
    options.view_as(PortableOptions).job_endpoint = job.service or None
    if page:
        job = dataclasses.replace(job, address="", id="")
    return located(job, {address: set() for address in addresses(job.engine, options, page)})


def _asked(status: Status, options: PipelineOptions) -> Status:
    """The status with what the engine says."""
    if not status.job:
        return status
    try:
        return dataclasses.replace(status, seen=look(status.job, options))
    except NoAnswer as error:
        return dataclasses.replace(status, silence=str(error))


def lines_of(directory: str, status: Status, progress: str) -> list[str]:
    """The lines that describe a status; the first one begins with its state.

    Args:
        directory: The dataset's directory.
        status: What is known.
        progress: The line about a job that runs.
    """
    state, job = status.state, status.job
    if state == "complete":
        return [f"complete: python -m readers head {shlex.quote(directory)} shows records"]
    lines = [f"{state}: {_whereabouts(job) if job else status.command or 'no job runs'}"]
    if state == "running":
        lines.append(progress)
    elif status.shards.planned:
        lines.append(f"{status.shards.done:,} of {counted(status.shards.planned, 'shard')} noted")
    if job and status.seen and not status.seen.is_active:
        cause = root_cause(status.seen.trace)
        lines.append(f"{job.title} reports it as {status.seen.state}{cause and f': {cause}'}")
    if status.silence:
        lines.append(status.silence)
    if job and status.command:
        fate = "runs" if status.command_runs else "was killed"
        lines.append(f"its command {fate}: {status.command}")
    elif state == "running" and job:
        lines.append("its command has ended, and the job does not need it")
    if status.complete:
        lines.append("the dataset from before is complete")
    if state == "unfinished":
        lines.append(_AGAIN)
    return lines


def _whereabouts(job: RemoteJob) -> str:
    where = page_of(job) or f"the job service {job.service}"
    return f"{name_of(job)} on {job.title}, {where}"


def as_json(directory: str, status: Status) -> dict[str, Any]:
    """The status as JSON values."""
    seen, job = status.seen, status.job
    return {
        "directory": directory,
        "state": status.state,
        "complete": status.complete,
        "shards_done": status.shards.done,
        "shards_planned": status.shards.planned,
        "command": status.command,
        "command_runs": status.command_runs,
        "job": job.to_json() | {"page": page_of(job)} if job else None,
        "engine": dataclasses.asdict(seen) | {"cause": root_cause(seen.trace)} if seen else None,
        "silence": status.silence,
    }


def main_status(arguments: Sequence[str], report: Report) -> None:
    """Runs the command.

    Args:
        arguments: Those after `status`.
        report: Gets the result.

    Raises:
        UsageError: A mistake in the arguments, or no job has ever written there.
        KeyboardInterrupt: The user stopped following; the job continues.
    """
    flags, rest = _parser().parse_known_args(arguments)
    if unknown := unknown_to_beam(rest):
        raise UsageError(f"unknown argument {unknown[0]}; see --help")
    options = PipelineOptions(rest)
    FileSystems.set_options(options)
    directory = resolve(flags.directory)
    status = look_at(directory, flags.engine_page, options)
    if flags.cancel:
        _cancel(directory, status, options, report)
        return
    lines = Lines(status.job.engine if status.job else "")
    try:
        while flags.follow and status.state == "running":
            print(_line(lines, status), file=sys.stderr, flush=True)
            time.sleep(_FOLLOW_SECONDS)
            status = look_at(directory, flags.engine_page, options)
    except KeyboardInterrupt:
        raise KeyboardInterrupt("interrupted; the job continues") from None
    found = lines_of(directory, status, _line(lines, status))
    report.show("\n".join(found), **as_json(directory, status))
    report.end_with(_EXIT_CODES[status.state])


def _line(lines: Lines, status: Status) -> str:
    return lines.line(time.monotonic(), status.seen or Seen("running"), status.shards)


def _cancel(directory: str, status: Status, options: PipelineOptions, report: Report) -> None:
    if not status.job:
        raise UsageError(
            f"{directory}: no job on an engine is noted here, so none can be cancelled"
        )
    state, text = cancel(status.job, options)
    stopped = state not in ("starting", "running")
    report.show(text, directory=directory, stopped=stopped)
    report.end_with(0 if stopped else _EXIT_CODES["running"])


def _parser() -> Parser:
    parser = Parser(
        prog="python -m beam_jobs status",
        description="Says what a job does, or did, that writes a dataset into a directory, on any engine.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("directory", metavar="DIR", help="the --output of the job")
    parser.add_argument(
        "--follow", action="store_true", help="print a line every ten seconds until the job ends"
    )
    parser.add_argument("--cancel", action="store_true", help="cancel the job on its engine")
    parser.add_argument("--engine_page", default="", metavar="URL", help="as for a job")
    parser.add_argument("--json", action="store_true", help="print one JSON object on stdout")
    return parser
