"""`python -m readers bench`: its table, its arithmetic with planted rates, its advice and its errors."""

from __future__ import annotations

import json

import pytest

from readers import Schema
from readers.__main__ import main
from readers.bench import (
    Rate,
    Timings,
    decoders_of,
    decoding_advice,
    rate_of,
    reading_advice,
    step_of,
)
from readers.decoders import CenterCrop, RandomResizedCrop, Resize, Skip
from tests.support.datasets import write_numbers


@pytest.mark.parametrize(
    ("together", "ahead", "step", "share"),
    [
        (640, True, 0.1, 0),  # A batch of 64 takes 0.1 s, in which the step computes.
        (640, True, 0.025, 0.75),
        (640, True, 0.2, 0),
        (640, False, 0.1, 0.5),  # The step waits while a batch is made.
        (640, False, 0.3, 0.25),
    ],
)
def test_the_idle_share_follows_from_the_rate_and_the_step(together, ahead, step, share):
    assert Rate("", together, "", ahead).idle_share(64, step) == pytest.approx(share)


def planted(step=0.1, reading=9_000, decoding=2_000, **ways):
    parts = [Rate("reading", reading, "buy a disk"), Rate("decoding", decoding, "shrink")]
    ways = [Rate(name, rate) for name, rate in ways.items()]
    return Timings("photos", parts, ways, batch_size=64, step=step)


@pytest.mark.parametrize(
    ("timings", "advice"),
    [
        (planted(None, a=700), "the slowest part is decoding: shrink"),
        (planted(None, 500, a=700), "the slowest part is reading: buy a disk"),
        (planted(a=320), "no reader delivers the 640 records per second that the step needs; the slowest part is decoding: shrink"),
        (planted(a=640, b=700), "nothing to change: every reader delivers the 640 records per second that the step needs"),
        (planted(a=320, b=800, c=900), "use b, which delivers the 640 records per second that the step needs; with a, the step is idle 50% of the time"),
    ],
)  # fmt: skip
def test_the_advice_is_one_sentence_on_what_to_change_first(timings, advice):
    assert timings.advice == advice


@pytest.mark.parametrize(
    ("shape", "encoding", "decoders", "advice"),
    [
        ((None, None, 3), "source", {}, "write images at the model's size (--image_size 224x224), or decode large ones to it (--decoders image=Resize:224)"),
        ((None, None, 3), "jpeg", {"image": Resize(224)}, "write images at the model's size (--image_size 224x224), or use more processors"),
        ((None, None, 3), "jpeg", {"image": Skip()}, "read fewer features (columns=), or use more processors"),
        ((64, 64, 3), "png", {}, "store the pixels of images (--encoding raw), which takes more space, or use more processors"),
        ((64, 64, 3), "raw", {}, "read fewer features (columns=), or use more processors"),
    ],
)  # fmt: skip
def test_the_advice_on_decoding_depends_on_how_images_are_stored(shape, encoding, decoders, advice):
    schema = Schema({"image": ("uint8", shape, encoding), "label": ("int64", ())})
    assert decoding_advice(schema, decoders) == advice


def test_a_cache_is_advised_for_a_store_only():
    assert "cache=" in reading_advice("s3://bucket/shards")
    assert "cache=" not in reading_advice("shards") and "interleave" in reading_advice("shards")


def test_a_table_has_the_rates_and_the_idle_shares():
    lines = [" ".join(line.split()) for line in str(planted(a=320)).splitlines()]
    table = [
        "records per second part reader idle share of a 100 ms step",
        "reading 9,000",
        "decoding 2,000",
        "a 320 50%",
    ]
    assert (lines[0], lines[2:6]) == ("photos", table)
    assert "idle" not in str(planted(None, a=700))


def test_rates_count_the_records_of_each_item_after_the_first_ones(monkeypatch):
    now = [0.0]
    monkeypatch.setattr("readers.bench.time.perf_counter", lambda: now[0])

    def items():
        for number in range(100):
            now[0] += 10 if number < 2 else 1
            yield

    assert rate_of(items(), 64, 40) == 64


@pytest.fixture
def dataset(tmp_path):
    return str(write_numbers(tmp_path / "numbers"))


def test_a_dataset_is_measured_in_every_way(dataset, capsys, tmp_path, monkeypatch):
    small = "bench", dataset, "--batch_size", "4", "--seconds", "0"
    assert main([*small, "--step", "120ms"]) == 0
    out = capsys.readouterr().out
    for name in (
        "reading",
        "decoding",
        "as_numpy",
        "as_numpy(prefetch=2)",
        "load, in a tf.function",
    ):
        assert f"\n{name}" in out
    assert "numbers, train: 20 records of" in out and "idle share of a 120 ms step" in out
    (tmp_path / "changes.py").write_text(
        "def twice(record, key):\n    (name,) = record\n    return {name: record[name] * 2}\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    how = "--split", "val[1:]+train[4:]+val[:1]", "--columns", "id", "--map", "changes:twice"
    assert main([*small, *how, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [part["name"] for part in found["parts"]][2:] == ["map"]
    assert all(each["rate"] > 0 for each in found["parts"] + found["ways"]) and found["idle"] == {}


def test_decoders_are_spelled_with_their_sizes():
    texts = "a=Resize:7x9", "b=CenterCrop:224", "c=RandomResizedCrop:8", "d=Skip"
    kinds = Resize((7, 9)), CenterCrop(224), RandomResizedCrop(8), Skip()
    assert decoders_of(texts) == dict(zip("abcd", kinds, strict=True))
    assert (step_of("120ms"), step_of("1.5s"), step_of(None)) == (0.12, 1.5, None)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--decoders", "id"], "--decoders 'id': expected FEATURE=Resize:SIZE"),
        (["--decoders", "id=Resize"], "--decoders 'id=Resize': expected"),
        (["--decoders", "id=Skip:3"], "--decoders 'id=Skip:3': expected"),
        (["--decoders", "a=Skip", "a=Resize:8"], "once per feature"),
        (["--decoders", "id=Resize:0"], "size=(0, 0): expected pixels"),
        (["--decoders", "nothing=Skip"], "'nothing' is not among the features"),
        (["--step", "120"], "--step '120': expected a time such as 120ms or 0.2s"),
        (["--step", "0ms"], "--step '0ms': expected a time"),
        (["--map", "json"], "map raised TypeError"),
        (["--map", "json:nothing"], "--map 'json:nothing': expected MODULE:FUNCTION"),
        (["--map", "json:loads"], "map raised TypeError"),
        (["--split", "nothing"], "unknown split 'nothing'"),
        (["--split", "val"], "val has no records to measure"),
        (["--batching", "packed"], "batching='packed'"),
        (["--batch_size", "21"], "too few for one batch: batch_size=21"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_an_error_of_one_line(tmp_path, capsys, flags, message):
    dataset = str(write_numbers(tmp_path / "numbers", val=0))
    assert main(["bench", dataset, "--batch_size", "4", "--seconds", "0", *flags]) == 2
    assert message in capsys.readouterr().err
