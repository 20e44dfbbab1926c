import pytest

from beam_jobs.dataset.output import parse_names, parse_num_shards, resolve
from beam_jobs.errors import UsageError
from readers.format.schema import Schema


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
        ("0", "'0': expected 1 to 99999 shards"),
        ("-1", "'-1': expected 1 to 99999 shards"),
        ("100000", "'100000': expected 1 to 99999 shards"),
        ("train=", "'': expected 1 to 99999 shards"),
        ("dev=3", "no split 'dev', the splits are train, val"),
        ("²", "'²': expected 1 to 99999 shards"),
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
