"""Flags as dataclass fields: their declarations, what a command line makes of them, and the help."""

import argparse
import pkgutil
import re
import shlex
import subprocess
import sys
from dataclasses import FrozenInstanceError, asdict, dataclass
from typing import Literal, get_type_hints

import pytest

from beam_jobs.__main__ import main
from beam_jobs.cli import images, sensors
from beam_jobs.cli.flags import Flags, flag
from beam_jobs.cli.images import ImageFlags
from beam_jobs.cli.parser import declared_flags, help_for, parse_flags
from beam_jobs.cli.sensors import SensorFlags
from beam_jobs.cli.text import TextFlags
from beam_jobs.engines.flags import BEAM_SWITCHES, BEAM_VALUES
from beam_jobs.errors import UsageError
from beam_jobs.jobs.images import boxes, image_files
from beam_jobs.jobs.images import image_job as images_job
from beam_jobs.jobs.images.annotations import Unannotated
from beam_jobs.jobs.images.coco_objects import Segmentation
from beam_jobs.jobs.sensors import read_options, recording
from beam_jobs.jobs.sensors.arrays import NanPolicy
from beam_jobs.jobs.sensors.sensor_job import SensorEncoding
from beam_jobs.jobs.text.text_reader import TextUnit
from readers.format import __version__
from readers.format.dtypes import TENSORFLOW_DTYPES

JOBS = ("images", "text", "sensors", "reshard")


def odd(number):
    if number % 2 == 0:
        raise UsageError(f"--size {number}: expected an odd number")


@dataclass(frozen=True)
class Few(Flags):
    title = "few"

    name: str = flag("", "a name", everyday=True)
    size: int = flag(4, "a size", check=odd)
    kind: Literal["a", "b"] = flag("a", "a kind", needs="name fast")
    level: Literal[1, 2] = flag(2, "a level", stated=False)
    parts: list[str] = flag([], "parts", unset="none")
    fast: bool = flag(False, "be fast", unset="be slow", needs="name")
    late: bool = flag(False, "be late", excludes="fast parts")


@dataclass(frozen=True)
class More(Few):
    title = "more"

    other: str | None = flag(None, "another", unset="none")


def test_a_declaration_follows_from_type_default_and_description():
    (title, declared) = next(iter(Few.declared().items()))
    assert title == "few"
    found = {name: (f.kind, f.default, f.help, f.metavar) for name, f in declared.items()}
    assert found == {
        "name": (str, "", "a name (default: none)", "NAME"),
        "size": (int, 4, "a size (default: 4)", "N"),
        "kind": (str, "a", "a kind (default: a)", "a|b"),
        "level": (int, 2, "a level (default: 2)", "1|2"),
        "parts": (list, [], "parts (default: none)", "NAME"),
        "fast": (bool, False, "be fast (default: be slow)", ""),
        "late": (bool, False, "be late (default: off)", ""),
    }
    assert [f.choices for f in declared.values()] == [(), (), ("a", "b"), (1, 2), (), (), ()]
    assert [f.name for f in declared.values() if f.everyday] == ["name"]
    assert [f.name for f in declared.values() if not f.stated] == ["level"]


def test_a_class_has_its_own_flags_and_those_of_the_classes_above():
    assert {title: list(group) for title, group in More.declared().items()} == {
        "few": ["name", "size", "kind", "level", "parts", "fast", "late"],
        "more": ["other"],
    }
    assert More.read({}) == More()
    assert More.read({}).parts == []
    assert More.read({"level": 1, "parts": ["x"], "unknown": 2}) == More(level=1, parts=["x"])
    with pytest.raises(FrozenInstanceError):
        More().size = 4


@pytest.mark.parametrize(
    ("name", "texts", "expected"),
    [
        ("size", ["7"], 7),
        ("size", ["x"], "--size x: expected a whole number"),
        ("size", ["6"], "--size 6: expected an odd number"),
        ("size", ["4"], 4),  # The default is right.
        ("level", ["1"], 1),
        ("level", ["3"], "--level 3: expected 1 or 2"),
        ("kind", ["B"], "--kind B: expected a or b; did you mean b?"),
        ("parts", ["x", "y"], ["x", "y"]),
        ("fast", [], True),
    ],
)
def test_texts_become_a_value_or_are_refused(name, texts, expected):
    declared = Few.declared()["few"][name]
    if not isinstance(expected, str):
        assert declared.value(texts) == expected
        declared.check_value(expected)
        return
    with pytest.raises(UsageError) as caught:
        declared.check_value(declared.value(texts))
    assert caught.value.message == expected


def test_a_flag_that_changes_nothing_without_another_one_is_refused():
    Few(name="x", kind="b", fast=True).validate()
    with pytest.raises(UsageError, match=r"^--fast: it has no effect without --name: add it, "):
        Few(fast=True).validate()
    expected = r"^--kind b: it has no effect without --name or --fast: add one, or drop --kind$"
    with pytest.raises(UsageError, match=expected):
        Few(kind="b").validate()


def test_flags_that_exclude_each_other_are_refused():
    Few(late=True).validate()
    with pytest.raises(UsageError, match=r"^--late: it cannot be combined with --parts a b: drop"):
        Few(late=True, parts=["a", "b"]).validate()


@pytest.mark.parametrize("job", JOBS)
def test_a_bare_command_line_gives_the_defaults_of_the_fields(job):
    flags = parse_flags([job])
    assert (flags.name, flags.beam) == (job, ())
    for given in (flags.job, flags.dataset, flags.run):
        assert asdict(given) == asdict(type(given)())


def test_flags_may_be_spelt_with_dashes_and_have_several_values():
    flags = parse_flags(
        ["images", "--input", "a", "b", "--image-size=4x4", "--input=c", "--seed", "1", "--seed=-2"]
    )
    assert flags.job.input == ["a", "b", "c"]
    assert (flags.job.image_size, flags.dataset.seed) == ("4x4", -2)


def test_a_value_may_begin_as_a_negative_number():
    assert parse_flags(["sensors", "--group_by", "-6dB"]).dataset.group_by == "-6dB"


def test_arguments_of_beam_are_kept_apart():
    given = ["--runner=x", "--direct_num_workers", "2", "--streaming", "--new_one", "y", "--keep=z"]
    flags = parse_flags(["reshard", *given])
    assert flags.job.keep == "z"
    expected = ("--runner=x", "--direct_num_workers=2", "--streaming", "--new_one", "y")
    assert flags.beam == expected


def test_the_flags_of_beam_are_those_of_the_installed_one():
    from apache_beam.options import pipeline_options

    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    for kind in vars(pipeline_options).values():
        if isinstance(kind, type) and "_add_argparse_args" in vars(kind):
            kind._add_argparse_args(parser)
    found = {True: set(), False: set()}
    for action in parser._actions:
        names = (name.removeprefix("--").replace("-", "_") for name in action.option_strings)
        found[action.nargs == 0].update(names)
    assert found == {True: BEAM_SWITCHES, False: BEAM_VALUES}


@pytest.mark.parametrize(
    ("flags", "name", "words"),
    [
        (ImageFlags, "encoding", Literal["auto", images_job.ImageEncoding]),
        (ImageFlags, "dtype", images_job.ImageDtype),
        (ImageFlags, "resize", boxes.Resize),
        (ImageFlags, "box_order", boxes.BoxOrder),
        (ImageFlags, "annotations_of", boxes.AnnotationsOf),
        (ImageFlags, "frames", image_files.Frames),
        (ImageFlags, "segmentation", Segmentation),
        (ImageFlags, "unannotated", Unannotated),
        (TextFlags, "record", TextUnit),
        (SensorFlags, "encoding", SensorEncoding),
        (SensorFlags, "time_unit", read_options.TimeUnit),
        (SensorFlags, "header", read_options.Header),
        (SensorFlags, "times", recording.TimesPolicy),
        (SensorFlags, "nan", NanPolicy),
    ],
)
def test_the_choices_of_a_flag_are_those_of_its_job(flags, name, words):
    assert get_type_hints(flags)[name] == words


def test_numbers_and_dtypes_of_flags_are_those_of_their_jobs():
    assert images.MAX_PIXELS == image_files.MAX_PIXELS
    assert set(sensors.DTYPES) == set(TENSORFLOW_DTYPES) - {"string", "bfloat16"}


@pytest.mark.parametrize("job", JOBS)
def test_checks_that_are_named_are_there(job):
    checks = [flag.check for flag in declared_flags()[job].values() if isinstance(flag.check, str)]
    for check in filter(None, checks):
        assert callable(pkgutil.resolve_name(f"beam_jobs.{check.split()[0]}"))


DECLARED = [
    pytest.param(flag, id=f"{job} --{flag.name}")
    for job, flags in declared_flags().items()
    for flag in flags.values()
]


@pytest.mark.parametrize("flag", DECLARED)
def test_the_help_of_every_flag_states_its_default(flag):
    found = flag.help.rpartition("(default: ")
    assert found[1], "no default"
    assert found[0], "no help"
    default = found[2].removesuffix(")").split(";")[0]
    if flag.default not in (None, "", [], False):
        assert default.split(",")[0].split(" ")[0] == str(flag.default)
    assert flag.kind is bool or flag.metavar


@pytest.mark.parametrize("job", JOBS)
def test_the_short_help_has_the_everyday_flags_and_two_examples_that_are_right(job):
    text = help_for([job, "--help"])
    lines = text.splitlines()
    assert lines[0] == f"usage: beam-shards {job} --input PATTERN --output DIR [flags]"
    shown = [line.split()[0][2:] for line in lines if line.startswith("  --")]
    assert 8 <= len(shown) <= 12, "a new flag is `everyday` only if another one is no longer"
    assert shown[:2] == ["input", "output"]
    examples = [line for line in lines if line.startswith(f"  beam-shards {job} ")]
    assert len(examples) == 2

    for example in examples:
        parse_flags(shlex.split(example)[1:]).job.validate()
    assert f"{len(declared_flags()[job])} flags in all: beam-shards {job} --help-all" in text


@pytest.mark.parametrize("job", JOBS)
def test_the_long_help_has_every_flag_once(job):
    lines = help_for(["plan", job, "--help_all"]).splitlines()
    shown = [line.split()[0][2:] for line in lines if line.startswith("  --")]
    assert sorted(shown) == sorted(declared_flags()[job])


def test_the_help_of_plan_says_what_it_does():
    assert help_for(["plan", "--help"]).startswith(
        "usage: beam-shards plan images|text|sensors|reshard --input PATTERN"
    )


@pytest.mark.parametrize("arguments", [[], ["plan"]])
def test_a_command_without_a_job_shows_the_help_and_ends_with_exit_code_2(capsys, arguments):
    assert main(arguments) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "plan images|text|sensors|reshard" in shown.err.replace("[plan]", "plan")
    assert main(["--help"]) == 0
    shown = capsys.readouterr()
    assert "exit code: 0 done" in shown.out and shown.err == ""
    assert re.findall(r"^  (\w+) {2,}", shown.out, re.MULTILINE) == ["plan", *JOBS]


def test_the_version_is_printed(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"beam-shards {__version__}\n"


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("images --image_size 5", "--image_size 5"),
        ("images --splits a=2", "--splits a=2"),
        ("text --window 4", "--window 4: it has no effect without --tokens"),
        ("sensors --time_unit ms", "--time_unit ms"),
        ("reshard --keep a --drop b", "--drop b: it cannot be combined with --keep a"),
    ],
)
def test_flags_are_checked_before_inputs_are_looked_at(capsys, command, message):
    assert main([*command.split(), "--input", "/nowhere", "--dry_run"]) == 2
    assert capsys.readouterr().err.startswith(f"error: {message}")


@pytest.mark.parametrize(
    ("command", "code", "words"),
    [
        ("--help", 0, "usage: "),
        ("sensors --help", 0, "usage: "),
        ("images --help-all", 0, "usage: "),
        ("images --inptu photos", 2, "unknown argument --inptu; did you mean --input?"),
        ("image --input photos", 2, "did you mean images?"),
        ("text --input a --output b --record fil", 2, "did you mean file?"),
        ("images --input /nowhere --output b", 2, "no such file or folder"),
        ("text", 2, "--input is missing: name files"),
    ],
)
def test_help_and_a_typo_import_neither_beam_nor_numpy(command, code, words):
    heavy = "apache_beam"  # A look at files comes after the checks of values.
    if "/nowhere" not in command:
        heavy += " numpy readers pyarrow PIL tqdm google_crc32c orjson"
    program = (
        "import sys; from beam_jobs.__main__ import main; code = main(sys.argv[1:]); "
        f"print(code, *{set(heavy.split())!r} & sys.modules.keys())"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, *command.split()], capture_output=True, text=True
    )
    assert done.stdout.splitlines()[-1] == str(code), done.stderr
    assert words in done.stdout + done.stderr
