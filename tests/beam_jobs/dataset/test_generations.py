"""The states of an output directory: free, unfinished, complete, and what a job does in each."""

import hashlib
from dataclasses import replace
from pathlib import Path

import pytest

from beam_jobs.dataset import generations
from beam_jobs.dataset.generations import begun, commit, prepare, state_of
from beam_jobs.dataset.lease import leased
from beam_jobs.dataset.output import Output
from beam_jobs.errors import CompleteError, DataError, UsageError
from beam_jobs.plan.placement import Placement, Splits
from readers.format.manifest import Manifest
from readers.format.schema import Schema
from readers.format.splits import Shard, Split

SCHEMA = Schema({"x": ("int64", ())})
SHARD = "train-00000-of-00001.tfrecord"
NOTE = f"{SHARD}.done"


def output_of(directory, **options):
    placement = Placement(0, Splits())
    return Output(str(directory), SCHEMA, placement, (1,), options=options)


def manifest_of(output, folder, job="j", **fields):
    shard = Shard(f"{folder}/{SHARD}", 1, 1, 2, 3, 4, 5)
    return Manifest(
        SCHEMA,
        {"train": Split((shard,))},
        options=output.options,
        generation=output.generation,
        job=job,
        **fields,
    )


def write(directory, *names):
    for name in names:
        path = Path(directory, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)


def files(directory):
    found = Path(directory).rglob("*")
    return sorted(str(path.relative_to(directory)) for path in found if path.is_file())


def of_generation(number, folder):
    return sorted(
        [
            f"{folder}/{SHARD}",
            f"{folder}/{SHARD}.index",
            f"generations/{number}.json",
            "manifest.json",
        ]
    )


def written(output, folder, *more, job="j"):
    """Commits a dataset of one shard, and further files of its folder."""
    output = begun(output)
    prepare(output, job, folder)
    write(
        output.directory, *(f"{folder}/{name}" for name in (NOTE, SHARD, f"{SHARD}.index", *more))
    )
    commit(output, manifest_of(output, folder, job), state_of(output.directory))
    return output


def test_a_new_directory_is_free_and_its_first_job_commits_generation_1(tmp_path):
    out = tmp_path / "a/out"
    assert state_of(str(out)).generations == []
    output = written(output_of(out), "0123abcd", NOTE, "train-00000-of-00001.00ff00ff.tfrecord")
    assert (output.generation, output.parent) == (1, "")
    assert files(out) == of_generation(1, "0123abcd")
    assert (out / "manifest.json").read_bytes() == (out / "generations/1.json").read_bytes()
    assert Manifest.read(out).generation == 1


@pytest.mark.parametrize(
    "name",
    [
        *(
            "notes.txt",
            "train-00000-of-00001.tfrecord",
            "sub/x",
            "manifest_json",
            "20240101/x",
        ),
        *(
            "0123abcde/x",
            "generations/x.json",
            "generations/01.json",
            "rejects/x.jsonl",
            "manifest.json",
        ),
    ],
)
def test_a_foreign_file_is_named_and_nothing_is_changed(tmp_path, name):
    write(tmp_path, name, f"ffffffff/{NOTE}", f"ffffffff/{SHARD}", ".staging/0123abcd/x")
    before = files(tmp_path)
    with pytest.raises(UsageError, match="not part of a dataset; move it away, or") as caught:
        begun(replace(output_of(tmp_path), overwrite=True))
    assert repr(name) in caught.value.message
    assert files(tmp_path) == before


def test_what_is_no_directory_is_refused(tmp_path):
    write(tmp_path, "out")
    with pytest.raises(UsageError, match="this is a file; name a directory"):
        state_of(f"{tmp_path}/out")
    with pytest.raises(UsageError, match="cannot be written"):
        prepare(replace(output_of(f"{tmp_path}/out/deeper"), run="r"), "j", "0123abcd")
    with pytest.raises(UsageError, match="nosuch://x: this scheme is unknown"):
        state_of("nosuch://x")


@pytest.mark.parametrize("name", ["generations", ".staging", "0123abcd"])
def test_a_link_is_refused(tmp_path, name):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / name).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UsageError, match=f"'{name}' is a link to {tmp_path}/elsewhere"):
        state_of(f"{tmp_path}/out")


def test_a_damaged_generation_is_named(tmp_path):
    written(output_of(tmp_path), "0123abcd")
    (tmp_path / "generations/1.json").write_text("{}")
    with pytest.raises(UsageError, match=r"generations/1\.json: format version None"):
        begun(output_of(tmp_path))


def test_a_generation_that_is_nested_too_deeply_is_refused_in_one_line(tmp_path):
    write(tmp_path, "generations/1.json")
    (tmp_path / "generations/1.json").write_text("[" * 100_000)
    with pytest.raises(UsageError, match="--output") as caught:
        begun(output_of(tmp_path))
    assert "\n" not in caught.value.message


def test_a_job_that_finds_an_older_generation_deletes_nothing_of_the_newer_one(
    tmp_path, monkeypatch
):
    written(output_of(tmp_path), "0123abcd")

    def late(path):
        monkeypatch.undo()
        written(replace(output_of(tmp_path), overwrite=True), "ffffffff")
        write(tmp_path, ".staging/00000000/x")
        return None

    monkeypatch.setattr(generations, "content_of", late)
    begun(output_of(tmp_path), repeats=True)
    assert files(tmp_path) == sorted([*of_generation(2, "ffffffff"), ".staging/00000000/x"])


def test_a_card_keeps_a_dataset_from_being_replaced_and_is_no_strange_file(tmp_path):
    written(output_of(tmp_path), "0123abcd")
    write(tmp_path, "README.md")
    assert begun(output_of(tmp_path), repeats=True).written == "j"
    with pytest.raises(UsageError, match=r"README\.md describes the dataset .*; move it away"):
        begun(replace(output_of(tmp_path), overwrite=True))


def test_files_of_an_unfinished_job_stay_until_a_commit_deletes_those_of_other_jobs(tmp_path):
    write(
        tmp_path, f"0123abcd/{SHARD}", f"0123abcd/{NOTE}", f"ffffffff/{NOTE}", ".staging/00000000/y"
    )
    before = files(tmp_path)
    output = begun(output_of(tmp_path))
    prepare(output, "j", "0123abcd")
    assert files(tmp_path) == before
    written(output, "0123abcd")
    assert files(tmp_path) == of_generation(1, "0123abcd")


def test_the_notes_of_a_family_show_that_a_commit_is_not_finished(tmp_path):
    write(tmp_path, f"12345678/clip/{NOTE}")
    assert state_of(str(tmp_path)).noted == {"12345678"}


def test_a_complete_dataset_is_kept_from_other_jobs_and_known_to_its_own(tmp_path):
    written(output_of(tmp_path, seed=1), "0123abcd", job="mine")
    with pytest.raises(UsageError, match="a dataset is here already; add --overwrite"):
        begun(output_of(tmp_path, seed=2), repeats=True)
    with pytest.raises(UsageError, match="a dataset is here already; add --overwrite"):
        begun(output_of(tmp_path, seed=1))
    again = begun(output_of(tmp_path, seed=1), repeats=True)
    with pytest.raises(CompleteError):
        prepare(again, "mine", "0123abcd")
    with pytest.raises(UsageError, match="a dataset is here already; add --overwrite"):
        prepare(again, "with other inputs", "0123abcd")
    assert files(tmp_path) == of_generation(1, "0123abcd")


def test_a_dataset_is_replaced_by_the_next_generation(tmp_path):
    written(output_of(tmp_path), "0123abcd")
    first = (tmp_path / "manifest.json").read_bytes()
    output = written(replace(output_of(tmp_path), overwrite=True), "ffffffff")
    assert (output.generation, output.parent) == (2, hashlib.sha256(first).hexdigest())
    assert files(tmp_path) == of_generation(2, "ffffffff")


def test_a_generation_with_a_tag_is_not_replaced(tmp_path):
    written(output_of(tmp_path), "0123abcd")
    write(tmp_path, "tags/paper", "tags/select-0123abcd")
    with pytest.raises(UsageError, match="delete tags/paper, tags/select-0123abcd, or name"):
        begun(replace(output_of(tmp_path), overwrite=True))


def test_a_generation_that_got_a_tag_while_a_job_ran_is_not_replaced(tmp_path):
    written(output_of(tmp_path), "0123abcd")
    slow = begun(replace(output_of(tmp_path), overwrite=True))
    prepare(slow, "slow", "ffffffff")
    write(tmp_path, "tags/paper", *(f"ffffffff/{name}" for name in (NOTE, SHARD, f"{SHARD}.index")))
    with pytest.raises(
        DataError, match=r"it got a tag while this job ran.* delete tags/paper, and run"
    ):
        commit(slow, manifest_of(slow, "ffffffff"), state_of(str(tmp_path)))
    assert Manifest.read(tmp_path).shards[0].path.startswith("0123abcd/")
    (tmp_path / "tags/paper").unlink()
    commit(slow, manifest_of(slow, "ffffffff"), state_of(str(tmp_path)))
    write(tmp_path, "tags/paper")
    # A runner may call it again.
    commit(slow, manifest_of(slow, "ffffffff"), state_of(str(tmp_path)))
    assert Manifest.read(tmp_path).shards[0].path.startswith("ffffffff/")


def test_of_two_jobs_the_second_to_commit_ends_with_one_line(tmp_path):
    slow = begun(output_of(tmp_path))
    prepare(slow, "slow", "ffffffff")
    written(output_of(tmp_path), "0123abcd")
    with pytest.raises(UsageError, match="was completed here after this job began"):
        prepare(slow, "slow", "ffffffff")
    with pytest.raises(CompleteError):
        prepare(slow, "j", "0123abcd")
    write(tmp_path, *(f"ffffffff/{name}" for name in (NOTE, SHARD, f"{SHARD}.index")))
    with pytest.raises(DataError, match="another job completed a dataset here while") as caught:
        commit(slow, manifest_of(slow, "ffffffff"), state_of(str(tmp_path)))
    assert "\n" not in caught.value.message
    assert Manifest.read(tmp_path).shards[0].path.startswith("0123abcd/")


def test_a_job_whose_number_was_taken_and_replaced_commits_no_more(tmp_path):
    slow = begun(output_of(tmp_path))
    prepare(slow, "slow", "ffffffff")
    written(output_of(tmp_path), "0123abcd")
    written(replace(output_of(tmp_path), overwrite=True), "89abcdef")
    assert files(tmp_path) == of_generation(2, "89abcdef")
    write(tmp_path, *(f"ffffffff/{name}" for name in (NOTE, SHARD, f"{SHARD}.index")))
    with pytest.raises(DataError, match="another job completed a dataset here while"):
        commit(slow, manifest_of(slow, "ffffffff"), state_of(str(tmp_path)))
    assert not (tmp_path / "generations/1.json").exists()


def test_a_commit_may_be_repeated(tmp_path):
    output = written(output_of(tmp_path), "0123abcd")
    commit(output, manifest_of(output, "0123abcd"), state_of(str(tmp_path)))
    assert files(tmp_path) == of_generation(1, "0123abcd")


def test_a_generation_is_not_committed_without_one_of_its_files(tmp_path):
    output = begun(output_of(tmp_path))
    manifest = manifest_of(output, "12345678")
    write(tmp_path, f"12345678/{NOTE}")
    with pytest.raises(DataError, match=f"another command deleted 12345678/{SHARD}; run this"):
        commit(output, manifest, state_of(str(tmp_path)))
    assert not [*tmp_path.glob("generations/*")]


def test_nothing_of_a_run_that_is_at_work_is_deleted(tmp_path):
    other = replace(output_of(tmp_path), run="abad1dea")
    with leased(other, "images", keeps=False):
        write(tmp_path, f"ffffffff/{NOTE}", ".staging/abad1dea/records.1")
        mine = begun(output_of(tmp_path))
        write(tmp_path, *(f"0123abcd/{name}" for name in (NOTE, SHARD, f"{SHARD}.index")))
        commit(mine, manifest_of(mine, "0123abcd"), state_of(str(tmp_path)))
        assert {f"ffffffff/{NOTE}", ".staging/abad1dea/records.1"} < set(files(tmp_path))


def test_files_of_other_programs_beside_the_shards_stay(tmp_path):
    written(output_of(tmp_path), "0123abcd")
    write(tmp_path, "0123abcd/dataset_info.json", f"0123abcd/{SHARD}.idx", "0123abcd/old.tfrecord")
    begun(output_of(tmp_path), repeats=True)
    more = {"0123abcd/dataset_info.json", f"0123abcd/{SHARD}.idx"}
    assert set(files(tmp_path)) == {*of_generation(1, "0123abcd"), *more}


def test_shards_of_somebody_else_in_a_folder_that_is_named_like_one_of_a_job_stay(tmp_path):
    write(tmp_path, f"20240101/{SHARD}")
    written(output_of(tmp_path), "0123abcd")
    written(replace(output_of(tmp_path), overwrite=True), "ffffffff")
    assert files(tmp_path) == sorted([*of_generation(2, "ffffffff"), f"20240101/{SHARD}"])


STEPS = ["write_file", "sync_names", "delete_files", "drop_uploads"]


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("step", range(9))
def test_a_commit_that_is_killed_leaves_one_whole_dataset_and_the_next_job_ends_it(
    tmp_path, monkeypatch, step, overwrite
):
    if overwrite:
        written(output_of(tmp_path), "0123abcd")
    before = Manifest.read(tmp_path) if overwrite else None
    output = begun(replace(output_of(tmp_path), overwrite=overwrite))
    names = [f"ffffffff/{name}" for name in (SHARD, f"{SHARD}.index", NOTE)]
    write(tmp_path, *names, f".staging/{output.run}/records.1")
    manifest = manifest_of(output, "ffffffff")
    left = step
    originals = {name: getattr(generations, name) for name in STEPS}

    def counted(name):
        def call(*arguments, **named):
            nonlocal left
            if not left:
                raise KeyboardInterrupt
            left -= 1
            return originals[name](*arguments, **named)

        return call

    for name in STEPS:
        monkeypatch.setattr(generations, name, counted(name))
    with pytest.raises(KeyboardInterrupt):
        commit(output, manifest, state_of(str(tmp_path)))
    monkeypatch.undo()
    if (tmp_path / f"generations/{output.generation}.json").exists():
        assert Manifest.read(tmp_path) == manifest
        begun(output_of(tmp_path), repeats=True)
    else:
        if before:
            assert Manifest.read(tmp_path) == before
        commit(output, manifest, state_of(str(tmp_path)))
    assert files(tmp_path) == of_generation(output.generation, "ffffffff")
