"""What is said about a finished job or a dry run, beside the table."""

from __future__ import annotations

import pytest

from beam_jobs.cli.parser import Report
from beam_jobs.cli.report import (
    alike_classes,
    format_encodings,
    format_reasons,
    format_seconds,
    fractions_as_names,
    size_line,
    warnings_of,
)
from beam_jobs.dataset.output import Output
from beam_jobs.pipeline.dry_run import SplitSurvey
from beam_jobs.pipeline.tried_encodings import TriedEncoding
from beam_jobs.plan.placement import Groups, Placement, Splits
from beam_jobs.records.rejects import Reject, first_rejects, format_rejects
from readers.format.manifest import Manifest
from readers.format.rejects import reasons_of
from readers.format.schema import Feature, Schema

SCHEMA = Schema({"key": Feature("string")})
THREE = Splits.parse("train=0.8,val=0.15,test=0.05")


def output(splits=THREE, num_shards=(0, 0, 0), shard_size=128 << 20, **placement):
    return Output("", SCHEMA, Placement(0, splits, **placement), num_shards, shard_size)


def survey(name, records, shards=1, size=1 << 30, rejected=0):
    return SplitSurvey(name, records, shards, size, rejected, 0)


def warnings(output, *splits, has_windows=False):
    return list(warnings_of(output, splits, has_windows))


EMPTY = (survey("train", 2000), survey("val", 831), survey("test", 0, 0, 0))


@pytest.mark.parametrize(
    ("asked", "windows", "message"),
    [
        (
            output(groups=Groups.parse("column:voice")),
            False,
            "no group fell into it; give it more than 0.05, or try another --seed such as 1",
        ),
        (output(), True, "no file or text fell into it; give it more than 0.05, or try another"),
        (output(), False, "no record fell into it; give it more than 0.05, or try another --seed"),
        (
            output(exact="records"),
            False,
            "its share is less than one record; ask for fewer splits or folds",
        ),
        (
            output(Splits.named(["train", "val", "test"], "fold"), split_column="fold"),
            False,
            "--split_column fold names it in no record; take it out of --splits",
        ),
        (
            output(Splits.of_shards(["train", "val", "test"])),
            False,
            "its shards in the input hold no record",
        ),
    ],
)
def test_an_empty_split_is_a_warning_with_its_cause_and_cure(asked, windows, message):
    (line,) = warnings(asked, *EMPTY, has_windows=windows)
    assert line.startswith(f"split test is empty: {message}")
    assert line.endswith(" (the dataset has 2,831 records)")


def test_a_split_is_empty_if_all_of_it_was_rejected():
    (line,) = warnings(output(), *EMPTY[:2], survey("test", 0, 0, 0, 7))
    assert line.startswith("split test is empty: all 7 of its inputs were rejected (the")


@pytest.mark.parametrize(
    ("num_shards", "shard_size", "records", "shards", "size", "cure"),
    [
        (5000, 128 << 20, 1797, 1797, 1797 * 250, "drop --num_shards, or give a smaller number"),
        (0, 10, 1797, 1797, 1797 * 250, "drop --shard_size (the default is 128.0 MiB), or give at"),
        (100, 128 << 20, 100, 100, 25_000, None),
        (200, 128 << 20, 90_000, 200, 9_000_000, None),
        (0, 128 << 20, 500, 250, 250_000, None),
        (200, 10, 2000, 200, 9_000_000, None),
    ],
)
def test_many_tiny_shards_are_a_warning(num_shards, shard_size, records, shards, size, cure):
    asked = output(Splits(), (num_shards,), shard_size)
    found = warnings(asked, survey("train", records, shards, size))
    if cure is None:
        assert found == []
    else:
        line = found[-1]
        assert line.startswith(f"{shards:,} shards of ") and cure in line


def test_fewer_shards_than_asked_for_are_a_warning_with_the_cause():
    asked = output(num_shards=(500, 3, 0))
    assert warnings(asked, survey("train", 212, 212), survey("val", 9, 3), survey("test", 1)) == [
        "split train has 212 of 500 shards: it has only 212 records, and a shard is never empty"
    ]


def test_classes_that_differ_in_case_blanks_or_unicode_form_are_named():
    names = ["Cat", "cat", "dog", "ice cream", "icecream ", "gr\u00f6n", "gro\u0308n"]
    (line,) = alike_classes({"label": names, "box_labels": ["a", "b"]})
    assert line.startswith(
        "label: 'Cat' and 'cat', 'gro\\u0308n' and 'gr\\xf6n', 'ice cream' and 'icecream ' are different"
    )


def test_a_dataset_is_compared_with_its_inputs():
    line = "600 B of records from 400 B of inputs, 1.5 times their size; plan compares the sizes of encodings"
    assert size_line(600, 400) == line
    assert size_line(500, 400).endswith("inputs, 1.2 times their size")
    assert size_line(120, 0) == size_line(0, 100) == ""


def test_a_table_compares_encodings_and_marks_the_chosen_one():
    tried = [
        TriedEncoding("png", False, 20, 2048.0, 3 << 19, 1234.5),
        TriedEncoding("tensor", True, 20, 5120.0, 10 << 20, 0.0),
    ]
    assert format_encodings(tried, 1 << 20).splitlines() == [
        "",
        "encodings, tried on 20 records, decoded by one core:",
        "encoding  bytes/record  bytes (est.)  of inputs  decoded/s",
        "png       2.0 KiB       1.5 MiB       1.50x      1,200",
        "tensor    5.0 KiB       10.0 MiB      10.00x     -          chosen",
    ]


def test_reasons_of_rejects_are_counted_without_names_and_numbers_that_differ():
    rejects = [(f"a/{n}.png", f"byte {n:,}: cut off") for n in range(5)]
    rejects += [("x", "dtype 'int8' is not float32, UTF-8 or -3: isn't, isn't")]
    rejects += [("y", "dtype 'int16' is not float32, UTF-8 or 7: isn't, isn't")]
    unread = "'utf-8' codec can't decode byte {} in position 7; rename 'it'"
    rejects += [(str(n), unread.format(hex(250 + n))) for n in range(4)]
    assert format_reasons(reasons_of(rejects)) == [
        "  5: byte …: cut off, such as a/0.png",
        "  4: 'utf-8' codec can't decode byte … in position 7; rename 'it', such as 0",
        "  2: dtype … is not float32, UTF-8 or …: isn't, isn't, such as x",
    ]


def test_rare_reasons_share_one_line():
    rejects = [(f"{n}", "abcdefg"[: n % 7 + 1]) for n in range(20)]
    *lines, last = format_reasons(reasons_of(rejects))
    assert lines == [f"  3: {'abcdefg'[: n + 1]}, such as {n}" for n in range(4)]
    assert last == "  8: 3 other reasons"


def test_only_the_first_of_many_rejects_are_read(tmp_path):
    rejects = [Reject(f"größe {n:03}", "read", "why") for n in range(90)]
    for number in range(3):
        some = rejects[30 * number : 30 * number + 30]
        (tmp_path / f"train-{number}.jsonl").write_bytes(format_rejects(some))
    given = str(tmp_path), [f"train-{number}.jsonl" for number in range(3)]
    assert first_rejects(*given) == rejects
    assert first_rejects(*given, files=2) == rejects[:60]
    size = len(format_rejects(rejects[:40])) + 20
    assert first_rejects(*given, size=size) == rejects[:40]
    assert first_rejects(str(tmp_path), []) == []


@pytest.mark.parametrize(
    ("names", "warning"),
    [
        (
            ["0.5", "1.0", "1e-3"],
            "labels are classes, so numbers such as 0.5 are names of 3",
        ),
        (["1.0", "2.0"], ""),
        (["0.5", "unknown"], ""),
        ([], ""),
    ],
)
def test_a_warning_says_that_fractions_became_names(names, warning):
    found = fractions_as_names(Manifest(SCHEMA, {}, tuple(names)))
    assert found.startswith(warning) and bool(found) == bool(warning)


def test_a_line_says_how_long_each_phase_took():
    seconds = {
        "starting": 0.04,
        "reading": 3.14,
        "encoding": 5.0,
        "writing": 12.36,
        "checking": 0.2,
    }
    found = format_seconds(seconds)
    assert (
        found
        == "time: starting 0.0 s, reading 3.1 s, encoding 5.0 s, writing 12.4 s, checking 0.2 s"
    )
    assert format_seconds({"starting": 30.0}) == ""
    assert format_seconds({}) == ""


def test_a_name_with_a_newline_does_not_look_like_two_lines(capsys):
    report = Report(as_json=False)
    report.note("  3: a\nwritten to /elsewhere\u2028, such as b\r")
    report.warn("\nerror: no")
    assert capsys.readouterr().err == (
        "  3: a\N{REPLACEMENT CHARACTER}written to /elsewhere\N{REPLACEMENT CHARACTER}, such as "
        "b\N{REPLACEMENT CHARACTER}\nwarning: \N{REPLACEMENT CHARACTER}error: no\n"
    )


def test_a_report_shows_no_control_characters_and_no_credentials(capsys):
    report = Report(as_json=False)
    report.show("labels: 1 (\x1b[31mred: 3)")
    report.fail(2, "s3://KEY:SECRET@b/x: 'KEY:SECRET@b' is no bucket")
    shown = capsys.readouterr()
    assert shown.out == "labels: 1 (\N{REPLACEMENT CHARACTER}[31mred: 3)\n"
    assert shown.err == "error: s3://***@b/x: '***@b' is no bucket\n"
