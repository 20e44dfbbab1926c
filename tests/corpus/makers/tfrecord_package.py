"""A file by the `tfrecord` package, with its index: `python tfrecord_package.py FOLDER`."""

import os
import sys

from tfrecord.tools.tfrecord2idx import create_index
from tfrecord.writer import TFRecordWriter
from values import RECORDS

KINDS = {"id": "int", "name": "byte", "x": "float", "many": "int"}


def main(folder: str) -> None:
    """Writes a file and its index."""
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, "a.tfrecord")
    writer = TFRecordWriter(path)
    for record in RECORDS:
        # An empty list, which this package cannot write, is left out.
        writer.write({name: (values, KINDS[name]) for name, values in record.items() if values})
    writer.close()
    create_index(path, path + ".idx")


if __name__ == "__main__":
    main(sys.argv[1])
