from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from readers.order.schedule import Schedule, bounds_of_pass
from readers.order.state import Cursor, State

SIZES = {
    "records": st.integers(0, 60),
    "batch_size": st.integers(1, 13),
    "hosts": st.integers(1, 5),
    "remainder": st.sampled_from(["short", "drop", "pad"]),
}


def schedules(sizes, **more):
    return [Schedule(**sizes, host=host, **more) for host in range(sizes["hosts"])]


BEGIN = Cursor()


def places(schedule, begin=BEGIN, epochs=1):
    """The epoch and the places of each step of a pass."""
    found, (cursor, end) = [], bounds_of_pass(begin, epochs, 0)
    while True:
        following, steps = schedule.after(cursor, 1, end)
        if not steps:
            return found
        found.append((cursor.epoch, list(schedule.step(cursor.place))))
        cursor = following


@given(st.fixed_dictionaries(SIZES))
@settings(deadline=None)
def test_hosts_run_equally_many_steps_and_share_the_epoch(sizes):
    hosts = [places(schedule) for schedule in schedules(sizes)]
    assert len({len(host) for host in hosts}) == 1
    read = [place for step in zip(*hosts, strict=True) for _, batch in step for place in batch]
    assert read == list(range(len(read)))  # Adjacent, and in the order of the epoch.
    remainder = sizes["records"] % (sizes["batch_size"] * sizes["hosts"])
    left_out = {"drop": remainder, "short": remainder % sizes["hosts"], "pad": 0}
    assert len(read) == sizes["records"] - left_out[sizes["remainder"]]
    counts = [{len(batch) for _, batch in step} for step in zip(*hosts, strict=True)]
    assert all(found == {sizes["batch_size"]} for found in counts[:-1])
    for found in counts[-1:]:
        if sizes["remainder"] == "pad":  # All of them are padded to the size of a batch.
            assert max(found) <= sizes["batch_size"] and max(found) - min(found) <= 1
        else:
            assert len(found) == 1 and found != {0}


@given(st.integers(0, 60), st.integers(1, 13), st.integers(0, 2), st.integers(1, 2))
def test_places_without_a_record_take_no_step_away(records, size, absent, epochs):
    sizes = {"records": records, "batch_size": size, "remainder": "pad"}
    found = places(Schedule(**sizes, absent=min(absent, records)), epochs=epochs)
    whole = places(Schedule(**sizes), epochs=epochs)
    kept = range(records - absent)
    assert found == [(epoch, [place for place in batch if place in kept]) for epoch, batch in whole]


@given(st.fixed_dictionaries(SIZES), st.integers(1, 4), st.data())
@settings(deadline=None)
def test_a_schedule_resumes_where_another_stopped(sizes, epochs, data):
    for schedule in schedules(sizes):
        whole = places(schedule, epochs=epochs)
        # After the last step another pass begins.
        done = data.draw(st.integers(0, max(len(whole) - 1, 0)))
        cursor, steps = schedule.after(Cursor(), done, None)
        assert steps == done
        assert places(schedule, cursor, epochs) == whole[done:]
        every = schedule.after(Cursor(), len(whole), None)[0]
        assert schedule.after(cursor, len(whole) - done, None) == (every, len(whole) - done)
        _, end = bounds_of_pass(cursor, epochs, 0)
        last = every if whole else Cursor()
        assert schedule.after(cursor, len(whole) + 3, end) == (last, len(whole) - done)


@given(st.fixed_dictionaries(SIZES), st.integers(1, 4))
@settings(deadline=None)
def test_a_pass_after_the_last_step_of_another_reads_the_next_epochs(sizes, epochs):
    """A run that is finished gives nothing, but Keras goes through a dataset once an epoch."""
    for schedule in schedules(sizes):
        whole = places(schedule, epochs=epochs)
        found = places(schedule, schedule.after(Cursor(), len(whole), None)[0], epochs)
        assert found == [(epoch + epochs, batch) for epoch, batch in whole]
        begin, end = bounds_of_pass(Cursor(), epochs, 1)
        assert (begin, end) == (Cursor(epochs), Cursor(2 * epochs))


def test_endless_and_empty_schedules():
    assert bounds_of_pass(Cursor(1, 8), None, 3) == (Cursor(1, 8), None)
    assert Schedule(10, 4).after(Cursor(), 7, None) == (Cursor(2, 4), 7)
    for schedule in (Schedule(0, 4), Schedule(3, 4, remainder="drop")):
        assert schedule.after(Cursor(), 5, None) == (Cursor(), 0)


GOOD = json.loads(State(0, 3, 0, "x", "y", (1, 2)).to_json())


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"epoch": -1}, "epoch=-1, expected a number of at least 0"),
        ({"place": 2.0}, "place=2.0, expected a number"),
        ({"seed": None}, "seed=None, expected a number"),
        ({"held": (1, 3)}, r"held=\(1, 3\), expected different places before place=3"),
        ({"held": "12"}, "held='12', expected places"),
        ({"order": 1}, "order=1, not text"),
    ],
)
def test_a_state_made_by_hand_is_checked(changed, message):
    with pytest.raises(ValueError, match=f"not a reader's state: {message}"):
        replace(State.from_json(json.dumps(GOOD)), **changed)


def test_a_state_takes_numbers_of_numpy():
    held = np.array([2, 0])
    state = State(np.int64(1), np.uint8(3), np.int32(7), "x", "y", held)
    assert State.from_json(state.to_json()) == state == State(1, 3, 7, "x", "y", (2, 0))


def test_a_state_is_one_line_of_json():
    state = State(2, 640, 7, "in order", "0123abcd")
    text = state.to_json()
    assert "\n" not in text
    assert State.from_json(text) == state


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not a reader's state"),
        ("[" * 100_000, "not a reader's state"),
        ("[]", "not a state of version 1"),
        ('{"version": 2}', "the state has version 2, from a newer beam-shards: .*; update it"),
        (json.dumps({"version": 1}), "not a reader's state: .* lacks epoch, place, seed, order, "),
        (json.dumps({**GOOD, "held": 3}), "not a reader's state: held=3, expected places"),
    ],
)
def test_invalid_states_are_refused(text, message):
    with pytest.raises(ValueError, match=message):
        State.from_json(text)
