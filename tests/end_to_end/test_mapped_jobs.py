"""Jobs whose records a function of the user's makes: values, rejects, resume, and equal bytes."""

import hashlib

import numpy as np
import pytest

from readers.format.schema import Feature
from tests.support.commands import BEAM_WORKERS, ONE, interrupted, resumed, run
from tests.support.datasets import balanced, files_of, records_of, rejects_of

SOURCE = """
import numpy as np


def spectrum(features, info):
    if info.key.endswith("3.npy#2"):
        raise RuntimeError("too loud")
    power = abs(np.fft.rfft(features["signal"], axis=0)) ** 2
    return {"power": power.astype(np.float32), "hz": np.float32(info.rate / len(features["signal"]))}


def counted(features, info):
    words = features["text"].split()
    return {"text": features["text"].upper(), "first": words[0], "tokens": features["tokens"][:1]}


def rounded(features, info):
    return {**features, "power": features["power"].round(1), "name": info.key}
"""


@pytest.fixture(scope="module", autouse=True)
def source(tmp_path_factory):
    """The current folder, with 8 recordings, and the module with the functions."""
    folder = tmp_path_factory.mktemp("mapped")
    rng = np.random.default_rng(0)
    (folder / "functions_of_jobs.py").write_text(SOURCE)
    for name in ("a", "b"):
        (folder / "in" / name).mkdir(parents=True)
        for number in range(4):
            signal = rng.normal(size=(40 + number, 2)).astype(np.float32)
            np.save(folder / f"in/{name}/{number}.npy", signal)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        yield folder


WINDOWS = ["sensors", "--input", "in", "--rate", "50Hz", "--window", "10"]
WINDOWS += ["--map", "functions_of_jobs:spectrum", "--num_shards", "4", "--max_rejects", "all"]


@pytest.fixture(scope="module")
def spectra(source, tmp_path_factory):
    out = tmp_path_factory.mktemp("spectra") / "out"
    assert run(*WINDOWS, *ONE, "--output", out) == 0
    return out


def test_every_window_is_what_the_function_makes_of_it_or_a_reject(source, spectra):
    manifest = balanced(spectra)
    assert manifest.schema["power"] == Feature("float32", (6, 2))
    assert manifest.options["map"] == "functions_of_jobs:spectrum"
    assert manifest.options["map_sha256"] == hashlib.sha256(SOURCE.encode()).hexdigest()
    line = SOURCE[: SOURCE.index("raise")].count("\n") + 1
    why = (
        "--map functions_of_jobs:spectrum: RuntimeError: too loud "
        f"(functions_of_jobs.py, line {line})"
    )
    assert rejects_of(spectra) == {"a/3.npy#2": why, "b/3.npy#2": why}
    found = records_of(spectra)
    assert len(found) == 8 * 4 - 2
    for key, record in found.items():
        file, number = key.split("#")
        at = 10 * (int(number) - 1)
        window = np.load(source / "in" / file)[at : at + 10]
        np.testing.assert_allclose(
            record["power"], abs(np.fft.rfft(window, axis=0)) ** 2, rtol=1e-5, atol=1e-9
        )
        assert (record["label"], record["hz"]) == ("ab".index(key[0]), 5)
    figures = manifest.splits["train"].statistics["power"]
    values = np.concatenate([record["power"] for record in found.values()])
    np.testing.assert_allclose(figures["mean"], values.mean(), rtol=1e-5)


@pytest.mark.slow
def test_another_source_writes_the_shards_again(source, tmp_path, capsys):
    out = tmp_path / "out"
    interrupted(*WINDOWS, *ONE, "--output", out)
    (source / "functions_of_jobs.py").write_text(SOURCE.replace("too loud", "louder"))
    assert resumed(capsys, *WINDOWS, *ONE, "--output", out) == 0
    assert "louder" in rejects_of(out)["a/3.npy#2"]
    (source / "functions_of_jobs.py").write_text(SOURCE)


def test_texts_are_changed_one_by_one(tmp_path):
    rows = (
        f'{{"text": "{text}", "kind": "{kind}"}}\n'
        for text, kind in (("b one", "b"), ("", "c"), ("a two", "a"))
    )
    (tmp_path / "x.jsonl").write_text("".join(rows))
    flags = ["--input", tmp_path / "x.jsonl", "--label_field", "kind", "--tokens", "words", *ONE]
    out = tmp_path / "out"
    assert run("text", *flags, "--map", "functions_of_jobs:counted", "--output", out) == 0
    found = records_of(out)
    values = {
        key: (r["text"].item(), r["first"].item(), int(r["label"]), r["tokens"].size)
        for key, r in found.items()
    }
    assert values == {
        "x.jsonl#1": (b"B ONE", b"b", 1, 1),
        "x.jsonl#3": (b"A TWO", b"a", 0, 1),
    }
    assert "IndexError: list index out of range (functions_of_jobs" in rejects_of(out)["x.jsonl#2"]


def test_a_dataset_is_changed_record_by_record(spectra, tmp_path):
    out = tmp_path / "out"
    flags = ["--input", spectra, "--map", "functions_of_jobs:rounded", *ONE]
    assert run("reshard", *flags, "--output", out) == 0
    found, expected = records_of(out), records_of(spectra)
    assert found.keys() == expected.keys()
    for key, record in found.items():
        np.testing.assert_array_equal(record["power"], expected[key]["power"].round(1))
        assert record["name"] == key.encode()


@pytest.mark.slow
def test_all_workers_make_the_same_bytes(spectra, tmp_path):
    assert run(*WINDOWS, *BEAM_WORKERS, "--output", tmp_path / "out") == 0
    assert files_of(tmp_path / "out") == files_of(spectra)
