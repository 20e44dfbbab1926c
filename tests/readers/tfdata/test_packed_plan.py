"""A plan that was packed is the same again, in few bytes."""

import pickle
from dataclasses import replace

from readers.shards.resolve import resolve
from readers.tfdata.packed_plan import PackedPlan
from tests.support.datasets import write_numbers


def test_a_packed_plan_is_the_same_again(tmp_path):
    path = str(write_numbers(tmp_path))
    plan = resolve(path, "train[1:]", None, None, accept_cut=False, any_order=True)
    assert len(plan.parts) > 1 and plan.fingerprint
    assert PackedPlan(plan)() == plan


def test_a_thousand_parts_take_less_than_sixty_kilobytes(tmp_path):
    path = str(write_numbers(tmp_path))
    plan = resolve(path, None, None, None, accept_cut=False, any_order=True)
    many = replace(plan, parts=plan.parts[:1] * 1000, fingerprint=tuple(range(1000)))
    assert len(pickle.dumps(PackedPlan(many))) < 60_000
