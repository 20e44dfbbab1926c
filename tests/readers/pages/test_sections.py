"""The sections of a report on datasets with planted properties, and on hostile ones."""

from __future__ import annotations

import dataclasses
import html
import json
import math
import re
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest

import readers
from readers.check import check_facts, facts_of
from readers.format.manifest import Manifest
from readers.format.schema import Schema
from readers.pages.document import document
from readers.pages.markup import to_html
from readers.pages.sections import features, labels, origin, splits
from readers.pages.study import Study
from tests.browsers.hostile import write_hostile
from tests.readers.pages.parsed import Parsed
from tests.support.datasets import manifest_bytes, write_dataset
from tests.support.images import encoded


def studied(directory):
    facts = facts_of(str(directory), 10_000)
    return Study(str(directory), facts, check_facts(facts, 10_000))


def with_manifest(directory, **changes):
    """Replaces parts of a manifest."""
    changed = dataclasses.replace(Manifest.read(directory), **changes)
    (directory / "manifest.json").write_bytes(changed.to_bytes())
    return directory


def with_statistics(directory, statistics):
    """Gives splits their statistics: split -> feature -> figures."""
    splits = {
        name: dataclasses.replace(split, statistics=statistics.get(name, {}))
        for name, split in Manifest.read(directory).splits.items()
    }
    return with_manifest(directory, splits=splits)


def written(section):
    """The HTML of a section."""
    return "".join(map(to_html, section))


def plain(section):
    """The text of a section in one line."""
    return " ".join(html.unescape(re.sub("<[^>]*>", " ", written(section))).split())


LABELLED = Schema({"label": ("int64", ()), "x": ("float32", ())})


def labelled(directory, counts, **manifest):
    """A dataset whose splits have the given number of records of each label."""
    records = {
        name: [{"label": label, "x": n} for label, n in each.items() for _ in range(n)]
        for name, each in counts.items()
    }
    write_dataset(directory, LABELLED, {name: [r] for name, r in records.items()}, **manifest)
    return with_statistics(
        directory,
        {n: {"label": {"values": {str(k): v for k, v in c.items()}}} for n, c in counts.items()},
    )


def test_labels_are_counted_by_class_and_split(tmp_path):
    directory = labelled(
        tmp_path / "d",
        {"train": {0: 60, 1: 20, 2: 5}, "val": {0: 10, 1: 5}},
        label_names=("cat", "dog", "bird", "cow"),
        options={"splits": "train=0.8,val=0.2"},
    )
    text = plain(labels.section(studied(directory)))
    assert "3 of 4 classes: the largest, 0 (cat), has 70, the smallest, 2 (bird), has 5." in text
    assert "0 (cat) 70 (70%) 60 (71%) 10 (67%)" in text
    assert "3 (cow) 0 (0%) 0 (0%) 0 (0%)" in text
    assert "85 records (85%) in" in plain(splits.section(studied(directory)))


def test_a_label_that_was_not_counted_has_figures(tmp_path):
    directory = labelled(tmp_path / "d", {"train": {0: 7, 1: 7}})
    assert "see Labels" in plain(features.section(studied(directory)))
    study = studied(with_statistics(directory, {}))
    assert "values: 0 to 1, median 0" in plain(features.section(study))


def test_balanced_classes_are_said_to_be(tmp_path):
    directory = labelled(tmp_path / "d", {"train": {0: 7, 1: 7}})
    assert "2 classes, balanced (7 each)" in plain(labels.section(studied(directory)))
    statistics = {"train": {"label": {"values": {"0": 0, "1": -3}}}}
    assert labels.section(studied(with_statistics(directory, statistics))) == []


def test_many_classes_are_summed_up(tmp_path):
    directory = labelled(tmp_path / "d", {"train": {n: 3 - (n > 60) for n in range(80)}})
    text = plain(labels.section(studied(directory)))
    assert "75 in 30 more classes" not in text
    assert f"{11 * 3 + 19 * 2} in 30 more classes" in text


def test_labels_of_several_values_are_counted_in_the_sample(tmp_path):
    schema = Schema({"box_labels": ("int64", (None,)), "key": ("string", ())})
    records = [{"box_labels": np.arange(n % 3), "key": str(n)} for n in range(30)]
    directory = write_dataset(
        tmp_path / "d", schema, {"train": [records]}, class_names={"box_labels": ("a", "b")}
    )
    text = plain(labels.section(studied(directory)))
    assert "Counted in a sample of 30 records" in text and "0 (a) 20 (67%)" in text


def test_a_dataset_without_classes_has_no_such_section(tmp_path):
    schema = Schema({"x": ("float32", (3,))})
    study = studied(
        write_dataset(tmp_path / "d", schema, {"train": [[{"x": np.ones(3, np.float32)}]]})
    )
    assert labels.section(study) == [] and features.section(study)


def test_figures_are_those_of_the_manifest_and_else_words_are_of_the_sample(tmp_path):
    schema = Schema({"x": ("float32", (4,)), "y": ("float32", (4,))})
    values = np.arange(40, dtype=np.float32).reshape(10, 4)
    values[0, 0] = np.nan
    directory = write_dataset(
        tmp_path / "d", schema, {"train": [[{"x": row, "y": row} for row in values]]}
    )
    figures = {"count": 39, "nan": 1, "min": -7.0, "max": 99.0, "mean": 2.0, "std": 3.0}
    study = studied(with_statistics(directory, {"train": {"x": figures}}))
    body = written(features.section(study))
    x, y = (body[body.index(f'id="feature-{n}"') :].split("</summary>")[0] for n in range(2))
    assert 'data-head="max">99<' in x and 'data-head="mean">2<' in x
    assert "mean of each record: 2 to 37.5, median 17.5" in y


def test_texts_have_histograms_of_their_characters_and_words(tmp_path):
    schema = Schema({"text": ("string", ()), "tokens": ("int64", (None,))})
    found = ["Der Hund läuft", "<b>", "a b\x00\x07b", " ", "der"]
    records = [{"text": text, "tokens": np.arange(n)} for n, text in enumerate(found)]
    directory = write_dataset(tmp_path / "d", schema, {"train": [records]})
    text = plain(features.section(studied(directory)))
    assert "1 to 14, median 3." in text and "0 to 3, median 1." in text
    assert "Length \N{MIDDLE DOT} records" in text and "0 to 4, median 2." in text


def test_pictures_have_histograms_of_their_measures(tmp_path):
    schema = Schema({"image": ("uint8", (None, None, 3), "png"), "label": ("int64", ())})
    rng = np.random.default_rng(0)
    arrays = [rng.integers(0, 200 + n, (20 + n, 30, 3), dtype=np.uint8) for n in range(40)]
    records = [{"image": encoded(each, "png"), "label": 0} for each in arrays]
    directory = write_dataset(tmp_path / "d", schema, {"train": [records]})
    text = plain(features.section(studied(directory)))
    assert "In pixels: 20 to 59, median 39." in text and "Width: 30." in text


def test_padding_is_what_batches_have(tmp_path):
    sizes = np.random.default_rng(1).lognormal(3, 0.8, 2500).astype(int) + 1
    name = "it's <b>"
    records = [{name: np.ones(n, np.int64)} for n in sizes]
    directory = write_dataset(
        tmp_path / "d", Schema({name: ("int64", (None,))}), {"train": [records]}
    )
    shown = re.search(r"([0-9.]+)% at batch size 64", plain(features.section(studied(directory))))
    padded = readers.Padded(mask=True)
    batches = readers.as_numpy(directory, 64, batching=padded, shuffle=True, repeat=3)
    masks = [batch[f"{name}_mask"] for batch in batches if len(batch[name]) == 64]
    measured = 1 - sum(mask.sum() for mask in masks) / sum(mask.size for mask in masks)
    assert float(shown[1]) / 100 == pytest.approx(measured, abs=0.04)


def test_padding_is_none_of_equal_lengths_and_a_half_of_ones_among_large_ones():
    assert features.padding(np.full(1000, 7), 64) == 0
    assert math.isnan(features.padding(np.zeros(1000, np.int64), 64))
    assert features.padding(np.array([10, 100] * 1000), 32) == pytest.approx(0.45, abs=0.001)


@pytest.mark.filterwarnings("error")
def test_a_page_shows_no_password(tmp_path):
    directory = labelled(tmp_path / "d", {"train": {0: 7, 1: 7}})
    study = dataclasses.replace(studied(directory), directory="https://me:secret@host")
    assert "Directory: https://***@host" in plain(origin.section(study))
    assert study.name == "***@host"


def test_the_page_of_hostile_data_is_well_formed_and_the_same_twice(tmp_path):
    directory = write_hostile(tmp_path)
    page = document(studied(directory))
    parsed = Parsed(page)
    assert parsed.text.count("<script>") > 20
    assert "\N{REPLACEMENT CHARACTER}gnp.exe" in parsed.text
    drawings = re.findall(r"<svg \w+=\".*?</svg>", page, re.DOTALL)
    assert len(drawings) > 20
    for each in drawings:
        assert "nan" not in re.sub("<title>.*?</title>", "", each)
        ElementTree.fromstring(each)
    again = document(studied(directory))
    assert re.sub("Made on.*", "", page) == re.sub("Made on.*", "", again)


def test_of_very_many_features_some_have_a_line_and_others_a_place(tmp_path, monkeypatch):
    monkeypatch.setattr(features, "_LINES", 60)
    monkeypatch.setattr(features, "_OPEN", 8)
    schema = Schema({f"feature {n:04d}": ("float32", ()) for n in range(120)})
    rng = np.random.default_rng(0)
    records = [{name: rng.normal() for name in schema} for _ in range(8)]
    splits = {"train": [records[:5]], "val": [records[5:]]}
    study = studied(write_dataset(tmp_path / "d", schema, splits))
    body = written(features.section(study))
    # A tenth of what a page has, which is smaller than 5 MB.
    assert len(body) < 350_000
    assert "60 more features left out" in body and 'id="feature-119"' in body


def test_a_manifest_of_another_writer_needs_no_statistics(tmp_path):
    directory = write_hostile(tmp_path)
    manifest = json.loads((directory / "manifest.json").read_text())
    for split in manifest["splits"].values():
        split["statistics"] = {"label": {"values": "no"}, "wide": {"count": -1}, "large": []}
    (directory / "manifest.json").write_bytes(manifest_bytes(manifest))
    assert document(studied(directory))
