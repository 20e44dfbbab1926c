"""Files of COCO: their boxes, captions, segmentations and keypoints."""
