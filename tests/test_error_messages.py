"""The page of error messages: each of them is printed, or is in the source."""

import ast
import contextlib
import io
import re
import shlex

import numpy as np
import pytest
from PIL import Image

import beam_jobs
import readers
from beam_jobs.__main__ import main as beam_jobs_main
from beam_shards import READERS
from readers.__main__ import main as readers_main
from tests.support.checkout import ROOT
from tests.support.commands import IN_MEMORY
from tests.support.samples import write_samples

PAGE = (ROOT / "docs/reference/errors.md").read_text(encoding="utf-8")
MESSAGES = re.findall(r"^```text\n(.*)\n```$", PAGE, re.M)

# Commands, as users mistype them; each prints one of the messages.
COMMANDS = """
image --input photos --output x
images --inputs photos --output x
images photos x
images --input photos --output x --image_size 64 64
images --input photos --output x --tokens words
images --output x
images --input photos
images --input photos --output shards/images
images --input photos --output photos
images --input photos --output x --resize fit
images --input photos --output x --folds 3 --splits a=0.5,b=0.5
images --input photo --output x
images --input photos/*.png --output x
images --input empty --output x
sensors --input photos --output x
text --input inputs/text --text_field txt --output x
images --table table.csv --label column:kind --output x
images --input photos --output x --map mine:f
images --input mixed --output x --max_rejects 0
images --input broken --output x --label none
images --input photos --output /proc/x
images --input photos --output x --label folder
images --input photos --output x --splits 0.8,0.2
images --input photos --output x --splits train=0.8,val=0.1
images --input photos --output x --stratify
images --input photos/cat --output few --num_shards 500
info nothing
info photos
verify inputs/text/opinions.jsonl
head shards/images --split test
""".strip().splitlines()

CALLS = """
beam_jobs.write([{"x": [1, 2]}], "y", readers.Schema({"x": "int64"}))
beam_jobs.write([{"x": 1}, {"x": 1}], "y", readers.Schema({"x": "int64"}), key="x")
readers.as_numpy("shards/images", 8, columns=["img"])
readers.as_numpy("shards/sensors", 8)
readers.as_numpy("shards/sensors", 8, batching=readers.Packed(512))
readers.as_numpy("shards/images", 8, shuffle=1000)
len(readers.as_numpy("shards/images", 8, repeat=None))
next(readers.as_numpy("shards/images", 8, map=lambda record, key: {"x": record["image"][: key % 9]}))
readers.as_numpy("shards/images", 8, decoders={"image": readers.decoders.Skip()})
readers.as_numpy("shards/images", 8, shuffle=True, seed=2, state=state)
readers.as_numpy("shards/images", 8, split="val", shuffle=True, state=state)
[*readers.as_numpy("shards/more_images", 8, split="val")]
""".strip().splitlines()


@pytest.fixture(scope="module")
def printed(tmp_path_factory):
    """What all commands and calls print or raise."""
    root = write_samples(tmp_path_factory.mktemp("errors"))
    pixels = np.zeros((8, 9, 3), np.uint8)
    for name in ("photos/cat/1.jpg", "photos/dog/2.jpg", "mixed/cat/1.jpg"):
        (root / name).parent.mkdir(parents=True)
        Image.fromarray(pixels).save(root / name)
    for name in ("mixed/dog/2.jpg", "broken/3.jpg", "empty/a.part"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(b"\xff\xd8")
    (root / "empty/a.part").unlink()
    (root / "table.csv").write_text("path,label\nphotos/cat/1.jpg,x\n")
    (damaged,) = (root / "shards/more_images").rglob("val-*.tfrecord")
    damaged.write_bytes(damaged.read_bytes()[:-1] + b"\0")
    with pytest.MonkeyPatch.context() as patch, pytest.warns(UserWarning) as warned:
        patch.chdir(root)
        patch.setenv("RANK", "0")
        patch.setenv("WORLD_SIZE", "2")
        lines = [error_of(call) for call in CALLS]
        for command in COMMANDS:
            lines += printed_by(shlex.split(command))
    return [*lines, *(str(each.message) for each in warned if each.category is UserWarning)]


def printed_by(words):
    """The errors and warnings of a command, which must have some."""
    main = readers_main if words[0] in READERS else beam_jobs_main
    text = io.StringIO()
    with contextlib.redirect_stderr(text), contextlib.redirect_stdout(io.StringIO()):
        main([*words, *([] if words[0] in READERS else IN_MEMORY)])
    found = re.findall(r"^(?:error|warning): (.*)$", text.getvalue(), re.M)
    assert found, words
    return found


def error_of(call):
    state = readers.as_numpy("shards/images", 8, shuffle=True, shard=(0, 1)).state()
    with pytest.raises(Exception) as caught:
        eval(call, {"readers": readers, "beam_jobs": beam_jobs, "state": state})
    return str(caught.value)


def pattern_of(message):
    """A regular expression of a message of the page, in which `...` is any text."""
    return re.compile(".*".join(map(re.escape, message.split("..."))))


def texts_in_source():
    """All texts in the source, in which a value is an ellipsis."""
    for package in ("beam_jobs", "readers"):
        for path in (ROOT / package).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                parts = node.values if isinstance(node, ast.JoinedStr) else [node]
                if all(isinstance(part, (ast.Constant, ast.FormattedValue)) for part in parts):
                    yield "".join(
                        str(getattr(part, "value", "")) if isinstance(part, ast.Constant) else "…"
                        for part in parts
                    )


# What a test cannot make in a moment: a killed process, a store that fails, a newer format.
IN_SOURCE = {
    "...: another job is writing here: ...",
    "... is missing: pip install '...'",
    "a process that loads records was killed..., perhaps for lack of memory; no dataset ...",
    "the pipeline failed: ...; no dataset was written; ...",
    "...: format version ...; this package reads version ...",
    "...: no credentials (...): ...",
    "...: the store keeps failing (...); ...",
}


def test_the_page_has_fifty_messages():
    assert len(MESSAGES) == len(set(MESSAGES)) == 50
    assert {*MESSAGES} >= IN_SOURCE


def test_commands_and_calls_print_the_messages_of_the_page_and_no_others(printed):
    known = {message: pattern_of(message) for message in MESSAGES if message not in IN_SOURCE}
    assert [m for m in known if not any(map(known[m].fullmatch, printed))] == [], "\n".join(printed)
    assert [line for line in printed if not any(p.fullmatch(line) for p in known.values())] == []


def test_other_messages_are_in_the_source():
    texts = [*texts_in_source()]
    for message in IN_SOURCE:
        # What comes before the first colon is added elsewhere.
        assert any(map(pattern_of(message.removeprefix("...: ")).search, texts)), message
