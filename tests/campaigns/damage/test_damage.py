"""A sample of the damages of the campaign, and the oracle that judges them."""

from __future__ import annotations

from pathlib import Path

import pytest

import readers
from tests.campaigns.damage.cases import Case, cases, sample
from tests.campaigns.damage.kinds import kinds
from tests.campaigns.damage.oracle import Oracle, quickly

KINDS = kinds()


@pytest.fixture
def oracle_of(tmp_path):
    """Makes the oracle of a kind in a folder of its own."""

    def made(name):
        folder = tmp_path / name
        folder.mkdir()
        return Oracle(KINDS[name], folder)

    with quickly():
        yield made


def faults(oracle, chosen, with_load=False):
    """Everything that must not happen, and how many damages verify named."""
    found, named = [], 0
    for case in chosen:
        verdict = oracle.judge(case, with_load)
        named += verdict.named is True
        found += [f"{case}: {fault}" for fault in verdict.faults]
    return found, named


@pytest.mark.parametrize("name", KINDS)
def test_damage_is_named_and_delivers_no_wrong_value(name, oracle_of):
    found, named = faults(oracle_of(name), sample(KINDS[name], 2))
    assert found == []
    assert named or KINDS[name].schema is not None


@pytest.mark.slow
@pytest.mark.parametrize("name", KINDS)
def test_more_damage_is_named_and_delivers_no_wrong_value(name, oracle_of):
    assert faults(oracle_of(name), sample(KINDS[name], 40))[0] == []


@pytest.mark.slow
@pytest.mark.parametrize("name", KINDS)
def test_damage_delivers_no_wrong_value_with_tensorflow(name, oracle_of):
    kind = KINDS[name]
    chosen = [case for case in sample(kind, 1) if case.what in ("shard", "index", "manifest")]
    assert faults(oracle_of(name), chosen, with_load=True)[0] == []


def test_every_byte_is_damaged_and_no_case_is_the_intact_dataset():
    kind = KINDS["sensors_variable"]
    places = {}
    for case in cases(kind):
        assert any(data != kind.files[name] for name, data in case.changes.items())
        if case.damage == "inverted byte":
            (name,) = case.changes
            places[name] = places.get(name, 0) + 1
    assert places == {name: len(data) for name, data in kind.files.items()}


SHARD = "train-00001-of-00002.tfrecord"


def a_flip() -> Case:
    data = bytearray(KINDS["sensors_variable"].files[SHARD])
    data[100] ^= 1
    return Case("flipped bit", "shard", {SHARD: bytes(data)})


def test_the_oracle_finds_a_reader_that_checks_nothing(oracle_of, monkeypatch):
    oracle = oracle_of("sensors_variable")
    good, _ = faults(oracle, [a_flip()] * 8)
    assert good == []
    whole = readers.RecordSource

    def careless(path, split, schema, on_corrupt):
        return whole(path, split, schema=schema, verify_crc=False)

    monkeypatch.setattr(readers, "RecordSource", careless)
    bad, _ = faults(oracle, [a_flip()] * 8)
    assert bad
    assert all("source of train" in fault for fault in bad)


def test_a_list_that_is_renamed_in_the_manifest_is_empty_and_named(oracle_of):
    oracle = oracle_of("text_words")
    renamed = oracle.kind.files["manifest.json"].replace(b'"tokens": {', b'"tokeos": {', 1)
    for manifest, is_renamed in (
        (renamed, True),
        (renamed.replace(b'"text": {', b'"tezt": {', 1), False),
    ):
        verdict = oracle.judge(Case("flipped bit", "manifest", {"manifest.json": manifest}))
        assert verdict.named
        assert verdict.faults == []
        assert bool(verdict.renamed) == is_renamed
        assert bool(verdict.raised) != is_renamed


def test_the_oracle_finds_a_verify_that_names_nothing(oracle_of, monkeypatch):
    oracle = oracle_of("sensors_variable")
    report = type("Report", (), {"problems": ()})
    monkeypatch.setattr(readers, "verify", lambda path: report)
    assert "verify did not name it" in faults(oracle, [a_flip()])[0][0]


def test_the_oracle_mends_what_it_damaged(oracle_of):
    oracle = oracle_of("text_words")
    faults(oracle, sample(oracle.kind, 1)[:40])
    found = {
        str(path.relative_to(oracle.directory)): path.read_bytes()
        for path in Path(oracle.directory).rglob("*")
        if path.is_file()
    }
    assert found == dict(oracle.kind.files)
