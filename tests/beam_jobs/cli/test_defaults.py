"""What a command does without a flag: nothing is lost, inflated or mislabelled without a word."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from beam_jobs.cli.command import Command
from beam_jobs.errors import UsageError
from readers.format.manifest import Manifest
from tests.support.commands import ONE, parse_command, refused, run
from tests.support.images import encoded


def pictures(folder: Path, names: list[str], bad: int = 0) -> Path:
    for number, name in enumerate(names):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        pixels = np.full((20, 30, 3), number, np.uint8)
        path.write_bytes(b"bad" if number < bad else encoded(pixels, "JPEG"))
    return folder


def test_more_than_a_few_rejects_fail_the_job_and_a_limit_keeps_its_shards(tmp_path, capsys):
    folder = pictures(tmp_path / "in", [f"{n:02}.jpg" for n in range(12)], bad=1)
    command = ["images", "--input", folder, "--label", "none", "--num_shards", 3, *ONE]
    output = ["--output", tmp_path / "out"]
    message = (
        r"1 of 12 inputs are rejected, more than 5%.* such as 00\.jpg.* add --max_rejects 0\.09 "
    )
    refused(capsys, 1, message, *command, *output)
    assert run(*command, "--max_rejects", 0.09, *output) == 0
    assert "kept 3 shards of an unfinished run" in capsys.readouterr().err
    assert Manifest.read(tmp_path / "out").rejected == 1
    assert run(*command, "--max_rejects", "all", *output) == 0
    assert "is complete" in capsys.readouterr().err


def recordings(folder: Path, count: int, bad: int) -> Path:
    folder.mkdir()
    for number in range(count):
        np.save(folder / f"{number:02}.npy", np.zeros((100, 2), np.float32))
        if number % 2 and number < 2 * bad:
            path = folder / f"{number:02}.npy"
            path.write_bytes(path.read_bytes()[:-1])
    return folder


@pytest.mark.parametrize("flags", [[], ["--window", 2]], ids=["whole", "windows"])
@pytest.mark.parametrize("plan", [[], ["plan"]], ids=["job", "plan"])
def test_recordings_that_are_lost_count_as_such_beside_many_windows(tmp_path, capsys, flags, plan):
    """Also for a plan that has tried them all."""
    folder = recordings(tmp_path / "in", 12, bad=2)
    command = [*plan, "sensors", "--input", folder / "*.npy", "--label", "none", *flags, *ONE]
    command += ["--num_shards", 2, "--output", tmp_path / "out"]
    assert run(*command) == 1
    assert "error: 2 of 12 inputs are rejected, more than 5%" in capsys.readouterr().err
    assert run(*command, "--max_rejects", "2") == 0
    assert run(*command, "--max_rejects", "0.17") == 0


def test_a_plan_warns_of_a_job_that_would_probably_fail(tmp_path, capsys):
    folder = recordings(tmp_path / "in", 50, bad=25)
    command = ["plan", "sensors", "--input", folder / "*.npy", "--label", "none", *ONE]
    assert run(*command) == 0
    warning = "of the 32 records that were tried are rejected, more than 5%: the job would probably"
    assert warning in capsys.readouterr().err
    assert run(*command, "--max_rejects", "0.9") == 0
    assert warning not in capsys.readouterr().err


@pytest.mark.parametrize("field", ["--text_field", "--label_field"])
def test_a_field_that_the_first_texts_lack_is_a_mistake(tmp_path, capsys, field):
    lines = (json.dumps({"text": f"t{n}", "class": "a"}) for n in range(30))
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    command = ["text", "--input", tmp_path / "a.jsonl", "--output", tmp_path / "out"]
    message = r"no text among the first 20: a\.jsonl#1: .*'wrong'"
    refused(capsys, 2, message, *command, field, "wrong")
    assert not (tmp_path / "out").exists()


def test_files_are_kept_as_they_are_unless_they_are_resized(tmp_path):
    folder = pictures(tmp_path / "in", ["a.jpg"])

    def image(*flags: str):
        command = ["images", "--input", str(folder), "--label", "none", "--dry_run", *flags]
        return parse_command(command).output.schema["image"].encoding

    assert image() == "source"
    for flags in (["--image_size", "8x8"], ["--dtype", "uint16"], ["--frames", "all"]):
        assert image(*flags) == "tensor"
    assert image("--encoding", "png") == "png"
    assert (
        run("images", "--input", folder, "--label", "none", *ONE, "--output", tmp_path / "o") == 0
    )
    (shard,) = (tmp_path / "o").glob("*/*.tfrecord")
    assert (folder / "a.jpg").read_bytes() in shard.read_bytes()


def test_metadata_is_stripped_from_files_alone(tmp_path, capsys):
    folder = pictures(tmp_path / "in", ["a.jpg"])
    flags = ["images", "--input", folder, "--output", tmp_path / "o", "--strip_metadata"]
    refused(capsys, 2, "--encoding tensor stores no metadata", *flags, "--image_size", "8x8")


def warnings_of(command: Command) -> Iterator[str]:
    return iter(command.flags.job.warnings(command.job))


FLAT = "all inputs are in one folder, so the records have no label: add --label csv:FILE"


@pytest.mark.parametrize(
    ("names", "flags", "is_flat"),
    [
        (["1.jpg", "2.jpg"], [], True),
        (["1.jpg", "2.jpg"], ["--label", "none"], None),
        (["a/1.jpg", "b/1.jpg"], [], False),
        (["1.jpg", "m/1.png"], ["--masks", "{folder}/m"], True),
    ],
)
def test_inputs_in_one_folder_have_no_label_and_a_line_says_so(tmp_path, names, flags, is_flat):
    folder = pictures(tmp_path, names)
    flags = [flag.format(folder=folder) for flag in flags]
    command = parse_command(["images", "--input", str(folder), "--dry_run", *flags])
    assert ("label" in command.job.schema) == (is_flat is False)
    assert [warning.startswith(FLAT) for warning in warnings_of(command)] == [True] * (
        is_flat is True
    )


def test_recordings_in_one_folder_have_no_label_either(tmp_path):
    np.save(tmp_path / "1.npy", np.ones((4, 2), np.float32))
    command = parse_command(["sensors", "--input", str(tmp_path), "--dry_run"])
    assert "label" not in command.job.schema
    assert next(warnings_of(command)).startswith(FLAT)


def test_the_size_of_a_dataset_is_told_beside_that_of_its_inputs(tmp_path, capsys):
    folder = pictures(tmp_path / "in", ["a/1.jpg", "Ä/2.jpg", "ä/3.jpg"])
    command = ["images", "--input", folder, "--encoding", "tensor", *ONE]
    for before in (["plan"], []):
        output = [] if before else ["--output", tmp_path / "out"]
        assert run(*before, *command, *output) == 0
        told = capsys.readouterr().err
        assert before or " of inputs, 3.0 times their size; plan compares the sizes" in told
        assert "warning: label: 'Ä' and 'ä' are different classes" in told


def test_a_name_in_a_table_of_labels_means_one_image_but_not_its_mask(tmp_path):
    folder = pictures(tmp_path / "in", ["cats/1.png", "masks/1.png"])
    (tmp_path / "labels.csv").write_text("path,label\n1.png,cat\n")
    command = ["images", "--input", str(folder), "--output", str(tmp_path / "out")]
    command += ["--label", f"csv:{tmp_path}/labels.csv"]
    with pytest.raises(UsageError, match=r"fits both cats/1\.png and masks/1\.png: add the fold"):
        parse_command(command)
    parse_command([*command, "--masks", f"{folder}/masks"])


def test_a_name_in_a_table_of_labels_means_one_text(tmp_path):
    for name in ("cats/1.txt", "dogs/1.txt"):
        (tmp_path / "in" / name).parent.mkdir(parents=True)
        (tmp_path / "in" / name).write_text("x")
    (tmp_path / "labels.csv").write_text("path,label\n1.txt,cat\n")
    command = ["text", "--input", f"{tmp_path}/in", "--output", f"{tmp_path}/out"]
    with pytest.raises(UsageError, match=r"fits both cats/1\.txt and dogs/1\.txt: add the folders"):
        parse_command([*command, "--label", f"csv:{tmp_path}/labels.csv"])
