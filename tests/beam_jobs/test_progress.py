"""Progress of a running job: a bar on a terminal, lines elsewhere, nothing without a display."""

import fcntl
import io
import os
import re
import struct
import termios
import threading
import time

import pytest

from beam_jobs import progress

LINE = re.compile(r"(\w+): ([\d,]+)(?: of ([\d,]+))? (\w+)(?:, ([\d,]+)/s)?(?:, ([\d:?]+) left)?")


class Pipe(io.StringIO):
    """A stream that is not a terminal."""

    def lines(self) -> list[str]:
        return self.getvalue().splitlines()


class Terminal:
    """A stream on a real terminal, and the text that arrives at its other end."""

    def __init__(self) -> None:
        self._there, here = os.openpty()
        fcntl.ioctl(here, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        self.stream = os.fdopen(here, "w")
        self._read: list[bytes] = []
        self._thread = threading.Thread(target=self._listen)
        self._thread.start()

    def _listen(self) -> None:
        while True:
            try:
                data = os.read(self._there, 4096)
            except OSError:  # The other end is closed.
                return
            self._read.append(data)

    def text(self) -> str:
        """Closes the terminal and returns all text that was written."""
        self.stream.close()
        self._thread.join(10)
        os.close(self._there)
        return b"".join(self._read).decode()


def test_a_terminal_gets_a_bar_that_leaves_nothing_behind():
    terminal = Terminal()
    with progress.display(terminal.stream, line_seconds=0, quiet_seconds=0):
        progress.expect("writing", 200, "records")
        for _ in range(4):
            progress.advance("writing", 50)
            time.sleep(0.11)  # A bar is drawn ten times a second.
    text = terminal.text()
    bars = text.split("\r")
    assert len(bars) > 2
    assert all(bar.startswith("writing: ") for bar in bars if bar.strip())
    assert re.search(r"writing: +\d+%\|.*\| \d+/200 \[.*records/s\]", text)
    # Neither lines, nor the rest of a bar.
    assert "\n" not in text
    assert not bars[-1].strip() and bars[-2].isspace()


def test_a_pipe_gets_a_line_when_a_phase_begins_and_no_other_before_its_time():
    pipe = Pipe()
    with progress.display(pipe, line_seconds=60, quiet_seconds=0):
        for _ in range(100):
            progress.advance("reading", 0)
            progress.expect("writing", 1000, "records")
            progress.advance("writing", 0)
            progress.advance("writing", 1)
    assert pipe.lines() == ["reading: 0 files", "writing: 0 of 1,000 records"]


@pytest.mark.parametrize("kind", [Pipe, Terminal])
def test_nothing_is_shown_in_the_first_seconds(monkeypatch, kind):
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    shown = kind()
    with progress.display(getattr(shown, "stream", shown)):
        progress.begin("starting")
        for later in (0.5, 1.9):
            now[0] = 100 + later
            progress.advance("reading", 3)
        if kind is Pipe:
            now[0] = 102.1
            progress.advance("reading", 4)
    if kind is Pipe:
        assert [line.partition(",")[0] for line in shown.lines()] == ["reading: 10 files"]
    else:
        assert not shown.text().strip()


def test_a_line_shows_the_rate_and_the_time_left():
    pipe = Pipe()
    with progress.display(pipe, line_seconds=0, quiet_seconds=0):
        progress.expect("writing", 10_000, "records")
        progress.advance("writing", 0)
        progress._reported._bar.start_t -= 100  # As if it had begun 100 seconds ago.
        progress.advance("writing", 2_500)
    assert pipe.lines()[1] == "writing: 2,500 of 10,000 records, 25/s, 05:00 left"


def test_a_line_shows_the_total_and_the_time_left_only_if_they_are_known():
    pipe = Pipe()
    with progress.display(pipe, line_seconds=0, quiet_seconds=0):
        progress.advance("listing", 7)
        progress.advance("listing", 2_000)
        progress.advance("writing", 0)
        progress.expect("other", 10, "things")
        progress.advance("other", 9)
    found = [LINE.fullmatch(line).groups() for line in pipe.lines()]
    assert [(f[0], f[1], f[2], f[3], f[5]) for f in found] == [
        ("listing", "7", None, "files", None),
        ("listing", "2,007", None, "files", None),
        ("writing", "0", None, "files", None),
        ("other", "9", "10", "things", "00:00"),
    ]


def test_one_is_not_many():
    assert progress.progress_line("listing", 1, 0, "files", 0) == "listing: 1 file"
    assert progress.progress_line("writing", 0, 1, "records", 0) == "writing: 0 of 1 record"
    assert progress.progress_line("writing", 1, 2, "records", 0) == "writing: 1 of 2 records"


def test_rejects_so_far_follow_the_rate_in_lines_and_bars():
    pipe, terminal = Pipe(), Terminal()
    for stream in (pipe, terminal.stream):
        with progress.display(stream, line_seconds=0, quiet_seconds=0):
            progress.expect("writing", 1_500, "records")
            progress.advance("writing", 1_000, rejected=999)
            time.sleep(0.11)  # A bar is drawn ten times a second.
            progress.advance("writing", 100, rejected=1)
            progress.advance("writing", 400)
    first, *_, last = pipe.lines()
    assert first.startswith("writing: 1,000 of 1,500 records, ") and first.endswith(
        ", 999 rejected"
    )
    assert last.endswith(", 1,000 rejected")
    assert re.search(r"writing: .*records/s, 1,000 rejected\]", terminal.text())


def test_the_seconds_of_phases_add_up_to_the_time_of_the_display(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    with progress.early("reading annotations"):
        now[0] = 105.0
    with progress.early("looking"):
        now[0] = 105.4
    now[0] = 100.0
    with progress.display(Pipe()) as seconds:
        progress.begin("starting")
        for phase, amount, later in (
            ("reading", 0, 2.0),  # when it is over
            ("reading", 5, 3.0),
            ("writing", 1, 7.0),
            ("reading", 5, 7.5),
        ):
            progress.advance(phase, amount)
            now[0] = 100 + later
        progress.begin("checking")
        now[0] = 108.0
    assert seconds.pop("reading annotations") == 5.0
    assert seconds == {"starting": 0.0, "reading": 3.5, "writing": 4.0, "checking": 0.5}


def test_a_phase_that_counts_nothing_is_shown_on_a_terminal_alone():
    pipe, terminal = Pipe(), Terminal()
    for stream in (pipe, terminal.stream):
        with progress.display(stream, line_seconds=0, quiet_seconds=0):
            progress.begin("starting")
            progress.advance("writing", 1)
            progress.begin("checking")
    assert [line.split(":")[0] for line in pipe.lines()] == ["writing"]
    text = terminal.text()
    assert text.index("starting ...") < text.index("writing: ") < text.index("checking ...")
    assert not text.rsplit("\r", 1)[-1]


def test_threads_may_report_at_the_same_time():
    pipe = Pipe()

    def work() -> None:
        for _ in range(100):
            progress.advance("writing", 3)

    with progress.display(pipe, line_seconds=0, quiet_seconds=0):
        progress.expect("writing", 2_400, "records")
        threads = [threading.Thread(target=work) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    lines = pipe.lines()
    done = [int(LINE.fullmatch(line)[2].replace(",", "")) for line in lines]
    assert done == list(range(3, 2_401, 3))


def test_without_a_display_reporting_does_nothing(capfd):
    progress.expect("writing", 10, "records")
    progress.advance("writing", 3)
    pipe = Pipe()
    with progress.display(pipe, line_seconds=0, quiet_seconds=0):
        pass
    progress.advance("writing", 3)
    assert pipe.getvalue() == ""
    assert capfd.readouterr() == ("", "")


def test_a_failure_ends_the_display():
    pipe = Pipe()
    with pytest.raises(ValueError), progress.display(pipe, line_seconds=0, quiet_seconds=0):
        progress.advance("writing", 3)
        raise ValueError
    progress.advance("writing", 3)
    assert len(pipe.lines()) == 1
