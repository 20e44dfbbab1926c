"""Which modules are mutated, and which test files must notice."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Target:
    """Modules that the same tests guard.

    Attributes:
        modules: Their files.
        tests: The files and folders of these tests.
    """

    modules: tuple[str, ...]
    tests: tuple[str, ...]


TARGETS = {
    "framing": Target(
        ("readers/format/tfrecord.py", "readers/format/crc.py"),
        ("tests/readers/format/test_tfrecord.py", "tests/readers/format/test_crc.py"),
    ),
    "schema": Target(
        ("readers/format/schema.py", "readers/format/dtypes.py"),
        ("tests/readers/format/test_schema.py", "tests/readers/format/test_encode.py"),
    ),
    "manifest": Target(
        ("readers/format/manifest.py", "readers/format/splits.py"),
        ("tests/readers/format/test_manifest.py",),
    ),
    "index": Target(
        ("readers/format/index.py",),
        ("tests/readers/format/test_tfrecord.py",),
    ),
    "examples": Target(
        (
            "readers/format/encode/records.py",
            "readers/format/encode/values.py",
            "readers/format/decode/records.py",
            "readers/format/protobuf/tensor.py",
            "readers/format/protobuf/wire.py",
        ),
        (
            "tests/readers/format/test_encode.py",
            "tests/readers/format/test_feature_lists.py",
            "tests/readers/format/protobuf",
            "tests/beam_jobs/records/test_encode.py",
        ),
    ),
    "order": Target(
        (
            "readers/order/draws.py",
            "readers/order/mixture.py",
            "readers/order/orders.py",
            "readers/order/permutation.py",
            "readers/order/split.py",
            "readers/order/state.py",
        ),
        ("tests/readers/order",),
    ),
    "schedule": Target(("readers/order/schedule.py",), ("tests/readers/order/test_schedule.py",)),
    "plan": Target(
        (
            "beam_jobs/plan/boundaries.py",
            "beam_jobs/plan/group_splits.py",
            "beam_jobs/plan/groups.py",
            "beam_jobs/plan/labels.py",
            "beam_jobs/plan/placement.py",
            "beam_jobs/plan/run_ranges.py",
            "beam_jobs/plan/shards.py",
            "beam_jobs/plan/splits.py",
            "beam_jobs/plan/strata.py",
            "beam_jobs/plan/summary.py",
        ),
        ("tests/beam_jobs/plan",),
    ),
    "near": Target(
        (
            "beam_jobs/plan/near/blocks.py",
            "beam_jobs/plan/near/candidates.py",
            "beam_jobs/plan/near/survey.py",
            "beam_jobs/plan/near/tally.py",
            "beam_jobs/plan/near/verify.py",
        ),
        ("tests/beam_jobs/plan/test_near.py", "tests/beam_jobs/plan/test_near_survey.py"),
    ),
    "topup": Target(
        ("beam_jobs/dataset/moves.py", "beam_jobs/dataset/topup.py"),
        ("tests/beam_jobs/dataset/test_topup.py",),
    ),
    "reconcile": Target(
        ("beam_jobs/dataset/reconcile.py",),
        (
            "tests/beam_jobs/dataset/test_reconcile.py",
            "tests/beam_jobs/pipeline/test_write_shards.py",
        ),
    ),
}
