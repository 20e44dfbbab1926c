import os
import re
import resource
import subprocess
import tempfile
import warnings
from pathlib import Path
from unittest import mock

import pytest
from apache_beam.io.localfilesystem import LocalFileSystem
from apache_beam.options.pipeline_options import PipelineOptions
from hypothesis import example, given, settings
from hypothesis import strategies as st

from beam_jobs.errors import UsageError
from beam_jobs.sources.inputs import Inputs
from beam_jobs.sources.source import Source
from beam_jobs.storage import files, listing, paths
from beam_jobs.storage.files import read_bytes
from beam_jobs.storage.listing import ALL, match, spans_of_pattern
from beam_jobs.storage.paths import absolute, common_root, is_local
from readers.files.files import FileInfo

names = st.text("abcXYZ019_ .-é", min_size=1, max_size=5).filter(lambda s: s not in (".", ".."))
folders = st.lists(names, max_size=3)
leaves = st.sampled_from(["*.jpg", "*", "**", "[ab]/*.npy", "x.csv", "run?/a.npy", "*/*.txt"])
patterns = st.lists(st.tuples(folders, leaves), min_size=1, max_size=4)


def placed(prefix: str, below: list[tuple[list[str], str]]) -> list[str]:
    return ["/".join([prefix, *parts, leaf]) for parts, leaf in below]


def write(root: Path, *keys: str) -> None:
    for key in keys:
        (root / key).parent.mkdir(parents=True, exist_ok=True)
        (root / key).write_bytes(key.encode())


def keys_of(inputs: Inputs) -> list[str]:
    return [file.key for pattern in inputs.patterns for file in inputs.files(pattern)]


@given(patterns)
@settings(max_examples=40, deadline=None)
def test_the_root_is_the_deepest_folder_above_the_fixed_part_of_every_pattern(below):
    given_patterns = placed("/data", below)
    fixed = [
        pattern.replace("?", "*").replace("[", "*").split("*")[0] for pattern in given_patterns
    ]
    folders_above = [text[: text.rindex("/")] for text in fixed]
    assert common_root(given_patterns) == os.path.commonpath(folders_above)


def test_files_at_the_root_of_the_filesystem_have_keys():
    assert Inputs(("/*.txt",), common_root(["/*.txt"])).path("a.txt") == "/a.txt"


@pytest.mark.parametrize(
    "mixed",
    [
        ["gs://a/x/*", "gs://b/x/*"],
        ["gs://a/x/*", "s3://a/x/*"],
        ["gs://a/x/*", "/a/x/*"],
        ["/a/x/*", "gs://a/x/*"],
    ],
)
def test_inputs_on_different_filesystems_are_refused(mixed):
    with pytest.raises(UsageError, match="no common directory") as caught:
        common_root(mixed)
    assert all(pattern in caught.value.message for pattern in mixed)


def test_paths_with_a_scheme_are_not_local():
    assert not any(map(is_local, ("gs://b/x", "s3+x://b")))
    assert all(map(is_local, ("/a://b", "a/b", "C:/x")))


def test_a_folder_whose_name_is_not_utf8_is_refused(tmp_path, monkeypatch):
    folder = tmp_path / "caf\udce9"
    folder.mkdir()
    monkeypatch.chdir(folder)
    for pattern in (".", "*.txt", "a/b.csv"):
        with pytest.raises(UsageError, match=r"caf\\udce9.*', whose name is not UTF-8: rename the"):
            absolute(pattern)


def test_a_relative_pattern_becomes_absolute(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert absolute("photos/*/*.jpg") == f"{tmp_path}/photos/*/*.jpg"
    assert absolute("a.txt") == f"{tmp_path}/a.txt"


def test_a_home_directory_is_expanded(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert absolute("~/x/*.npy") == f"{tmp_path}/x/*.npy"


@pytest.mark.parametrize("slash", ["", "/", "//"])
def test_a_folder_means_all_files_under_it(tmp_path, slash):
    write(tmp_path, "in/a.txt", "in/deep/er/b.txt", "out.txt")
    inputs = Inputs.of([f"{tmp_path}/in{slash}"])
    assert inputs.patterns == (f"{tmp_path}/in/**",)
    assert sorted(keys_of(inputs)) == ["a.txt", "deep/er/b.txt"]


def test_all_files_match_with_their_sizes_and_a_few_of_them_are_the_first_by_name(tmp_path):
    write(tmp_path, "b.txt", "a/z.txt", "a.txt", "é.txt", "B.txt")
    found = list(match(f"{tmp_path}/**"))
    first = [file.path[len(str(tmp_path)) + 1 :] for file in match(f"{tmp_path}/**", limit=3)]
    assert first == ["B.txt", "a/z.txt", "a.txt"]
    assert {(file.path[len(str(tmp_path)) + 1 :], file.size) for file in found} == {
        (key, len(key.encode())) for key in ("b.txt", "a/z.txt", "a.txt", "é.txt", "B.txt")
    }


def test_a_file_is_known_by_path_size_and_time_to_the_nanosecond(tmp_path):
    write(tmp_path, "in/a.txt")
    os.utime(tmp_path / "in/a.txt", ns=(1, 1_700_000_000_123_456_789))
    (found,) = match(f"{tmp_path}/**")
    assert found == FileInfo(f"{tmp_path}/in/a.txt", 8, 1_700_000_000_123_456_789)
    inputs = Inputs.of([f"{tmp_path}/*/*"])
    assert list(inputs.files(inputs.patterns[0])) == [Source("in/a.txt", *found[1:])]


def test_an_unknown_filesystem_is_a_usage_error():
    with pytest.raises(UsageError, match="nosuch://x: this scheme is unknown"):
        list(match("nosuch://x/*"))


def test_keys_are_relative_to_the_common_root(tmp_path):
    found = []
    for place in ("one", "two/three/four"):
        write(tmp_path / place, "p/cat/1.jpg", "p/dog/2.jpg", "q/cat/3.jpg")
        inputs = Inputs.of([f"{tmp_path}/{place}/{folder}/*/*.jpg" for folder in "pq"])
        found.append(sorted(keys_of(inputs)))
        assert [read_bytes(inputs.path(key)) for key in found[-1]] == [
            key.encode() for key in found[-1]
        ]
    assert found == [["p/cat/1.jpg", "p/dog/2.jpg", "q/cat/3.jpg"]] * 2


def test_a_pattern_that_matches_nothing_is_named_as_it_was_given(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(tmp_path, "a.txt")
    with pytest.raises(UsageError, match=r"--input \*\.jpg: no file matches") as caught:
        Inputs.of(["*.txt", "*.jpg"])
    assert caught.value.exit_code == 2


def test_files_are_not_decompressed_whatever_their_name(tmp_path):
    (tmp_path / "a.gz").write_bytes(b"not gzip")
    assert read_bytes(f"{tmp_path}/a.gz") == b"not gzip"


@pytest.mark.parametrize(("before", "after"), [(0, 10), (10, 0), (5000, 4999), (5000, 3 << 20)])
def test_a_file_that_changes_its_size_meanwhile_is_read_to_its_end(
    tmp_path, monkeypatch, before, after
):
    (tmp_path / "a").write_bytes(bytes(before))
    data = os.urandom(after)
    fstat = os.fstat

    def look(descriptor):
        found = fstat(descriptor)
        (tmp_path / "a").write_bytes(data)
        return found

    monkeypatch.setattr(os, "fstat", look)
    assert read_bytes(f"{tmp_path}/a") == data


@pytest.mark.parametrize("name", ["none", "folder", "a/b"])
def test_an_unreadable_file_is_an_os_error_and_leaves_nothing_open(tmp_path, name):
    (tmp_path / "folder").mkdir()
    (tmp_path / "a").write_bytes(b"")
    before = len(os.listdir("/proc/self/fd")) if Path("/proc/self/fd").exists() else 0
    for _ in range(5):
        with pytest.raises(OSError):
            read_bytes(f"{tmp_path}/{name}")
    if before:
        assert len(os.listdir("/proc/self/fd")) == before


def test_links_to_nothing_and_to_themselves_are_files_that_cannot_be_read(tmp_path):
    write(tmp_path, "a.jpg")
    (tmp_path / "gone.jpg").symlink_to("nothing")
    (tmp_path / "self.jpg").symlink_to("self.jpg")
    found = {Path(file.path).name: file[1:] for file in match(f"{tmp_path}/*.jpg")}
    assert found.pop("a.jpg")[0] == 5
    assert found == {"gone.jpg": (0, 0), "self.jpg": (0, 0)}


def test_folders_that_link_to_each_other_are_an_error_and_not_listed_without_end(tmp_path):
    for name in range(14):
        write(tmp_path, f"{name}/a.jpg")
        for other in {*range(14)} - {name}:
            (tmp_path / f"{name}" / f"to{other}").symlink_to(f"../{other}")
    with pytest.raises(UsageError, match="9 links to folders, expected 8 at most"):
        list(match(f"{tmp_path}/**"))


def test_a_circle_of_links_is_followed_once_round(tmp_path):
    write(tmp_path, "a/1.jpg", "b/2.jpg")
    (tmp_path / "a" / "to b").symlink_to("../b")
    (tmp_path / "b" / "to a").symlink_to("../a")
    found = {file.path.removeprefix(f"{tmp_path}/") for file in match(f"{tmp_path}/**")}
    assert found == {"a/1.jpg", "a/to b/2.jpg", "b/2.jpg", "b/to a/1.jpg"}


def test_folders_more_than_a_thousand_levels_deep_are_listed(tmp_path):
    folder = str(tmp_path)
    for _ in range(1200):
        folder += "/d"
        os.mkdir(folder)
    write(Path(folder), "a.jpg")
    most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (512, most[1]))
    try:
        found = [file.size for file in match(f"{tmp_path}/**")]
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, most)
    subprocess.run(["rm", "-r", f"{tmp_path}/d"], check=True)  # shutil.rmtree is recursive.
    assert found == [5]


def test_a_pattern_that_is_too_long_for_a_path_is_kept(tmp_path):
    pattern = f"{tmp_path}/{'a' * 5000}"
    assert absolute(pattern) == pattern


def test_a_folder_that_may_not_be_read_ends_the_listing(tmp_path, monkeypatch):
    write(tmp_path, "a/1.jpg", "b/2.jpg")
    scandir = os.scandir

    def refused(folder):
        if str(folder).endswith("/b"):
            raise PermissionError(13, "Permission denied", folder)
        return scandir(folder)

    monkeypatch.setattr(os, "scandir", refused)
    for pattern in (f"{tmp_path}/*/*.jpg", f"{tmp_path}/**"):
        with pytest.raises(UsageError, match="Permission denied"):
            list(match(pattern))


@pytest.mark.parametrize("opened", [read_bytes, files.open_file, files.open_seekable])
def test_pipes_devices_and_folders_are_not_read(tmp_path, opened):
    os.mkfifo(tmp_path / "pipe")  # Opening it would hang.
    (tmp_path / "device").symlink_to("/dev/zero")
    (tmp_path / "folder").mkdir()
    for name in ("pipe", "device", "folder"):
        with pytest.raises(OSError, match=r"expected a regular file|Is a directory"):
            opened(str(tmp_path / name))


# Characters before and after the slash, in names that begin alike.
_near = st.lists(
    st.sampled_from(["a", "a-b", "a.b", "a0", "a b", "b", "é"]), min_size=1, max_size=4
)
_trees = st.sets(_near.map("/".join), max_size=30)


@given(_trees, st.sampled_from([1, 2, 64]), st.sampled_from([1, 3, 1024]), st.sampled_from([1, 2]))
@settings(max_examples=60, deadline=None)
def test_spans_of_a_disk_hold_every_file_once(tree, enough, most, processes):
    with (
        mock.patch.object(listing, "_MOST_LISTED_HERE", enough),
        tempfile.TemporaryDirectory() as folder,
        mock.patch.object(listing, "_ENOUGH_FOLDERS", enough),
        mock.patch.object(listing, "_SPANS", most),
    ):
        write(Path(folder), *(f"{name}.x" for name in tree), "link to/c.x")
        (Path(folder) / "link").symlink_to(Path(folder) / "link to")
        (Path(folder) / "empty").mkdir()
        for pattern in (f"{folder}/**", f"{folder}/*/*.x", f"{folder}/a*"):
            spans = spans_of_pattern(pattern, lambda path: "b.x" in path, processes)
            found = [file for span in spans for file in match(pattern, span=span)]
            assert sorted(found) == sorted(match(pattern))
            assert len(spans) <= most + 1


def test_a_disk_is_cut_at_folders_and_archives(tmp_path):
    names = [f"{letter}/{n}.tar" for letter in "ab" for n in range(3)]
    write(tmp_path, *names, "top.jpg", "b/more/x.jpg", "c/x.jpg")
    os.mkdir(os.fsencode(tmp_path) + b"/c/\xff")
    spans = spans_of_pattern(f"{tmp_path}/**", lambda path: path.endswith(".tar"))
    cuts = ["a/", *names[:3], "b/", *names[3:], "b/more/", "c/"]
    assert [span.until for span in spans] == [*(f"{tmp_path}/{cut}" for cut in cuts), None]


def test_a_disk_is_not_cut_at_folders_beside_many_files(tmp_path, monkeypatch):
    monkeypatch.setattr(listing, "_MOST_LISTED_AGAIN", 5)
    write(tmp_path, "a/b/1", *(f"{n}.jpg" for n in range(3)))
    cuts = [span.until for span in spans_of_pattern(f"{tmp_path}/**", lambda _: False)]
    assert cuts == [f"{tmp_path}/a/", f"{tmp_path}/a/b/", None]
    write(tmp_path, "3.jpg", "a/b/2")
    cuts = [span.until for span in spans_of_pattern(f"{tmp_path}/**", lambda _: False)]
    assert cuts == [f"{tmp_path}/a/", None]
    write(tmp_path, "4.jpg", "5.jpg")
    assert spans_of_pattern(f"{tmp_path}/**", lambda _: False) == [ALL]


def test_a_folder_of_many_files_is_cut_among_its_names(tmp_path, monkeypatch):
    monkeypatch.setattr(listing, "_MOST_LISTED_HERE", 5)
    write(tmp_path, *(f"{n:02d}.jpg" for n in range(80)))
    spans = spans_of_pattern(f"{tmp_path}/*", lambda _: False, 2)
    assert [len(list(match(f"{tmp_path}/*", span=span))) for span in spans] == [11, *[10] * 6, 9]


def test_folders_of_many_files_are_cut_into_as_many_parts_as_processes_need(tmp_path, monkeypatch):
    monkeypatch.setattr(listing, "_MOST_LISTED_HERE", 5)
    write(tmp_path, *(f"{letter}/{n:02d}.jpg" for letter in "ab" for n in range(8)))
    write(tmp_path, *(f"many/{n:02d}.jpg" for n in range(64)))
    spans = spans_of_pattern(f"{tmp_path}/**", lambda _: False, 2)
    sizes = [len(list(match(f"{tmp_path}/**", span=span))) for span in spans]
    assert sum(sizes) == 80 and max(sizes) <= 11 and len(spans) <= 8 + 3


def test_an_empty_folder_beside_one_of_many_files_is_no_error(tmp_path, monkeypatch):
    monkeypatch.setattr(listing, "_MOST_LISTED_HERE", 5)
    (tmp_path / "empty").mkdir()
    write(tmp_path, *(f"full/{n:02d}.jpg" for n in range(80)))
    pattern = f"{tmp_path}/*/*.jpg"
    spans = spans_of_pattern(pattern, lambda _: False, 2)
    assert len(spans) > 8
    found = [file for span in spans for file in match(pattern, span=span)]
    assert sorted(found) == sorted(match(pattern))


def test_a_file_is_found_without_a_look_into_the_folders_beside_it(tmp_path, monkeypatch):
    write(tmp_path, "a.csv", "many/b.csv", "x1/deep/c.csv", "x1/deep/d/e.csv", "y/deep/c.csv")
    listed, scandir = [], os.scandir
    monkeypatch.setattr(os, "scandir", lambda path: (listed.append(path), scandir(path))[1])
    for pattern, below in [
        ("a.csv", [""]),
        ("*.csv", [""]),
        ("x*/deep/*.csv", ["", "/x1", "/x1/deep"]),
        ("many/**", ["/many"]),
    ]:
        listed.clear()
        assert list(match(f"{tmp_path}/{pattern}"))
        assert sorted(listed) == [f"{tmp_path}{name}" for name in below], pattern


_parts = st.sampled_from(
    ["a", "a*", "*", "*b*", "**", "a**", "?", "a?b", "[ab]", "[!a]", "[[]*", "a-b"]
)


@given(_trees, st.lists(_parts, min_size=1, max_size=4).map("/".join))
@settings(max_examples=40, deadline=None)
def test_no_match_is_lost_in_a_folder_that_is_not_looked_into(tree, pattern):
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder), *(f"{name}.x" for name in tree), "[a/b/c")
        found = sorted(match(f"{folder}/{pattern}"))
        with mock.patch.object(listing, "leading", lambda _: lambda _: True):
            assert found == sorted(match(f"{folder}/{pattern}"))


@example("[b-a]", "a")
@example("[?-/]", "")
@given(st.text("ab/*?[]!^-\\.\n", max_size=8), st.text("ab/[]!^-\\.\n", max_size=6))
@settings(max_examples=300)
def test_patterns_match_what_beams_filesystems_match(pattern, path):
    translated = LocalFileSystem(PipelineOptions([])).translate_pattern(pattern)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Beam leaves a bracket within brackets as it is.
        try:
            expected = bool(re.match(translated, path))
        except re.error:  # Of a range such as [b-a], which is empty here, as in fnmatch.
            assert paths.matching(pattern)
            return
    assert bool(paths.matching(pattern).match(path)) == expected
