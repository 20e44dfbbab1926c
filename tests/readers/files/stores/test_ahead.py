"""Requests before their answers are needed: which are sent, when, and who gets their answers."""

from __future__ import annotations

import threading
import time

import pytest

from beam_jobs.errors import DataError
from readers.files.stores.ahead import Part, Read, Window, in_background, taken

MIB = 1 << 20


class Answers:
    """Answers requests after a time, and counts them."""

    def __init__(self, seconds=0.0):
        self.seconds, self.sent, self.most = seconds, [], 0
        self._under_way, self._lock = 0, threading.Lock()

    def __call__(self, read):
        with self._lock:
            self.sent.append(read)
            self._under_way += 1
            self.most = max(self.most, self._under_way)
        time.sleep(self.seconds)
        with self._lock:
            self._under_way -= 1
        if "bad" in read.path:
            raise DataError(read.path)
        return Part(read.path.encode(), 10, None)


def path(number):
    return f"s3://b/{number}"


def settled(answers, count):
    """Waits until so many requests were sent, and no more come."""
    end = time.monotonic() + 5
    while len(answers.sent) < count and time.monotonic() < end:
        time.sleep(0.005)
    time.sleep(0.05)
    return len(answers.sent)


def test_reads_find_their_answers_in_order_and_many_requests_are_under_way():
    answers = Answers(0.02)
    with Window([Read(path(n)) for n in range(200)], answers):
        for n in range(200):
            start, part = taken(path(n), 0, None)
            assert (start, part.data) == (0, path(n).encode())
    assert 16 <= answers.most <= 33  # One is waited for, and 32 run ahead of it.
    assert len(answers.sent) == 200


def test_few_requests_run_ahead_of_what_was_read():
    answers = Answers()
    with Window([Read(path(n), expected=1000) for n in range(500)], answers):
        assert settled(answers, 32) == 32
        taken(path(0), 0, None)
        assert settled(answers, 33) == 33


@pytest.mark.parametrize(("size", "ahead"), [(8 * MIB, 8), (30 * MIB, 2), (500 * MIB, 1)])
def test_answers_that_wait_are_bounded_in_bytes(size, ahead):
    answers = Answers()
    with Window([Read(path(n), expected=size) for n in range(100)], answers):
        assert settled(answers, ahead) == ahead


def test_after_many_files_that_are_not_read_the_next_one_is_requested():
    answers = Answers()
    with Window([Read(path(n)) for n in range(500)], answers):
        assert taken(path(400), 0, None)[1].data == path(400).encode()
        assert taken(path(401), 0, None)[1].data == path(401).encode()
    assert path(300) not in {read.path for read in answers.sent}


def test_an_error_is_raised_where_the_answer_is_read():
    with Window([Read("s3://b/bad"), Read(path(1))], Answers()):
        with pytest.raises(DataError, match="s3://b/bad"):
            taken("s3://b/bad", 0, None)
        assert taken(path(1), 0, None)


def test_a_range_answers_reads_that_begin_in_it():
    reads = [Read(path(0), 100, 50), Read(path(0), 150, 50)]
    for start, found in ((99, None), (100, 100), (149, 100), (150, 150), (199, 150), (200, None)):
        with Window(reads, Answers()):
            answer = taken(path(0), start, 10)
        assert (answer and answer[0]) == found, start
    with Window(reads, Answers()):
        assert taken(path(0), 100, None) is None, "the rest of the object was not requested"


def test_other_threads_and_other_times_have_no_answers():
    with Window([Read(path(0))], Answers()):
        assert in_background(taken, path(0), 0, None).result(5) is None
    assert taken(path(0), 0, None) is None


def test_a_window_in_another_one_gives_way_to_it():
    with Window([Read(path(0)), Read(path(1))], Answers()):
        with Window([Read(path(2))], Answers()):
            assert taken(path(2), 0, None)
            assert taken(path(0), 0, None) is None
        assert taken(path(1), 0, None)
