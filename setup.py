"""Packaging of beam-shards: `pip install '.[all]'`."""

from pathlib import Path

from setuptools import find_packages, setup

BEAM = ["apache-beam>=2.77,<2.80", "pillow>=10.3", "tqdm>=4.66", "orjson>=3.9.7"]
TENSORFLOW = ["tensorflow>=2.20,<2.23"]
# What some inputs need; a job that meets one without it says which of these to install.
INPUTS = {
    "audio": ["soundfile>=0.12"],
    "boxes": ["ijson>=3.2"],
    "hdf5": ["h5py>=3.10"],
    "tokens": ["tokenizers>=0.20.1"],
}
ALL_INPUTS = [package for packages in INPUTS.values() for package in packages]
TEST = [
    "pytest>=8",
    "hypothesis>=6.100",
    "ruff>=0.17,<0.18",
    "mypy>=2.4,<2.5",
    "scikit-learn>=1.5",
    "scipy>=1.11",
    "pyyaml>=6",
    # Others who read what is written here.
    "grain>=0.2.13",
    "tfrecord>=1.14.6",
]

setup(
    name="beam-shards",
    version="0.1.0",
    description="Raw images, texts and sensor arrays to balanced TFRecord shards on Apache Beam, "
    "and readers that keep an accelerator busy.",
    long_description=(Path(__file__).parent / "README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    packages=find_packages(include=["beam_jobs", "beam_jobs.*", "readers", "readers.*"]),
    python_requires=">=3.10",
    install_requires=["numpy>=1.26", "google-crc32c>=1.5", "fsspec>=2024.2"],
    entry_points={"console_scripts": ["beam-shards-worker = beam_jobs.__main__:worker"]},
    extras_require={
        "beam": BEAM,
        "tensorflow": TENSORFLOW,
        **INPUTS,
        "all": BEAM + TENSORFLOW + ALL_INPUTS,
        "test": BEAM + TENSORFLOW + ALL_INPUTS + TEST,
    },
)
