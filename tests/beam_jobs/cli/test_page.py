"""`--report`: a job ends with a page about its dataset, or refuses before it begins."""

from __future__ import annotations

import json
import os

import pytest

from beam_jobs.cli.run import run_readers
from beam_jobs.errors import DataError
from tests.support.commands import IN_MEMORY, refused, run
from tests.support.datasets import write_numbers


@pytest.fixture
def texts(tmp_path):
    path = tmp_path / "texts.jsonl"
    path.write_text("".join(json.dumps({"text": f"text {n}"}) + "\n" for n in range(20)))
    return ["text", "--input", str(path), "--label", "none", *IN_MEMORY]


def test_a_job_writes_a_report_on_its_dataset(texts, tmp_path, capsys):
    page = tmp_path / "page.html"
    assert run(*texts, "--output", tmp_path / "o", "--report", page) == 0
    assert f"report in {page}" in capsys.readouterr().err
    assert "20 inputs: 20 written, none rejected or dropped" in page.read_text(encoding="utf-8")
    assert str(page) not in (tmp_path / "o/manifest.json").read_text()


def test_a_report_that_fails_leaves_the_dataset_and_one_line(texts, tmp_path, capsys, monkeypatch):
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken/jinja2.py").write_text("raise ImportError('it is broken')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "broken"), prepend=os.pathsep)
    assert run(*texts, "--output", tmp_path / "o", "--report", tmp_path / "x.html", "--json") == 1
    printed = json.loads(capsys.readouterr().out)
    assert printed["exit_code"] == 1 and "pip install" in printed["error"]
    assert (tmp_path / "o/manifest.json").exists()


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--report", "{}/missing/x.html"], "there is no directory .*; create it first"),
        (["--report", "{}"], "expected a file, found a directory"),
        (["--report", "/dev/null"], "expected a file, found a device or a pipe"),
        (["--report", "{}/x.html", "--dry_run"], "a dry run writes no dataset"),
    ],
)
def test_a_report_that_could_not_be_written_is_refused_before_the_job(
    texts, tmp_path, capsys, flags, words
):
    given = [flag.format(tmp_path) for flag in flags]
    refused(capsys, 2, words, *texts, "--output", tmp_path / "o", *given)
    assert not (tmp_path / "o").exists()


def test_readers_of_a_job_have_the_flags_of_its_store(s3, tmp_path, monkeypatch):
    write_numbers(tmp_path)
    s3.upload(tmp_path, "d")
    options = {"s3_endpoint_url": s3.server.proxy.url, "s3_access_key_id": "key"}
    options |= {"s3_secret_access_key": "secret", "setup_file": "unused"}
    for variable in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_ENDPOINT_URL"):
        monkeypatch.delenv(variable)
    monkeypatch.setattr("beam_jobs.cli.run.storage_options", lambda: options)
    assert run_readers("info", f"{s3.url}/d")["splits"].keys() == {"train", "val"}
    monkeypatch.setattr("beam_jobs.cli.run.storage_options", dict)
    with pytest.raises(DataError, match="no credentials"):
        run_readers("info", f"{s3.url}/d")
