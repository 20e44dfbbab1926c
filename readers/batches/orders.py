"""The order of a plan's records, and its name in a saved state."""

from __future__ import annotations

from readers.batches.options import ReadOptions
from readers.order.mixture import MixedOrder
from readers.order.orders import (
    GlobalOrder,
    InterleavedOrder,
    OrderOfEpochs,
    RecordOrder,
    SequentialOrder,
)
from readers.order.state import State
from readers.shards.plan import Plan


def order_of(plan: Plan, options: ReadOptions) -> RecordOrder:
    """The order of the records in each epoch."""
    seed, shuffle = options.seed or 0, options.order.shuffle
    if plan.mixed:
        counts, weights = zip(*plan.mixed, strict=True)
        orders: list[OrderOfEpochs] = [
            GlobalOrder(count, seed, number) if shuffle else SequentialOrder()
            for number, count in enumerate(counts)
        ]
        return MixedOrder(counts, orders, weights, seed if shuffle else None)
    if options.order.buffer is not None:
        return InterleavedOrder([part.take for part in plan.parts], seed, options.order.buffer)
    return GlobalOrder(plan.records, seed) if shuffle else SequentialOrder()


def order_name(plan: Plan, options: ReadOptions) -> str:
    """The name of the order in a saved state."""
    if options.order.buffer is not None:
        return f"interleaved in windows of {options.order.buffer}"
    name = "in a global shuffle" if options.order.shuffle else "in order"
    return f"{name}, mixed by {[weight for _, weight in plan.mixed]}" if plan.mixed else name


def check_state(state: State, order: str, plan: Plan) -> None:
    """Raises ValueError if a state is of other records or of another order."""
    if state.dataset != plan.digest:
        raise ValueError(
            f"the state is of the dataset {state.dataset}, this one is {plan.digest}: the records, "
            "the split or its slice differ"
        )
    if state.order != order:
        raise ValueError(f"the state is of records {state.order}, not {order}")
    if state.place > plan.records:
        raise ValueError(f"the state is at record {state.place} of {plan.records}")
