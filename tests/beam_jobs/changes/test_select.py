"""A subset is a dataset without files of its own; the oracle is a dataset that was written with its records only."""

import shutil
import tempfile
from pathlib import Path

import apache_beam as beam
import numpy as np
import pytest
from apache_beam.testing.test_pipeline import TestPipeline
from apache_beam.testing.util import assert_that, equal_to
from hypothesis import given, settings
from hypothesis import strategies as st

import readers
from beam_jobs import ReadShards, write
from beam_jobs.__main__ import main as jobs
from beam_jobs.errors import UsageError
from beam_jobs.pipeline import read_shards
from readers.__main__ import main
from readers.format.manifest import Manifest
from tests.support.living import batches, command, files_of, living, record, write_living

ALL = range(40)


def exactly_known(value):
    """The figures of single numbers and of the lengths that an index has."""
    lengths = {
        axis: figures for axis, figures in value.get("lengths", {}).items() if "count" in figures
    }
    return (
        {**value, "lengths": lengths}
        if lengths
        else {n: v for n, v in value.items() if n != "lengths"}
    )


@settings(max_examples=5, deadline=None)
@given(st.sets(st.sampled_from(ALL), max_size=20), st.integers(0, 3), st.integers(0, 4))
def test_a_subset_is_a_dataset_of_its_records(gone, label, length):
    with tempfile.TemporaryDirectory() as folder:
        base, sub, part = (Path(folder, name) for name in ("photos", "sub", "part"))
        write_living(base, ALL)
        (base.parent / "keys").write_text("\n".join(f"k{n}" for n in gone))
        command("delete", base, "--keys", base.parent / "keys")
        how = "--where", f"label >= {label} and len(signal) <= {length}"
        command("select", base, *how, "--output", sub)
        first = files_of(sub)
        command("select", base, *how, "--output", sub)
        assert files_of(sub) == first
        left = [
            n
            for n in ALL
            if n not in gone and n % 4 >= label and len(record(n)["signal"]) <= length
        ]
        command("select", sub, "--where", "label != 1", "--output", part)
        for path, numbers in ((sub, left), (part, [n for n in left if n % 4 != 1])):
            assert not [*path.rglob("*.tfrecord")]
            assert readers.verify(path).ok
            plain = Path(folder, f"plain-{path.name}")
            found = living(path)
            assert sorted(n for split in found.values() for n in split) == numbers
            if not numbers:
                continue
            write_living(plain, numbers)
            assert living(plain) == found
            assert found["train"] == [] or batches(path, "train") == batches(plain, "train")
            ours, theirs = Manifest.read(path), Manifest.read(plain)
            for name, split in ours.splits.items():
                for feature in ("label", "signal"):
                    expected = exactly_known(theirs.splits[name].statistics.get(feature, {}))
                    if feature == "signal" and expected:
                        expected = {"lengths": expected["lengths"]}
                    assert exactly_known(split.statistics[feature]) == expected


def test_a_subset_pins_the_generation_of_its_base(tmp_path):
    base, sub = tmp_path / "photos", tmp_path / "sub"
    write_living(base, ALL)
    (tmp_path / "rows").write_text("5 0 3")
    output = command(
        "select", f"{base}@1", "--rows", tmp_path / "rows", "--split", "val", "--output", sub
    )
    assert output.splitlines()[1] == f"{sub}: selected 3 of val"
    chosen, expected = living(sub), [living(base)["val"][row] for row in (0, 3, 5)]
    assert chosen == {"val": expected}
    command("delete", base, "--where", "label >= 0")
    command("delete", sub, "--key", f"k{expected[1]}")
    command("expire", base, "--keep", "1")
    assert living(f"{sub}@1") == chosen
    assert living(sub) == {"val": [expected[0], expected[2]]}
    assert readers.verify(f"{sub}@1").ok
    # Both may be moved together.
    (tmp_path / "else").mkdir()
    for path in (base, sub):
        shutil.move(path, tmp_path / "else" / path.name)
    assert living(tmp_path / "else/sub") == {"val": [expected[0], expected[2]]}


def test_a_subset_elsewhere_has_to_be_allowed(tmp_path, monkeypatch):
    write_living(tmp_path / "a/photos", ALL)
    how = "--where", "label == 1", "--output", tmp_path / "b/sub"
    assert f"readers need BEAM_SHARDS_BASES={tmp_path}/a/photos" in command(
        "select", tmp_path / "a/photos", *how
    )
    with pytest.raises(readers.DatasetError, match="set BEAM_SHARDS_BASES="):
        living(tmp_path / "b/sub")
    monkeypatch.setenv("BEAM_SHARDS_BASES", f"{tmp_path}/a")
    assert {n % 4 for numbers in living(tmp_path / "b/sub").values() for n in numbers} == {1}


@pytest.mark.parametrize("suffix", ["*", "*.index"])
def test_a_subset_of_a_dataset_that_is_gone_says_what_to_do(tmp_path, suffix):
    base, sub = tmp_path / "photos", tmp_path / "sub"
    write_living(base, ALL)
    command("select", base, "--where", "label == 1", "--output", sub)
    for path in base.glob(f"*/*.tfrecord{suffix}"):
        path.unlink()
    gone = rf"photos/.*: missing; {sub} reads this file of another dataset, which has since been overwritten,"
    with pytest.raises(FileNotFoundError, match=rf"{gone}.* Delete {sub}, and run select"):
        next(readers.as_numpy(sub, 1, split="train", columns=["label"]))
    with pytest.raises(FileNotFoundError, match=r"the manifest lists this .*, but it is missing"):
        next(readers.as_numpy(base, 1, split="train", columns=["label"]))


def test_another_dataset_is_never_replaced(tmp_path):
    write_living(tmp_path / "photos", ALL)
    write_living(tmp_path / "sub", ALL)
    before = files_of(tmp_path / "sub")
    with pytest.raises(UsageError, match="a dataset is here already; name another"):
        command(
            "select", tmp_path / "photos", "--where", "label == 1", "--output", tmp_path / "sub"
        )
    assert files_of(tmp_path / "sub") == before


@pytest.fixture
def changed(tmp_path):
    """A dataset with records that are gone, and a subset."""
    write_living(tmp_path / "photos", ALL)
    command("delete", tmp_path / "photos", "--key", "k1", "--key", "k5")
    command("select", tmp_path / "photos", "--where", "label == 1", "--output", tmp_path / "sub")
    return tmp_path


@pytest.mark.parametrize("name", ["photos", "sub"])
def test_beam_reads_what_is_left(changed, monkeypatch, name):
    monkeypatch.setattr(read_shards, "RANGE_BYTES", 300)
    for split, numbers in living(changed / name).items():
        with TestPipeline() as pipeline:
            found = (
                pipeline | ReadShards(changed / name, split) | beam.Map(lambda r: int(r["key"][1:]))
            )
            assert_that(found, equal_to(numbers))


def test_other_programs_and_jobs_are_warned(changed, capsys):
    for name, unseen in (("photos", 2), ("sub", 32)):
        assert main(["files", str(changed / name)]) == 0
        printed = capsys.readouterr()
        assert len(printed.out.splitlines()) == 4
        assert printed.err.startswith(f"{unseen} of their records are gone, or not in this subset")
        assert main(["card", str(changed / name)]) == 0
        capsys.readouterr()
        assert not [*changed.rglob("dataset_info.json")]
        assert "it cannot leave out records" in (changed / name / "README.md").read_text()
    out = str(changed / "out")
    assert jobs(["reshard", "--input", str(changed / "photos"), "--output", out]) == 2
    assert "its files also have records that are gone" in capsys.readouterr().err
    write_living(changed / "plain", ALL)
    command("tag", changed / "plain", "paper")
    assert jobs(["plan", "reshard", "--input", str(changed / "plain"), "--output", out]) == 0
    with pytest.raises(ValueError, match="of a subset, it has only those of single numbers"):
        readers.transforms.Moments.of(Manifest.read(changed / "sub"), "train", "levels")


def test_a_history_is_listed(changed, capsys):
    command("tag", changed / "photos", "paper", "1")
    command("delete", changed / "photos", "--key", "k9")
    assert main(["log", str(changed / "photos")]) == 0
    newest, second, first = capsys.readouterr().out.splitlines()
    counts = [len(numbers) for numbers in living(changed / "photos@1").values()]
    assert first.startswith("   1  2") and first.endswith("write  paper")
    assert f"train {counts[0]} (+{counts[0]} -0), val {counts[1]} (+{counts[1]} -0)" in first
    assert "delete keys=" in second and "select-" in second
    assert newest.count("(+0 -1)") == 1


@pytest.mark.parametrize(
    "kept", ["label == 1", "label != 1"]
)  # Lists of what is kept, and of what is gone.
def test_a_subset_is_compact_before_it_is_appended_to_or_merged(tmp_path, kept):
    base, sub = tmp_path / "photos", tmp_path / "sub"
    write_living(base, ALL)
    command("select", base, "--where", kept, "--output", sub)
    command("delete", sub, "--key", f"k{living(sub)['train'][0]}")
    with pytest.raises(UsageError, match=f"is a part of a dataset: run beam-shards compact {sub}"):
        write_living(sub, [200], append=True)
    with pytest.raises(UsageError, match="because one is a subset"):
        command("merge", sub, base, "--output", tmp_path / "both")
    command("compact", sub)
    write_living(sub, [200], append=True)
    figures = Manifest.read(sub).splits["train"].statistics["signal"]
    plain = tmp_path / "plain"
    write_living(plain, sorted(n for numbers in living(sub).values() for n in numbers))
    assert figures == Manifest.read(plain).splits["train"].statistics["signal"]


def test_a_dataset_whose_features_have_no_statistics_is_no_subset(tmp_path):
    schema = readers.Schema({"z": ("complex64", [2]), "none": ("float32", [0])})
    for n in range(2):
        records = {f"{n}": {"z": np.ones(2, np.complex64), "none": np.zeros(0, np.float32)}}
        manifest = write(records.items(), tmp_path / "d", schema, append=n > 0)
    assert manifest.splits["train"].records == 2
