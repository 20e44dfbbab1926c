"""The two passes over files and packed archives: they agree, and with what loads single files."""

from __future__ import annotations

import io
import json
import tarfile
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from beam_jobs.errors import DataError, UsageError
from beam_jobs.jobs import file_passes
from beam_jobs.jobs.file_passes import FileFirstPass, FileSecondPass
from beam_jobs.jobs.images.annotations import Beside
from beam_jobs.jobs.images.job import ImageJob
from beam_jobs.jobs.loading import Loader
from beam_jobs.jobs.passes import EncodingPlan, SplitRules
from beam_jobs.jobs.sensors.conditioning import Conditioning
from beam_jobs.jobs.sensors.job import SensorJob
from beam_jobs.plan.groups import Groups
from beam_jobs.plan.placement import Placement, Splits
from beam_jobs.plan.shards import Plan, SplitPlan
from beam_jobs.sources.chunks import Chunk, Task
from beam_jobs.sources.classes import Names
from beam_jobs.sources.extra_features import parse_extra_features
from beam_jobs.sources.inputs import Inputs
from beam_jobs.sources.joined_inputs import JoinedInputs
from beam_jobs.sources.labels import Labels
from beam_jobs.sources.source import pack_reference
from readers.format.decode.records import Decoder
from readers.format.tfrecord import read_records

ONE = Placement(0, Splits())
TWO = Splits(("train", "val"), (0.5, 0.5))


def png(value: int) -> bytes:
    out = io.BytesIO()
    Image.fromarray(np.full((3, 4, 3), value, np.uint8)).save(out, "PNG")
    return out.getvalue()


def npy(array: np.ndarray) -> bytes:
    out = io.BytesIO()
    np.save(out, array)
    return out.getvalue()


def tar(path: Path, files: list[tuple[str, bytes]]) -> None:
    with tarfile.open(path, "w" if path.suffix == ".tar" else "w:gz") as archive:
        for name, data in files:
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))


def inputs_of(folder: Path, patterns: tuple[str, ...], columns: tuple[str, ...] = ()) -> Inputs:
    return Inputs.of([f"{folder}/{p}" for p in patterns], samples=True, columns=columns)


def pictures(
    folder: Path,
    *patterns: str,
    label: str = "none",
    extras: str = "",
    columns: tuple[str, ...] = (),
    beside: Beside = Beside(),  # noqa: B008  (it is frozen)
) -> ImageJob:
    features = parse_extra_features(extras) if extras else ()
    labels = Labels.parse(label)
    wanted = (*columns, *labels.columns, *(extra.name for extra in features))
    inputs = inputs_of(folder, patterns, wanted)
    return ImageJob(inputs, labels, extras=features, beside=beside)


def recordings(folder: Path, *patterns: str, window: str = "") -> SensorJob:
    conditioning = Conditioning.parse("keep", "", "", "", window, "", "", False)
    inputs = inputs_of(folder, patterns)
    return SensorJob(inputs, Labels(), conditioning=conditioning).with_schema()


def work_of(job: Any) -> Task:
    sources = [source for pattern in job.inputs.patterns for source in job.sources(pattern)]
    return Task(tuple(Chunk(source, 0, 0, 1, source.size) for source in sources))


class Planned(NamedTuple):
    """What the first pass finds: (split, label, bytes) by key, and rejects by key."""

    records: dict[str, tuple[int, Any, int]]
    rejects: dict[str, str]


class SecondPassResult(NamedTuple):
    """What the second pass makes: (split, frame) by key, rejects, late ones with their split."""

    frames: dict[str, tuple[int, bytes]]
    rejects: dict[str, str]
    late: dict[str, tuple[int, str, str]]


def planned(job: Any, placement: Placement = ONE) -> Planned:
    passing = FileFirstPass(rules=SplitRules(placement), on_reject="skip", job=job)
    result = Planned({}, {})
    for part in passing.found(work_of(job)):
        result.rejects.update({reject.key: reject.error for reject in part.rejects})
        rows = zip(part.keys, part.splits, part.labels, part.sizes, strict=True)
        for key, split, label, size in rows:
            assert key.decode() not in result.records
            result.records[key.decode()] = int(split), label, int(size)
    return result


def second(job: Any, names: Names, placement: Placement = ONE) -> FileSecondPass:
    shard = SplitPlan(1, 0, 1, 1, np.empty(0, np.uint64))
    plan = Plan((shard,) * len(placement.splits.names)).pack()
    known = EncodingPlan(rules=SplitRules(placement), schema=job.schema, names=names, plan=plan)
    return FileSecondPass(known, job)


def encoded(job: Any, names: Names | None = None, placement: Placement = ONE) -> SecondPassResult:
    passing = second(job, names or {}, placement)
    result = SecondPassResult({}, {}, {})
    for part in passing.encoded(work_of(job), passing.counter()):
        result.rejects.update({reject.key: reject.error for reject in part.rejects})
        result.late.update({r.key: (split, r.stage, r.error) for r, split in part.late})
        for key, split, frame in zip(part.keys, part.splits, part.frames, strict=True):
            assert key.decode() not in result.frames
            result.frames[key.decode()] = int(split), frame
    return result


def decoded(job: Any, frame: bytes) -> dict[str, Any]:
    ((_, example),) = read_records(io.BytesIO(frame), "frame")
    return Decoder(job.schema).decode(example)


FILES = [(f"{label}/{n}.png", png(10 * n)) for n, label in enumerate("abcab")]


def test_files_members_and_packed_members_are_records_alike(tmp_path):
    tar(tmp_path / "x.tar", FILES)
    tar(tmp_path / "y.tgz", FILES)
    for name, data in FILES:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(data)
    job = pictures(tmp_path, "**.png", "*.tar", "*.tgz", label="parent")
    names = {"label": ("a", "b", "c")}
    found, made = planned(job), encoded(job, names)
    assert not found.rejects and not made.rejects and not made.late
    assert found.records.keys() == made.frames.keys()
    assert len(made.frames) == 15
    loader = Loader(job, job.schema, names)
    for source in (s for p in job.inputs.patterns for s in job.sources(p) if not s.packed):
        assert made.frames[source.key][1] == loader.load([pack_reference(source)]).frames
    for number, (name, _) in enumerate(FILES):
        for key in (name, f"x.tar/{name}", f"y.tgz/{name}"):
            assert found.records[key][:2] == (0, name[0])
            assert found.records[key][2] - 3 * 4 * 3 in range(100, 300)
            record = decoded(job, made.frames[key][1])
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
        job = pictures(Path(folder), f"x{ending}", extras="age:int64")
        placement = Placement(3, TWO)
        found, made = planned(job, placement), encoded(job, placement=placement)
    expected = {n: f"x{ending}/{n}.png" for n in range(len(states))}
    late = {expected[n] for n, state in enumerate(states) if state in ("cut", "empty")}
    early = {expected[n] for n, state in enumerate(states) if state.startswith("no ")}
    assert made.rejects.keys() == found.rejects.keys() == early
    assert made.rejects == found.rejects
    assert made.late.keys() == late
    assert found.records.keys() == made.late.keys() | made.frames.keys()
    assert early | late | made.frames.keys() == set(expected.values())
    for key, (split, _, _) in found.records.items():
        assert split == placement.split(key)
        assert split == (made.late.get(key) or made.frames[key])[0]


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
    job = pictures(tmp_path, "*", label="column:cls")
    found, made = planned(job), encoded(job, {"label": ()})
    assert found.rejects == made.rejects
    reasons = dict(found.rejects)
    assert reasons.pop("x.tar.gz/alone.png") == "no column 'cls'; it has none"
    assert reasons.pop("gone.png").startswith("cannot be read: [Errno 2] No such file")
    assert reasons.pop(bad_name) == "the file's name is not UTF-8: rename it"
    assert reasons.pop("y.tar").startswith("the archive is damaged or cut off before its first")
    assert not reasons
    assert made.frames.keys() == {"x.tar.gz/float.png"}
    (key, (_, stage, error)), *more = made.late.items()
    assert (key, stage, more) == ("x.tar.gz/cut.png", "decode", [])
    assert error.startswith("not a picture that can be decoded: ")


def test_a_reject_ends_the_first_pass_where_it_may_not_be_skipped(tmp_path):
    tar(tmp_path / "x.tar.gz", FILES)
    job = pictures(tmp_path, "x.tar.gz", label="column:cls")
    passing = FileFirstPass(rules=SplitRules(ONE), on_reject="fail", job=job)
    with pytest.raises(DataError, match=r"x\.tar\.gz/a/0\.png: no column 'cls'.*--on_reject fail"):
        passing.read(work_of(job))


def test_a_label_that_a_table_lacks_is_the_users_mistake(tmp_path):
    tar(tmp_path / "x.tar.gz", FILES)
    (tmp_path / "l.csv").write_text("path,label\n0.png,cat\n")
    job = pictures(tmp_path, "x.tar.gz", label=f"csv:{tmp_path}/l.csv")
    with pytest.raises(UsageError, match=r"x\.tar\.gz/b/1\.png: --label csv:.* has no line for it"):
        planned(job)


# Columns.


def samples(columns: str) -> list[tuple[str, bytes]]:
    """A picture and the JSON beside it for each value in a text of words."""
    files = []
    for n, value in enumerate(columns.split()):
        files += [(f"{n}.png", png(n)), (f"{n}.json", json.dumps({"is": value}).encode())]
    return files


def test_a_column_names_the_split_and_what_it_names_else_is_rejected(tmp_path):
    tar(tmp_path / "x.tar.gz", samples("val train val tset"))
    job = pictures(tmp_path, "x.tar.gz", columns=("is",))
    placement = Placement(0, TWO, split_column="is")
    found, made = planned(job, placement), encoded(job, placement=placement)
    splits = {key[-5:]: split for key, (split, _, _) in found.records.items()}
    assert splits == {"0.png": 1, "1.png": 0, "2.png": 1}
    assert {key: split for key, (split, _) in made.frames.items()} == {
        key: split for key, (split, _, _) in found.records.items()
    }
    reason = "column 'is' is 'tset', --splits has train, val"
    assert found.rejects == made.rejects == {"x.tar.gz/3.png": reason}


def test_groups_of_a_column_are_in_one_split(tmp_path):
    tar(tmp_path / "x.tar.gz", samples(" ".join(f"p{n % 7}" for n in range(40))))
    job = pictures(tmp_path, "x.tar.gz", columns=("is",))
    placement = Placement(5, TWO, Groups(column="is"))
    found = planned(job, placement)
    for key, (split, _, _) in found.records.items():
        number = int(key.rpartition("/")[2].removesuffix(".png"))
        assert split == placement.split(f"p{number % 7}")
    assert {split for split, _, _ in found.records.values()} == {0, 1}


@pytest.mark.parametrize("name", ["label", "box_labels"])
def test_a_column_that_is_kept_may_be_called_as_classes_are(tmp_path, name):
    files = [("0.png", png(0)), ("0.json", json.dumps({name: "text"}).encode())]
    tar(tmp_path / "x.tar.gz", files)
    job = pictures(tmp_path, "x.tar.gz", extras=f"{name}:string")
    ((_, frame),) = encoded(job).frames.values()
    assert decoded(job, frame)[name].item() == b"text"


def test_members_of_a_packed_archive_have_the_boxes_and_captions_of_coco(tmp_path):
    coco = {
        "images": [{"id": 1, "file_name": "0.png", "height": 3, "width": 4}],
        "annotations": [{"id": 1, "image_id": 1, "category_id": 2, "bbox": [1, 0, 2, 3]}],
        "categories": [{"id": 2, "name": "dog"}, {"id": 1, "name": "cat"}],
    }
    captions = [{"id": 1, "image_id": 1, "caption": "A dog."}]
    (tmp_path / "c.json").write_text(json.dumps(coco))
    (tmp_path / "t.json").write_text(json.dumps(coco | {"annotations": captions}))
    beside = Beside.parse(f"coco:{tmp_path}/c.json", "", f"coco:{tmp_path}/t.json", "")
    tar(tmp_path / "x.tar.gz", [("a/0.png", png(0)), ("a/1.png", png(1))])
    job = pictures(tmp_path, "x.tar.gz", beside=beside)
    found, made = planned(job), encoded(job, beside.known_classes)
    unknown = {"x.tar.gz/a/1.png": "the COCO file has no picture of this name"}
    assert found.rejects == made.rejects == unknown
    record = decoded(job, made.frames["x.tar.gz/a/0.png"][1])
    np.testing.assert_array_equal(record["boxes"], [[0, 0.25, 1, 0.75]])
    assert record["box_labels"].tolist() == [1]
    assert record["captions"].tolist() == [b"A dog."]


# Several records of a file.


def test_windows_are_records_of_their_recording(tmp_path):
    files = [(f"{n}.npy", npy(np.full((10 * n, 2), n))) for n in (1, 3)]
    tar(tmp_path / "x.tar.gz", [*files, ("short.npy", npy(np.zeros((3, 2), np.int64)))])
    (tmp_path / "2.npy").write_bytes(npy(np.full((20, 2), 2)))
    job = recordings(tmp_path, "*", window="8")
    placement = Placement(0, TWO)
    found, made = planned(job, placement), encoded(job, placement=placement)
    keys = {"x.tar.gz/1.npy#1": 1, "2.npy#1": 2, "2.npy#2": 2}
    keys |= {f"x.tar.gz/3.npy#{n}": 3 for n in (1, 2, 3)}
    assert found.records.keys() == made.frames.keys() == keys.keys()
    for key, value in keys.items():
        split = placement.split(key.partition("#")[0])
        assert found.records[key][0] == made.frames[key][0] == split
        assert found.records[key][2] in range(len(made.frames[key][1]) - 60, 400)
        signal = decoded(job, made.frames[key][1])["signal"]
        np.testing.assert_array_equal(signal, np.full((8, 2), value))
    assert found.rejects.keys() == made.rejects.keys() == {"x.tar.gz/short.npy"}


def test_recordings_of_several_files_have_windows(tmp_path):
    for recording in (1, 2):
        for array in ("acc", "gyr"):
            data = npy(np.full((9, 2), recording if array == "acc" else -recording))
            (tmp_path / f"{recording}_{array}.npy").write_bytes(data)
    inputs = Inputs.of([f"{tmp_path}/*.npy"])
    joined = JoinedInputs(inputs.patterns, inputs.root, join="{recording}_{array}.npy")
    conditioning = Conditioning.parse("keep", "", "", "", "4", "", "", False)
    job = SensorJob(joined, Labels(), conditioning=conditioning).with_schema()
    made = encoded(job)
    assert made.frames.keys() == {f"{r}#{n}" for r in (1, 2) for n in (1, 2)}
    record = decoded(job, made.frames["2#1"][1])
    np.testing.assert_array_equal(record["acc"], np.full((4, 2), 2))
    np.testing.assert_array_equal(record["gyr"], np.full((4, 2), -2))


def test_a_packed_archive_among_files_that_are_joined_is_a_reject(tmp_path):
    tar(tmp_path / "x.tar.gz", FILES)
    inputs = Inputs.of([f"{tmp_path}/*"])
    joined = JoinedInputs(inputs.patterns, inputs.root, join="{recording}_{array}.npy")
    found = planned(SensorJob(joined, Labels()))
    reason = "its name does not fit --join {recording}_{array}.npy"
    assert found == Planned({}, {"x.tar.gz": reason})


def test_windows_are_handed_over_before_all_are_made(tmp_path, monkeypatch):
    (tmp_path / "a.npy").write_bytes(npy(np.arange(5000.0)))
    job = recordings(tmp_path, "*.npy", window="5")
    monkeypatch.setattr(file_passes, "_BATCH_BYTES", 10_000)
    passing = second(job, {})
    parts = list(passing.encoded(work_of(job), passing.counter()))
    assert len(parts) > 9
    assert [key for part in parts for key in part.keys] == [b"a.npy#%d" % n for n in range(1, 1001)]


def test_a_window_that_fails_is_a_late_reject_and_so_are_those_after_it(tmp_path, monkeypatch):
    (tmp_path / "a.npy").write_bytes(npy(np.arange(40.0)))
    job = recordings(tmp_path, "*.npy", window="5")
    real = SensorJob.records_of

    def failing(self: SensorJob, source: Any, data: bytes) -> Any:
        for number, found in enumerate(real(self, source, data)):
            yield found if number != 3 else (found[0], {"signal": np.zeros((5, 7))})

    monkeypatch.setattr(SensorJob, "records_of", failing)
    found, made = planned(job), encoded(job)
    assert made.frames.keys() == {f"a.npy#{n}" for n in (1, 2, 3)}
    assert made.late.keys() == {f"a.npy#{n}" for n in (4, 5, 6, 7, 8)}
    assert found.records.keys() == made.frames.keys() | made.late.keys()
    reasons = {(stage, error) for _, stage, error in made.late.values()}
    ((stage, error),) = reasons
    assert stage == "encode" and "signal" in error
