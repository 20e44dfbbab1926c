"""Messages of TensorFlow's in google.protobuf."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from google.protobuf.message import DecodeError

MESSAGES = {
    "Example": tf.train.Example,
    "SequenceExample": tf.train.SequenceExample,
    "Tensor": tf.make_tensor_proto(0).__class__,
}


def parse(name: str, data: bytes) -> Any:
    """The message in some bytes, one of `MESSAGES`; None if protobuf refuses them."""
    try:
        return MESSAGES[name].FromString(data)
    except DecodeError:
        return None
