"""fastdup with its defaults: duplicates, outliers and statistics of a folder, and five galleries."""

from __future__ import annotations

import os
from pathlib import Path

os.environ["SENTRY_OPT_OUT"] = "True"  # it would report to its makers

from planted.calls import Found
from planted.truth import Truth, copies

# Its default similarity of pictures that are nearly the same (`ccthreshold`), and the defaults of its `summary`.
_EXACT, _NEAR = 1.0, 0.96
_DARK, _LIGHT, _BLURRY = 4, 253, 150


def find(dataset: str, folder: Path, pages: Path) -> Found:
    """Looks at all pictures of the folder."""
    import fastdup

    lab = fastdup.create(work_dir=str(pages / "work"), input_dir=str(folder / "files"))
    lab.run(overwrite=True)
    pairs = lab.similarity()
    stats = lab.img_stats()

    def groups(least: float) -> list[list[str]]:
        some = pairs[pairs["distance"] >= least]
        return [
            [Path(one).stem, Path(other).stem]
            for one, other in zip(some["filename_from"], some["filename_to"], strict=True)
        ]

    def named(chosen: str) -> list[str]:
        return [Path(name).stem for name in stats.query(chosen)["filename"]]

    found = {
        "dark": named(f"mean < {_DARK}"),
        "light": named(f"mean > {_LIGHT}"),
        "blurry": named(f"blur < {_BLURRY}"),
        **copies(Truth.read(folder), groups(_EXACT - 1e-6), groups(_NEAR)),
    }

    def page() -> None:
        lab.vis.duplicates_gallery(save_path=str(pages))
        lab.vis.outliers_gallery(save_path=str(pages))
        lab.vis.component_gallery(save_path=str(pages))
        for metric in ("dark", "bright", "blur"):
            lab.vis.stats_gallery(metric=metric, save_path=str(pages))

    return found, page
