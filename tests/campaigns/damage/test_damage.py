"""A sample of the damages of the campaign, and the oracle that judges them."""

from __future__ import annotations

import pytest

import readers
from tests.campaigns.damage.cases import Case, cases, sample
from tests.campaigns.damage.kinds import kinds
from tests.campaigns.damage.oracle import Oracle
from tests.campaigns.values import read_files

KINDS = kinds()


def faults(oracle, chosen):
    """Everything that must not happen, and how many damages verify named."""
    found, named = [], 0
    for case in chosen:
        outcomes, wrong = oracle.judge(case)
        named += outcomes["named"]
        found += [f"{case}: {fault}" for fault in wrong]
    return found, named


@pytest.mark.slow(base=["text_tokenizer", "sensors_sequence", "plain_files"])
@pytest.mark.parametrize("name", KINDS)
def test_damage_is_named_and_delivers_no_wrong_value(name, tmp_path):
    found, named = faults(Oracle(KINDS[name], tmp_path), sample(KINDS[name], 1))
    assert found == []
    assert named or KINDS[name].schema is not None


def test_every_byte_is_damaged_and_no_case_is_the_intact_dataset():
    kind = KINDS["plain_files"]
    places = {}
    for case in cases(kind):
        assert any(data != kind.files[name] for name, data in case.changes.items())
        if case.damage == "inverted byte":
            (name,) = case.changes
            places[name] = places.get(name, 0) + 1
    assert places == {name: len(data) for name, data in kind.files.items()}


SHARD = KINDS["sensors_variable"].shards[1]


def a_flip() -> Case:
    data = bytearray(KINDS["sensors_variable"].files[SHARD])
    data[100] ^= 1
    return Case("flipped bit", "shard", {SHARD: bytes(data)})


def test_the_oracle_finds_a_reader_that_checks_nothing(tmp_path, monkeypatch):
    oracle = Oracle(KINDS["sensors_variable"], tmp_path)
    assert faults(oracle, [a_flip()])[0] == []
    whole = readers.RecordSource

    def careless(path, split, schema, on_corrupt):
        return whole(path, split, schema=schema, verify_crc=False)

    monkeypatch.setattr(readers, "RecordSource", careless)
    bad, _ = faults(oracle, [a_flip()])
    assert bad
    assert all("source of train" in fault for fault in bad)


def test_the_oracle_finds_a_verify_that_names_nothing(tmp_path, monkeypatch):
    oracle = Oracle(KINDS["sensors_variable"], tmp_path)
    report = type("Report", (), {"problems": ()})
    monkeypatch.setattr(readers, "verify", lambda path: report)
    assert "verify: not named" in faults(oracle, [a_flip()])[0][0]


def test_the_oracle_mends_what_it_damaged(tmp_path):
    oracle = Oracle(KINDS["plain_files"], tmp_path)
    faults(oracle, sample(oracle.kind, 1))
    assert read_files(tmp_path) == dict(oracle.kind.files)
