"""Sensor jobs from files of every kind to records, compared with NumPy, SciPy and TensorFlow."""

import io
import re
from pathlib import Path

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import soundfile
from numpy.lib.stride_tricks import sliding_window_view
from sklearn.datasets import load_digits

import readers
from beam_jobs.cli.command import parse_command
from beam_jobs.jobs import file_passes
from readers.format.manifest import Manifest
from readers.format.schema import Feature, Schema
from tests.support.archives import tarred
from tests.support.commands import ONE, interrupted, refused, resumed, run
from tests.support.datasets import balanced, files_of, records_of, rejects_of, write_dataset


def noise(seed, *shape):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def write_csv(path, names, columns):
    rows = (",".join(f"{value:.9g}" for value in row) for row in zip(*columns, strict=True))
    path.write_text("\n".join([",".join(names), *rows, ""]))


def assert_statistics(out, name, split="train"):
    """Asserts that the mean and deviation of each channel are those of NumPy over all records."""
    values = [record[name] for record in records_of(out, split).values()]
    flat = np.concatenate([value.reshape(-1, value.shape[-1]) for value in values])
    found = Manifest.read(str(out)).splits[split].statistics[name]["channels"]
    np.testing.assert_allclose(found["mean"], flat.mean(0, np.float64), rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(found["std"], flat.std(0, np.float64), rtol=1e-6)


# Every kind of file.


def write_h5(path, array):
    with h5py.File(path, "w") as file:
        file.create_dataset("deep/inside", data=array, compression="gzip")


KINDS = {
    "npy": np.save,
    "npz": lambda path, array: np.savez_compressed(path, anything=array),
    "csv": lambda path, array: write_csv(path, "xyz", array.T),
    "parquet": lambda path, array: pq.write_table(pa.table([*array.T], [*"xyz"]), path),
    "h5": write_h5,
}


def test_one_dataset_has_files_of_every_kind(tmp_path):
    arrays = {}
    for number in range(15):
        kind = list(KINDS)[number % len(KINDS)]
        key = f"{'ab'[number % 2]}/{number:02d}.{kind}"
        arrays[key] = noise(number, 10 + number, 3)
        (tmp_path / "in" / key).parent.mkdir(parents=True, exist_ok=True)
        KINDS[kind](tmp_path / "in" / key, arrays[key])
    # Unreadable files come first in the order of names.
    for number, data in enumerate([b"", b"PK\3\4", b"x,y\n1,a\n", b"PAR1", b"\x89HDF"]):
        (tmp_path / f"in/a/!{number}.{list(KINDS)[number]}").write_bytes(data)
    assert run("sensors", "--input", tmp_path / "in", "--output", tmp_path / "out") == 0
    assert len(rejects_of(tmp_path / "out")) == 5
    found = records_of(tmp_path / "out")
    assert found.keys() == arrays.keys()
    for key, array in arrays.items():
        assert found[key]["signal"].dtype == np.float32
        np.testing.assert_allclose(found[key]["signal"], array, rtol=1e-7)
        assert found[key]["label"] == "ab".index(key[0])
    assert_statistics(tmp_path / "out", "signal")


# Windows.

LENGTHS = [60, 200, 199, 219, 220, 30, 59, 1000, 461]


@pytest.fixture(scope="module")
def cut(tmp_path_factory):
    """(flags, recordings by key, the dataset, its files) of windows of 60 samples, 20 apart."""
    source, out = tmp_path_factory.mktemp("cut") / "in", tmp_path_factory.mktemp("cut") / "out"
    arrays = {}
    for number in range(36):
        key = f"{'ab'[number % 2]}/{number:02d}.npy"
        arrays[key] = noise(number, LENGTHS[number % len(LENGTHS)], 4)
        (source / key).parent.mkdir(parents=True, exist_ok=True)
        np.save(source / key, arrays[key])
    (source / "a" / "00x.npy").write_bytes(b"broken")
    (source / "b" / "notes.txt").write_text("nothing")
    flags = ["--input", source, "--window", 60, "--stride", 20]
    flags += ["--splits", "train=0.6,val=0.4", "--num_shards", "train=4,val=3"]
    assert run("sensors", *flags, "--output", out) == 0
    return flags, arrays, out, files_of(out)


def test_windows_equal_those_of_numpy_and_a_recording_stays_in_one_split(cut):
    _, arrays, out, _ = cut
    assert balanced(out).schema["signal"] == Feature("float32", (60, 4))
    found = records_of(out)
    splits = {(key.split("#")[0], record["split"]) for key, record in found.items()}
    assert len(splits) == len({recording for recording, _ in splits})
    expected = {
        f"{key}#{number}": window.T
        for key, array in arrays.items()
        if len(array) >= 60
        for number, window in enumerate(sliding_window_view(array, 60, 0)[::20], 1)
    }
    assert found.keys() == expected.keys()
    for key, window in expected.items():
        np.testing.assert_array_equal(found[key]["signal"], window)
        assert found[key]["label"] == "ab".index(key[0])
    for split in ("train", "val"):
        assert_statistics(out, "signal", split)


def test_recordings_shorter_than_a_window_are_rejected_with_their_length(cut):
    _, arrays, out, _ = cut
    short = {
        key: f"it has {len(array)} samples, a window has 60; --last_window pad keeps shorter recordings"
        for key, array in arrays.items()
        if len(array) < 60
    }
    found = rejects_of(out)
    assert short.items() <= found.items()
    assert found.keys() - short.keys() == {"a/00x.npy", "b/notes.txt"}


def test_small_batches_of_windows_give_the_same_bytes(cut, tmp_path, monkeypatch):
    flags, _, _, files = cut
    together, take = [], file_passes._Batch.take

    def counted(batch):
        together.append(len(batch.keys))
        return take(batch)

    monkeypatch.setattr(file_passes._Batch, "take", counted)
    monkeypatch.setattr(file_passes, "_BATCH_BYTES", 3000)
    assert run("sensors", *flags, "--output", tmp_path / "out", *ONE) == 0
    assert files_of(tmp_path / "out") == files
    assert max(together) == 3  # of 1,100 bytes each


@pytest.mark.slow
def test_an_interrupted_run_resumes_to_the_same_bytes(cut, tmp_path, capsys):
    flags, _, _, files = cut
    interrupted("sensors", *flags, "--output", tmp_path / "out")
    assert resumed(capsys, "sensors", *flags, "--output", tmp_path / "out") == 7
    assert files_of(tmp_path / "out") == files


def test_recordings_in_a_packed_archive_have_the_same_windows(cut, tmp_path):
    _, arrays, out, _ = cut
    members = []
    for key, array in arrays.items():
        data = io.BytesIO()
        np.save(data, array)
        members.append((key, data.getvalue()))
    (tmp_path / "in.tar.gz").write_bytes(tarred(members, "w:gz"))
    flags = ["--window", 60, "--stride", 20, "--encoding", "list"]
    inputs = ["--input", tmp_path / "*.tar.gz"]
    assert run("sensors", *inputs, "--output", tmp_path / "out", *flags) == 0
    found, expected = records_of(tmp_path / "out"), records_of(out)
    assert found.keys() == {f"in.tar.gz/{key}" for key in expected}
    for key, record in expected.items():
        np.testing.assert_array_equal(found[f"in.tar.gz/{key}"]["signal"], record["signal"])


# Resampling.


def irregular(seed, seconds, rate):
    steps = np.random.default_rng(seed).uniform(0.5, 1.5, int(seconds * rate)) / rate
    return np.cumsum(steps)


@pytest.fixture(scope="module")
def timed(tmp_path_factory):
    """(a folder of .csv and .parquet files with times in ms, times and values by key)."""
    folder = tmp_path_factory.mktemp("timed")
    known = {}
    for number in range(8):
        times = irregular(number, 6, 40)
        if number == 3:
            times[100:] += 2
        values = noise(number, len(times), 2)
        # With the digits of the text.
        times, values = np.round(1000 * times, 3), np.round(values.astype(np.float64), 6)
        columns = [times, *values.T]
        name = f"{number}.{'csv' if number < 6 else 'parquet'}"
        if name.endswith("csv"):
            write_csv(folder / name, ["time", "x", "y"], columns)
        else:
            table = dict(zip(["time", "x", "y"], columns, strict=True))
            pq.write_table(pa.table({**table, "who": ["me"] * len(times)}), folder / name)
        known[name] = times / 1000, values
    return folder, known


TIMED = ["--label", "none", "--time_column", "time", "--time_unit", "ms", "--dtype", "float32"]


def test_windows_span_no_gap_and_keep_the_grid_of_their_recording(timed, tmp_path):
    folder, known = timed
    flags = [*TIMED, "--resample", "50Hz", "--max_gap", "500ms", "--window", "1s"]
    assert run("sensors", "--input", folder, "--output", tmp_path / "out", *flags) == 0
    assert rejects_of(tmp_path / "out") == {}
    found = records_of(tmp_path / "out")
    assert {record["signal"].shape for record in found.values()} == {(50, 2)}
    times, values = known["3.csv"]
    stretches = []
    for part in (slice(0, 100), slice(100, None)):
        first = np.ceil((times[part][0] - times[0]) * 50 - 0.01)
        last = np.floor((times[part][-1] - times[0]) * 50 + 0.01)
        grid = times[0] + np.arange(first, last + 1) / 50
        expected = np.stack([np.interp(grid, times, values[:, i]) for i in (0, 1)], 1)
        stretches += [expected[at : at + 50] for at in range(0, len(grid) - 49, 50)]
    assert len(stretches) == sum(key.startswith("3.csv#") for key in found)
    for number, expected in enumerate(stretches, 1):
        np.testing.assert_allclose(found[f"3.csv#{number}"]["signal"], expected, atol=1e-4)


# Recordings of several files.


@pytest.fixture(scope="module")
def joined(tmp_path_factory):
    """A folder of recordings of three files at three rates; one lacks its sound."""
    folder = tmp_path_factory.mktemp("joined")
    for number in range(8):
        name = folder / f"{'ab'[number % 2]}/r{number}"
        name.parent.mkdir(exist_ok=True)
        seconds = np.arange(2000) / 1000
        if number:
            soundfile.write(f"{name}_mic.wav", np.sin(seconds), 1000, subtype="FLOAT")
        for array, rate in (("acc", 100), ("gyro", 25)):
            times = np.arange(2 * rate) / rate
            columns = [times, times * number, times**2]
            write_csv(Path(f"{name}_{array}.csv"), ["t", "x", "y"], columns)
    (folder / "a" / "r2_acc.flac").write_bytes(b"second")
    (folder / "README").write_text("not a recording")
    return folder


JOIN = ["--join", "{recording}_{array}.*", "--time_column", "t", "--resample", "50Hz"]


def test_files_of_several_rates_are_joined_on_one_grid(joined, tmp_path):
    out = tmp_path / "out"
    assert run("sensors", "--input", joined, "--output", out, *JOIN) == 0
    assert rejects_of(out) == {
        "README": "its name does not fit --join {recording}_{array}.*",
        "a/r0": "its arrays are acc, gyro, most recordings have acc, gyro, mic",
        "a/r2_acc.flac": "a/r2 has its 'acc' from a/r2_acc.csv already",
    }
    found = records_of(out)
    assert found.keys() == {f"{'ab'[number % 2]}/r{number}" for number in range(1, 8)}
    grid = np.arange(99) / 50  # up to the last sample of gyro, at 1.96 s
    for key, record in found.items():
        number = int(key[-1])
        assert record["label"] == number % 2
        # The filter repeats the last samples beyond the end.
        np.testing.assert_allclose(record["mic"][16:-16, 0], np.sin(grid)[16:-16], atol=1e-4)
        np.testing.assert_allclose(record["acc"][:, 0], number * grid, atol=1e-5)
        times = np.arange(50) / 25
        np.testing.assert_allclose(
            record["gyro"][:, 1], np.interp(grid, times, times**2), atol=1e-5
        )
        assert record["filled"] == 0
    for name in ("acc", "gyro"):
        assert_statistics(out, name)


def test_files_of_different_rates_are_refused_with_the_cure(joined, tmp_path, capsys):
    inputs = ["--input", f"{joined}/*/r[1-7]*.[cw]*", "--join", "{recording}_{array}.*"]
    message = (
        "no recording among the first 7 files: a/r2: its files have 1000 Hz and no rate: --resample "
        "brings them to one rate"
    )
    refused(capsys, 2, message, "sensors", *inputs, "--output", tmp_path / "out")


# Sequences.


def padded(sequences, channels):
    """The arrays of sequences in one padded array, and its mask."""
    shape = [max(map(len, sequences)), max(len(a) for each in sequences for a in each)]
    values = np.zeros((len(sequences), *shape, channels), np.float32)
    mask = np.zeros((len(sequences), *shape, channels), bool)
    for row, arrays in enumerate(sequences):
        for place, array in enumerate(arrays):
            values[row, place, : len(array)] = array
            mask[row, place, : len(array)] = True
    return values, mask


def assert_sequences(out, expected, channels):
    """Asserts that all readers give the arrays of each sequence."""
    schema = Manifest.read(str(out)).schema
    assert schema["signal"] == Feature("float32", (None, None, channels), "sequence")
    for key, record in records_of(out).items():
        for found, array in zip(record["signal"], expected[key], strict=True):
            np.testing.assert_allclose(found, array, atol=1e-5)
    for order in (None, "interleave"):
        how = {"batch_size": 4, "order": order, "shuffle": order is not None, "seed": 1}
        seen = []
        for batch in readers.load(str(out), batching="ragged", **how):
            assert batch["signal"].ragged_rank == 2
            for key, row in zip(batch["key"].numpy(), batch["signal"], strict=True):
                seen.append(key.decode())
                for found, array in zip(row, expected[seen[-1]], strict=True):
                    np.testing.assert_allclose(found.numpy(), array, atol=1e-5)
        assert sorted(seen) == sorted(expected)
        for batch in readers.load(str(out), batching="padded", mask=True, **how):
            rows = [expected[key.decode()] for key in batch["key"].numpy()]
            values, mask = padded(rows, channels)
            np.testing.assert_allclose(batch["signal"].numpy(), values, atol=1e-5)
            found = batch["signal_mask"].numpy().reshape(*mask.shape[:3], -1)
            np.testing.assert_array_equal(np.broadcast_to(found, mask.shape), mask)
    for batch in readers.as_numpy(str(out), batch_size=4, batching="padded"):
        rows = [expected[key.decode()] for key in batch["key"]]
        np.testing.assert_allclose(batch["signal"], padded(rows, channels)[0], atol=1e-5)


@pytest.mark.slow
def test_every_reader_reads_arrays_of_different_lengths_as_one_sequence(tmp_path):
    (tmp_path / "in").mkdir()
    expected = {}
    for number in range(10):
        arrays = {f"a{n}": noise(number + n, 1 + (7 * number + n) % 9, 3) for n in range(1, 4)}
        key = f"{number}.{'npz' if number % 2 else 'h5'}"
        if number % 2:
            np.savez(tmp_path / "in" / key, **arrays)
        else:
            with h5py.File(tmp_path / "in" / key, "w") as file:
                for name, array in arrays.items():
                    file[name] = array
        expected[key] = list(arrays.values())
    flags = ["--label", "none", "--sequence", "--num_shards", 3]
    assert run("sensors", "--input", tmp_path / "in", "--output", tmp_path / "out", *flags) == 0
    assert_sequences(tmp_path / "out", expected, 3)
    figures = Manifest.read(str(tmp_path / "out")).splits["train"].statistics["signal"]
    flat = np.concatenate([array for arrays in expected.values() for array in arrays])
    np.testing.assert_allclose(
        [figures["mean"], figures["std"]], [flat.mean(), flat.std()], rtol=1e-5
    )


# Rows and recordings inside files.


def test_rows_of_an_archive_have_their_share_of_each_label_in_every_split(tmp_path):
    images, labels = load_digits(return_X_y=True)
    images, labels = images[:600], labels[:600].astype(np.float64)
    labels[7] = np.nan
    np.savez(tmp_path / "digits.npz", x=images.astype(np.uint8).reshape(-1, 8, 8), y=labels)
    flags = ["--input", tmp_path / "digits.npz", "--record", "row", "--label", "array:y"]
    flags += ["--splits", "train=0.75,val=0.25", "--stratify", "--num_shards", "train=3,val=1"]
    assert run("sensors", *flags, "--output", tmp_path / "out") == 0
    manifest, records = balanced(tmp_path / "out"), records_of(tmp_path / "out")
    assert manifest.schema["signal"] == Feature("uint8", (8, 8))
    assert rejects_of(tmp_path / "out").keys() == {"digits.npz#8"}
    assert len(records) == len(labels) - 1
    for key, record in records.items():
        row = int(key.removeprefix("digits.npz#")) - 1
        np.testing.assert_array_equal(record["signal"], images[row].reshape(8, 8))
        assert record["label"] == labels[row]
    for label in range(10):
        splits = [record["split"] for record in records.values() if record["label"] == label]
        assert abs(splits.count("val") - len(splits) / 4) < 1


@pytest.mark.slow
def test_recordings_of_tables_are_cut_to_the_same_bytes_by_all_workers(tmp_path, capsys):
    rng = np.random.default_rng(3)
    for number in range(4):
        subjects, activities = rng.choice(["a", "b", "c"], 900), np.repeat([*"xyzxyz"], 150)
        columns = {"subject": subjects, "act": activities, "v": rng.normal(size=900)}
        pq.write_table(pa.table(columns), tmp_path / f"{number}.parquet")
    flags = ["--input", tmp_path / "*.parquet", "--recording_column", "subject"]
    flags += ["--label", "column:act", "--window", "20", "--window_label", "any:y"]
    flags += ["--group_by", "#(.)", "--splits", "train=0.6,val=0.4", "--num_shards", "2"]
    assert run("sensors", *flags, "--output", tmp_path / "out", *ONE) == 0
    records = records_of(tmp_path / "out")
    assert len({(key.split("#")[1], r["split"]) for key, r in records.items()}) == 3
    interrupted("sensors", *flags, "--output", tmp_path / "again")
    assert resumed(capsys, "sensors", *flags, "--output", tmp_path / "again") == 4
    assert files_of(tmp_path / "again") == files_of(tmp_path / "out")
    capsys.readouterr()
    assert run("plan", "sensors", *flags) == 0
    printed = capsys.readouterr().out
    for name, split in Manifest.read(str(tmp_path / "out")).splits.items():
        assert re.search(rf"^{name} +{split.records} +2 ", printed, re.M)


def test_the_manifest_states_the_sampling_rate_of_files_and_resharding_keeps_it(tmp_path):
    def rate_of(job, source, *flags):
        """The rate that the manifest of a job states."""
        arguments = [job, "--input", f"{tmp_path}/{source}", "--output", f"{tmp_path}/out", *flags]
        return Manifest(SIGNAL, {}, options=parse_command(arguments).output.options).sample_rate

    for name, rate in (("a", 16_000), ("b", 8_000)):
        (tmp_path / name).mkdir()
        soundfile.write(tmp_path / name / "x.wav", noise(0, 500).clip(-1, 1), rate)
        label = ("--label", "none")
        assert rate_of("sensors", name, *label) == rate
        assert rate_of("sensors", name, "--resample", "4kHz", *label) == 4_000
        write_dataset(tmp_path / f"d{name}", SIGNAL, {"train": [[]]}, options={"sample_rate": rate})
        assert rate_of("reshard", f"d{name}") == rate
    assert rate_of("reshard", "d[ab]/*.tfrecord") == 0


SIGNAL = Schema({"signal": Feature("float32", (None, 1))})
