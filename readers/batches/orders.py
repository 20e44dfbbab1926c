"""The order of a plan, the part of it that this host reads, and how much is read at once."""

from __future__ import annotations

from dataclasses import replace

from readers.batches.options import ReadOptions
from readers.order.mixture import MixedOrder
from readers.order.orders import CYCLE, GlobalOrder, InOrder, InterleavedOrder, Order
from readers.order.schedule import Schedule
from readers.order.state import State
from readers.shards.plan import Plan

# Fetched from a store at once, in many requests side by side, and held until it is decoded.
_AHEAD_BYTES, _AHEAD_RECORDS = 32 << 20, 65_536

# Read and decoded at once: the some 100 calls of NumPy are shared by as many records, and what they
# look at stays in the processor's cache.
_CHUNK_RECORDS, _CHUNK_BYTES = 4096, 2 << 20

# What a window of an interleaved order takes. TensorFlow's memory for a large one is new each time: by
# windows of 32 MiB pictures come twice as fast as by 128. Few records shuffle badly, though.
WINDOW_BYTES, WINDOW_RECORDS = 32 << 20, 65_536

_FEW_RECORDS, _MOST_BYTES = 1024, 128 << 20


def order_of(plan: Plan, options: ReadOptions) -> Order:
    """The order of the epochs of a plan."""
    seed = options.seed or 0
    if options.weights:
        orders: list[Order] = [
            GlobalOrder(count, seed, number) if options.shuffle else InOrder()
            for number, count in enumerate(plan.mixed)
        ]
        return MixedOrder(plan.mixed, orders, options.weights, seed if options.shuffle else None)
    if is_windowed(options):
        counts = [part.take or 0 for part in plan.parts]
        return InterleavedOrder(counts, seed, options.window or window_of(plan))
    return GlobalOrder(plan.records or 0, seed) if options.shuffle else InOrder()


def scheduled(plan: Plan, options: ReadOptions) -> tuple[Plan, Schedule, str]:
    """The plan of this host, its steps, and what its order is called in a state.

    Args:
        plan: One that knows its number of records.

    Raises:
        ValueError: The state is not of this dataset, or of another order; or there are fewer
            records than each host needs for a batch.
    """
    assert isinstance(options.batch_size, int)
    host, hosts = options.shard
    records = total = plan.records or 0
    kind = kind_of(plan, options)
    if options.order == "interleave" and hosts > 1:
        kind += f", by host {host} of {hosts}"
        records //= hosts
        plan = plan.cut(host * records, (host + 1) * records)
        host, hosts = 0, 1
    schedule = Schedule(
        records=records,
        batch_size=options.batch_size,
        host=host,
        hosts=hosts,
        epochs=options.repeat,
        drop_remainder=options.drop_remainder,
    )
    if total and not schedule.steps_of_epoch:
        raise ValueError(
            f"{plan.name} has {total} records, of which no batch can be made: batch_size="
            f"{options.batch_size}, shard={options.shard}, drop_remainder={options.drop_remainder}"
        )
    state = options.state
    if state:
        check_state(state, kind, plan)
        schedule = replace(schedule, epoch=state.epoch, place=state.place)
    elif options.start_step:
        epoch, place = schedule.after(options.start_step)
        schedule = replace(schedule, epoch=epoch, place=place)
    return plan, schedule, kind


def is_windowed(options: ReadOptions) -> bool:
    """Whether shards are mixed, and windows of records shuffled."""
    return options.weights is None and options.shuffle and options.order == "interleave"


def kind_of(plan: Plan, options: ReadOptions) -> str:
    """What the order of a plan is called in a state."""
    if is_windowed(options):
        return f"interleaved in windows of {options.window or window_of(plan)}"
    kind = "in a global shuffle" if options.shuffle else "in order"
    return f"{kind}, mixed by {list(options.weights)}" if options.weights else kind


def check_state(state: State, order: str, plan: Plan) -> None:
    """Holds a state against what is read.

    Raises:
        ValueError: It is of other records, or of another order.
    """
    if state.dataset != plan.digest:
        raise ValueError(
            f"the state is of the dataset {state.dataset}, this one is {plan.digest}: other records, "
            "another split, or another slice of one"
        )
    if state.order != order:
        raise ValueError(f"the state is of records {state.order}, not {order}")
    if max((state.place, *(place + 1 for place in state.held))) > (plan.records or 0):
        raise ValueError(f"the state is at record {state.place} of {plan.records}")


def records_at_once(plan: Plan) -> int:
    """How many records are read and decoded at once."""
    return max(min(_CHUNK_RECORDS, int(_CHUNK_BYTES / (plan.record_bytes or 1))), 1)


def ahead_of(plan: Plan, place: int, window: int | None) -> int:
    """The place in an order up to which records are fetched from a store together.

    Of a window they are all in a few places of files, of which each is to be fetched once.
    """
    if window is not None:
        return (place // window + 1) * window
    return place + max(1, int(min(_AHEAD_BYTES / (plan.record_bytes or 1), _AHEAD_RECORDS)))


def windows_of(plan: Plan, options: ReadOptions) -> int | None:
    """The records of a window of the order; None where it has none."""
    return (options.window or window_of(plan)) if is_windowed(options) else None


def window_of(plan: Plan) -> int:
    """The records of a window, by their number and mean size."""
    # The first record alone may be unlike the others.
    most = WINDOW_RECORDS // CYCLE if plan.records is None else plan.records
    size = plan.record_bytes or 1
    fitting = max(WINDOW_BYTES / size, min(_FEW_RECORDS, _MOST_BYTES / size))
    return max(1, min(most, int(fitting), WINDOW_RECORDS))
