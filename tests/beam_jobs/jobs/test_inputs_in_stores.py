"""Inputs in stores are read as files are, in as few requests as possible, and many at once."""

from __future__ import annotations

import os
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from beam_jobs.dataset.shard_writer import Stretch
from beam_jobs.errors import DataError, RejectError
from beam_jobs.jobs.file_shards import Loader
from beam_jobs.jobs.images.annotations import ImageAnnotations
from beam_jobs.jobs.images.image_job import ImageJob
from beam_jobs.jobs.reshard.examples import batches_of
from beam_jobs.jobs.reshard.reshard_job import ReshardJob
from beam_jobs.jobs.split_rules import SplitRules
from beam_jobs.jobs.text.split_texts import all_texts
from beam_jobs.jobs.text.text_job import TextJob
from beam_jobs.sources.chunks import CHUNK_BYTES, Task, batch_chunks, numbered_chunks
from beam_jobs.sources.inputs import Inputs
from beam_jobs.sources.labels import Labels
from beam_jobs.sources.source import Source, pack_reference
from beam_jobs.storage.paths import absolute
from readers.files import backoff
from readers.format.tfrecord import frame
from tests.support.archives import tarred, zipped
from tests.support.images import encoded
from tests.support.passes import ONE, loader_of


@pytest.fixture(autouse=True)
def short_waits(monkeypatch):
    monkeypatch.setattr(backoff, "LONGEST_WAIT", 0.01)


def write_images(folder: Path, count: int) -> None:
    folder.mkdir()
    rng = np.random.default_rng(0)
    for n in range(count):
        pixels = rng.integers(0, 256, (20, 30, 3), dtype=np.uint8)
        (folder / f"{n:03d}.png").write_bytes(encoded(pixels, "PNG"))
    (folder / "bad.png").write_bytes(b"no image")


def images(root: str) -> ImageJob:
    return ImageJob(Inputs.of([root]), Labels("none"), image_size=(8, 8))


def listed(job) -> list[Source]:
    """The sources of a job, and one that is gone when it is read."""
    sources = sorted(s for pattern in job.inputs.patterns for s in job.sources(pattern))
    return [*sources, Source("gone.png", 7, 1)]


def loaded_by(loader: Loader, references: list[bytes]) -> Stretch:
    """What is loaded if the hash of each record is its number."""
    hashes = np.arange(len(references), dtype=np.uint64)
    return loader.load(loader.encoder(), hashes, references)


def loaded(job):
    loader = loader_of(job)
    references = list(map(pack_reference, listed(job)))
    return loaded_by(loader, references), loader.measure(references)


def test_a_folder_of_pictures_in_a_store_is_found_with_two_requests(store, tmp_path):
    write_images(tmp_path / "in", 3)
    url = store.upload(tmp_path / "in")
    store.proxy.forget()
    assert images(url).inputs.patterns == (f"{url}/**",)
    # Whether it is a folder, and not empty.
    assert len([request for request in store.proxy.seen() if "prefix" in request.query]) == 2


@pytest.mark.parametrize(
    ("names", "is_folder"),
    [
        (["in/a.png"], True),
        (["in-2/a.png", "in/a.png"], True),
        (["in/", "in/a.png"], True),
        (["in/.hidden", "in/a.png"], True),
        (["in-2/a.png"], False),
        (["in/", "in/.hidden"], False),
        (["in", "in/a.png"], False),
        ([], False),
    ],
)
def test_a_folder_in_a_store_has_a_file(s3, names, is_folder):
    for name in names:
        s3.put(f"{s3.url}/{name}", b"x")
    assert absolute(f"{s3.url}/in/") == f"{s3.url}/in" + ("/**" if is_folder else "")


def test_small_files_of_a_store_are_read_with_one_request_each(store, tmp_path):
    write_images(tmp_path / "in", 12)
    here, sizes = loaded(images(str(tmp_path / "in")))
    job = images(store.upload(tmp_path / "in"))
    references = list(map(pack_reference, listed(job)))
    store.proxy.forget()
    there = loaded_by(loader_of(job), references)
    for n in range(12):
        assert len(store.proxy.seen(f"{n:03d}.png")) == 1
    assert there.frames == here.frames
    assert there.lengths.tolist() == here.lengths.tolist()
    assert [(r.key, r.stage) for r in there.rejects] == [(r.key, r.stage) for r in here.rejects]
    assert [r.key for r in there.rejects] == ["bad.png", "gone.png"]
    assert loader_of(job).measure(references)[:12] == sizes[:12]


def test_a_store_that_keeps_failing_ends_the_job_and_rejects_nothing(s3, tmp_path, monkeypatch):
    monkeypatch.setattr(backoff, "TRIES", 2)
    write_images(tmp_path / "in", 25)
    job = images(s3.upload(tmp_path / "in"))
    references = list(map(pack_reference, listed(job)))
    s3.proxy.fault(503, "020.png")
    with pytest.raises(DataError, match=r"020\.png: the store keeps failing"):
        loaded_by(loader_of(job), references)


@pytest.mark.parametrize("archive", ["zip", "tar"])
def test_members_of_archives_are_read_by_ranges_of_their_size(store, tmp_path, archive):
    write_images(tmp_path / "in", 20)
    members = {p.name: p.read_bytes() for p in sorted((tmp_path / "in").iterdir())}
    (tmp_path / "a").mkdir()
    pack = zipped if archive == "zip" else tarred
    (tmp_path / "a" / f"x.{archive}").write_bytes(pack(members.items()))
    here = images(str(tmp_path / "a"))
    there = images(store.upload(tmp_path / "a"))
    sources = listed(there)[:-1]
    assert [s._replace(modified=0) for s in sources] == [
        s._replace(modified=0) for s in listed(here)[:-1]
    ]
    references = list(map(pack_reference, sources))
    store.proxy.forget()
    found = loaded_by(loader_of(there), references)
    assert found.frames == loaded_by(loader_of(here), references).frames
    requests = store.proxy.seen()
    assert len(requests) == len(sources)
    if store.url.startswith("s3"):  # In Google's store, the emulator answers past the proxy.
        sent = sum(request.sent for request in requests)
        assert sent < sum(map(len, members.values())) + 200 * len(members)


def test_the_headers_of_a_tar_are_found_in_few_requests(s3):
    members = {f"{n:03d}.bin": os.urandom(400_000) for n in range(12)}
    s3.put(f"{s3.url}/in/x.tar", tarred(members.items()))
    inputs = Inputs.of([f"{s3.url}/in/*.tar"])
    s3.proxy.forget()
    found = list(inputs.sources(inputs.patterns[0]))
    assert [source.key for source in found] == [f"x.tar/{name}" for name in members]
    assert len(s3.proxy.seen("x.tar")) <= 4


def test_annotations_are_read_ahead_with_their_images(s3, tmp_path):
    write_images(tmp_path / "in", 10)
    (tmp_path / "in" / "bad.png").unlink()
    box = "<bndbox><xmin>1</xmin><ymin>1</ymin><xmax>9</xmax><ymax>9</ymax></bndbox>"
    size = "<size><width>30</width><height>20</height><depth>3</depth></size>"
    xml = f"<annotation>{size}<object><name>cat</name>{box}</object></annotation>"
    for n in range(10):
        (tmp_path / "in" / f"{n:03d}.xml").write_text(xml)

    def job_of(root: str) -> ImageJob:
        annotations = ImageAnnotations(boxes="voc")
        inputs = Inputs.of([f"{root}/*.png"])
        return ImageJob(inputs, Labels("none"), image_size=(8, 8), annotations=annotations)

    here, there = job_of(str(tmp_path / "in")), job_of(s3.upload(tmp_path / "in"))
    names = {"box_labels": ("cat",)}
    sources = listed(there)[:-1]
    s3.proxy.forget()
    first_pass = there.first_pass(SplitRules(ONE), "skip")
    task = Task.of([chunk for source in sources for chunk in there.chunks(source)])
    assert first_pass.read(task).summary.labels["box_labels"]["cat"] == 10
    assert [len(s3.proxy.seen(end)) for end in ("xml", "png")] == [10, 0]
    s3.proxy.forget()
    loader = loader_of(there, names)
    found = loaded_by(loader, list(map(pack_reference, sources)))
    assert [len(s3.proxy.seen(end)) for end in ("xml", "png")] == [10, 10]
    expected = loader_of(here, names)
    assert found.frames == loaded_by(expected, list(map(pack_reference, listed(here)[:-1]))).frames


def texts_of(job, tasks):
    return [(t.keys, t.texts) for task in tasks for t in all_texts(job, task)]


def tasks_of(job, source):
    chunks = list(job.chunks(source))
    if not chunks[0].first:
        count = job.range_counter()
        chunks = list(numbered_chunks(count(Task.of(list(chunks)))))
    return list(batch_chunks(chunks, job.inputs.task_bytes))


def test_lines_are_read_by_ranges_of_their_chunks(s3, tmp_path):
    (tmp_path / "in").mkdir()
    rng = np.random.default_rng(0)
    lines = [b"%d " % n * int(rng.integers(1, 60)) for n in range(100_000)]
    (tmp_path / "in" / "a.txt").write_bytes(b"\n".join(lines))
    size = (tmp_path / "in" / "a.txt").stat().st_size
    assert size > 3 * CHUNK_BYTES
    here = TextJob(Inputs.of([f"{tmp_path}/in/*.txt"]), Labels("none"))
    there = TextJob(Inputs.of([f"{s3.upload(tmp_path / 'in')}/*.txt"]), Labels("none"))
    (source,) = there.sources(there.inputs.patterns[0])
    tasks = tasks_of(there, source)
    assert len(tasks) < len(tasks_of(here, source))
    s3.proxy.forget()
    found = texts_of(there, tasks)
    assert found == texts_of(here, tasks)
    chunks = sum(len(task.chunks) for task in tasks)
    requested = s3.proxy.seen("a.txt")
    assert len(requested) == chunks
    assert size <= sum(r.sent for r in requested) <= size + chunks


def test_records_of_a_large_file_are_read_by_ranges(s3, tmp_path, monkeypatch):
    from beam_jobs.jobs.reshard import reshard_job

    monkeypatch.setattr(reshard_job, "RANGE_BYTES", 100_000)
    data = b"".join(frame(os.urandom(3000)) for _ in range(200))
    s3.put(f"{s3.url}/in/a.tfrecord", data)
    job = ReshardJob(Inputs.of([f"{s3.url}/in"]))
    (source,) = job.sources(job.inputs.patterns[0])
    tasks = tasks_of(job, source)
    assert sum(len(task.chunks) for task in tasks) == 7
    found = [
        batch.data[: int(batch.lengths.sum())].tobytes()
        for task in tasks
        for _, batch in batches_of(job, task)
    ]
    assert b"".join(found) == data


def test_files_on_a_disk_start_no_threads(tmp_path):
    write_images(tmp_path / "in", 5)
    before = set(threading.enumerate())
    found, _ = loaded(images(str(tmp_path / "in")))
    assert len(found.lengths) == 5
    assert set(threading.enumerate()) <= before
    job = images(str(tmp_path / "in"))
    assert list(job.reads(listed(job)[0])) == []


def test_an_image_of_more_bytes_than_a_record_may_take_is_rejected_unread(tmp_path):
    write_images(tmp_path / "in", 1)
    job = images(str(tmp_path / "in" / "000.png"))
    (source,) = job.sources(job.inputs.patterns[0])
    job = replace(job, inputs=replace(job.inputs, max_bytes=source.size - 1))
    with pytest.raises(
        RejectError, match=rf"it has {source.size} bytes, more than {source.size - 1}"
    ):
        job.load(source)
