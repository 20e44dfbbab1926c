"""The notebooks in docs/tutorials run, and print what they say.

`python -m tests.end_to_end.test_notebooks NAME` runs docs/tutorials/NAME.ipynb, and writes its outputs into the file.
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
from pathlib import Path

import pytest

from tests.support.checkout import ROOT
from tests.support.notebooks import executed, keep, output_of

FOLDER = ROOT / "docs" / "tutorials"

# What each notebook says about its outputs. Accuracies differ a little between processors and versions.
LINES = {
    "jax": [
        r"train +4,\d{3} +1 .* \d+\nval +1,\d{3} +1 ",
        r"train, record 0 of 4,\d{3}\n",
        r"padded to the longest of each batch, they would have [12]\d shapes",
        r"compiled 1 time, for tokens \(64, 64\)",
        r"accuracy on val: (8[1-9]|9\d)\.\d% of 1\d{3} texts",
        r"\w\w taken for \w\w: \d+\n",
    ],
    "keras": [
        r"train +4,000 +8 +500 .*\nval +1,000 +2 +500 .*\n(.*\n)*.*cut.jpg(.*\n)*.*notes.txt",
        r"5,000 of 5,000 records, \d+ checks: 0 errors, 0 warnings",
        r"\(28, 28, 1\) batches: 63 and 16",
        r"epoch 6: accuracy on val 9[4-9]",
        r"\n?\d\d of 1000 wrong\n\w+/\d{4}\.jpg taken for \w+\n",
    ],
    "living": [
        r"1: cannot be decoded: image file is truncated, such as april/nine/cut.png",
        r"near_leaks: image: 2 of 1,505 records .*six/0611.png and six/0522.png",
        r"generation 3 has 1,499 records; deleted 5 of train, 1 of val",
        r"surprise +float32",
        r"shards/usual: selected 1,\d+ of train",
        r"shards/usual: accuracy on val 9\d",
        r"the model of the run without a stop: True",
        r"1202 records then, 1448 now",
        r"train  0 removed, 246 added, 1,202 in both",
        r"train: 1,448 records in 4 shards",
        r"erased 1 key: 2 records and rejects in all files",
        r"generation 4 is not here",
        r"1,795 records, .*: no problems",
    ],
    "pytorch": [
        r"train +3,204 .* 0\nval +1,193 .* 0\n",
        r"51 batches of torch.Size\(\[64, 200, 6\]\)",
        r"train has person1 person10 person2 person4 person6 person7 person9\n",
        r"val has person3 person5 person8\n",
        r"accuracy on val: (7[6-9]|8\d|9\d)\.\d% of 1193 windows",
        r"accuracy on val: (7[6-9]|8\d|9\d)\.\d% of 42 recordings",
    ],
    "resume": [
        r"not a finished dataset: its job still runs or was killed",
        r"train +1,442 +40 +36 to 37 .*\nval +355 +10 +35 to 36 ",
        r"kept [1-4]\d shards of an unfinished run",
        r"digits 50 (\w{64})\ncalm 50 \1\n",
        r"killed, and started again\nbegins at step (5|10|15)1\nends at step 230, (.*)\n"
        r"never killed\nbegins at step 1\nends at step 230, \2\n",
        r"equal losses: True\nequal weights: True",
        r"begins at step (5|10|15)1\nends at step 230, .*\n.*largest difference of a loss: \d\S*e-1[4-9]",
    ],
}
# Those that need packages which the base tests do not have.
FRAMEWORKS = ["keras", "pytorch"]
LONG = [
    pytest.param(name, marks=pytest.mark.frameworks if name in FRAMEWORKS else pytest.mark.slow)
    for name in LINES
]


def missing(name: str, outputs: list[str]) -> list[str]:
    """The lines of a notebook that its outputs lack."""
    return [line for line in LINES[name] if not re.search(line, "".join(outputs))]


def test_every_notebook_is_tested():
    assert sorted(path.stem for path in FOLDER.glob("*.ipynb")) == sorted(LINES)


@pytest.mark.parametrize("name", LINES)
def test_the_outputs_in_the_file_are_those_of_one_run_and_what_it_says(name):
    cells = json.loads((FOLDER / f"{name}.ipynb").read_text(encoding="utf-8"))["cells"]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in code] == [*range(1, len(code) + 1)]
    assert all(output["output_type"] == "stream" for cell in code for output in cell["outputs"])
    texts = ["".join(output["text"]) for cell in code for output in cell["outputs"]]
    assert missing(name, texts) == []


@pytest.mark.parametrize("name", LONG)
def test_a_notebook_runs_and_prints_what_it_says(name, tmp_path):
    outputs = output_of(executed(FOLDER / f"{name}.ipynb", tmp_path), tmp_path)
    assert missing(name, outputs) == []


if __name__ == "__main__":
    for notebook in sys.argv[1:]:
        with tempfile.TemporaryDirectory() as new:
            keep(FOLDER / f"{notebook}.ipynb", Path(new))
