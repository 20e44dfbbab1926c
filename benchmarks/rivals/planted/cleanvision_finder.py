"""CleanVision, as its README says: `find_issues()` with its defaults. It has no page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from planted.calls import Found
from planted.truth import Truth, copies

# CleanVision's issue -> kinds of fault.
KINDS = {
    "dark": ("dark",),
    "light": ("light",),
    "blurry": ("blurry",),
    "low_information": ("low information",),
    "grayscale": ("gray",),
    "odd_aspect_ratio": ("odd aspect",),
    "odd_size": ("tiny", "huge"),
}


def of_sizes(folder: Path, names: list[str]) -> dict[str, list[str]]:
    """Divides the pictures of an odd size into those that are too small and too large."""
    from PIL import Image

    found: dict[str, list[str]] = {"tiny": [], "huge": []}
    for name in names:
        with Image.open(folder / "files" / f"{name}.jpg") as picture:
            found["tiny" if picture.width < 100 else "huge"].append(name)
    return found


def of_issues(folder: Path, issues: Any, names: list[str]) -> dict[str, list[str]]:
    """The names for each kind, given a table of issues whose rows are the named pictures."""
    named: dict[str, list[str]] = {}
    for issue, kinds in KINDS.items():
        chosen = issues[f"is_{issue}_issue"].to_numpy()
        found = [name for name, is_one in zip(names, chosen, strict=True) if is_one]
        named |= of_sizes(folder, found) if issue == "odd_size" else {kinds[0]: found}
    return named


def find(dataset: str, folder: Path, pages: Path) -> Found:
    """Looks at all pictures of the folder."""
    from cleanvision import Imagelab

    lab = Imagelab(data_path=str(folder / "files"), verbose=False)
    lab.find_issues(verbose=False)
    names = [Path(path).stem for path in lab.issues.index]
    groups = [
        [[Path(path).stem for path in group] for group in lab.info[f"{kind}_duplicates"]["sets"]]
        for kind in ("exact", "near")
    ]
    truth = Truth.read(folder)
    return {**of_issues(folder, lab.issues, names), **copies(truth, *groups)}, None
