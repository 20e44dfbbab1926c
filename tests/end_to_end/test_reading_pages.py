"""The blocks of the pages in docs/read run in order, and print what the pages show."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from examples.samples import make_samples
from tests.support.checkout import ROOT
from tests.support.pages import blocks, run, without_accuracy

FOLDER = ROOT / "docs/read"
PAGES = sorted({path.stem for path in FOLDER.glob("*.md")} - {"performance"})

# What the base tests do not install.
FRAMEWORKS = re.compile(r"^(?:import|from) (?:torch|lightning|orbax)|torch_batches", re.M)

STEP = re.compile(r"^hosts \d, step (\d+): loss ([\d.]+)$", re.M)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with the datasets of the first block of batches.md."""
    folder = tmp_path_factory.mktemp("read")
    make_samples(folder / "sample_data" / "inputs")
    first = blocks(FOLDER / "batches.md")[0]
    run(first, folder)
    return folder


def check(page: str, folder: Path, frameworks: bool) -> int:
    """Runs the blocks of a page that need frameworks, or the others, and returns their number."""
    chosen = [
        block
        for block in blocks(FOLDER / f"{page}.md")
        if block.language in ("bash", "python")
        and not block.parse_only
        and bool(FRAMEWORKS.search(block.text)) == frameworks
    ]
    for block in chosen:
        printed = run(block, folder)
        if block.output is not None and not STEP.search(block.output):
            assert without_accuracy(printed) == without_accuracy(block.output), block.text
    return len(chosen)


@pytest.mark.slow
@pytest.mark.parametrize("page", [page for page in PAGES if page not in ("pytorch", "resume")])
def test_the_blocks_of_a_page_run_and_print_its_outputs(folder, page):
    assert check(page, folder, frameworks=False)


@pytest.mark.frameworks
@pytest.mark.parametrize("page", ["batches", "jax", "pytorch"])
def test_the_blocks_with_other_frameworks_run_and_print_their_outputs(folder, page):
    assert check(page, folder, frameworks=True)


@pytest.mark.slow
def test_the_program_that_is_killed_has_the_losses_of_the_page_at_every_step(folder):
    printed, shown = [], []
    for block in blocks(FOLDER / "resume.md"):
        if block.file:  # The next ones run it.
            (folder / block.file).write_text(block.text, encoding="utf-8")
            continue
        text = run(block, folder)
        if block.output is not None and STEP.search(block.output):
            printed += STEP.findall(text)
            shown += STEP.findall(block.output)
        elif block.output is not None:
            assert text == block.output
    assert [int(step) for step, _ in shown] == list(range(1, 19))
    assert {int(step) for step, _ in printed} == {int(step) for step, _ in shown}
    losses = {step: float(loss) for step, loss in shown}
    for step, loss in printed:
        assert float(loss) == pytest.approx(losses[step], abs=2e-3), step
