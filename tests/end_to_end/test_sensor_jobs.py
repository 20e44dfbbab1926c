"""Sensor jobs from files of every kind to records, compared with NumPy."""

from pathlib import Path

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import soundfile
from numpy.lib.stride_tricks import sliding_window_view

from readers.format.manifest import Manifest
from readers.format.schema import Feature, Schema
from tests.support.commands import ONE, parse_command, refused, run
from tests.support.datasets import balanced, records_of, rejects_of, write_dataset


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


# Windows of recordings in every kind of file.


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
LENGTHS = [60, 200, 199, 219, 220, 30, 59, 461]


def test_windows_of_files_of_every_kind_equal_those_of_numpy_and_stay_in_one_split(tmp_path):
    arrays, out = {}, tmp_path / "out"
    for number in range(24):
        kind = list(KINDS)[number % len(KINDS)]
        key = f"{'ab'[number % 2]}/{number:02d}.{kind}"
        arrays[key] = noise(number, LENGTHS[number % len(LENGTHS)], 3)
        (tmp_path / "in" / key).parent.mkdir(parents=True, exist_ok=True)
        KINDS[kind](tmp_path / "in" / key, arrays[key])
    # Unreadable files come first in the order of names.
    broken = dict(zip(KINDS, [b"", b"PK\3\4", b"x,y\n1,a\n", b"PAR1", b"\x89HDF"], strict=True))
    for kind, data in broken.items():
        (tmp_path / f"in/a/!.{kind}").write_bytes(data)
    flags = ["--window", 60, "--stride", 20]
    flags += ["--splits", "train=0.6,val=0.4", "--num_shards", "train=4,val=3"]
    flags += ["--max_rejects", "all"]
    assert run("sensors", "--input", tmp_path / "in", *flags, *ONE, "--output", out) == 0
    assert balanced(out).schema["signal"] == Feature("float32", (60, 3))
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
    short = {
        key: f"it has {len(array)} samples, expected at least 60; --last_window pad keeps shorter recordings"
        for key, array in arrays.items()
        if len(array) < 60
    }
    rejects = rejects_of(out)
    assert short.items() <= rejects.items()
    assert rejects.keys() - short.keys() == {f"a/!.{kind}" for kind in KINDS}


# Recordings of several files.


def test_files_of_several_rates_are_joined_on_one_grid(tmp_path, capsys):
    joined, out = tmp_path / "in", tmp_path / "out"
    for number in range(8):
        name = joined / f"{'ab'[number % 2]}/r{number}"
        name.parent.mkdir(parents=True, exist_ok=True)
        seconds = np.arange(2000) / 1000
        if number:
            soundfile.write(f"{name}_mic.wav", np.sin(seconds), 1000, subtype="FLOAT")
        for array, rate in (("acc", 100), ("gyro", 25)):
            times = np.arange(2 * rate) / rate
            columns = [times, times * number, times**2]
            write_csv(Path(f"{name}_{array}.csv"), ["t", "x", "y"], columns)
    (joined / "a" / "r2_acc.flac").write_bytes(b"second")
    (joined / "README").write_text("not a recording")
    join = ["--join", "{recording}_{array}.*"]
    message = (
        "no recording among the first 7 files: a/r2: its files have 1000 Hz and no rate: --resample "
        "brings them to one rate"
    )
    inputs = f"{joined}/*/r[1-7]*.[cw]*"
    refused(capsys, 2, message, "sensors", "--input", inputs, *join, "--output", out)
    join += ["--time_column", "t", "--resample", "50Hz", "--max_rejects", "all"]
    assert run("sensors", "--input", joined, "--output", out, *join, *ONE) == 0
    assert rejects_of(out) == {
        "README": "its name does not fit --join {recording}_{array}.*",
        "a/r0": "its arrays are acc, gyro, most recordings have acc, gyro, mic",
        "a/r2_acc.flac": "a/r2 already has its 'acc' from a/r2_acc.csv",
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
