"""A job that reads and writes a real HDFS, where files are staged and renamed."""

import subprocess
from pathlib import Path

import pytest
from hdfs import InsecureClient

from tests.engines import packages
from tests.support.commands import TWO, run
from tests.support.datasets import files_of, write_recordings

pytestmark = pytest.mark.engines


@pytest.fixture(scope="module")
def hdfs(tmp_path_factory):
    """The flags of a server, and a client."""
    program = Path(packages.__file__).with_name("MiniHdfs.java")
    folder = tmp_path_factory.mktemp("hdfs")
    command = ["java", "-Xmx512m", "-cp", f"{packages.hdfs()}/*", str(program), str(folder)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "text": True}
    with subprocess.Popen(command, **pipes) as server:
        try:
            port = next(line for line in server.stdout if line.startswith("port ")).split()[1]
            flags = ["--hdfs_host", "localhost", "--hdfs_port", port, "--hdfs_user", "root"]
            yield flags, InsecureClient(f"http://localhost:{port}", user="root")
        finally:
            server.kill()


def test_a_job_from_hdfs_to_hdfs_writes_the_same_bytes_as_on_a_disk(hdfs, tmp_path):
    flags, client = hdfs
    write_recordings(tmp_path / "in", [1 + n * n % 90 for n in range(40)], range(0, 40, 3))
    client.makedirs("/data/in")
    for label in "abc":
        client.upload("/data/in", str(tmp_path / "in" / label))
    for top, more in ((tmp_path, []), ("hdfs://data", flags)):
        arguments = ["sensors", "--input", f"{top}/in/*/*.npy", "--label", "parent", *TWO]
        # Records move between these shards at the end, which renames files.
        arguments += ["--num_shards", "4", "--output", f"{top}/out"]
        arguments += ["--max_rejects", "all"]  # 14 of the 40 recordings are broken.
        assert run(*arguments, *more) == 0
    client.download("/data/out", str(tmp_path / "back"))
    found, expected = files_of(tmp_path / "back"), files_of(tmp_path / "out")
    assert found.keys() == expected.keys()
    for name in ("manifest.json", "generations/1.json"):  # They hold the paths of the inputs.
        del found[name], expected[name]
    assert found == expected
    assert run(*arguments, *flags) == 0
    assert run(*arguments, *flags, "--seed", "9") == 2
    assert run(*arguments, *flags, "--overwrite") == 0
