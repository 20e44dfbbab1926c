"""Rows, recordings and labels inside sensor files, compared with NumPy's indexing."""

import csv
import shlex
from dataclasses import replace
from types import SimpleNamespace

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sklearn.datasets import load_digits

from beam_jobs.engines import pool
from beam_jobs.errors import UsageError
from tests.support.commands import parse_command
from tests.support.passes import decode, encode, find

IMAGES, TARGET = load_digits(return_X_y=True)
IMAGES, TARGET = IMAGES[:300].reshape(-1, 8, 8), TARGET[:300]


def command(tmp_path, flags, name="*"):
    return parse_command(
        shlex.split(f"sensors --input '{tmp_path}/{name}' --dry_run --label none {flags}")
    )


def passes(tmp_path, flags, name="*"):
    """The labels, splits, records and rejects by key, on which both passes agree."""
    found_command = command(tmp_path, flags, name)
    job, placement = found_command.job, found_command.output.placement
    found = find(job, placement)
    numbers = {label: label for _, label, _ in found.records.values() if label}
    names = {"label": tuple(sorted(numbers))}
    written = encode(job, names, placement)
    assert found.records.keys() == written.frames.keys()
    assert found.rejects == written.rejects and not written.late
    for key, (split, _, size) in found.records.items():
        assert split == written.frames[key][0]
        assert abs(size - len(written.frames[key][1])) < 200
    labels = {key: label for key, (_, label, _) in found.records.items()}
    splits = {key: split for key, (split, _, _) in found.records.items()}
    records = {key: decode(job, frame) for key, (_, frame) in written.frames.items()}
    for key, record in records.items():
        if labels[key] is not None:
            assert names["label"][int(record["label"])] == labels[key]
    return labels, splits, records, found.rejects


def write_h5(path, arrays, **attributes):
    with h5py.File(path, "w") as file:
        for name, array in arrays.items():
            file[name] = array
        file.attrs.update(attributes)


# Rows.


def test_each_row_of_an_archive_is_a_record_with_its_own_split(tmp_path):
    weight = np.linspace(0, 1, len(TARGET))
    arrays = {"X": IMAGES, "y": TARGET, "weight": weight}
    np.savez(tmp_path / "d.npz", **arrays)
    flags = "--record row --label array:y --splits train=0.8,val=0.2"
    labels, splits, records, rejects = passes(tmp_path, flags)
    assert not rejects
    assert list(labels) == [f"d.npz#{n}" for n in range(1, len(weight) + 1)]
    assert list(labels.values()) == list(map(str, TARGET))
    placement = command(tmp_path, flags).output.placement
    assert splits == {key: placement.split(key) for key in labels}
    for record, image, value in zip(records.values(), IMAGES, weight, strict=True):
        np.testing.assert_array_equal(record["X"], image)
        assert record["weight"] == value


def test_rows_have_the_shape_of_the_other_axes(tmp_path):
    values = np.arange(24, dtype=np.int16).reshape(4, 3, 2)
    np.save(tmp_path / "a.npy", np.asfortranarray(values))
    np.save(tmp_path / "b.npy", values[:1])
    job = command(tmp_path, "--record row").job
    assert str(job.schema["signal"]) == "int16 [3, 2], tensor"
    _, _, records, _ = passes(tmp_path, "--record row --dtype float32")
    found = np.stack([record["signal"] for record in records.values()])
    np.testing.assert_array_equal(found, np.concatenate([values, values[:1]]).astype(np.float32))
    np.save(tmp_path / "b.npy", np.zeros((2, 5, 2), np.int16))
    with pytest.raises(UsageError, match=r"b.npy: signal int16 \[5, 2\], but a.npy has .*\[3, 2\]"):
        passes(tmp_path, "--record row")


def test_a_row_is_a_reject_by_itself(tmp_path):
    values, labels = np.ones((6, 4), np.float32), np.array([0, 1, 2, np.nan, 1.5, 0])
    values[1, 2] = np.nan
    values[5] = np.nan
    np.savez(tmp_path / "a.npz", X=values, y=labels)
    found, _, _, rejects = passes(tmp_path, "--record row --label array:y --nan reject")
    assert list(found.items()) == [("a.npz#1", "0"), ("a.npz#3", "2")]
    assert rejects == {
        "a.npz#2": "signal: 1 of 4 values are NaN or infinite, the first in row 3",
        "a.npz#4": "column 'y': label nan: expected text or a whole number",
        "a.npz#5": "column 'y': label 1.5: expected text or a whole number",
        "a.npz#6": "signal: 4 of 4 values are NaN or infinite, the first in row 1",
    }
    _, _, records, rejects = passes(tmp_path, "--record row --arrays X --nan interpolate")
    assert records["a.npz#2"]["signal"].tolist() == [1] * 4
    assert list(rejects) == ["a.npz#6"]


@pytest.mark.parametrize(
    ("arrays", "flags", "message"),
    [
        ({"X": np.zeros((3, 2)), "z": np.zeros(4)}, "", "'X' has 3 rows, 'z' 4: --record row cuts"),
        ({"X": np.zeros((3, 2)), "y": np.zeros(4)}, "--label array:y", "'signal' has 3 rows, 'y' 4"),
        ({"X": np.zeros((0, 2))}, "", "a.npz: the recording has no samples"),
        ({"X": np.zeros((3, 2)), "y": np.zeros((3, 2))}, "--label array:y", "'y' is float64 [3, 2]: e"),
        ({"X": np.zeros((3, 2))}, "--label array:y", "neither its metadata nor the file has 'y'"),
    ],
)  # fmt: skip
def test_arrays_without_the_same_rows_are_refused_in_one_line(tmp_path, arrays, flags, message):
    np.savez(tmp_path / "a.npz", **arrays)
    with pytest.raises(UsageError) as refusal:
        command(tmp_path, f"--record row {flags}")
    assert message in str(refusal.value)


# Recordings of a table.


def walks():
    """Rows of three mixed recordings: (subject, activity, x, y)."""
    rng = np.random.default_rng(1)
    subjects = rng.choice(["anna", "bob", "carl/2"], 600)
    activities = np.repeat(rng.choice(["run", "sit", "walk"], 60), 10)
    return subjects, activities, rng.normal(size=(600, 2)).astype(np.float32)


def write_walks(path, times=None):
    subjects, activities, values = walks()
    columns = {"subject": subjects, "activity": activities, "x": values[:, 0], "y": values[:, 1]}
    if times is not None:
        columns["t"] = times
    if path.suffix == ".parquet":
        pq.write_table(pa.table(columns), path, row_group_size=100)
        return
    with path.open("w") as file:
        rows = csv.writer(file)
        rows.writerow(columns)
        rows.writerows(zip(*columns.values(), strict=True))


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_a_column_tells_the_recordings_of_a_table_apart(tmp_path, kind):
    write_walks(tmp_path / f"w.{kind}")
    flags = "--recording_column subject --drop_columns activity --extra_features subject:string"
    _, splits, records, rejects = passes(tmp_path, f"{flags} --splits train=0.5,val=0.5")
    subjects, _, values = walks()
    assert not rejects
    assert list(records) == [f"w.{kind}#{name}" for name in dict.fromkeys(subjects)]
    placement = command(tmp_path, f"{flags} --splits train=0.5,val=0.5").output.placement
    for key, record in records.items():
        name = key.partition("#")[2]
        np.testing.assert_array_equal(record["signal"], values[subjects == name])
        assert record["subject"].item().decode() == name
        assert splits[key] == placement.split(key)


def test_times_are_in_order_within_each_recording_of_a_table(tmp_path):
    subjects, _, values = walks()
    times = np.zeros(600)
    for name in set(subjects):
        times[subjects == name] = np.arange((subjects == name).sum()) / 10
    write_walks(tmp_path / "w.csv", times)
    flags = "--recording_column subject --drop_columns activity --time_column t --resample 10Hz"
    _, _, records, rejects = passes(tmp_path, flags)
    assert not rejects
    for name in set(subjects):
        found = records[f"w.csv#{name}"]["signal"]
        np.testing.assert_allclose(found, values[subjects == name], atol=1e-5)


def test_rows_without_a_recording_are_one_reject(tmp_path):
    (tmp_path / "a.csv").write_text("who,x\na,1\n,2\nb,3\n ,4\n1.5,5\na,6\n")
    _, _, records, rejects = passes(tmp_path, "--recording_column who")
    assert [record["signal"][:, 0].tolist() for record in records.values()] == [[1, 6], [3], [5]]
    assert rejects == {"a.csv#": "2 rows do not state their recording"}


# Labels of windows.


@pytest.mark.parametrize(
    ("kind", "rule"),
    [("csv", "majority"), ("npz", "last"), ("npz", "any:sit")],
)
def test_windows_have_labels_from_those_of_their_samples(tmp_path, kind, rule):
    _, activities, values = walks()
    if kind == "npz":
        np.savez(tmp_path / "w.npz", X=values, activity=activities)
    else:
        write_walks(tmp_path / f"w.{kind}")
    place = "column" if kind == "csv" else "array"
    flags = f"--label {place}:activity --window 24 --stride 8 --window_label {rule}"
    drop = " --drop_columns subject" if place == "column" else ""
    labels, splits, records, rejects = passes(tmp_path, f"{flags}{drop} --splits train=0.5,val=0.5")
    starts = range(0, 600 - 24 + 1, 8)
    assert not rejects and len(labels) == len(starts) and len(set(splits.values())) == 1
    for number, start in enumerate(starts, 1):
        window = activities[start : start + 24].tolist()
        expected = min(set(window), key=lambda label: (-window.count(label), label))
        if rule == "last":
            expected = window[-1]
        elif "sit" in window and rule != "majority":
            expected = "sit"
        key = f"w.{kind}#{number}"
        assert labels[key] == expected
        np.testing.assert_array_equal(records[key]["signal"], values[start : start + 24])


def test_ties_go_to_the_smaller_number(tmp_path):
    np.savez(tmp_path / "a.npz", X=np.zeros((8, 1)), y=np.array([10, 10, 9, 9, -1, 9, 2, 2]))
    labels, _, _, _ = passes(tmp_path, "--label array:y --window 4")
    assert list(labels.values()) == ["9", "2"]


def test_samples_without_a_label_do_not_count(tmp_path):
    cells = ["", "run", "", "", "", "", "sit", "run", "sit", ""]
    rows = "".join(f"{n},{cell}\n" for n, cell in enumerate(cells))
    (tmp_path / "a.csv").write_text(f"x,what\n{rows}")
    flags = "--label column:what --window 3 --last_window pad"
    labels, _, records, rejects = passes(tmp_path, flags)
    assert labels == {"a.csv#1": "run", "a.csv#3": "sit"}
    assert [record["signal"][0, 0] for record in records.values()] == [0, 6]
    assert rejects == dict.fromkeys(["a.csv#2", "a.csv#4"], "none of its samples has a label")


def test_labels_follow_samples_to_another_rate_and_past_gaps(tmp_path):
    times = np.concatenate([np.arange(40) / 10, 10 + np.arange(40) / 10])
    what = np.repeat(["a", "b", "c", "d"], 20)
    rows = "".join(f"{t:.3f},{t},{label}\n" for t, label in zip(times, what, strict=True))
    (tmp_path / "a.csv").write_text(f"t,x,what\n{rows}")
    for rate in (5, 10, 40):
        flags = f"--label column:what --time_column t --resample {rate}Hz --window 1s"
        labels, _, records, _ = passes(tmp_path, flags)
        for key, record in records.items():
            near = [what[abs(times - time).argmin()] for time in record["signal"][:, 0]]
            assert near.count(labels[key]) >= len(near) / 2
        assert "".join(labels.values())[:3] == "aab" and set(labels.values()) == {*"abcd"}


def test_a_recording_has_one_label_unless_it_is_cut(tmp_path):
    write_walks(tmp_path / "w.csv")
    with pytest.raises(UsageError, match=r"'activity' has 3 different values, .*--window, or at"):
        command(tmp_path, "--label column:activity --drop_columns subject")
    labels, _, _, _ = passes(tmp_path, "--recording_column activity --label column:activity "
                             "--drop_columns subject")  # fmt: skip
    assert {key.partition("#")[2]: label for key, label in labels.items()} == {
        name: name for name in ("run", "sit", "walk")
    }


# Metadata inside a file.


def test_single_values_inside_files_are_metadata(tmp_path):
    values = np.arange(40.0).reshape(20, 2)
    for number in range(3):
        name = f"{number}"
        single = {"rate": np.array(10 * (number + 1)), "site": np.array(f"lab{number % 2}")}
        if number < 2:
            np.savez(tmp_path / f"{name}.npz", X=values, **single)
        else:
            write_h5(tmp_path / f"{name}.h5", {"X": values, "site": "lab0"}, rate=np.int64(30))
    flags = "--label column:site --rate column:rate --resample 5Hz --extra_features rate:int64"
    labels, splits, records, rejects = passes(
        tmp_path, f"{flags} --group_by column:site --splits train=0.5,val=0.5"
    )
    assert not rejects
    assert labels == {"0.npz": "lab0", "1.npz": "lab1", "2.h5": "lab0"}
    assert splits["0.npz"] == splits["2.h5"]
    found = {key: (int(r["rate"]), len(r["signal"])) for key, r in records.items()}
    assert found == {"0.npz": (10, 10), "1.npz": (20, 5), "2.h5": (30, 4)}


def test_the_rate_of_a_file_may_be_in_a_table(tmp_path, capsys):
    for name in "ab":
        np.save(tmp_path / f"{name}.npy", np.zeros((100, 1)))
    (tmp_path / "t.csv").write_text("path,hz\na.npy,50\nb.npy,25.0\n")
    flags = f"--table {tmp_path}/t.csv --rate column:hz --resample 25Hz"
    job = parse_command(shlex.split(f"sensors --label none --dry_run {flags}")).job
    assert job.whole_files  # The table states it, so files need not be read first.
    lengths = [len(job.load(source)["signal"]) for source in job.sources(job.inputs.patterns[0])]
    assert lengths == [50, 100]
    (tmp_path / "t.csv").write_text("path,hz\na.npy,fast\n")
    with pytest.raises(UsageError, match="--rate column:hz is 'fast': expected samples per second"):
        parse_command(shlex.split(f"sensors --label none --dry_run {flags}"))


def test_metadata_comes_before_columns_of_the_file(tmp_path):
    (tmp_path / "a.csv").write_text("x,kind\n1,5\n2,6\n")
    (tmp_path / "t.csv").write_text("path,kind\na.csv,cat\n")
    flags = shlex.split(f"sensors --table {tmp_path}/t.csv --label column:kind --dry_run")
    job = parse_command(flags).job
    (note,) = job.warnings
    assert note == ("a.csv: column 'kind' is in the metadata and in the file: the metadata is used")
    (source,) = job.sources(job.inputs.patterns[0])
    assert job.whole_files and job.labels.of(source) == "cat"
    assert job.load(source)["signal"].tolist() == [[1], [2]]
    wrong = shlex.split(f"sensors --table {tmp_path}/t.csv --label column:kid --dry_run")
    with pytest.raises(
        UsageError, match=r"a\.csv: no column 'kid' in its metadata: the file has x"
    ):
        parse_command(wrong)


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        (["ä", "b", "ä", "c"], ["ä", "b", "ä", "c"]),
        (np.array([b"x", b"y", b"x", b"x"]), [*"xyxx"]),
        (np.array([[1], [0], [1], [2]], np.uint8), [*"1012"]),
        (np.array([True, False, True, True]), ["true", "false", "true", "true"]),
    ],
)
def test_labels_of_rows_are_text_numbers_or_booleans(tmp_path, labels, expected):
    write_h5(tmp_path / "a.h5", {"X": np.zeros((4, 2)), "y": labels})
    found, _, _, _ = passes(tmp_path, "--record row --label array:y")
    assert list(found.values()) == expected


def test_a_categorical_column_of_parquet_is_a_label(tmp_path):
    column = pa.array(["a", None, "b", "a"]).dictionary_encode()
    pq.write_table(pa.table({"x": [1.0, 2, 3, 4], "what": column}), tmp_path / "a.parquet")
    labels, _, _, rejects = passes(tmp_path, "--record row --label column:what")
    assert list(labels.values()) == ["a", "b", "a"] and list(rejects) == ["a.parquet#2"]
    nested = pa.array([[1], [2], [3], [4]])
    pq.write_table(pa.table({"x": [1.0, 2, 3, 4], "what": nested}), tmp_path / "a.parquet")
    with pytest.raises(UsageError, match=r"column 'what' is list<.*>: expected text or numbers"):
        command(tmp_path, "--record row --label column:what")


# Recordings of several files.


@pytest.mark.parametrize(
    ("length", "limit", "message"),
    [
        (500, 10_000, r"its files have 16256 bytes, more than 10000: raise --max_record_bytes"),
        (500, 16_256, ""),
        (100_000, 900_000, r"its arrays take 1600000 bytes, more than 900000: raise"),
    ],
)
def test_files_of_one_recording_are_held_to_the_size_of_a_record(
    tmp_path, monkeypatch, length, limit, message
):
    for name in ("r_a", "r_b"):
        if length < 1000:
            np.save(tmp_path / f"{name}.npy", np.zeros((length, 2)))
        else:
            np.savez_compressed(tmp_path / f"{name}.npz", x=np.zeros(length))
    flags = f"--join '{{recording}}_{{array}}.*' --max_record_bytes {limit}"
    if message:
        with pytest.raises(UsageError, match=message):
            command(tmp_path, flags)
    else:
        job = command(tmp_path, flags).job
        (source,) = job.sources(job.inputs.patterns[0])
        monkeypatch.setattr(pool, "_reading", noted := SimpleNamespace())
        assert sorted(job.load(source)) == ["a", "b"]
        assert noted.value == b"r"  # What the error names if the process is killed.
        too_large = replace(job, inputs=replace(job.inputs, max_bytes=limit - 1))
        assert (len(list(job.reads(source))), list(too_large.reads(source))) == (2, [])
