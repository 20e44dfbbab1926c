"""Files become framed records in the processes of a pool."""

import functools
import pickle
import struct
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from beam_jobs.dataset.shard_writer import Stretch
from beam_jobs.errors import RejectError, UsageError
from beam_jobs.jobs.file_shards import FileShards, Loader
from beam_jobs.jobs.record import Record
from beam_jobs.jobs.sensors.sensor_job import SensorJob
from beam_jobs.plan.shards import Plan, SplitPlan
from beam_jobs.records.rejects import Reject
from beam_jobs.records.statistics import Statistics
from beam_jobs.sources.inputs import Inputs
from beam_jobs.sources.labels import Labels
from beam_jobs.sources.source import Source, pack_reference, reference_key, unpack_reference
from readers.format.encode.records import Encoder
from readers.format.schema import Feature, Schema
from readers.format.tfrecord import frame
from tests.support.passes import loader_of

# File names hold any bytes but zero and the slash; a lone surrogate is a byte that is not UTF-8.
file_keys = st.binary(min_size=1, max_size=60).map(
    lambda b: b.replace(b"\0", b"").decode("utf-8", "surrogateescape")
)


@given(file_keys, st.integers(0, 2**64 - 1), st.integers(-(2**63), 2**63 - 1))
def test_a_reference_is_a_files_key_size_and_time(key, size, modified):
    source = Source(key, size, modified)
    reference = pack_reference(source)
    assert unpack_reference(reference) == source
    assert reference_key(reference) == key.encode("utf-8", "surrogatepass")
    assert len(reference) == 16 + len(key.encode("utf-8", "surrogatepass"))


def references_of(keys: list[str]) -> list[bytes]:
    return [pack_reference(Source(key)) for key in keys]


def write_sensors(root: Path) -> list[str]:
    """Writes recordings of two labels; numbers 5 to 7 cannot be read."""
    keys = []
    for n in range(40):
        key = f"{'rest' if n % 2 else 'walk'}/{n:02d}.npy"
        (root / key).parent.mkdir(exist_ok=True)
        np.save(root / key, np.random.default_rng(n).normal(size=(1 + n % 9, 3)).astype(np.float32))
        keys.append(key)
    (root / keys[5]).write_bytes(b"not a recording")
    (root / keys[6]).unlink()
    (root / keys[7]).write_bytes((root / keys[8]).read_bytes()[:-1])
    return keys


def sensors(root: Path) -> Loader:
    job = SensorJob(Inputs.of([f"{root}/*/*"]), Labels("parent")).with_schema()
    return loader_of(job, {"label": ("rest", "walk")})


def loaded_by(loader: Loader, references: list[bytes]) -> tuple[Stretch, Statistics]:
    """What is loaded if the hash of each record is its number."""
    encoder = loader.encoder()
    loaded = loader.load(encoder, np.arange(len(references), dtype=np.uint64), references)
    return loaded, dict(encoder.statistics()).get(0, Statistics(loader.output.schema))


@pytest.fixture(scope="module")
def recordings(tmp_path_factory) -> tuple[Path, list[str]]:
    root = tmp_path_factory.mktemp("sensors")
    return root, write_sensors(root)


def test_loading_many_gives_the_same_as_encoding_one_by_one_in_the_requested_order(recordings):
    root, keys = recordings
    order = [keys[n] for n in np.random.default_rng(0).permutation(40)]
    loader = sensors(root)
    found, counted = loaded_by(loader, references_of(order))
    reasons = {
        keys[5]: "not a whole .npy",
        keys[6]: "cannot be read",
        keys[7]: "not a whole .npy",
    }
    records = [
        {"signal": np.load(root / key), "key": key, "label": int(key.startswith("walk"))}
        for key in order
        if key not in reasons
    ]
    expected = [frame(Encoder(loader.output.schema).encode(record)) for record in records]
    assert found.frames == b"".join(expected)
    assert found.lengths.dtype == np.int64
    assert found.lengths.tolist() == [len(framed) for framed in expected]
    good = [number for number, key in enumerate(order) if key not in reasons]
    assert found.hashes.tolist() == good
    rows = [struct.pack("<qI", record["label"], len(record["signal"])) for record in records]
    assert found.rows == b"".join(rows)
    statistics = Statistics(loader.output.schema)
    for record in records:
        statistics.add([Encoder(loader.output.schema).check(record)])
    assert counted.state() == statistics.state()
    assert [reject.key for reject in found.rejects] == [key for key in order if key in reasons]
    for reject in found.rejects:
        assert reject.stage == "decode" and reject.error.startswith(reasons[reject.key])


def test_a_file_whose_name_is_not_utf_8_is_a_reject(tmp_path):
    write_sensors(tmp_path)
    name = b"walk/\xff.npy"
    np.save(Path(str(tmp_path)) / name.decode("utf-8", "surrogateescape"), np.ones((1, 3), "f4"))
    loader = sensors(tmp_path)
    key = name.decode("utf-8", "surrogateescape")
    (reject,) = loaded_by(loader, references_of([key]))[0].rejects
    assert reject == Reject(key, "decode", "the file's name is not UTF-8: rename it")
    assert loader.measure(references_of([key])) == [reject]


def test_labels_are_numbers_or_the_indices_of_their_names(recordings):
    root, keys = recordings
    job = sensors(root).job
    loader = loader_of(job, {"label": ("other", "rest", "walk")})
    assert loader.record(Source(keys[0]))["label"] == 2
    assert loader.record(Source(keys[1]))["label"] == 1
    (root / "10").mkdir(exist_ok=True)
    np.save(root / "10/a.npy", np.ones((1, 3), np.float32))
    assert loader_of(job, {}).record(Source("10/a.npy"))["label"] == 10
    (root / "10/a.npy").unlink()


@dataclass(frozen=True)
class OddJob:
    """A job without files: its records follow from their keys."""

    inputs: Inputs = field(default_factory=lambda: Inputs((), "/"))
    labels: Labels = field(default_factory=Labels)
    extras = ()
    schema = Schema({"key": Feature("string"), "x": Feature("float32", (None,))})

    def reads(self, source: Source) -> tuple[()]:
        return ()

    def load(self, source: Source) -> Record:
        match source.key.split()[0]:
            case "reject":
                raise RejectError("broken")
            case "usage":
                raise UsageError("it differs from the others")
            case "wide":
                return Record({"x": np.ones((2, 2), np.float32)})
            case "other":
                return Record({"y": 1})
        # Statistics show the order of values unless they are added one by one.
        return Record({"x": (np.arange(int(source.key.split()[1])) * 0.1).astype(np.float32)})


def odd() -> Loader:
    return loader_of(OddJob())


def test_a_record_that_does_not_fit_the_schema_is_a_reject_of_another_stage():
    loaded, statistics = loaded_by(odd(), references_of(["reject", "wide", "other", "good 3"]))
    assert [(r.key, r.stage) for r in loaded.rejects] == [
        ("reject", "decode"),
        ("wide", "encode"),
        ("other", "encode"),
    ]
    assert loaded.rejects[0].error == "broken"
    assert "expected float32 [None], got float32 [2, 2]" in loaded.rejects[1].error
    assert statistics.records == 1


def test_a_usage_error_ends_the_job():
    references = references_of(["good 1", "usage"])
    for act in (functools.partial(loaded_by, odd()), odd().measure):
        with pytest.raises(UsageError, match="it differs from the others"):
            act(references)


def test_a_record_is_measured_to_the_byte_and_a_reject_is_returned(recordings):
    root, keys = recordings
    loader = sensors(root)
    sizes = loader.measure(references_of(keys))
    for n, (key, size) in enumerate(zip(keys, sizes, strict=True)):
        loaded, _ = loaded_by(loader, references_of([key]))
        assert size == (loaded.rejects[0] if n in (5, 6, 7) else len(loaded.frames))
        assert isinstance(size, Reject) == (n in (5, 6, 7))
    misfits = references_of(["wide", "reject", "other"])
    assert odd().measure(misfits) == loaded_by(odd(), misfits)[0].rejects
    assert odd().measure([]) == []


def test_a_loader_can_be_pickled_before_and_after_its_use(recordings):
    root, keys = recordings
    loader = sensors(root)
    fresh = pickle.dumps(loader)
    first, counted = loaded_by(loader, references_of(keys))
    # Loaders with the same bytes are unpickled once in each process.
    assert pickle.dumps(sensors(root)) == fresh
    for pickled in (fresh, pickle.dumps(loader)):
        again, more = loaded_by(pickle.loads(pickled), references_of(keys))
        assert (again.frames, again.rejects) == (first.frames, first.rejects)
        assert more.state() == counted.state()


@pytest.mark.parametrize("layouts", [4096, 3])
def test_threads_that_share_a_loader_get_the_same_as_each_alone(monkeypatch, layouts):
    monkeypatch.setattr("readers.format.encode.records._MAX_LAYOUTS", layouts)
    batches = [references_of([f"good {n * step % 300}" for n in range(150)]) for step in (1, 7)]
    alone = [loaded_by(odd(), batch) for batch in batches]
    for _ in range(5):
        shared = odd()
        barrier = threading.Barrier(2)

        def load(batch, shared=shared, barrier=barrier):
            barrier.wait(10)
            return loaded_by(shared, batch)

        with ThreadPoolExecutor(2) as threads:
            for expected, found in zip(alone, threads.map(load, batches), strict=True):
                assert found[0].frames == expected[0].frames
                assert found[0].lengths.tolist() == expected[0].lengths.tolist()
                assert found[1].state() == expected[1].state()


@pytest.mark.parametrize(
    ("splits", "processes", "expected"),
    [
        ([(1000, 1)], 1, 0),  # Nobody else could write a piece.
        ([(1000, 1)], 2, 250),
        ([(1000, 2)], 2, 0),  # Both write one shard.
        ([(1000, 3)], 2, 250),  # One would be idle for half of the time that a shard takes.
        ([(1000, 16)], 16, 0),
        ([(1000, 17)], 16, 31),
        ([(1000, 1), (10, 10)], 2, 253),  # The small shards of a split keep nobody busy.
        ([(1000, 100)], 16, 0),
        ([(0, 0), (7, 7)], 7, 0),
        ([(0, 0)], 4, 0),
    ],
)
def test_shards_are_written_in_pieces_where_whole_ones_leave_processes_idle(
    splits, processes, expected
):
    planned = (SplitPlan(n, 0, 9, shards, np.empty(0, np.uint64)) for n, shards in splits)
    shards = FileShards(None, Plan(tuple(planned)).pack())
    assert shards.piece_records(processes) == expected
