"""The order of a plan's epochs, its name in a saved state, and this host's schedule in it."""

from __future__ import annotations

from dataclasses import replace

from readers.batches.options import Order, ReadOptions
from readers.batches.read_sizes import default_window
from readers.order.mixture import MixedOrder
from readers.order.orders import GlobalOrder, InterleavedOrder, RecordOrder, SequentialOrder
from readers.order.schedule import Schedule
from readers.order.state import State
from readers.shards.plan import Plan


def shuffle_window(plan: Plan, order: Order) -> int | None:
    """How many records are shuffled together; None if the order has no windows."""
    if not order.shuffle or order.by != "interleave":
        return None
    return order.buffer or default_window(plan)


def order_of(plan: Plan, options: ReadOptions) -> RecordOrder:
    """The order of the records in each epoch."""
    seed, shuffle = options.seed or 0, options.order.shuffle
    if plan.mixed:
        counts, weights = zip(*plan.mixed, strict=True)
        orders = [
            GlobalOrder(count, seed, number) if shuffle else SequentialOrder()
            for number, count in enumerate(counts)
        ]
        return MixedOrder(counts, orders, weights, seed if shuffle else None)
    window = shuffle_window(plan, options.order)
    if window is not None:
        return InterleavedOrder([part.take for part in plan.parts], seed, window)
    return GlobalOrder(plan.records, seed) if shuffle else SequentialOrder()


def order_name(plan: Plan, options: ReadOptions) -> str:
    """The name of the order in a saved state."""
    window = shuffle_window(plan, options.order)
    if window is not None:
        return f"interleaved in windows of {window}"
    name = "in a global shuffle" if options.order.shuffle else "in order"
    return f"{name}, mixed by {[weight for _, weight in plan.mixed]}" if plan.mixed else name


def schedule_of(plan: Plan, options: ReadOptions) -> tuple[Plan, Schedule, str]:
    """The part of the plan that this host reads, its schedule, and the name of its order.

    Args:
        plan: A plan whose number of records is known.
        options: How to read.

    Raises:
        ValueError: The state is of another dataset or order, or there are not enough records for
            one batch on each host.
    """
    assert isinstance(options.batch_size, int)
    host, hosts = options.shard
    records = total = plan.records
    absent = 0
    order = order_name(plan, options)
    if options.part_of_host is not None:
        order += f", part {host} of {hosts}"
        start, stop = total * host // hosts, total * (host + 1) // hosts
        plan = plan.slice(start, stop)
        # One record more or less in a part must not change the number of steps.
        records = -(-total // hosts) if options.pads else total // hosts
        absent = max(records - (stop - start), 0)
        host, hosts = 0, 1
    schedule = Schedule(
        records=records,
        batch_size=options.batch_size,
        host=host,
        hosts=hosts,
        epochs=options.repeat,
        remainder=options.remainder,
        absent=absent,
    )
    if total and not schedule.steps_per_epoch:
        raise ValueError(
            f"{plan.name} has {total} records, too few for one batch: batch_size="
            f"{options.batch_size}, shard={options.shard}, remainder={options.remainder!r}"
        )
    epoch, place = 0, 0
    if isinstance(options.state, State):
        check_state(options.state, order, plan)
        epoch, place = options.state.epoch, options.state.place
    elif options.state:
        epoch, place = schedule.after(options.state)
    return plan, replace(schedule, epoch=epoch, place=place), order


def check_state(state: State, order: str, plan: Plan) -> None:
    """Checks a state against what is read.

    Raises:
        ValueError: The state is of other records or of another order.
    """
    if state.dataset != plan.digest:
        raise ValueError(
            f"the state is of the dataset {state.dataset}, this one is {plan.digest}: the records, "
            "the split or its slice differ"
        )
    if state.order != order:
        raise ValueError(f"the state is of records {state.order}, not {order}")
    if max((state.place, *(place + 1 for place in state.held))) > plan.records:
        raise ValueError(f"the state is at record {state.place} of {plan.records}")
