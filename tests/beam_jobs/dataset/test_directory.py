import pytest

from beam_jobs.dataset.directory import (
    DONE,
    MARKER,
    NEXT,
    check_output,
    prepare_output,
    remove_leftovers,
)
from beam_jobs.dataset.output import parse_names, parse_num_shards, resolve
from beam_jobs.errors import UsageError
from beam_jobs.storage.atomic import list_files
from readers.format.schema import Schema
from tests.support.datasets import files_of

LEFT_BY_A_RUN = [
    "manifest.json",
    "vocabulary.txt",
    "train-00000-of-00002.tfrecord",
    "train-00000-of-00002.tfrecord.index",
    "train-00000-of-00002.tfrecord.idx",
    "a_b.c-12345-of-99999.tfrecord",
    "rejects/train-00000-of-00002.jsonl",
    ".staging/train-00000-of-00002.tfrecord.0123456789abcdef",
    f".staging/train-00000-of-00002.tfrecord{DONE}",
    ".staging/train-00001-of-00002.tfrecord.intake",
]
FOREIGN = [
    "notes.txt",
    "train-0-of-2.tfrecord",
    "train-00000-of-00002.tfrecord.gz",
    "sub/train-00000-of-00002.tfrecord",
    "rejects/notes.txt",
    ".staging/deep/x",
    "manifest_json",
    "train-00000-of-00002.tfrecord_idx",
    "manifest.json\n",
]


def write(directory, *names):
    for name in names:
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_text('{"versions": {}}')


def files(directory):
    return sorted(files_of(directory))


def test_a_new_or_empty_directory_is_accepted(tmp_path):
    assert check_output(f"{tmp_path}/out", overwrite=False) == []
    assert check_output(str(tmp_path), overwrite=False) == []


def test_a_new_directory_is_marked_as_unfinished_and_may_be_prepared_again(tmp_path):
    for _ in range(2):
        prepare_output(f"{tmp_path}/a/b", overwrite=False)
        assert files(tmp_path / "a/b") == [MARKER]


def test_an_existing_dataset_is_refused(tmp_path):
    write(tmp_path, *LEFT_BY_A_RUN)
    for refuse in (check_output, prepare_output):
        with pytest.raises(UsageError, match="a dataset is here already; add --overwrite"):
            refuse(str(tmp_path), overwrite=False)
    assert files(tmp_path) == sorted(LEFT_BY_A_RUN)


def test_a_complete_dataset_is_never_deleted_but_in_the_place_of_the_next_one(tmp_path):
    write(tmp_path, *LEFT_BY_A_RUN)
    assert len(check_output(str(tmp_path), overwrite=True)) == len(LEFT_BY_A_RUN)
    with pytest.raises(UsageError, match="a dataset was completed here since"):
        prepare_output(str(tmp_path), overwrite=True)
    assert files(tmp_path) == sorted(LEFT_BY_A_RUN)
    write(tmp_path / NEXT, *LEFT_BY_A_RUN)
    prepare_output(str(tmp_path / NEXT), overwrite=True)
    assert files(tmp_path) == sorted([*LEFT_BY_A_RUN, f"{NEXT}/{MARKER}"])


@pytest.mark.parametrize("overwrite", [False, True])
def test_shards_and_notes_of_an_unfinished_run_are_kept_but_no_half_files(tmp_path, overwrite):
    prepare_output(str(tmp_path), overwrite)
    marker = (tmp_path / MARKER).read_bytes()
    write(tmp_path, *LEFT_BY_A_RUN[1:])
    prepare_output(str(tmp_path), overwrite)
    kept = [n for n in LEFT_BY_A_RUN[1:] if not n.startswith(".staging/") or n.endswith(DONE)]
    assert files(tmp_path) == sorted([MARKER, *kept])
    assert (tmp_path / MARKER).read_bytes() == marker


def test_without_the_mark_of_a_run_everything_is_deleted_despite_a_staging_folder(tmp_path):
    write(tmp_path, *LEFT_BY_A_RUN[1:])
    prepare_output(str(tmp_path), overwrite=False)
    assert files(tmp_path) == [MARKER]


def test_no_shards_of_a_complete_dataset_are_kept(tmp_path):
    write(tmp_path / NEXT, *LEFT_BY_A_RUN, MARKER)
    prepare_output(str(tmp_path / NEXT), overwrite=True)
    assert files(tmp_path / NEXT) == [MARKER]


def test_leftovers_are_deleted_except_the_staging_folder(tmp_path):
    names = {"train-00000-of-00002.tfrecord", "train-00000-of-00002.tfrecord.index"}
    write(tmp_path, *LEFT_BY_A_RUN[1:], MARKER)
    remove_leftovers(str(tmp_path), names, list_files(str(tmp_path)))
    staged = [name for name in LEFT_BY_A_RUN if name.startswith(".staging/")]
    assert files(tmp_path) == sorted([*names, *staged, MARKER])
    remove_leftovers(str(tmp_path), names, list_files(str(tmp_path)))
    remove_leftovers(f"{tmp_path}/new", names, [])


def test_shards_without_a_manifest_or_the_marks_of_a_run_are_not_deleted(tmp_path):
    write(tmp_path, "train-00000-of-00001.tfrecord")
    with pytest.raises(UsageError, match="neither a manifest nor the marks of an unfinished run"):
        prepare_output(str(tmp_path), overwrite=False)
    assert files(tmp_path) == ["train-00000-of-00001.tfrecord"]


@pytest.mark.parametrize("name", FOREIGN)
def test_a_foreign_file_is_named_and_nothing_is_deleted(tmp_path, name):
    write(tmp_path, *LEFT_BY_A_RUN, name)
    before = files(tmp_path)
    for refuse in (check_output, prepare_output):
        with pytest.raises(UsageError, match="not part of a dataset; move it away, or") as caught:
            refuse(str(tmp_path), overwrite=True)
        assert repr(name) in caught.value.message
    assert files(tmp_path) == before


def test_a_file_in_place_of_the_directory_or_above_it_is_refused(tmp_path):
    write(tmp_path, "out")
    with pytest.raises(UsageError, match="this is a file; name a directory"):
        check_output(f"{tmp_path}/out", overwrite=False)
    with pytest.raises(UsageError, match="cannot be written"):
        prepare_output(f"{tmp_path}/out/deeper", overwrite=False)


def test_an_unknown_filesystem_is_refused():
    with pytest.raises(UsageError, match="--output nosuch://x"):
        check_output("nosuch://x", overwrite=False)


def test_the_directory_is_made_absolute(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/home/me")
    assert resolve("out/") == f"{tmp_path}/out"
    assert resolve("~/out") == "/home/me/out"
    assert resolve("gs://b/out//") == "gs://b/out"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("16", (16, 16, 16)),
        ("train=16", (16, 0, 0)),
        ("val=2, train=16", (16, 2, 0)),
        ("4,train=16", (16, 4, 4)),
    ],
)
def test_the_number_of_shards_may_differ_by_split(text, expected):
    assert parse_num_shards(text, ("train", "val", "test")) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0", "'0' is not a number in 1..99999"),
        ("-1", "'-1' is not a number"),
        ("100000", "'100000' is not a number"),
        ("train=", "'' is not a number"),
        ("dev=3", "no split 'dev', --splits has train, val"),
        ("²", "'²' is not a number"),
    ],
)
def test_a_wrong_number_of_shards_is_refused_with_the_remedy(text, message):
    with pytest.raises(UsageError) as caught:
        parse_num_shards(text, ("train", "val"))
    assert caught.value.message.startswith(f"--num_shards {text}: ")
    assert message in caught.value.message


NAMED = Schema({"image": ("uint8", (None, None, 3)), "key": ("string",), "label": ("int64",)})


def test_names_rename_features():
    assert parse_names("image=image_raw, label=labels", NAMED) == {
        "image": "image_raw",
        "label": "labels",
    }
    assert parse_names("image=label,label=image", NAMED) == {"image": "label", "label": "image"}
    assert parse_names("image=image/encoded", NAMED) == {"image": "image/encoded"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("picture=x", "expected FEATURE=NAME,… with features of image, key, label, each once"),
        ("image", "got 'image'"),
        ("image=a,image=b", "got 'image=b'"),
        ("image=a,", "got ''"),
        ("image=label", "two features would be called 'label'"),
        ("image=", "feature name ''"),
        ("label=image/shape", "is taken by the shapes of 'image'"),
    ],
)
def test_wrong_names_are_refused_with_the_remedy(text, message):
    with pytest.raises(UsageError) as caught:
        parse_names(text, NAMED)
    assert caught.value.message.startswith(f"--names {text}: ")
    assert message in caught.value.message
    assert "\n" not in caught.value.message


@pytest.mark.parametrize("name", ["rejects", ".staging", ".staging/next"])
def test_a_link_in_the_place_of_a_folder_is_refused_and_nothing_behind_it_is_changed(
    tmp_path, name
):
    out, elsewhere = tmp_path / "out", tmp_path / "elsewhere"
    write(elsewhere, "train-00000-of-00001.jsonl")
    write(out, "manifest.json")
    (out / name).parent.mkdir(exist_ok=True)
    (out / name).symlink_to(elsewhere)
    before = files(elsewhere)
    for refuse in (check_output, prepare_output):
        with pytest.raises(UsageError, match=f"'{name}' is a link to {elsewhere}"):
            refuse(str(out), overwrite=True)
    assert files(elsewhere) == before
