"""Recordings with planted faults: two channels of tones and noise, 100 values per second.

FOLDER/files/0000013.npy    float32 [steps, 2], 400 to 600 steps
FOLDER/records.parquet      id, path, label, split
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
from planted.truth import Truth

_TONES = {"walk": 1.8, "run": 2.9, "cycle": 1.1}


def _draw(label: str, rng: np.random.Generator) -> np.ndarray:
    """A movement: a tone with two overtones, and noise that is louder at low frequencies."""
    steps = int(rng.integers(400, 600))
    time = np.arange(steps)[:, None] / 100
    waves = np.arange(1, 4) * _TONES[label] * rng.uniform(0.9, 1.1)
    strength = rng.uniform(0.3, 1, (3, 2)) / np.arange(1, 4)[:, None]
    tones = np.sin(2 * np.pi * time * waves + rng.uniform(0, 6, 3)) @ strength
    noise = np.cumsum(rng.normal(size=(steps, 2)), axis=0)
    noise -= noise.mean(axis=0)
    return (tones + 0.1 * noise / noise.std() + 0.05 * rng.normal(size=(steps, 2))).astype("f4")


def _missing(signal: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    start = int(rng.integers(len(signal) - 20))
    signal[start : start + 10] = np.nan
    return signal


def _channel(value: float) -> Callable[[np.ndarray, np.random.Generator], np.ndarray]:
    def spoil(signal: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        signal[:, int(rng.integers(2))] = value
        return signal

    return spoil


_SPOILERS: dict[str, Callable[[np.ndarray, np.random.Generator], np.ndarray]] = {
    "missing values": _missing,
    "dead channel": _channel(0.0),
    "constant channel": _channel(0.7),
    "clipped": lambda signal, rng: signal.clip(*np.percentile(signal, (8, 92))),
    "empty": lambda signal, rng: signal[:0],
    "outlier lengths": lambda signal, rng: (
        np.tile(signal, (20, 1)) + rng.normal(size=(20 * len(signal), 2)).astype("f4") * 0.05
    ),
    "outlier levels": lambda signal, rng: signal * 1000,
}


def make_recordings(folder: Path, count: int) -> Truth:
    """Writes some `count` recordings, of which a tenth have faults, and returns the truth."""
    rng = np.random.default_rng(20_261_128)
    (folder / "files").mkdir(parents=True)
    rows: list[dict[str, str]] = []
    few = max(3, count // 100)

    def add(signal: np.ndarray, label: str, split: str) -> str:
        name = f"{len(rows):07d}"
        np.save(folder / "files" / f"{name}.npy", signal.astype(np.float32))
        rows.append({"id": name, "path": f"files/{name}.npy", "label": label, "split": split})
        return name

    clean: list[np.ndarray] = []
    for _ in range(count - 10 * few):
        label = str(rng.choice(list(_TONES)))
        clean.append(_draw(label, rng))
        add(clean[-1], label, "train" if rng.random() < 0.8 else "val")
    truth = Truth(0)
    free = iter(rng.permutation(len(clean)))
    other = {"train": "val", "val": "train"}
    for _ in range(few):
        for kind in ("exact duplicates", "leaks", "contradictions"):
            number = int(next(free))
            row = dict(rows[number])
            if kind == "leaks":
                row["split"] = other[row["split"]]
            if kind == "contradictions":
                row["label"] = next(label for label in _TONES if label != row["label"])
            truth.plant(kind, row["id"], add(clean[number], row["label"], row["split"]))
    for kind, spoil in _SPOILERS.items():
        for _ in range(few):
            row = rows[next(free)]
            signal = spoil(_draw(row["label"], rng), rng)
            truth.plant(kind, add(signal, row["label"], row["split"]))
    truth.records = len(rows)
    truth.splits = {row["id"]: row["split"] for row in rows}
    pa.parquet.write_table(pa.Table.from_pylist(rows), folder / "records.parquet")
    return truth
