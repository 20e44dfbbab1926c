"""The gallery of a report: what it shows of plain datasets, and that hostile ones break nothing."""

from __future__ import annotations

import re
import shutil

import numpy as np
import pytest
from sklearn.datasets import load_sample_image

from readers.check import check_facts, facts_of
from readers.checks.registry import CHECKS
from readers.format.schema import Schema
from readers.pages.advice import ADVICE
from readers.pages.cards import gallery
from readers.pages.document import document
from readers.pages.markup import to_html
from readers.pages.sections import alerts
from readers.pages.sections.records import extremes
from readers.pages.study import Study
from tests.readers.pages.parsed import Parsed
from tests.support.datasets import flip, write_dataset
from tests.support.images import encoded


def study_of(directory) -> Study:
    facts = facts_of(str(directory), 10_000)
    return Study(str(directory), facts, check_facts(facts, 10_000))


def page_of(directory) -> Parsed:
    return Parsed(document(study_of(directory)))


def photo(number: int, side: int = 40) -> np.ndarray:
    """A part of a photograph."""
    top, left = (int(v) for v in np.random.default_rng(number).integers(0, 350, 2))
    return np.ascontiguousarray(
        load_sample_image("china.jpg")[top : top + side, left : left + side]
    )


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    """Pictures of two splits, of which one is dark, one bright, one large, and two are the same."""
    schema = Schema(
        {"image": ("uint8", (None, None, 3), "png"), "key": ("string", ()), "label": ("int64", ())}
    )
    records = [
        {"image": encoded(photo(n), "PNG"), "key": f"a/{n}.png", "label": n % 2} for n in range(40)
    ]
    records[3]["image"] = encoded(photo(3) // 20, "PNG")
    records[4]["image"] = encoded(255 - photo(4) // 20, "PNG")
    records[5]["image"] = encoded(photo(5, 80), "PNG")
    records[30]["image"] = records[6]["image"]
    directory = write_dataset(
        tmp_path_factory.mktemp("pictures") / "d",
        schema,
        {"train": [records[:28]], "val": [records[28:]]},
        label_names=("cat", "dog"),
    )
    return directory


@pytest.fixture(scope="module")
def study(pictures):
    return study_of(pictures)


def test_each_split_has_a_tab_of_records(study):
    page = Parsed(document(study))
    assert [id for id in page.ids if id.startswith("drawn-")] == ["drawn-0", "drawn-1"]
    assert "24 of 28 records, drawn at random" in page.text
    assert "12 of 12 records, drawn at random" in page.text
    assert page.tags["figure"] > 36 and page.tags["script"] == 0


def texts_of(figures) -> list[str]:
    return [" ".join("".join(figure.itertext()).split()) for figure in figures]


def test_extremes_are_the_records_with_the_smallest_and_largest_numbers(study):
    found = {each["title"]: texts_of(each["figures"]) for each in extremes(study)}
    assert "a/3.png" in found["darkest"][0] and "a/4.png" in found["brightest"][0]
    assert found["largest"][0].startswith("80 pixels per side") and "a/5.png" in found["largest"][0]
    brightness = study.facts.measured("image", "brightness")
    drawn = [float(words.split()[0]) for words in found["darkest"]]
    assert drawn == pytest.approx(sorted(brightness)[:6], abs=0.006)


def test_an_alert_has_advice_and_its_records(study):
    section = "".join(map(to_html, alerts.section(study)))
    assert section.count("<li>") == len(study.checked.findings) > 1
    assert "Scores on these records are too good" in section
    assert section.count("<figure") == sum(len({*f.places}) for f in study.checked.findings)


def test_every_check_has_advice():
    others = "drift", "new_features", "missing_features", "changed_features", "changed_labels"
    assert ADVICE.keys() == {*CHECKS, *others}


def test_pictures_of_any_size_are_shown(tmp_path):
    schema = Schema({"image": ("uint8", (None, None, 3))})
    shapes = [(0, 0, 3), (0, 5, 3), (1, 1, 3), (1, 9_000, 3), (9_000, 1, 3)]
    records = [{"image": np.zeros(shape, np.uint8)} for shape in shapes]
    page = page_of(write_dataset(tmp_path / "d", schema, {"train": [records]}))
    assert page.tags["figure"] >= 5 and page.tags["img"] >= 3 and "cannot be" not in page.text


def test_thousands_of_boxes_and_boxes_that_are_none_are_bounded(tmp_path):
    schema = Schema(
        {
            "image": ("uint8", (None, None, 3)),
            "boxes": ("float32", (None, 4)),
            "box_labels": ("int64", (None,)),
            "mask": ("uint8", (None, None, 1)),
            "instance_masks": ("uint8", (None, None, None)),
        }
    )
    boxes = np.random.default_rng(0).uniform(-5, 5, (5_000, 4)).astype(np.float32)
    boxes[::7] = np.nan
    boxes[1::7] = np.inf
    boxes[2::7] = [1e38, -1e38, 3e38, 3e38]
    records = [
        {
            "image": photo(1),
            "boxes": boxes,
            "box_labels": np.arange(5_000) * 10**14 - 10**17,
            "mask": np.random.default_rng(1).integers(0, 256, (2_000, 1_000, 1), dtype=np.uint8),
            "instance_masks": np.ones((3, 0, 7), np.uint8),
        }
    ] * 2
    page = page_of(write_dataset(tmp_path / "d", schema, {"train": [records]}))
    assert "5,000 boxes" in page.text and "the first 40 drawn" in page.text
    assert "and 4,992 more" in page.text
    assert not re.search("nan|inf", "".join(page.valued("path", "d")))


def test_a_record_that_is_damaged_after_sampling_is_a_card_that_says_so(pictures, tmp_path):
    directory = shutil.copytree(pictures, tmp_path / "d")
    study = study_of(directory)
    (shard,) = directory.glob("*train*.tfrecord")
    flip(shard, 200)
    page = Parsed(document(study))
    assert "cannot be read: " in page.text and page.tags["figure"] > 36


def test_the_page_is_bounded_and_says_what_it_leaves_out(tmp_path, monkeypatch):
    monkeypatch.setattr(gallery, "_DRAWN", 30_000)
    schema = Schema({"photo": ("uint8", (None, None, 3)), "key": ("string", ())})
    records = [{"photo": photo(n), "key": f"{n}" * 300} for n in range(15)]
    splits = {f"s{n}": [[record]] for n, record in enumerate(records)}
    page = page_of(write_dataset(tmp_path / "d", schema, splits))
    assert "to keep the page small" in page.text
    assert "Records of 3 more splits are not shown." in page.text
