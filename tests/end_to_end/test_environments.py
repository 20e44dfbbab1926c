"""The files of a release, in real environments that lack the dependencies that they must not need."""

import io
import json
import os
import platform
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import h5py
import numpy as np
import pytest
from PIL import Image

import readers
from beam_jobs.__main__ import main
from examples.samples import make_samples
from tests.engines.pool import Pool
from tests.engines.running import running
from tests.support.checkout import ROOT
from tests.support.datasets import files_of, write_dataset
from tests.support.packaged import run_in, user_environment

pytestmark = pytest.mark.environments

TEMPLATES = [*(ROOT / "readers/pages/templates").iterdir()]


def make_environment(directory, requirement):
    venv.create(directory)
    python = directory / "bin" / "python"
    # uv takes a tenth of pip's time, but does not read pip's settings on this machine.
    uv = [Path(sys.executable).with_name("uv"), "pip", "install", "--quiet", "--system-certs"]
    pip = [sys.executable, "-m", "pip", f"--python={python}", "install", "--quiet", "--no-compile"]
    if not uv[0].exists() or subprocess.run([*uv, f"--python={python}", requirement]).returncode:
        subprocess.run([*pip, "--disable-pip-version-check", requirement], check=True)
    return python


@pytest.fixture(scope="module")
def release(tmp_path_factory):
    """The folder of a release."""
    folder = tmp_path_factory.mktemp("release")
    subprocess.run([ROOT / ".ci/release", folder], check=True)
    return folder


@pytest.fixture(scope="module")
def wheel(release):
    """The wheel of a release for this machine."""
    (found,) = release.glob(f"*{platform.machine()}.whl")
    return found


@pytest.fixture(scope="module")
def sdist(release):
    (found,) = release.glob("*.tar.gz")
    return found


@pytest.fixture(scope="module")
def base(tmp_path_factory, wheel):
    """Python with the base package alone: neither Beam nor TensorFlow nor Pillow."""
    return make_environment(tmp_path_factory.mktemp("base"), str(wheel))


@pytest.fixture(scope="module")
def trainer(tmp_path_factory, wheel):
    """Python with the `tensorflow` extra alone, as for training a model."""
    return make_environment(tmp_path_factory.mktemp("trainer"), f"{wheel}[tensorflow]")


@pytest.fixture(scope="module")
def worker(tmp_path_factory, sdist):
    """Python of a Beam worker without TensorFlow: the sdist, installed as in the image."""
    directory = tmp_path_factory.mktemp("worker")
    venv.create(directory, with_pip=True)
    python = directory / "bin" / "python"
    command = [ROOT / "docker/install.sh", sdist, python]
    subprocess.run(command, check=True, cwd=tmp_path_factory.getbasetemp())
    return python


def run(python, *arguments, cwd):
    return run_in(cwd, python, *arguments)


def lacks(python, module, cwd):
    return run(python, "-c", f"import {module}", cwd=cwd).returncode != 0


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    directory = tmp_path_factory.mktemp("dataset")
    make_samples(directory, per_class=10)
    out = directory / "shards"
    flags = ["--output", str(out), "--num_shards", "2"]
    assert main(["sensors", "--input", f"{directory}/sensors/*/*", *flags]) == 0
    return out


def test_wheels_fit_any_python_on_two_processors_and_hold_the_package_without_tests(release):
    # By the processor in the header of ELF.
    for machine, number in {"x86_64": b"\x3e\0", "aarch64": b"\xb7\0"}.items():
        (path,) = release.glob(f"*-py3-none-manylinux*_{machine}.whl")
        with zipfile.ZipFile(path) as file:
            names = {*file.namelist()}
            kernel = file.read("readers/format/compiled/kernel.so")
        assert kernel[18:20] == number
        # It does not look for libraries in the folder of this Python.
        assert sys.base_prefix.encode() not in kernel
        about = f"beam_shards-{readers.__version__}.dist-info"
        assert {"beam_jobs/py.typed", "readers/py.typed", f"{about}/licenses/LICENSE"} <= names
        pages = {f"readers/pages/templates/{path.name}" for path in TEMPLATES}
        assert pages and pages <= names
        folders = {name.partition("/")[0] for name in names}
        assert folders == {"beam_jobs", "readers", "beam_shards.py", about}


def test_the_beam_extra_writes_every_kind_and_its_report_and_the_command_reads_them(
    tmp_path, wheel
):
    writer = make_environment(tmp_path / "writer", f"{wheel}[beam]")
    make_samples(tmp_path / "in", per_class=6)
    with h5py.File(tmp_path / "in/sensors/x.h5", "w") as file:
        file["signal"] = np.ones((20, 3), np.float32)

    def shards(*arguments):
        done = run(writer.parent / "beam-shards", *arguments, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        return done.stdout

    shards("images", "--input=in/images", "--output=out/images", "--image_size=16x16")
    shards("check", "out/images")
    shards("report", "out/images", "--output", "page.html")
    shards("text", "--input=in/text", "--output=out/text", "--tokens=bpe", "--vocabulary_size=300")
    shards("sensors", "--input=in/sensors", "--label=none", "--output=out/sensors")
    assert (tmp_path / "page.html").stat().st_size > 10_000
    for kind, records in (("images", 12), ("text", 120), ("sensors", 13)):
        assert f"{records} records" in shards("verify", f"out/{kind}")
    code = "import readers; print(next(readers.as_numpy('out/images', 8))['image'].shape)"
    done = run(writer, "-c", code, cwd=tmp_path)
    assert (done.stdout, done.stderr) == ("(8, 16, 16, 3)\n", "")


def test_a_source_distribution_holds_only_the_packages(sdist):
    with tarfile.open(sdist) as file:
        names = {name.partition("/")[2] for name in file.getnames()} - {""}
    code = {
        str(path.relative_to(ROOT))
        for package in ("beam_jobs", "readers")
        for path in (ROOT / package).rglob("*.py")
    }
    assert code <= names
    assert "readers/format/compiled/kernel.c" in names
    assert not [name for name in names if name.endswith(".so")]
    assert {name.partition("/")[0] for name in names - code} == {
        *("beam_jobs", "readers", "beam_shards.egg-info", "setup.py", "setup.cfg"),
        *("pyproject.toml", "README.md", "LICENSE", "PKG-INFO", "MANIFEST.in", "beam_shards.py"),
    }
    assert sdist.stat().st_size < 1 << 20


READ = """
import sys, readers
batches = readers.as_numpy(sys.argv[1], batch_size=8, batching="padded")
print(sum(len(batch["signal"]) for batch in batches))
"""


def test_an_installation_without_a_compiler_says_what_to_install(sdist, tmp_path):
    with tarfile.open(sdist) as file:
        file.extractall(tmp_path / "source", filter="data")
    (source,) = (tmp_path / "source").iterdir()
    command = [sys.executable, "-m", "build", "--no-isolation", "--skip-dependency-check"]
    environment = {**os.environ, "CC": "/nowhere/cc"}
    done = subprocess.run(
        [*command, "--wheel", "--outdir", tmp_path, source],
        capture_output=True,
        text=True,
        env=environment,
    )
    assert done.returncode != 0 and not list(tmp_path.glob("*.whl"))
    (error,) = [line for line in done.stderr.splitlines() if line.startswith("error: beam-shards")]
    assert "needs a C compiler" in error and "apt-get install gcc" in error


def test_a_missing_kernel_is_reported_with_what_to_type(wheel, dataset, tmp_path):
    python = user_environment(tmp_path / "environment", wheel)
    (kernel,) = (tmp_path / "environment").rglob("kernel.so")
    kernel.unlink()
    done = run(python, "-c", READ, dataset, cwd=tmp_path)
    assert done.stderr.splitlines()[-1].startswith("ImportError: the compiled part of beam-shards")
    done = run(python, "-m", "beam_jobs", "sensors", "--input=a", "--output=b", cwd=tmp_path)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: the compiled part of beam-shards") and "pip install" in line


def test_workers_with_the_source_distribution_write_the_same_bytes(worker, tmp_path):
    where = run(worker, "-c", "import beam_jobs; print(beam_jobs.__file__)", cwd=tmp_path).stdout
    assert where.startswith(str(worker.parent.parent))
    make_samples(tmp_path / "in", per_class=8)
    flags = ["images", "--input", f"{tmp_path}/in/images/**", "--image_size=16x16"]
    assert main([*flags, "--output", f"{tmp_path}/here", "--direct_num_workers=1"]) == 0
    with running(Pool, tmp_path / "pool", python=str(worker)) as pool:
        assert main([*flags, "--output", f"{tmp_path}/there", *pool.flags]) == 0
    assert files_of(tmp_path / "there") == files_of(tmp_path / "here")


def test_a_worker_has_the_program_that_runners_start(worker, tmp_path):
    done = run(worker.parent / "beam-shards-worker", "--help", cwd=tmp_path)
    assert done.returncode == 0 and "--provision_endpoint" in done.stdout, done.stderr


def test_the_program_of_workers_reports_a_missing_package(base, tmp_path):
    done = run(base.parent / "beam-shards-worker", "--help", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr == "error: grpc is missing: pip install 'beam-shards[beam]'\n"


def test_a_reader_needs_neither_beam_nor_tensorflow(base, dataset, tmp_path):
    assert all(lacks(base, name, tmp_path) for name in ("tensorflow", "apache_beam", "PIL"))
    done = run(base, "-c", READ, dataset, cwd=tmp_path)
    assert (done.stdout, done.stderr) == ("20\n", "")
    for command in ("info", "head"):
        done = run(base, "-m", "readers", command, dataset, cwd=tmp_path)
        assert done.returncode == 0, done.stderr


def test_a_missing_extra_is_reported_with_the_pip_command(base, dataset, tmp_path):
    done = run(base, "-m", "beam_jobs", "images", "--help", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    done = run(base, "-m", "beam_jobs", "images", "--input", ".", "--output", "y", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].endswith(" is missing: pip install 'beam-shards[beam]'")
    code = "import readers, sys; readers.load(sys.argv[1], batch_size=2)"
    done = run(base, "-c", code, dataset, cwd=tmp_path)
    assert "pip install 'beam-shards[tensorflow]'" in done.stderr.splitlines()[-1]


READ_IMAGES = """
import sys
import numpy as np
import readers

path, batch = sys.argv[1], {"batch_size": 8}
source = readers.RecordSource(path)
found = {
    "load": next(iter(readers.load(path, **batch)))["image"],
    "as_numpy": next(readers.as_numpy(path, **batch))["image"],
    "one": np.stack([source[number]["image"] for number in range(8)]),
}
for name, images in found.items():
    images = np.asarray(images)
    print(name, images.dtype, images.shape, *np.round(images.mean((1, 2, 3)) / 8).astype(int))
print(readers.verify(path).ok)
"""


def test_the_tensorflow_extra_alone_reads_jpegs_in_every_way(trainer, tmp_path):
    assert lacks(trainer, "apache_beam", tmp_path)
    records = []
    for number in range(8):
        out = io.BytesIO()
        Image.new("RGB", (32, 24), (16 * number,) * 3).save(out, "JPEG")
        records.append({"image": out.getvalue()})
    schema = readers.Schema({"image": ("uint8", (24, 32, 3), "jpeg")})
    dataset = write_dataset(tmp_path / "images", schema, {"train": [records]})
    done = run(trainer, "-c", READ_IMAGES, dataset, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    *lines, verified = done.stdout.splitlines()
    assert verified == "True"
    assert len(lines) == 3
    assert {line.partition(" ")[2] for line in lines} == {"uint8 (8, 24, 32, 3) 0 2 4 6 8 10 12 14"}


def test_a_typed_program_passes_pyright_strict(wheel, tmp_path):
    """Pyright runs on Node.js, which its wheel contains."""
    checker = make_environment(tmp_path / "checker", "pyright[nodejs]>=1.1.414")
    python = user_environment(tmp_path / "user", wheel)
    shutil.copy(ROOT / "tests/support/typed_program.py", tmp_path / "program.py")
    settings = {"include": ["program.py"], "typeCheckingMode": "strict"}
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(settings))
    command = [checker.parent / "pyright", f"--pythonpath={python}", "--outputjson"]
    done = run_in(tmp_path, *command)
    report = json.loads(done.stdout)
    assert report["generalDiagnostics"] == []
    assert report["summary"]["filesAnalyzed"] == 1
