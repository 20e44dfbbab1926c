"""The oldest dependencies that setup.py admits, on the oldest Python of this machine."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.checkout import ROOT
from tests.support.packaged import run_in

pytestmark = pytest.mark.environments

# Without those of stores.
EXTRAS = ["beam", "tensorflow", "heif", "matlab", "netcdf"]

# They use most functions of NumPy, TensorFlow, fsspec, PyArrow, Pillow and the libraries of formats.
FILES = [
    "readers/batches/test_collate.py",
    "readers/files/test_mounts.py",
    "readers/format/test_crc.py",
    "readers/format/test_decode_batches.py",
    "readers/format/test_encode.py",
    "readers/format/protobuf/test_fast_path.py",
    "readers/format/test_schema.py",
    "readers/format/protobuf/test_tensor.py",
    "readers/shards/test_features.py",
    "readers/tfdata/test_bridge.py",
    "readers/tfdata/test_feed.py",
    "readers/tfdata/test_load.py",
    "readers/test_batches.py",
    "readers/test_verify.py",
    "beam_jobs/records/test_encode.py",
    "beam_jobs/sources/test_inputs.py",
    "beam_jobs/sources/test_sidecars.py",
    "beam_jobs/sources/test_table_inputs.py",
    "beam_jobs/jobs/test_audio_files.py",
    "beam_jobs/jobs/test_box_tables.py",
    "beam_jobs/jobs/test_formats.py",
    "beam_jobs/jobs/test_images.py",
    "beam_jobs/jobs/test_npy.py",
    "beam_jobs/jobs/test_parquet_recordings.py",
    "beam_jobs/jobs/test_scientific_formats.py",
    "beam_jobs/jobs/test_subwords.py",
]


def oldest_python():
    """The oldest supported Python on the path or of pyenv, whether or not pyenv has it active."""
    folders = [Path(folder) for folder in os.get_exec_path()]
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    folders += sorted(pyenv.glob("versions/*/bin"))
    for minor in range(10, sys.version_info.minor):  # 3.10 as in setup.py
        for python in (folder / f"python3.{minor}" for folder in folders):
            # pyenv puts a program on the path that fails for a version that is not active.
            if python.exists() and run_in(".", python, "--version").returncode == 0:
                return python
    return Path(sys.executable)


def test_the_oldest_dependencies_work_on_the_oldest_python(tmp_path):
    uv = Path(sys.executable).with_name("uv")
    subprocess.run([uv, "venv", "--quiet", f"--python={oldest_python()}", tmp_path], check=True)
    python = tmp_path / "bin" / "python"
    install = [uv, "pip", "install", "--quiet", "--system-certs", f"--python={python}"]
    extras = [f"--extra={extra}" for extra in EXTRAS]
    oldest = ["--resolution=lowest-direct", f"--requirements={ROOT / 'setup.py'}", *extras]
    subprocess.run([*install, *oldest], check=True)
    subprocess.run([*install, "pytest", "pytest-xdist", "hypothesis"], check=True)
    # Servers of stores are not installed there.
    stores = ("s3", "gcs", "store", "bucket", "its_object")
    chosen = ["-m", "not slow and not azurite", "-k", f"not ({' or '.join(stores)})"]
    command = [python, "-m", "pytest", *chosen, "-n", "2", "-p", "no:cacheprovider"]
    done = run_in(ROOT, *command, *(f"tests/{file}" for file in FILES))
    assert done.returncode == 0, done.stdout[-20_000:]
    assert " passed" in done.stdout
