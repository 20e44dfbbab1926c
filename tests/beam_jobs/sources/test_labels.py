import dataclasses
import gzip
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from beam_jobs.errors import RejectError, UsageError
from beam_jobs.sources.inputs import Inputs
from beam_jobs.sources.labels import (
    ClassIds,
    Labels,
    field_label,
    holds_lists,
    label_names,
    label_text,
)
from beam_jobs.sources.source import Source
from tests.support.archives import tarred, zipped

INTEGERS = st.integers(-(2**63), 2**63 - 1).map(str)
WORDS = st.text(min_size=1).filter(lambda text: not text.strip().lstrip("-+").isdigit())


def table(tmp_path, text: str) -> Labels:
    (tmp_path / "labels.csv").write_bytes(text.encode())
    return Labels.parse(f"csv:{tmp_path}/labels.csv")


@pytest.mark.parametrize(
    ("value", "label"),
    [(1, "b"), (1.0, "b"), ("b", "b"), ([0, "b"], ("a", "b")), ('[0, "b"]', ("a", "b"))],
)
def test_numbers_and_names_of_stated_classes_are_labels(value, label):
    several = holds_lists("y", value)
    assert field_label({"y": value}, "y", several, ("a", "b")) == label


@pytest.mark.parametrize("value", [2, -1, 0.5, "1", "x", True])
def test_a_label_that_is_none_of_the_stated_classes_is_rejected(value):
    with pytest.raises(RejectError, match=rf"^column 'y': label {value!r}: "):
        field_label({"y": value}, "y", False, ("a", "b"))


@given(st.lists(INTEGERS))
def test_integers_are_kept(labels):
    names = label_names(labels)
    assert names == ()
    ids = ClassIds({"label": names})
    assert [ids.of(label) for label in labels] == [int(label) for label in labels]


@given(st.lists(INTEGERS), st.lists(WORDS, min_size=1))
def test_if_one_label_is_a_word_all_are_numbered_by_name(integers, words):
    labels = integers + words
    names = label_names(iter(labels))
    assert names == tuple(sorted(set(labels)))
    ids = ClassIds({"label": names})
    assert [names[ids.of(label)] for label in labels] == labels


@pytest.mark.parametrize(
    "odd", ["007", "+1", "1.5", "1.", ".0", " 1", "-0", "", "1e3", "٣", str(2**63), "9" * 30]
)
def test_labels_that_are_not_written_as_an_int64_are_names(odd):
    assert label_names([odd, "1"]) == tuple(sorted([odd, "1"]))


def test_whole_numbers_written_as_floats_are_numbers():
    labels = ["1.0", "0.0", "-1", "12.0", "1"]
    assert label_names(labels) == ()
    assert [ClassIds({}).of(label) for label in labels] == [1, 0, -1, 12, 1]


@pytest.mark.parametrize("text", ["[0, 1]", "['0', '1']", '["0", "1"]', '["0", 1.0]'])
def test_a_list_that_a_table_holds_as_text_is_several_labels(text):
    assert field_label({"y": text}, "y", holds_lists("y", text)) == ("0", "1")
    with pytest.raises(RejectError, match="expected one label, as in the first record"):
        field_label({"y": text}, "y", several=False)


@pytest.mark.parametrize("text", ["[unk]", "[0 1]", "[", "[1", "{}"])
def test_other_text_in_brackets_is_a_label(text):
    assert not holds_lists("y", text)
    assert field_label({"y": text}, "y", several=False) == text


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        *[("cat", "cat"), (3, "3"), (-1, "-1"), ("3", "3"), (" a ", " a "), ("True", "True")],
        *[(True, "true"), (False, "false"), (3.0, "3"), (-1.0, "-1"), (-0.0, "0")],
        *[("3.0", "3"), ("-1.0", "-1"), ("2.5", "2.5"), ("1.00", "1.00"), ("x.0", "x.0")],
    ],
)
def test_labels_of_fields_are_text_booleans_or_whole_numbers(value, expected):
    assert label_text(value) == expected


@pytest.mark.parametrize("value", [1.5, 1e30, None, "", [], {}, float("nan"), float("inf")])
def test_other_values_are_rejected_as_labels(value):
    with pytest.raises(RejectError, match="expected text or a whole number") as caught:
        label_text(value)
    assert repr(value) in str(caught.value)


@pytest.mark.parametrize(
    ("key", "label"), [("cat/1.jpg", "cat"), ("a/b/10/x.npy", "10"), ("é ü/x", "é ü")]
)
def test_the_parent_is_the_name_of_the_folder(key, label):
    assert Labels.parse("parent").of(Source(key)) == label
    assert Labels.parse("none").of(Source(key)) is None


def test_the_parent_of_a_member_with_a_key_of_its_own_is_its_folder_or_its_archive():
    parent = Labels.parse("parent").of
    assert parent(Source("cat/1.jpg", archive="x.zip")) == "cat"
    assert parent(Source("1.jpg", archive="deep/dog.tar.gz")) == "dog"


def test_a_file_in_no_folder_has_no_parent():
    with pytest.raises(RejectError, match=r"^it is in no folder, .* --input 'FOLDER/\*/\*'"):
        Labels.parse("parent").of(Source("1.jpg"))


@pytest.mark.parametrize(
    "text", ["", "csv", "csv:", "column", "column:", "Parent", "tsv:x.tsv", "folder"]
)
def test_an_unknown_source_of_labels_is_refused(text):
    with pytest.raises(UsageError, match="expected parent, none, csv:FILE or column:NAME"):
        Labels.parse(text)


def test_a_missing_table_is_reported_at_once(tmp_path):
    with pytest.raises(UsageError, match="cannot be read") as caught:
        Labels.parse(f"csv:{tmp_path}/no.csv")
    assert f"{tmp_path}/no.csv" in caught.value.message


def test_a_table_labels_by_key_before_file_name(tmp_path):
    labels = table(tmp_path, "path,label\na/1.jpg,first\n1.jpg,any\n")
    assert labels.of(Source("a/1.jpg")) == "first"
    assert labels.of(Source("b/1.jpg")) == "any"
    assert labels.of(Source("1.jpg")) == "any"


@pytest.mark.parametrize("path", ["path", " File "])
@pytest.mark.parametrize("label", ["class", "LABEL"])
def test_a_table_may_name_its_columns_in_several_ways_and_any_order(tmp_path, path, label):
    labels = table(tmp_path, f"\ufeffid,{label},{path}\r\n7,cat,1.jpg\r\n\r\n8,dog,2.jpg")
    assert labels.of(Source("1.jpg")) == "cat"
    assert labels.of(Source("2.jpg")) == "dog"


@pytest.mark.parametrize(
    "path",
    [
        "a/M\u00fc.jpg",
        " a\\Mu\u0308.jpg ",
        "./a/M\u00fc.jpg",
        "/data/in/a/M\u00fc.jpg",
        "Mu\u0308.jpg",
    ],
)
@pytest.mark.parametrize("name", ["M\u00fc.jpg", "Mu\u0308.jpg"])
def test_a_table_finds_a_file_however_its_path_is_written(tmp_path, path, name):
    labels = dataclasses.replace(table(tmp_path, f"path,label\n{path},cat\n"), root="/data/in")
    assert labels.of(Source(f"a/{name}")) == "cat"


def test_a_file_that_the_table_does_not_name_is_rejected(tmp_path):
    labels = table(tmp_path, "path,label\n1.jpg,cat\n")
    with pytest.raises(RejectError, match=r"^--label csv:labels.csv has no line for it"):
        labels.of(Source("x/2.jpg"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "it has none"),
        ("1.jpg,cat\n", "it has 1.jpg, cat"),
        ("x" * 200_000, ""),
        ("path,sort\n1.jpg,cat\n", "a column label/class"),
        ("path,label\n1.jpg,cat\n2.jpg\n", "line 3 has too few columns"),
        ("path,label\na,cat\nb,cat\na,dog\n", "line 4 labels 'a' 'dog', an earlier line labels it"),
    ],
)
def test_an_unusable_table_is_refused(tmp_path, text, message):
    with pytest.raises(UsageError) as caught:
        table(tmp_path, text)
    assert f"--label csv:{tmp_path}/labels.csv: " in caught.value.message
    assert message in caught.value.message


def test_labels_are_sent_to_workers_without_their_table(tmp_path):
    labels = table(tmp_path, "path,label\n" + "".join(f"{i}.jpg,cat\n" for i in range(10_000)))
    assert labels.of(Source("7.jpg")) == "cat"
    sent = pickle.dumps(labels)
    assert len(sent) < 500
    received = pickle.loads(sent)
    assert received == labels
    assert received.of(Source("9999.jpg")) == "cat"


def test_a_relative_table_is_found_from_another_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.csv").write_text("path,label\na,b\n")
    labels = Labels.parse("csv:t.csv")
    monkeypatch.chdir("/")
    assert pickle.loads(pickle.dumps(labels)).of(Source("a")) == "b"


def shared_names(tmp_path, text, *files):
    """The error of names in a table that several files have; empty if there is none."""
    for file in files:
        path = tmp_path / "in" / file
        path.parent.mkdir(parents=True, exist_ok=True)
        members = [("cats/1.jpg", b""), ("dogs/2.jpg", b"")]
        path.write_bytes(gzip.compress(tarred(members)) if file.endswith(".tar.gz") else b"")
        if file.endswith(".zip"):
            path.write_bytes(zipped(members))
    try:
        table(tmp_path, text).check_names(Inputs.of([f"{tmp_path}/in"]))
    except UsageError as error:
        return error.message.removeprefix(f"--label csv:{tmp_path}/labels.csv: ")
    return ""


def test_a_table_may_name_members_by_their_paths_in_an_archive(tmp_path):
    (tmp_path / "x.zip").write_bytes(zipped([("cats/1.jpg", b"")]))
    inputs = Inputs.of([f"{tmp_path}/x.zip"])
    (source,) = inputs.sources(inputs.patterns[0])
    for name in ("cats/1.jpg", "x.zip/cats/1.jpg", "1.jpg"):
        assert table(tmp_path, f"path,label\n{name},cat\n").of(source) == "cat"


HINT = "a name fits both {} and {}: add the folders there, too, such as {}"


@pytest.mark.parametrize(
    ("text", "files", "error"),
    [
        ("1.jpg,cat", ["cats/1.jpg", "dogs/1.jpg"], ("cats/1.jpg", "dogs/1.jpg", "dogs/1.jpg")),
        ("1.jpg,cat", ["1.jpg", "dogs/1.jpg"], ("1.jpg", "dogs/1.jpg", "dogs/1.jpg")),
        ("1.jpg,cat", ["cats/1.jpg", "dogs/2.jpg", "cats/3.jpg", "dogs/3.jpg"], None),
        ("1.jpg,cat\ndogs/1.jpg,dog", ["cats/1.jpg", "dogs/1.jpg"], None),
        ("cats/1.jpg,cat\ndogs/1.jpg,dog", ["cats/1.jpg", "dogs/1.jpg"], None),
        ("1.jpg,cat", ["a.zip", "b/1.jpg"], ("a.zip/cats/1.jpg", "b/1.jpg", "b/1.jpg")),
        ("1.jpg,cat", ["a.zip", "b/2.jpg"], None),
        (
            "cats/1.jpg,cat",
            ["a.zip", "b.zip"],
            ("a.zip/cats/1.jpg", "b.zip/cats/1.jpg", "b.zip/cats/1.jpg"),
        ),
        ("1.jpg,cat", ["a.tar.gz"], None),
        ("1.jpg,cat", ["a.tar.gz", "b.tar.gz"], ("a.tar.gz", "b.tar.gz", "b.tar.gz/NAME")),
        ("1.jpg,cat", ["b/1.jpg", "c.tar.gz"], ("b/1.jpg", "c.tar.gz", "c.tar.gz/NAME")),
    ],
)
def test_a_name_without_a_folder_that_two_inputs_share_is_refused(tmp_path, text, files, error):
    first = shared_names(tmp_path, f"path,label\n{text}\n", *files)
    assert first == (HINT.format(*error) if error else "")


def test_a_name_alone_means_no_member_in_a_folder_of_a_packed_archive(tmp_path):
    labels = table(tmp_path, "path,label\n1.jpg,cat\na.tar.gz/dogs/1.jpg,dog\n")
    assert labels.of(Source("a.tar.gz/1.jpg", archive="a.tar.gz")) == "cat"
    assert labels.of(Source("a.tar.gz/dogs/1.jpg", archive="a.tar.gz")) == "dog"
    with pytest.raises(RejectError, match=r"has no line for it"):
        labels.of(Source("a.tar.gz/cats/1.jpg", archive="a.tar.gz"))


@pytest.mark.parametrize(
    ("pattern", "one"),
    [
        ("*.jpg", True),
        ("1.jpg", True),
        ("*", False),
        ("*.zip", False),
        ("*.gz", False),
        ("a?b.jpg", False),
        ("", False),
    ],
)
def test_inputs_in_one_folder_are_not_listed_for_their_names(tmp_path, pattern, one):
    (tmp_path / "1.jpg").touch()
    assert (
        Inputs(
            (f"{tmp_path}/{pattern}" if pattern else f"{tmp_path}/**",), str(tmp_path)
        ).in_one_folder
        == one
    )
    assert not Inputs((f"{tmp_path}/a/*.jpg", f"{tmp_path}/b/*.jpg"), str(tmp_path)).in_one_folder
