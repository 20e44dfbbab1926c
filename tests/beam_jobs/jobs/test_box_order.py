"""The order of the corners of boxes and of the axes of keypoints, whatever file they are from."""

import json

import numpy as np
import pytest

from beam_jobs.cli.images import ImageFlags
from beam_jobs.jobs.images.image_job import ImageJob
from beam_jobs.sources.inputs import Inputs
from beam_jobs.sources.labels import Labels
from tests.support.images import encoded

# One box around columns 2 to 6 and rows 1 to 5 of 20 x 10 pixels.
COCO = {
    "images": [{"id": 1, "file_name": "1.png", "height": 10, "width": 20}],
    "annotations": [
        {"image_id": 1, "category_id": 1, "bbox": [2, 1, 4, 4], "keypoints": [4, 3, 2, 0, 0, 0]}
    ],
    "categories": [{"id": 1, "name": "dog", "keypoints": ["nose", "tail"]}],
}
VOC = """<annotation><size><width>20</width><height>10</height></size><object><name>dog</name>
<bndbox><xmin>2</xmin><ymin>1</ymin><xmax>6</xmax><ymax>5</ymax></bndbox></object></annotation>"""
FILES = {
    "c.json": json.dumps(COCO),
    "t.csv": "filename,xmin,ymin,xmax,ymax,class,width,height\n1.png,2,1,6,5,dog,20,10\n",
    "1.xml": VOC,
    "1.txt": "0 0.2 0.3 0.2 0.4",
}


def record_of(folder, **flags) -> dict:
    """The record of an image with a box, from the files that flags name."""
    for name, text in FILES.items():
        (folder / name).write_text(text)
    (folder / "1.png").write_bytes(encoded(np.zeros((10, 20), np.uint8), "PNG"))
    inputs = Inputs.of([str(folder / "1.png")])
    job = ImageJob(inputs, Labels("none"), annotations=ImageFlags(**flags).annotations())
    (source,) = job.sources(inputs.patterns[0])
    return job.load(source)


@pytest.mark.parametrize("boxes", ["coco:{}/c.json", "csv:{}/t.csv", "voc", "yolo"])
@pytest.mark.parametrize(
    ("order", "corners"), [("yxyx", (0.1, 0.1, 0.5, 0.3)), ("xyxy", (0.1, 0.1, 0.3, 0.5))]
)
def test_corners_have_the_order_that_is_asked_for(tmp_path, boxes, order, corners):
    found = record_of(tmp_path, boxes=boxes.replace("{}", str(tmp_path)), box_order=order)["boxes"]
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, [corners], rtol=1e-6)


@pytest.mark.parametrize(("order", "nose"), [("yxyx", (0.3, 0.2)), ("xyxy", (0.2, 0.3))])
def test_keypoints_have_the_axis_first_that_boxes_have(tmp_path, order, nose):
    flags = {"boxes": f"coco:{tmp_path}/c.json", "keypoints": True, "box_order": order}
    found = record_of(tmp_path, **flags)["keypoints"]
    np.testing.assert_allclose(found, [[(*nose, 2), (0, 0, 0)]], rtol=1e-6)
