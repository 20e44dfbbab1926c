import os
import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from beam_jobs.errors import UsageError
from beam_jobs.sources.inputs import Inputs
from beam_jobs.sources.joined_inputs import JoinedInputs, join_regex
from tests.support.archives import zipped


def found(pattern, key):
    match = join_regex(pattern).fullmatch(key)
    if not match:
        return None
    return (match.groupdict().get("above") or "") + match["recording"], match["array"]


@pytest.mark.parametrize(
    ("pattern", "key", "expected"),
    [
        ("{recording}_{array}.csv", "r1_acc.csv", ("r1", "acc")),
        ("{recording}_{array}.csv", "walk/r1_acc.csv", ("walk/r1", "acc")),
        ("{recording}_{array}.csv", "walk_fast/acc.csv", None),
        ("{recording}_{array}.csv", "r1_acc.csv.bak", None),
        ("{recording}_{array}.csv", "_acc.csv", None),
        ("{recording}/{array}.npy", "walk/r1/acc.npy", ("walk/r1", "acc")),
        ("{array}/{recording}.npy", "s1/acc/r1.npy", ("s1/r1", "acc")),
        ("{array}_{recording}.npy", "walk/acc_1.npy", ("walk/1", "acc")),
        ("{recording}_{array}.*", "r1_acc.wav", ("r1", "acc")),
        ("{recording}_{array}_*.csv", "r1_acc_x.csv", ("r1", "acc")),
        ("rec-{recording} ({array}).csv", "a/rec-1 (acc).csv", ("a/1", "acc")),
    ],
)
def test_a_pattern_finds_recording_and_array(pattern, key, expected):
    assert found(pattern, key) == expected


NAMES = st.text("abc.+([\\$^", min_size=1, max_size=6)


@given(NAMES, NAMES, st.lists(NAMES, max_size=2))
def test_names_of_any_characters_are_found_again(recording, array, folders):
    key = "".join(f"{folder}/" for folder in folders) + f"{recording}_{array}.npy"
    assert found("{recording}_{array}.npy", key) == (key.removesuffix(f"_{array}.npy"), array)


@pytest.mark.parametrize(
    "pattern",
    ["r.csv", "{recording}.csv", "{array}.csv", "{recording}{array}{array}", "{Recording}"],
)
def test_a_pattern_without_both_places_is_refused(pattern):
    with pytest.raises(UsageError) as caught:
        join_regex(pattern)
    assert caught.value.message == (
        f"--join {pattern}: expected {{recording}} and {{array}} once each, such as "
        "{recording}_{array}.csv"
    )


def inputs(tmp_path, *names, patterns=("**",), join="{recording}_{array}.csv"):
    for name in names:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("1\n" * len(name))
    plain = Inputs.of([f"{tmp_path}/{pattern}" for pattern in patterns])
    return JoinedInputs(plain.patterns, plain.root, join=join)


def sources(inputs, limit=None):
    return [source for pattern in inputs.patterns for source in inputs.sources(pattern, limit)]


def good(inputs, limit=None):
    """Recording -> its arrays."""
    return {
        source.key: [name for name, *_ in source.joined]
        for source in sources(inputs, limit)
        if not source.error
    }


def errors(inputs):
    return {source.key: source.error for source in sources(inputs) if source.error}


def test_files_of_a_recording_are_joined_by_the_names_of_their_arrays(tmp_path):
    job = inputs(tmp_path, "w/r2_gyro.csv", "w/r1_acc.csv", "w/r1_gyro.csv", "w/r2_acc.csv")
    found = sources(job)
    assert [source.key for source in found] == ["w/r1", "w/r2"]
    for source in found:
        paths = [tmp_path / f"{source.key}_{array}.csv" for array in ("acc", "gyro")]
        assert source.joined == tuple(
            (array, str(path), path.stat().st_size, path.stat().st_mtime_ns)
            for array, path in zip(("acc", "gyro"), paths, strict=True)
        )
        assert source.size == sum(path.stat().st_size for path in paths)
        assert source.modified == max(path.stat().st_mtime_ns for path in paths)


def test_files_are_joined_whatever_the_form_of_their_letters(tmp_path):
    job = inputs(tmp_path, "Mu\u0308_acc.csv", "M\u00fc_gyro.csv", "b_acc.csv", "b_gyro.csv")
    assert good(job) == {"b": ["acc", "gyro"], "M\u00fc": ["acc", "gyro"]}


def test_recordings_with_other_arrays_than_most_are_errors(tmp_path):
    names = [f"r{n}_{a}.csv" for n in range(5) for a in "xyz" if (n, a) != (0, "y")]
    job = inputs(tmp_path, *names, "r1_notes.csv")
    assert errors(job) == {
        "r0": "its arrays are x, z, most recordings have x, y, z",
        "r1": "its arrays are notes, x, y, z, most recordings have x, y, z",
    }
    assert list(good(job)) == ["r2", "r3", "r4"]


def test_of_equally_frequent_sets_of_arrays_the_larger_counts(tmp_path):
    job = inputs(tmp_path, "r1_x.csv", "r2_x.csv", "r2_y.csv")
    assert good(job) == {"r2": ["x", "y"]}
    other = inputs(tmp_path / "other", "r1_y.csv", "r2_x.csv")
    assert good(other) == {"r2": ["x"]}


def test_a_second_file_of_one_array_is_an_error_that_names_the_first(tmp_path):
    job = inputs(tmp_path, "r1_acc.npy", "r1_acc.csv", join="{recording}_{array}.*")
    assert errors(job) == {"r1_acc.npy": "r1 already has its 'acc' from r1_acc.csv"}
    ((_, path, _, _),) = sources(job)[1].joined
    assert path.endswith("r1_acc.csv")


def test_the_order_of_a_folder_does_not_matter(tmp_path, monkeypatch):
    job = inputs(
        tmp_path, *(f"r{n}_{a}.{e}" for n in range(3) for a in "xy" for e in ("csv", "npy"))
    )
    job = JoinedInputs(job.patterns, job.root, join="{recording}_{array}.*")
    expected = sources(job)
    scandir = os.scandir
    for reverse in (False, True):
        monkeypatch.setattr(
            os, "scandir", lambda path, r=reverse: sorted(scandir(path), key=str, reverse=r)
        )
        assert sources(job) == expected


def test_a_name_that_does_not_fit_is_an_error(tmp_path):
    job = inputs(tmp_path, "r1_acc.csv", "README.md", "r1_acc.csv~")
    message = "its name does not fit --join {recording}_{array}.csv"
    assert errors(job) == {"README.md": message, "r1_acc.csv~": message}


def test_members_of_archives_are_not_joined(tmp_path):
    (tmp_path / "a.zip").write_bytes(zipped([("r1_acc.csv", b"1\n")]))
    job = inputs(tmp_path, "r1_acc.csv")
    message = "it is in an archive; members of archives cannot be joined"
    assert errors(job) == {"a.zip/r1_acc.csv": message}
    assert list(good(job)) == ["r1"]


def test_a_limit_counts_whole_recordings_by_name(tmp_path):
    names = [f"r{n}_{a}.csv" for n in range(6) for a in "xy" if (n, a) != (1, "y")]
    job = inputs(tmp_path, *names)
    for limit in range(7):
        assert list(good(job, limit)) == ["r0", "r2", "r3", "r4", "r5"][:limit]


@pytest.mark.parametrize("name", ["key", "label"])
def test_arrays_with_names_of_other_features_are_refused(tmp_path, name):
    job = inputs(tmp_path, "r1_acc.csv", f"r1_{name}.csv")
    with pytest.raises(UsageError) as caught:
        sources(job)
    assert caught.value.message == (
        f"--join {{recording}}_{{array}}.csv: an array may not be called {name!r}: narrow --input, "
        "or rename its files"
    )


def test_a_recording_whose_files_are_too_large_together_is_an_error(tmp_path):
    job = inputs(tmp_path, "r1_acc.csv", "r1_gyr.csv", "r2_acc.csv", "r2_gyr.csv")
    (tmp_path / "r1_acc.csv").write_bytes(bytes(1000))
    found = errors(replace(job, max_bytes=1000))
    (error,) = found.values()
    assert list(found) == ["r1"]
    assert re.fullmatch(
        r"its files have \d+ bytes, more than 1000: raise --max_record_bytes .*", error
    )
