"""Images that lack an annotation: rejects, or records without objects that are counted."""

import io
import json

import numpy as np
import pytest
from PIL import Image

from beam_jobs.cli.images import ImageFlags
from beam_jobs.errors import RejectError
from beam_jobs.jobs.images.image_job import ImageJob
from beam_jobs.sources.inputs import Inputs
from beam_jobs.sources.labels import Labels
from readers.format.manifest import Manifest
from tests.support.commands import ONE, refused, run
from tests.support.datasets import records_of
from tests.support.images import encoded

COCO = {
    "images": [{"id": 1, "file_name": "1.png", "height": 10, "width": 20}],
    "annotations": [{"image_id": 1, "category_id": 1, "bbox": [2, 1, 4, 5], "caption": "A dog."}],
    "categories": [{"id": 1, "name": "dog", "keypoints": ["nose"]}],
}
VOC = """<annotation><size><width>20</width><height>10</height></size>
<object><name>dog</name><bndbox><xmin>2</xmin><ymin>1</ymin><xmax>6</xmax><ymax>5</ymax></bndbox>
</object></annotation>"""
FILES = {
    "c.json": json.dumps(COCO),
    "t.csv": "filename,xmin,ymin,xmax,ymax,class\n1.png,2,1,6,5,dog\n",
    "p/1.xml": VOC,
    "p/1.txt": "0 0.5 0.5 0.2 0.4",
    "t/1.txt": "A dog.",
}


@pytest.fixture
def folder(tmp_path):
    """Two images of which only the first one has annotations, of every kind."""
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "1.png").write_bytes(encoded(np.ones((10, 20), np.uint8), "PNG"))
    for name in "12":
        data = encoded(np.zeros((10, 20, 3), np.uint8), "PNG")
        (tmp_path / "p" / f"{name}.png").write_bytes(data)
    return tmp_path


def load(folder, number: int, **flags) -> dict:
    """The record of an image; a value {} in the flags stands for the folder."""
    for name, value in flags.items():
        flags[name] = value.replace("{}", str(folder)) if isinstance(value, str) else value
    inputs = Inputs.of([str(folder / "p" / f"{number}.png")])
    job = ImageJob(inputs, Labels.parse("none"), annotations=ImageFlags(**flags).annotations())
    (source,) = job.sources(inputs.patterns[0])
    if source.error:
        raise RejectError(source.error)
    return job.load(source)


EVERY = [
    ({"boxes": "coco:{}/c.json"}, "the COCO file has no image of this name"),
    ({"boxes": "csv:{}/t.csv"}, "the table has no image of this name"),
    ({"boxes": "voc"}, "no boxes found"),
    ({"captions": "coco:{}/c.json"}, "the COCO file has no image of this name"),
    ({"captions": "txt:{}/t"}, "no captions found"),
    ({"masks": "{}/m"}, "no mask found"),
]


@pytest.mark.parametrize(("flags", "message"), EVERY)
@pytest.mark.parametrize("unannotated", ["auto", "reject"])
def test_an_image_without_an_annotation_is_a_reject(folder, flags, message, unannotated):
    with pytest.raises(RejectError, match=message):
        load(folder, 2, **flags, unannotated=unannotated)


@pytest.mark.parametrize("flags", [*(flags for flags, _ in EVERY), {"boxes": "yolo"}])
def test_an_image_without_an_annotation_is_kept_on_request(folder, flags):
    annotated = load(folder, 1, **flags, unannotated="keep")
    record = load(folder, 2, **flags, unannotated="keep")
    assert "it has no annotations, and was kept" in {*record.remarks} - {*annotated.remarks}
    assert record.keys() == annotated.keys()
    if "boxes" in flags:
        assert (record["boxes"].shape, record["box_labels"]) == ((0, 4), ())
        assert len(annotated["boxes"]) == 1
    if "captions" in flags:
        assert (record["captions"], annotated["captions"]) == ([], ["A dog."])
    if "masks" in flags:
        mask = Image.open(io.BytesIO(record["mask"]))
        assert mask.mode == "L"
        np.testing.assert_array_equal(np.asarray(mask), np.zeros((10, 20)))


def test_a_yolo_file_may_be_required(folder):
    assert "has no YOLO file" in load(folder, 2, boxes="yolo").remarks[0]
    with pytest.raises(RejectError, match="no boxes found"):
        load(folder, 2, boxes="yolo", unannotated="reject")


@pytest.mark.parametrize("segmentation", ["instances", "semantic"])
@pytest.mark.parametrize("about", ["auto", "upright"])
def test_a_kept_image_has_no_masks_and_no_keypoints(folder, segmentation, about):
    flags = {"boxes": "coco:{}/c.json", "segmentation": segmentation, "keypoints": True}
    record = load(folder, 2, **flags, annotations_of=about, unannotated="keep")
    assert record["keypoints"].shape == (0, 1, 3)
    if segmentation == "instances":
        assert record["instance_masks"].shape == (0, 10, 20)
    else:
        assert not np.asarray(Image.open(io.BytesIO(record["mask"]))).any()


def test_a_broken_annotation_is_not_a_missing_one(folder):
    (folder / "p" / "2.xml").write_text("<broken")
    with pytest.raises(RejectError, match="not XML"):
        load(folder, 2, boxes="voc", unannotated="keep")


def test_the_summary_and_the_manifest_count_kept_images(folder, capsys):
    output = folder / "o"
    flags = ["--input", folder / "p/*.png", "--label", "none", *ONE, "--output"]
    assert run("images", "--boxes", "voc", "--unannotated", "keep", *flags, output) == 0
    assert "1: it has no annotations, and was kept, such as" in capsys.readouterr().err
    assert [len(record["boxes"]) for _, record in sorted(records_of(output).items())] == [1, 0]
    manifest = Manifest.read(str(output))
    assert manifest.remarks == {"it has no annotations, and was kept": (1, "2.png")}
    assert not manifest.rejected


def test_there_must_be_annotations_that_can_lack(folder, capsys):
    flags = ["--input", folder / "p", "--output", folder / "o", "--unannotated", "keep"]
    expected = "--unannotated keep: it has no effect without --boxes, --captions or --masks: add"
    refused(capsys, 2, expected, "images", *flags)
