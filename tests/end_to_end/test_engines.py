"""The jobs on real engines, with workers in separate processes."""

import json
import os
import random
import re
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest

from beam_jobs.__main__ import main
from beam_jobs.engines import watch
from beam_jobs.engines.flags import engine_flags, worker_program
from examples.samples import make_samples
from readers.verify import verify
from tests.engines import packages
from tests.engines.flink import Flink
from tests.engines.prism import Prism
from tests.engines.running import engine_of_module
from tests.engines.spark import Spark
from tests.support.commands import parse_command
from tests.support.datasets import files_of

MADE = {
    "images": ["--image_size", "32x32"],
    "text": ["--label_field", "label", "--tokens", "words"],
    "sensors": ["--window", "32"],
    "reshard": [],
    "near images": ["--drop_near_duplicates", "0.9"],
    "near text": ["--label_field", "label", "--drop_near_duplicates", "0.6"],
}
JOBS = ["images", "text", "sensors", "reshard"]

# On a busy machine, a worker takes longer to start than the 5 s for which idle workers are kept: that of
# one executor would end while that of another starts, again in every stage.
KEPT = "--environment_cache_millis=60000"

flink = engine_of_module(Flink, refresh_ms=100)
spark = engine_of_module(Spark, cores=2)  # One core of each of its two workers.
prism = engine_of_module(Prism)


@pytest.fixture(scope="module")
def jobs(tmp_path_factory):
    """A function: job -> (its flags, with inputs to reject, the files that the DirectRunner writes)."""
    folder = tmp_path_factory.mktemp("jobs")
    make_samples(folder / "in", per_class=20)
    (folder / "in/images/rings/broken.jpg").write_bytes(b"\xff\xd8 not an image")
    (folder / "in/sensors/walk/broken.npy").write_bytes(b"not an array")
    with next((folder / "in/text").glob("*.jsonl")).open("a") as file:
        file.write("not an object\n" + json.dumps({"label": "text is missing"}) + "\n")
    found = {}

    def made(job):
        if job not in found:
            name = job.removeprefix("near ")
            source = folder / "in" / name
            if job == "reshard":
                source = folder / "out/sensors"
                made("sensors")
            flags = [name, "--input", str(source), *MADE[job]]
            flags += ["--splits", "train=0.7,val=0.3", "--num_shards", "train=4,val=1"]
            assert main([*flags, "--output", f"{folder}/out/{job}"]) == 0
            found[job] = flags, files_of(folder / "out" / job)
        return found[job]

    return made


def assert_same_files(jobs, job, out, engine_flags):
    flags, expected = jobs(job)
    assert main([*flags, "--output", str(out), *engine_flags, KEPT]) == 0
    assert files_of(out) == expected
    assert not (out / ".staging").exists()
    assert verify(str(out)).ok


@pytest.mark.ci
@pytest.mark.engines
@pytest.mark.parametrize("job", JOBS)
def test_flink_writes_the_same_files(flink, jobs, tmp_path, job):
    assert_same_files(jobs, job, tmp_path / "out", [*flink.flags, "--parallelism=2"])
    ran = flink.ask(f"/jobs/{flink.jobs()[0]['jid']}")
    assert {vertex["parallelism"] for vertex in ran["vertices"]} >= {2}
    assert len(flink.ask("/taskmanagers")["taskmanagers"]) == 2


@pytest.mark.ci
@pytest.mark.engines
@pytest.mark.parametrize("job", JOBS)
def test_spark_writes_the_same_files(spark, jobs, tmp_path, job):
    assert_same_files(jobs, job, tmp_path / "out", spark.flags)


@pytest.mark.engines
@pytest.mark.parametrize("job", JOBS)
def test_prism_writes_the_same_files(prism, jobs, tmp_path, job):
    assert_same_files(jobs, job, tmp_path / "out", prism.flags)


@pytest.mark.engines
@pytest.mark.parametrize("job", ["near images", "near text"])
def test_near_duplicates_are_the_same_on_flink(flink, jobs, tmp_path, job):
    assert_same_files(jobs, job, tmp_path / "out", [*flink.flags, "--parallelism=4"])


@pytest.mark.engines
def test_inputs_of_which_flink_refused_elements_are_written(flink, tmp_path):
    """8 MB of text to learn from, ten histograms of 512 KiB, and labels of 2 MB."""
    drawn = random.Random(0)
    some = ["".join(drawn.choices("abcdefgh", k=5)) for _ in range(500)]
    with (tmp_path / "in.jsonl").open("w") as file:
        for number in range(140_000):
            row = {"text": " ".join(drawn.choices(some, k=10)), "y": f"{number % 20_000:0100}"}
            file.write(json.dumps(row) + "\n")
    flags = ["text", "--input", f"{tmp_path}/in.jsonl", "--label_field", "y", "--tokens", "bpe"]
    flags += ["--vocabulary_size", "300", "--num_shards", "1"]
    flags += ["--splits", ",".join(f"s{number}=0.1" for number in range(10))]
    assert main([*flags, "--output", f"{tmp_path}/direct"]) == 0
    assert main([*flags, "--output", f"{tmp_path}/flink", *flink.flags, "--parallelism=2"]) == 0
    assert files_of(tmp_path / "flink") == files_of(tmp_path / "direct")


@pytest.mark.engines
def test_a_job_is_written_to_a_jar_and_runs_later_with_the_printed_line(
    flink, jobs, tmp_path, capsys
):
    flags, expected = jobs("sensors")
    jar, out = tmp_path / "job.jar", tmp_path / "out"
    capsys.readouterr()
    command = [*flags, "--output", str(out), *flink.flags, f"--output_executable_path={jar}"]
    assert main(command) == 0
    said, line, _ = capsys.readouterr().err.splitlines()[-3:]
    assert said == f"the job is in {jar}; nothing has run. To run it"
    assert not (out / "manifest.json").exists()
    home = {**os.environ, "FLINK_HOME": str(packages.flink())}
    subprocess.run(
        line.removeprefix("on Flink: "), shell=True, check=True, capture_output=True, env=home
    )
    assert files_of(out) == expected


@pytest.mark.engines
def test_a_job_on_flink_says_where_it_runs_and_what_it_does(
    flink, jobs, tmp_path, capsys, monkeypatch
):
    # The job takes a few seconds.
    monkeypatch.setattr(watch, "_LINE_SECONDS", 0.1)
    monkeypatch.setattr(watch, "_POLL_SECONDS", 0.05)
    capsys.readouterr()
    assert_same_files(jobs, "images", tmp_path / "out", flink.flags)
    lines = capsys.readouterr().err.splitlines()
    latest = flink.jobs()[0]
    name = re.escape(latest["name"])
    assert re.fullmatch("beam-shards-images-[a-z0-9-]+-[0-9a-f]{6}", latest["name"])
    where = f"{flink.address}/#/job/running/{latest['jid']}/overview"
    assert f"Flink runs the job {latest['name']} ({latest['jid']}): {where}" in lines
    assert any(re.fullmatch(rf"the job {name} \(\S+\) was submitted", line) for line in lines)
    phases = [line for line in lines if re.match(r"(listing|planning|writing|checking)\b", line)]
    assert any(re.match(r"writing: [\d,]+ of [\d,]+ records, .* left", line) for line in phases), (
        lines
    )
    assert not [line for line in lines if "stages" in line]


@pytest.mark.engines
def test_a_job_that_nobody_waits_for_ends_with_the_same_files(flink, jobs, tmp_path, capsys):
    flags, expected = jobs("images")
    out = tmp_path / "out"
    sent = [*flags, "--output", str(out), *flink.flags, KEPT]
    assert main([*sent, "--no_wait_until_finish"]) == 0
    assert "Flink runs the job " in capsys.readouterr().err.splitlines()[-1]
    assert main([*flags, "--output", str(out)]) == 2
    assert "is writing here, though its command has ended" in capsys.readouterr().err
    deadline = time.monotonic() + 120
    while (out / ".staging").exists():
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert files_of(out) == expected


@pytest.fixture
def beam_flags(tmp_path):
    """A function that gives Beam's options of a job with some flags."""
    np.save(tmp_path / "x.npy", np.zeros([3, 2]))
    job = ["sensors", "--input", str(tmp_path / "x.npy"), "--output", str(tmp_path / "none")]
    return lambda *flags: parse_command([*job, *flags]).beam


def test_an_engine_sets_the_options_that_beam_needs(beam_flags):
    command = json.dumps({"command": worker_program()})
    options = beam_flags("--engine=flink").get_all_options()
    assert options["runner"] == "FlinkRunner" and options["flink_version"] == "1.20"
    assert options["environment_type"] == "PROCESS" and options["environment_config"] == command
    assert options["environment_cache_millis"] == "5000"
    assert beam_flags("--engine=spark").get_all_options()["runner"] == "SparkRunner"
    assert beam_flags("--engine=prism").get_all_options()["runner"] == "PrismRunner"
    assert Path(worker_program()).exists()
    assert engine_flags("dataflow", ["--environment_type=DOCKER"])[0] == "--runner=DataflowRunner"


def test_beam_flags_override_those_of_an_engine(beam_flags):
    options = beam_flags("--engine=flink", "--flink_version=1.19", "--environment_cache_millis=7")
    found = options.get_all_options()
    assert found["flink_version"] == "1.19" and found["environment_cache_millis"] == "7"
    found = beam_flags("--engine=spark", "--job_endpoint=localhost:1").get_all_options()
    assert found["runner"] == "PortableRunner"
    docker = ["--environment_type=DOCKER", "--environment_config=image:1"]
    found = beam_flags("--engine=flink", *docker).get_all_options()
    assert found["environment_type"] == "DOCKER" and found["environment_config"] == "image:1"
    assert "--environment_config" not in " ".join(
        engine_flags("flink", ["--environment_type=DOCKER"])
    )
    assert engine_flags("direct", []) == []
