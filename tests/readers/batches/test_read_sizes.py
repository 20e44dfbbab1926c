import pytest

from readers.batches.read_sizes import records_together
from readers.format.schema import Feature, Schema
from readers.shards.plan import Plan

RAW = Feature("uint8", (64, 64, 3))
JPEG = Feature("uint8", (64, 64, 3), "jpeg")
ZLIB, ZLIB_TEXT = Feature("uint8", (64, 64, 3), "zlib"), Feature("string", (), "zlib")


def plan_of(feature, record_bytes):
    return Plan("train", Schema({"x": feature}), (), 10_000, record_bytes, ())


@pytest.mark.parametrize(
    ("feature", "record_bytes", "expected"),
    [
        (RAW, 100, 4096),  # the limit in records
        (RAW, 16 << 10, 512),  # 8 MiB
        (JPEG, 16 << 10, 128),  # 2 MiB, because the pixels take more memory
        (ZLIB, 4096, 128),  # 2 MiB of unpacked pixels, and of streams
        (ZLIB_TEXT, 2047, 1024),
        (RAW, 64 << 20, 1),
        (RAW, None, 4096),
    ],
)
def test_steps_are_decoded_together_up_to_a_limit_in_records_and_bytes(
    feature, record_bytes, expected
):
    assert records_together(plan_of(feature, record_bytes)) == expected
