"""Packaging of beam-shards: `pip install '.[all]'`."""

from pathlib import Path

from setuptools import find_packages, setup

BEAM = ["apache-beam>=2.77,<2.80", "pillow>=10.3", "tqdm>=4.66", "orjson>=3.9.7"]
TENSORFLOW = ["tensorflow>=2.20,<2.23"]
TEST = [
    "pytest>=8",
    "hypothesis>=6.100",
    "ruff>=0.17,<0.18",
    "mypy>=2.4,<2.5",
    "scikit-learn>=1.5",
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
    extras_require={
        "beam": BEAM,
        "tensorflow": TENSORFLOW,
        "all": BEAM + TENSORFLOW,
        "test": BEAM + TENSORFLOW + TEST,
    },
)
