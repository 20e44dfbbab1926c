"""The worker's image and the flex template, checked without a container engine.

`test_environments.py` installs the packages of the image.
"""

import importlib.util
import json
import re

import pytest

from beam_jobs.cli.parser import declared_flags, parse_flags
from tests.support.checkout import ROOT

DOCKER = ROOT / "docker"


def loaded(name):
    """A script of the docker folder as a module."""
    spec = importlib.util.spec_from_file_location(name, DOCKER / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def instructions():
    """The instructions of the Dockerfile: (name, words)."""
    text = re.sub(r"^#.*\n", "", (DOCKER / "Dockerfile").read_text(), flags=re.MULTILINE)
    lines = text.replace("\\\n", " ").splitlines()
    return [(line.split()[0], line.split()[1:]) for line in lines if line.strip()]


def test_the_image_installs_the_files_of_the_checkout():
    found = instructions()
    compiled, install = [words for name, words in found if name == "RUN"][::2]
    assert compiled[:2] == ["pip", "wheel"] and compiled[-2:] == ["/wheels", "/source"]
    assert install == ["./install.sh", "/wheels/*.whl", "&&", "rm", "-r", "/wheels"]
    copies = [words for name, words in found if name == "COPY" and words[-1].startswith("/source/")]
    copied = {source for words in copies for source in words[:-1]}
    assert copied == {
        *("setup.py", "pyproject.toml", "README.md", "LICENSE"),
        *("beam_shards.py", "beam_jobs", "readers"),
    }
    assert all((ROOT / source).exists() for source in copied)
    assert ("ENTRYPOINT", ['["/opt/apache/beam/boot"]']) in found
    assert ("ENV", ["FLEX_TEMPLATE_PYTHON_PY_FILE=/template/flex_template.py"]) in found


def test_the_version_of_beam_in_the_image_is_supported():
    (version,) = [
        words[0].removeprefix("BEAM=")
        for name, words in instructions()
        if name == "ARG" and words[0].startswith("BEAM=")
    ]
    lower, upper = re.search(
        r'"apache-beam>=([\d.]+),<([\d.]+)"', (ROOT / "setup.py").read_text()
    ).groups()
    numbers = [tuple(map(int, text.split("."))) for text in (lower, version, upper)]
    assert numbers[0] <= numbers[1] < numbers[2]


def test_the_parameters_of_the_template_equal_the_flags_of_the_jobs():
    written = json.loads((DOCKER / "metadata.json").read_text())
    assert written == loaded("metadata").metadata(), (
        "a flag has changed: python docker/metadata.py > docker/metadata.json"
    )
    parameters = {found["name"]: found for found in written["parameters"]}
    assert len(parameters) == len(written["parameters"])
    declared = declared_flags()
    for job, flags in declared.items():
        for name, flag in flags.items():
            if name not in ("dry_run", "engine", "engine_page", "config", "json"):
                assert flag.help in parameters[name]["helpText"], (job, name)
    own = {name for flags in declared.values() for name in flags}
    assert set(parameters) - own == {"job", "sdk_container_image", "max_num_workers"}
    needed = {name for name, found in parameters.items() if not found.get("isOptional")}
    assert needed == {"job", "output", "sdk_container_image"}


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("job", "images", "pictures"),
        ("output", "gs://bucket/out", "/tmp/out"),
        ("overwrite", "true", "yes"),
        ("seed", "-3", "x"),
        ("channels", "3", "2"),
    ],
)
def test_the_template_refuses_invalid_values(name, good, bad):
    parameters = json.loads((DOCKER / "metadata.json").read_text())["parameters"]
    (found,) = [parameter for parameter in parameters if parameter["name"] == name]
    (regex,) = found["regexes"]
    assert re.fullmatch(regex, good) and not re.fullmatch(regex, bad)


def test_parameters_of_the_launcher_become_a_command_line():
    given = [
        *("--input=gs://b/in/*.npy", "--job=sensors", "--sequence=true", "--overwrite=false"),
        *("--output=gs://b/out", "--seed=7", "--runner=DataflowRunner", "--region=europe-west4"),
    ]
    arguments = loaded("flex_template").command_line(given)
    flags = parse_flags(arguments)
    assert (flags.name, flags.dataset.overwrite, flags.dataset.seed) == ("sensors", False, 7)
    assert flags.job.sequence
    assert flags.beam == ("--runner=DataflowRunner", "--region=europe-west4")


def test_the_program_of_the_launcher_reports_a_mistake_in_one_line(capsys, monkeypatch):
    program = loaded("flex_template")
    assert program.main(program.command_line(["--job=sensors", "--output=gs://b/out*"])) == 2
    assert capsys.readouterr().err.startswith("error: --output gs://b/out*: expected a path")
    assert program.main(program.command_line(["--output=gs://b/o"])) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: ")
