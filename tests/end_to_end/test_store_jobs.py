"""Jobs that read and write object stores: the bytes of a disk, few requests, no half datasets."""

import json
import random
import re

import boto3
import numpy as np
import pytest

from beam_jobs.storage import atomic
from readers.files import backoff
from tests.support.archives import tarred
from tests.support.commands import (
    BEAM_WORKERS,
    ONE,
    TWO,
    kept_shards,
    refused,
    run,
    without_progress,
)
from tests.support.datasets import write_recordings
from tests.support.images import encoded
from tests.support.object_stores import uninstall

SPLITS = ["--splits", "train=0.7,val=0.3", "--num_shards", "train=4,val=2"]


def stored(bucket, below=""):
    """All objects under a prefix as name -> bytes, read past the proxy."""
    if bucket.url.startswith("s3"):
        name = bucket.url[5:]
        client = boto3.client("s3", endpoint_url=f"http://127.0.0.1:{bucket.server.port}")
        pages = client.get_paginator("list_objects_v2").paginate(Bucket=name, Prefix=below)
        keys = [found["Key"] for page in pages for found in page.get("Contents", ())]
        got = {key: client.get_object(Bucket=name, Key=key)["Body"].read() for key in keys}
    else:
        paths = [path for path, *_ in atomic.list_files(f"{bucket.url}/{below}".rstrip("/"))]
        got = {path.removeprefix(f"{bucket.url}/"): bucket.get(path) for path in paths}
    return {name.removeprefix(below): data for name, data in got.items()}


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    """A folder of every kind of input."""
    base = tmp_path_factory.mktemp("inputs")
    write_recordings(base / "sensors", [1 + n * n % 90 for n in range(90)], range(0, 90, 7))
    (base / "text").mkdir()
    for name in "ab":
        rows = [f'{{"text": "{name} {n % 7} {n}", "label": {n % 3}}}' for n in range(60)]
        rows[3] = "{"
        (base / "text" / f"{name}.jsonl").write_text("\n".join(rows))
    noise = random.Random(0)
    for label in ("cat", "dog"):
        (base / "images" / label).mkdir(parents=True)
        for n in range(8):
            pixels = np.frombuffer(noise.randbytes(20 * 30 * 3), np.uint8).reshape(20, 30, 3)
            (base / "images" / label / f"{n}.png").write_bytes(encoded(pixels, "PNG"))
    (base / "images" / "cat" / "bad.png").write_bytes(b"not an image")
    files = files_below(base / "images")
    (base / "images.tar").write_bytes(tarred(sorted(files.items())))
    rows = "".join(f"{n % 3},{'abc'[n % 3]}/{n:05d}.npy\n" for n in range(90))
    (base / "sensors.csv").write_text("site,path\n" + rows)
    return base


# {} is the location of the inputs.
JOBS = {
    "images": "images --input {}/images/*/*.png --image_size 16x16 --label parent",
    "archive": "images --input {}/images.tar --image_size 16x16 --label parent",
    "text": "text --input {}/text/*.jsonl --label_field label --tokens words",
    "sensors": "sensors --input {}/sensors/*/*.npy --label parent",
    "table": "sensors --table {}/sensors.csv --input {}/sensors --label column:site",
}


def job(name, place):
    """The arguments of a job."""
    return [*JOBS[name].replace("{}", str(place)).split(), "--max_rejects", "all"]


@pytest.fixture(scope="module")
def on_disk(inputs, tmp_path_factory):
    """Job -> its files on a disk; each job runs when it is first needed."""
    base = tmp_path_factory.mktemp("on_disk")

    class Run(dict):
        def __missing__(self, name):
            arguments = job(name, inputs)
            assert run(*arguments, *SPLITS, *ONE, "--output", base / name) == 0
            return self.setdefault(name, comparable(files_below(base / name)))

    return Run()


def files_below(directory):
    files = [path for path in directory.rglob("*") if path.is_file()]
    return {path.relative_to(directory).as_posix(): path.read_bytes() for path in files}


def comparable(files):
    """Files, without the location of the inputs in the manifest, and its checksum."""
    manifest = json.loads(files["manifest.json"])
    assert files["generations/1.json"] == files["manifest.json"]
    del manifest["crc32c"]
    for option in ("input", "table"):
        manifest["options"].pop(option, None)
    return {**files, "manifest.json": manifest, "generations/1.json": manifest}


AZURE = pytest.param("azure_of_module", marks=pytest.mark.azurite)


@pytest.fixture(scope="module", params=["s3_of_module", "gcs_of_module", AZURE])
def filled(request, inputs):
    """A bucket of each store, with the inputs."""
    bucket = request.getfixturevalue(request.param)
    bucket.upload(inputs, "in")
    return bucket


@pytest.mark.slow
@pytest.mark.parametrize("name", [pytest.param("images", marks=pytest.mark.ci), *list(JOBS)[1:]])
def test_a_job_from_store_to_store_writes_the_same_bytes_as_on_a_disk(
    filled, inputs, on_disk, name
):
    store = filled
    arguments = job(name, f"{store.url}/in")
    workers = TWO if name in ("images", "text") else ONE
    assert run(*arguments, *SPLITS, *workers, "--output", f"{store.url}/out/{name}") == 0
    assert comparable(stored(store, f"out/{name}/")) == on_disk[name]


@pytest.mark.slow(base=["s3"])
def test_a_job_makes_few_requests(store, inputs, on_disk):
    arguments = job("images", inputs)
    assert run(*arguments, *SPLITS, *ONE, "--output", f"{store.url}/data") == 0
    found = store.proxy.seen("", None)
    written = [r for r in found if r.method in ("PUT", "POST")]
    # Google's library queries the bucket itself now and then.
    found = [r for r in found if not (r.path.endswith(store.url[5:]) and "fields" in r.query)]
    found = [r for r in found if "noAcl" not in r.query or "/o" in r.path]
    listed = [r for r in found if r.method == "GET" and r.path.endswith(("/o", store.url[5:]))]
    looked = [r for r in found if r.method in ("GET", "HEAD") and r not in listed]
    names = set(on_disk["images"])
    # Each file of the dataset once, a note of each shard, and a lease.
    assert len(written) == len(names) + 6 + 1
    # Before the run, when it has its lease (two), before its first file, at the commit (three), which also looks for leases, and
    # at the end;
    # on S3, also the uploads of attempts that died.
    assert len(listed) == 9 + store.url.startswith("s3")
    # A possible note of each shard, the newest generation (twice), and for the report that and a list of rejects.
    assert len(looked) == 6 + 4
    assert len([r for r in found if r.method == "DELETE"]) == 6 + 1
    assert not [r for r in found if "copy" in r.path.lower() or "rewrite" in r.path.lower()]
    if store.url.startswith("s3"):
        sent = sum(
            r.received
            for r in written
            if r.path.rpartition("/")[2] in {name.rpartition("/")[2] for name in names}
        )
        assert sent == sum(map(len, stored(store, "data/").values()))
    assert not [name for name in stored(store) if ".staging" in name]


@pytest.mark.slow
def test_a_store_that_keeps_failing_ends_the_job_in_one_line_and_the_next_run_resumes(
    s3, inputs, on_disk, monkeypatch, capsys
):
    monkeypatch.setattr(backoff, "LONGEST_WAIT", 0.01)
    s3.upload(inputs, "in")
    arguments = job("sensors", f"{s3.url}/in")
    arguments += [*SPLITS, *ONE, "--output", f"{s3.url}/out"]
    s3.proxy.fault(503, "out/generations", methods=("PUT", "GET"), every=1)
    assert run(*arguments) == 1
    printed = without_progress(capsys.readouterr().err)[-1]
    assert re.match(
        rf"error: {s3.url}/\S+: the store keeps failing \(503 SlowDown.*run the same", printed
    )
    assert "out/generations/1.json" not in stored(s3)
    s3.proxy.forget()
    assert run(*arguments) == 0
    assert comparable(stored(s3, "out/")) == on_disk["sensors"]
    assert kept_shards(capsys.readouterr().err) == 6


@pytest.mark.slow
def test_options_reach_every_process_but_no_file(
    s3, inputs, on_disk, tmp_path, monkeypatch, capsys
):
    s3.upload(inputs, "in")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/none")
    flags = ["--s3_endpoint_url", s3.server.proxy.url, "--s3_access_key_id", "TheKeyId"]
    flags += ["--s3_secret_access_key", "TheSecretKey"]
    arguments = job("sensors", f"{s3.url}/in")
    for number, how in enumerate((TWO, BEAM_WORKERS)):
        to = ["--output", f"{s3.url}/out{number}"]
        assert run(*arguments, *SPLITS, *flags, *how, *to) == 0
    assert run("plan", *arguments, *flags, *TWO) == 0
    again = ["reshard", "--input", f"{s3.url}/out0/*/*.tfrecord", "--output", f"{s3.url}/again"]
    assert run(*again, *flags, *TWO) == 0
    printed = "".join(capsys.readouterr())
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "x")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "x")
    found = stored(s3)
    for secret in (b"TheKeyId", b"TheSecretKey"):
        assert secret.decode() not in printed
        assert not [name for name, data in found.items() if secret in data]
    for number in range(2):
        below = {n[5:]: d for n, d in found.items() if n.startswith(f"out{number}/")}
        assert comparable(below) == on_disk["sensors"]


@pytest.mark.parametrize(
    "url, module, extra",
    [
        ("s3://b/x", "boto3", "s3"),
        ("gs://b/x", "google.cloud.storage", "gcs"),
        ("az://b/x", "azure.storage.blob", "azure"),
        ("abfs://b@account.dfs.core.windows.net/x", "azure.storage.blob", "azure"),
    ],
)
def test_a_missing_library_is_reported_in_one_line(inputs, url, module, extra, monkeypatch, capsys):
    uninstall(module, monkeypatch)
    message = rf"pip install 'beam-shards\[{extra}\]'"
    refused(capsys, 2, message, *job("sensors", inputs), "--output", url)
