from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from readers.order.schedule import Schedule
from readers.order.state import State

SIZES = {
    "records": st.integers(0, 60),
    "batch_size": st.integers(1, 13),
    "hosts": st.integers(1, 5),
    "drop_remainder": st.booleans(),
}


def schedules(sizes, **more):
    return [Schedule(**sizes, host=host, **more) for host in range(sizes["hosts"])]


def places(schedule):
    """The places of each step."""
    steps = [schedule.step(number) for number in range(schedule.steps)]
    return [(step.epoch, list(range(step.start, step.stop))) for step in steps]


@given(st.fixed_dictionaries(SIZES))
@settings(deadline=None)
def test_hosts_make_as_many_steps_and_share_the_epoch(sizes):
    hosts = [places(schedule) for schedule in schedules(sizes)]
    assert len({len(host) for host in hosts}) == 1
    assert all(batch for host in hosts for _, batch in host)
    read = [place for step in zip(*hosts, strict=True) for _, batch in step for place in batch]
    assert read == list(range(len(read)))  # Side by side, in the order of the epoch.
    left = sizes["records"] - len(read)
    together = sizes["batch_size"] * sizes["hosts"]
    assert left == (sizes["records"] % together if sizes["drop_remainder"] else left)
    assert left < (together if sizes["drop_remainder"] else sizes["hosts"])
    for step in list(zip(*hosts, strict=True))[:-1]:
        assert {len(batch) for _, batch in step} == {sizes["batch_size"]}
    if hosts[0]:
        last = [len(host[-1][1]) for host in hosts]
        assert max(last) - min(last) <= 1


@given(st.fixed_dictionaries(SIZES), st.integers(1, 4), st.data())
@settings(deadline=None)
def test_a_schedule_goes_on_where_another_has_stopped(sizes, epochs, data):
    for schedule in schedules(sizes, epochs=epochs):
        whole = places(schedule)
        done = data.draw(st.integers(0, max(len(whole) - 1, 0)))
        epoch, place = schedule.after(done)
        rest = Schedule(**sizes, host=schedule.host, epochs=epochs, epoch=epoch, place=place)
        assert places(rest) == whole[done:]
        assert rest.after(len(whole) - done) == schedule.after(len(whole))


@given(st.fixed_dictionaries(SIZES), st.integers(1, 3), st.integers(0, 7), st.integers(0, 60))
@settings(deadline=None)
def test_iterations_are_one_schedule_without_end(sizes, epochs, epoch, place):
    sizes["drop_remainder"] = False
    if sizes["records"] < sizes["hosts"]:
        return
    place = min(place, sizes["records"] - 1)
    schedule = Schedule(**sizes, epochs=epochs, epoch=epoch, place=place)
    end = 0
    for iteration in range(3):
        begin, after = schedule.steps_of(iteration)
        assert begin == end
        end = after
        found = {schedule.step(number).epoch for number in range(begin, end)}
        last = (epoch // epochs + iteration + 1) * epochs
        assert found <= set(range(max(epoch, last - epochs), last))
        if found:
            assert schedule.step(end - 1).epoch == last - 1


@given(st.integers(1, 80), st.integers(1, 7), st.integers(1, 4), st.integers(1, 4), st.data())
@settings(deadline=None)
def test_the_order_goes_on_with_another_number_of_hosts(records, size, before, after, data):
    first = Schedule(records, size, 0, before)
    done = data.draw(st.integers(0, first.steps))
    epoch, place = first.after(done)
    if epoch:
        return
    rest = [places(Schedule(records, size, host, after, place=place)) for host in range(after)]
    read = [p for step in zip(*rest, strict=True) for _, batch in step for p in batch]
    assert read == list(range(place, place + len(read)))
    assert records - place - len(read) < after


def test_epochs_without_end_and_empty_ones():
    schedule = Schedule(10, 4, epochs=None)
    assert schedule.steps is None
    assert schedule.step(7) == Schedule(10, 4, epochs=3).step(7)
    assert schedule.step(7).epoch == 2
    assert Schedule(0, 4, epochs=None).steps == 0
    assert Schedule(3, 4, drop_remainder=True, epochs=None).steps == 0


def test_a_state_is_a_line_of_json():
    state = State(2, 640, 7, "in order", "0123abcd")
    text = state.to_json()
    assert "\n" not in text
    assert State.of(text) == State.of(state) == state
    assert State.of(None) is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not the state of a reader"),
        ("[]", "not a state of version 1"),
        ('{"version": 2}', "not a state of version 1"),
        (json.dumps({"version": 1}), "not the state of a reader"),
        (State(0, -1, 0, "x", "y").to_json(), "not the state of a reader"),
        (State(0, 1, True, "x", "y").to_json(), "not the state of a reader"),
        (7, "expected a readers.State, or its JSON"),
    ],
)
def test_what_is_no_state_is_refused(text, message):
    with pytest.raises(ValueError, match=message):
        State.of(text)
