"""A run of pytest that, in place of its tests, forks a process for each mutant.

The tests' modules are imported once. A child changes the code of the one function that the mutant is in, and runs
the tests that reach the mutant's line, the quickest first, until one fails.
"""

from __future__ import annotations

import gc
import os
import pickle
import resource
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

import coverage
import pytest
from hypothesis import Phase, settings

from tests.campaigns.mutation.mutants import Mutant
from tests.campaigns.mutation.swap import ImportFailsError, Live

SURVIVED, KILLED, TIMEOUT, UNREACHED = "survived", "killed", "timeout", "unreached"

# A child that found no fault, one whose test failed, and one with a fault of this program.
_PASSED, _FAILED, _BROKEN = 0, 1, 97

_MAX_BYTES = 6 << 30

_MAX_FILE_BYTES = 1 << 30


@dataclass
class Baseline:
    """What the tests do without a fault.

    Attributes:
        seconds: The processor time of each test.
        failed: The tests that fail, which say nothing about mutants.
        reached: File -> line -> the tests that run it.
    """

    seconds: dict[str, float] = field(default_factory=dict)
    failed: list[str] = field(default_factory=list)
    reached: dict[str, dict[int, set[str]]] = field(default_factory=dict)


class Session:
    """A plugin of pytest.

    Args:
        mutants: The mutants to try.
        report: Takes each mutant with its outcome, the seconds it took and the number of its tests.
    """

    def __init__(
        self, mutants: list[Mutant], report: Callable[[Mutant, str, float, int], None]
    ) -> None:
        self._mutants, self._report = mutants, report
        self._folder = Path(tempfile.mkdtemp(prefix="mutation-"))
        self._in_mutant = False
        self._failed = False

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection(self) -> None:
        """Makes tests draw the same few examples every time, and end at the first failure."""
        settings.register_profile(
            "mutation",
            derandomize=True,
            deadline=None,
            database=None,
            # Survivors are tried with all of their tests: fewer examples halve the time of a campaign.
            max_examples=30,
            phases=(Phase.explicit, Phase.generate),
        )
        settings.load_profile("mutation")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Notes whether a test failed."""
        self._failed |= report.failed

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> None:
        """Ends the process of a mutant at the first failure, which nobody will read."""
        is_skip = call.excinfo and call.excinfo.errisinstance(pytest.skip.Exception)
        if self._in_mutant and call.excinfo and not is_skip and not _may_fail(item):
            os._exit(_FAILED)

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Runs the mutants."""
        if session.testsfailed:
            raise session.Interrupted("the tests cannot be imported")
        try:
            paths = {mutant.path for mutant in self._mutants}
            live = Live(paths)
            baseline = self._baseline(session, live, paths)
            # Collections of garbage would copy the memory that a child shares with its parent.
            gc.collect()
            gc.freeze()
            if baseline.failed:
                raise session.Interrupted(f"fails without a fault: {baseline.failed}")
            for mutant in self._mutants:
                began = time.monotonic()
                tests = self._tests_of(mutant, session.items, baseline)
                if not tests or not live.is_imported(mutant.path):
                    self._report(mutant, UNREACHED, 0, 0)
                    continue
                outcome = self._try(session, live, mutant, tests, baseline)
                self._report(mutant, outcome, time.monotonic() - began, len(tests))
        finally:
            shutil.rmtree(self._folder, ignore_errors=True)
        return True

    def _baseline(self, session: pytest.Session, live: Live, paths: set[Path]) -> Baseline:
        """Runs all tests once, and notes which lines each of them reaches."""
        found = self._folder / "baseline"

        def measure() -> int:
            measured = coverage.Coverage(
                data_file=None,
                config_file=False,
                include=[str(path) for path in paths],
                messages=False,
            )
            baseline = Baseline()
            measured.start()
            for item in session.items:
                self._failed, began = False, time.process_time()
                live.forget()
                measured.switch_context(item.nodeid)
                item.config.hook.pytest_runtest_protocol(item=item, nextitem=None)
                measured.switch_context("")
                baseline.seconds[item.nodeid] = time.process_time() - began
                if self._failed:
                    baseline.failed.append(item.nodeid)
            measured.stop()
            data = measured.get_data()
            for path in paths:
                lines = data.contexts_by_lineno(str(path))
                baseline.reached[str(path)] = {n: set(names) - {""} for n, names in lines.items()}
            found.write_bytes(pickle.dumps(baseline))
            return _PASSED

        code = self._in_fork(session, measure, 1800)
        if code != _PASSED:
            raise session.Interrupted(f"the tests ended with {code} before a fault was made")
        baseline: Baseline = pickle.loads(found.read_bytes())
        return baseline

    def _tests_of(
        self, mutant: Mutant, items: Iterable[pytest.Item], baseline: Baseline
    ) -> list[pytest.Item]:
        """The tests that reach a mutant, the quickest first."""
        tests = list(items)
        # What is outside of functions was run when the module was imported: all tests reach it.
        if mutant.function:
            lines = baseline.reached[str(mutant.path)]
            # The first line of a statement over several lines counts as reached, not each of them.
            names = set().union(*(lines.get(line, ()) for line in mutant.lines))
            tests = [item for item in tests if item.nodeid in names]
        return sorted(tests, key=lambda item: baseline.seconds[item.nodeid])

    def _try(
        self,
        session: pytest.Session,
        live: Live,
        mutant: Mutant,
        tests: list[pytest.Item],
        baseline: Baseline,
    ) -> str:
        def run() -> int:
            self._in_mutant = True
            try:
                live.swap(mutant)
            except ImportFailsError:
                return _FAILED
            for item in tests:
                # An endless loop ends the process: in processor time, which is the same on a busy machine.
                signal.setitimer(signal.ITIMER_VIRTUAL, 1 + 5 * baseline.seconds[item.nodeid])
                item.config.hook.pytest_runtest_protocol(item=item, nextitem=None)
                if self._failed:
                    return _FAILED
            return _PASSED

        # For tests that wait for what a fault keeps from coming.
        longest = 60 + 20 * sum(baseline.seconds[item.nodeid] for item in tests)
        code = self._in_fork(session, run, longest)
        if code == _BROKEN:
            found = (self._folder / "output").read_text(encoding="utf-8", errors="replace")
            raise session.Interrupted(f"{mutant.key}: cannot be put in place: {found[-2000:]}")
        return {_PASSED: SURVIVED, None: TIMEOUT, -signal.SIGVTALRM: TIMEOUT}.get(code, KILLED)

    def _in_fork(
        self, session: pytest.Session, run: Callable[[], int], longest: float
    ) -> int | None:
        """The exit code of a function in a forked process; None if it does not end in time."""
        temporary = self._folder / "temporary"
        temporary.mkdir()
        pid = os.fork()
        if not pid:
            self._be_child(session, run, temporary)
        ends = time.monotonic() + longest
        try:
            while True:
                ended, status = os.waitpid(pid, os.WNOHANG)
                if ended:
                    return os.waitstatus_to_exitcode(status)
                if time.monotonic() > ends:
                    os.killpg(pid, signal.SIGKILL)
                    os.waitpid(pid, 0)
                    return None
                time.sleep(0.002)
        finally:
            # What a test has started and a fault has kept alive.
            _kill_group(pid)
            shutil.rmtree(temporary, ignore_errors=True)

    def _be_child(self, session: pytest.Session, run: Callable[[], int], temporary: Path) -> None:
        """Runs a function and ends the process."""
        code = _BROKEN
        try:
            os.setpgid(0, 0)
            signal.signal(signal.SIGVTALRM, signal.SIG_DFL)
            log = os.open(self._folder / "output", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(log, 1)
            os.dup2(log, 2)
            # A fault must not take the machine's memory or disk.
            resource.setrlimit(resource.RLIMIT_DATA, (_MAX_BYTES, _MAX_BYTES))
            resource.setrlimit(resource.RLIMIT_FSIZE, (_MAX_FILE_BYTES, _MAX_FILE_BYTES))
            session.config._tmp_path_factory._basetemp = temporary  # type: ignore[attr-defined]
            code = run()
        except BaseException as error:
            os.write(2, repr(error).encode())
        finally:
            os._exit(code)


def _may_fail(item: pytest.Item) -> bool:
    return item.get_closest_marker("xfail") is not None


def _kill_group(pid: int) -> None:
    try:
        os.killpg(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass
