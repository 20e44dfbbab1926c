"""Texts with planted faults: sentences of the docstrings of installed packages.

    FOLDER/records.parquet      id, text, label, split

A text is four sentences of one package, which is its class. Whole docstrings are often copies of each
other; four random sentences are not.
"""

from __future__ import annotations

import ast
import importlib.util
import re
import sysconfig
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
from planted.truth import Truth

_PACKAGES = ("numpy", "scipy", "sklearn")
_FILES = 700  # of each package, in the order of their paths
_SENTENCES = 4
_SENTENCE = re.compile(r"[A-Z][^.!?<>&|`*_={}\[\]\\]{40,200}\.")
_ACCENTS = ("café", "naïve", "Größe", "déjà vu", "“quoted”", "señor", "it\u2019s")
_CONTROLS = ("\x00", "\x1b[0m", "\x07", "\ufffd")
_BOILERPLATE = "This text was made by a program. See the documentation of the package for more."


def _sentences(folder: Path) -> list[str]:
    """The different sentences of the docstrings below a folder."""
    found: dict[str, None] = {}
    for path in sorted(folder.rglob("*.py"))[:_FILES]:
        try:
            tree = ast.parse(path.read_text(errors="replace"))
        except (SyntaxError, ValueError):
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.Module):
                text = " ".join((ast.get_docstring(node) or "").split())
                found |= dict.fromkeys(s for s in _SENTENCE.findall(text) if s.isascii())
    return list(found)


def _pools() -> dict[str, list[str]]:
    """Class -> sentences."""
    pools = {"stdlib": _sentences_of_stdlib()}
    for package in _PACKAGES:
        spec = importlib.util.find_spec(package)
        if spec and spec.submodule_search_locations:
            pools[package] = _sentences(Path(spec.submodule_search_locations[0]))
    return {name: pool for name, pool in pools.items() if len(pool) >= 100}


def _sentences_of_stdlib() -> list[str]:
    stdlib = Path(sysconfig.get_path("stdlib"))
    folders = [stdlib / name for name in ("asyncio", "concurrent", "email", "http", "unittest")]
    files = {s: None for folder in folders for s in _sentences(folder)}
    return list(files)


def _one_word_replaced(text: str, rng: np.random.Generator) -> str:
    words = text.split(" ")
    words[int(rng.integers(len(words)))] = "replacement"
    return " ".join(words)


def _respaced(text: str, rng: np.random.Generator) -> str:
    return text.replace(". ", ".\n\n  ").upper()


def _mojibake(text: str, rng: np.random.Generator) -> str:
    words = text.split(" ")
    for word in rng.choice(_ACCENTS, 2, replace=False):
        words.insert(int(rng.integers(len(words))), str(word))
    return " ".join(words).encode().decode("cp1252", "replace").replace("\ufffd", "")


def _control(text: str, rng: np.random.Generator) -> str:
    place = int(rng.integers(len(text)))
    # By number, as NumPy's texts end at a zero.
    return text[:place] + _CONTROLS[int(rng.integers(len(_CONTROLS)))] + text[place:]


_SPOILERS: dict[str, Callable[[str, np.random.Generator], str]] = {
    "empty": lambda text, rng: str(rng.choice(["", " ", "\n\t "])),
    "wrong encoding": _mojibake,
    "control characters": _control,
    "markup": lambda text, rng: f'<p class="body">{text[:60]}<br/>{text[60:]}&nbsp;</p>',
    "few letters": lambda text, rng: " ".join(f"{x:.4f}" for x in rng.normal(size=30)),
    "outlier lengths": lambda text, rng: " ".join(
        f"{text} {number}" for number in range(int(rng.integers(150, 300)))
    ),
}


class _Rows:
    def __init__(self) -> None:
        self.rows: list[dict[str, str]] = []

    def add(self, text: str, label: str, split: str) -> str:
        name = f"t{len(self.rows):07d}"
        self.rows.append({"id": name, "text": text, "label": label, "split": split})
        return name


def make_texts(folder: Path, count: int) -> Truth:
    """Writes some `count` texts, of which a tenth have faults, and returns the truth."""
    rng = np.random.default_rng(20_261_126)
    folder.mkdir(parents=True)
    pools, rows, few = _pools(), _Rows(), max(3, count // 250)
    labels = list(pools)

    def draw(label: str) -> str:
        chosen = rng.choice(len(pools[label]), _SENTENCES, replace=False)
        return " ".join(pools[label][number] for number in chosen)

    for _ in range(count - 16 * few):
        label = str(rng.choice(labels))
        rows.add(draw(label), label, "train" if rng.random() < 0.8 else "val")
    truth = Truth(0)
    free = iter(rng.permutation(len(rows.rows)))
    _plant_copies(truth, rows, free, few, labels, rng)
    for kind, spoil in _SPOILERS.items():
        for _ in range(few):
            row = rows.rows[next(free)]
            text = spoil(draw(row["label"]), rng)
            truth.plant(kind, rows.add(text, row["label"], row["split"]))
    repeated = [
        rows.add(_BOILERPLATE, row["label"], row["split"])
        for row in (rows.rows[next(free)] for _ in range(max(10, 5 * few)))
    ]
    truth.plant("repeated text", *repeated)
    truth.records = len(rows.rows)
    truth.splits = {row["id"]: row["split"] for row in rows.rows}
    pa.parquet.write_table(pa.Table.from_pylist(rows.rows), folder / "records.parquet")
    return truth


def _plant_copies(
    truth: Truth,
    rows: _Rows,
    free: Iterator[int],
    few: int,
    labels: list[str],
    rng: np.random.Generator,
) -> None:
    other = {"train": "val", "val": "train"}
    for number in range(few):
        one, two, three, four, five = (rows.rows[next(free)] for _ in range(5))
        truth.plant(
            "exact duplicates", one["id"], rows.add(one["text"], one["label"], one["split"])
        )
        truth.plant("leaks", two["id"], rows.add(two["text"], two["label"], other[two["split"]]))
        label = next(each for each in labels if each != three["label"])
        truth.plant("contradictions", three["id"], rows.add(three["text"], label, three["split"]))
        change = (_one_word_replaced, _respaced)[number % 2]
        truth.plant(
            "near duplicates",
            four["id"],
            rows.add(change(four["text"], rng), four["label"], four["split"]),
        )
        truth.plant(
            "near leaks",
            five["id"],
            rows.add(change(five["text"], rng), five["label"], other[five["split"]]),
        )
