"""The two passes over files and packed archives agree with each other and with loading files."""

from __future__ import annotations

import io
import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beam_jobs.cli.sensors import SensorFlags
from beam_jobs.jobs import file_passes
from beam_jobs.jobs.images.annotations import ImageAnnotations
from beam_jobs.jobs.images.image_job import ImageJob
from beam_jobs.jobs.record import Record
from beam_jobs.jobs.sensors.sensor_job import SensorJob
from beam_jobs.jobs.split_rules import SplitRules
from beam_jobs.plan.placement import Placement, Splits
from beam_jobs.sources.extra_features import parse_extra_features
from beam_jobs.sources.inputs import Inputs
from beam_jobs.sources.joined_inputs import JoinedInputs
from beam_jobs.sources.labels import Labels
from beam_jobs.sources.source import pack_reference
from tests.support.archives import tarred
from tests.support.images import encoded
from tests.support.passes import (
    ONE,
    FirstResult,
    decode,
    encode,
    find,
    loader_of,
    second_pass,
    task_of,
)

TWO = Splits(("train", "val"), (0.5, 0.5))


def png(value: int) -> bytes:
    return encoded(np.full((3, 4, 3), value, np.uint8), "PNG")


def npy(array: np.ndarray) -> bytes:
    out = io.BytesIO()
    np.save(out, array)
    return out.getvalue()


def tar(path: Path, files: list[tuple[str, bytes]]) -> None:
    path.write_bytes(tarred(files, "w" if path.suffix == ".tar" else "w:gz"))


def inputs_of(folder: Path, patterns: tuple[str, ...], columns: tuple[str, ...] = ()) -> Inputs:
    return Inputs.of([f"{folder}/{p}" for p in patterns], samples=True, columns=columns)


def image_job(
    folder: Path,
    *patterns: str,
    label: str = "none",
    extras: str = "",
    columns: tuple[str, ...] = (),
    annotations: ImageAnnotations = ImageAnnotations(),  # noqa: B008  (it is frozen)
) -> ImageJob:
    features = parse_extra_features(extras) if extras else ()
    labels = Labels.parse(label)
    wanted = (*columns, *labels.columns, *(extra.name for extra in features))
    inputs = inputs_of(folder, patterns, wanted)
    return ImageJob(inputs, labels, extras=features, annotations=annotations)


def sensor_job(folder: Path, *patterns: str, window: str = "", label: str = "none") -> SensorJob:
    conditioning = SensorFlags(window=window).conditioning()
    inputs = inputs_of(folder, patterns)
    return SensorJob(inputs, Labels.parse(label), conditioning=conditioning).with_schema()


FILES = [(f"{label}/{n}.png", png(10 * n)) for n, label in enumerate("abcab")]


def test_files_members_and_packed_members_are_records_alike(tmp_path):
    tar(tmp_path / "x.tar", FILES)
    tar(tmp_path / "y.tgz", FILES)
    for name, data in FILES:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(data)
    job = image_job(tmp_path, "**.png", "*.tar", "*.tgz", label="parent")
    names = {"label": ("a", "b", "c")}
    found, written = find(job), encode(job, names)
    assert not found.rejects and not written.rejects and not written.late
    assert found.records.keys() == written.frames.keys()
    assert len(written.frames) == 15
    loader = loader_of(job, names)
    for source in (s for p in job.inputs.patterns for s in job.sources(p) if not s.packed):
        assert (
            written.frames[source.key][1]
            == loader.load(
                loader.encoder(), np.zeros(1, np.uint64), [pack_reference(source)]
            ).frames
        )
    for number, (name, _) in enumerate(FILES):
        for key in (name, f"x.tar/{name}", f"y.tgz/{name}"):
            assert found.records[key][:2] == (0, name[0])
            assert found.records[key][2] - 3 * 4 * 3 in range(100, 300)
            record = decode(job, written.frames[key][1])
            assert record["key"].item() == key.encode()
            assert record["label"] == "abc".index(name[0])
            assert (record["image"] == 10 * number).all()


@given(
    st.lists(st.sampled_from(["good", "cut", "empty", "no json", "no column", "no number"])),
    st.sampled_from([".tar", ".tar.gz"]),
)
@settings(max_examples=30)
def test_both_passes_agree_on_every_member_and_on_its_split(states, ending):
    files = []
    for n, state in enumerate(states):
        data = {"cut": png(n)[:40], "empty": b""}.get(state, png(n))
        row = {"no json": "{", "no column": "{}", "no number": '{"age": "old"}'}
        files.append((f"{n}.png", data))
        files.append((f"{n}.json", row.get(state, json.dumps({"age": n})).encode()))
    with tempfile.TemporaryDirectory() as folder:
        tar(Path(folder, f"x{ending}"), files)
        job = image_job(Path(folder), f"x{ending}", extras="age:int64")
        placement = Placement(3, TWO)
        found, written = find(job, placement), encode(job, placement=placement)
    expected = {n: f"x{ending}/{n}.png" for n in range(len(states))}
    late = {expected[n] for n, state in enumerate(states) if state in ("cut", "empty")}
    early = {expected[n] for n, state in enumerate(states) if state.startswith("no ")}
    assert written.rejects.keys() == found.rejects.keys() == early
    assert written.rejects == found.rejects
    assert written.late.keys() == late
    assert found.records.keys() == written.late.keys() | written.frames.keys()
    assert early | late | written.frames.keys() == set(expected.values())
    for key, (split, _, _) in found.records.items():
        assert split == placement.split(key)
        assert split == (written.late.get(key) or written.frames[key])[0]


def test_every_reject_has_its_reason_and_its_stage(tmp_path):
    files = [
        ("cut.png", png(1)[:40]),
        ("cut.cls", b"1"),
        ("alone.png", png(1)),
        ("float.png", png(1)),
        ("float.cls", b"1"),
    ]
    tar(tmp_path / "x.tar.gz", files)
    (tmp_path / "gone.png").symlink_to(tmp_path / "nowhere")
    bad_name = b"bad\xff.png".decode("utf-8", "surrogateescape")
    (tmp_path / bad_name).write_bytes(png(1))
    (tmp_path / "y.tar").write_bytes(b"damaged")
    job = image_job(tmp_path, "*.png", "*.tar", "*.tar.gz", label="column:cls")
    found, written = find(job), encode(job, {"label": ()})
    assert found.rejects == written.rejects
    reasons = dict(found.rejects)
    assert reasons.pop("x.tar.gz/alone.png") == "no column 'cls'; it has none"
    assert reasons.pop("gone.png") == "no column 'cls'; it has none"
    assert reasons.pop(bad_name) == "the file's name is not UTF-8: rename it"
    assert reasons.pop("y.tar").startswith("the archive is damaged or cut off before its first")
    assert not reasons
    assert written.frames.keys() == {"x.tar.gz/float.png"}
    (key, (_, stage, error)), *more = written.late.items()
    assert (key, stage, more) == ("x.tar.gz/cut.png", "decode", [])
    assert error.startswith("cannot be decoded: ")


def test_the_classes_do_not_depend_on_whether_files_can_be_read(tmp_path):
    shapes = {"long": (20, 2), "short": (3, 2)}
    for label, shape in shapes.items():
        (tmp_path / label).mkdir()
        (tmp_path / label / "a.npy").write_bytes(npy(np.ones(shape, "float32")))
    for label in ("broken", "gone"):
        (tmp_path / label).mkdir()
    (tmp_path / "broken" / "a.npy").write_bytes(b"no array")
    (tmp_path / "gone" / "a.npy").symlink_to(tmp_path / "nowhere")
    whole = sensor_job(tmp_path, "*/*", label="parent")
    assert whole.whole_files
    windows = sensor_job(tmp_path, "*/*", label="parent", window="4")
    for job, expected in ((whole, [1, 1, 1, 1]), (windows, [0, 0, 5, 0])):
        found = job.first_pass(SplitRules(ONE)).read(task_of(job)).summary.labels["label"]
        assert sorted(found.items()) == [
            *zip(["broken", "gone", "long", "short"], expected, strict=True)
        ]


# Columns.


def samples(columns: str) -> list[tuple[str, bytes]]:
    """An image and its JSON file for each word of a text."""
    files = []
    for n, value in enumerate(columns.split()):
        files += [(f"{n}.png", png(n)), (f"{n}.json", json.dumps({"is": value}).encode())]
    return files


def test_a_column_gives_the_split_and_rows_with_unknown_splits_are_rejected(tmp_path):
    tar(tmp_path / "x.tar.gz", samples("val train val tset"))
    job = image_job(tmp_path, "x.tar.gz", columns=("is",))
    placement = Placement(0, TWO, split_column="is")
    found, written = find(job, placement), encode(job, placement=placement)
    splits = {key[-5:]: split for key, (split, _, _) in found.records.items()}
    assert splits == {"0.png": 1, "1.png": 0, "2.png": 1}
    assert {key: split for key, (split, _) in written.frames.items()} == {
        key: split for key, (split, _, _) in found.records.items()
    }
    reason = "column 'is' is 'tset', expected one of train, val"
    assert found.rejects == written.rejects == {"x.tar.gz/3.png": reason}


@pytest.mark.parametrize("name", ["label", "box_labels"])
def test_an_extra_column_may_have_the_name_of_a_class_feature(tmp_path, name):
    files = [("0.png", png(0)), ("0.json", json.dumps({name: "text"}).encode())]
    tar(tmp_path / "x.tar.gz", files)
    job = image_job(tmp_path, "x.tar.gz", extras=f"{name}:string")
    ((_, frame),) = encode(job).frames.values()
    assert decode(job, frame)[name].item() == b"text"


# Several records of a file.


def test_windows_are_records_of_their_recording(tmp_path):
    files = [(f"{n}.npy", npy(np.full((10 * n, 2), n))) for n in (1, 3)]
    tar(tmp_path / "x.tar.gz", [*files, ("short.npy", npy(np.zeros((3, 2), np.int64)))])
    (tmp_path / "2.npy").write_bytes(npy(np.full((20, 2), 2)))
    job = sensor_job(tmp_path, "*", window="8")
    placement = Placement(0, TWO)
    found, written = find(job, placement), encode(job, placement=placement)
    keys = {"x.tar.gz/1.npy#1": 1, "2.npy#1": 2, "2.npy#2": 2}
    keys |= {f"x.tar.gz/3.npy#{n}": 3 for n in (1, 2, 3)}
    assert found.records.keys() == written.frames.keys() == keys.keys()
    for key, value in keys.items():
        split = placement.split(key.partition("#")[0])
        assert found.records[key][0] == written.frames[key][0] == split
        assert found.records[key][2] in range(len(written.frames[key][1]) - 60, 400)
        signal = decode(job, written.frames[key][1])["signal"]
        np.testing.assert_array_equal(signal, np.full((8, 2), value))
    assert found.rejects.keys() == written.rejects.keys() == {"x.tar.gz/short.npy"}


def test_a_packed_archive_among_files_that_are_joined_is_a_reject(tmp_path):
    tar(tmp_path / "x.tar.gz", FILES)
    inputs = Inputs.of([f"{tmp_path}/*"])
    joined = JoinedInputs(inputs.patterns, inputs.root, join="{recording}_{array}.npy")
    found = find(SensorJob(joined, Labels()))
    reason = "its name does not fit --join {recording}_{array}.npy"
    assert found == FirstResult({}, {"x.tar.gz": reason})


def test_windows_are_passed_on_before_all_are_encoded(tmp_path, monkeypatch):
    (tmp_path / "a.npy").write_bytes(npy(np.arange(5000.0)))
    job = sensor_job(tmp_path, "*.npy", window="5")
    monkeypatch.setattr(file_passes, "_BATCH_BYTES", 10_000)
    file_pass = second_pass(job, {})
    parts = list(file_pass.encoded(task_of(job), file_pass.counter()))
    assert len(parts) > 9
    assert [key for part in parts for key in part.keys] == [b"a.npy#%d" % n for n in range(1, 1001)]


def test_a_window_that_fails_is_a_late_reject_and_so_are_those_after_it(tmp_path, monkeypatch):
    (tmp_path / "a.npy").write_bytes(npy(np.arange(40.0)))
    job = sensor_job(tmp_path, "*.npy", window="5")
    real = SensorJob.records_of

    def failing(self: SensorJob, source: Any, data: bytes) -> Any:
        for number, found in enumerate(real(self, source, data)):
            yield found if number != 3 else (found[0], Record({"signal": np.zeros((5, 7))}))

    monkeypatch.setattr(SensorJob, "records_of", failing)
    found, written = find(job), encode(job)
    assert written.frames.keys() == {f"a.npy#{n}" for n in (1, 2, 3)}
    assert written.late.keys() == {f"a.npy#{n}" for n in (4, 5, 6, 7, 8)}
    assert found.records.keys() == written.frames.keys() | written.late.keys()
    reasons = {(stage, error) for _, stage, error in written.late.values()}
    ((stage, error),) = reasons
    assert stage == "encode" and "signal" in error
