"""Files by Spark with `tensorflow-hadoop`, the output format under both Spark connectors for TFRecords.

`PYTHONPATH=ROOT:SPARK/python:SPARK/python/lib/py4j….zip SPARK_HOME=SPARK python spark_files.py JAR FOLDER`
"""

import sys
import tempfile
from pathlib import Path

from pyspark import SparkConf, SparkContext

from tests.corpus.makers.examples import example
from tests.corpus.makers.values import RECORDS

_FORMAT = "org.tensorflow.hadoop.io.TFRecordFileOutputFormat"


def main(jar: str, folder: str) -> None:
    """Writes a file for each of two partitions."""
    conf = SparkConf().setMaster("local[1]").set("spark.jars", jar).set("spark.ui.enabled", "false")
    with SparkContext(conf=conf) as spark, tempfile.TemporaryDirectory() as scratch:
        pairs = [(bytearray(example(record)), None) for record in RECORDS]
        spark.parallelize(pairs, 2).saveAsNewAPIHadoopFile(
            f"{scratch}/out",
            _FORMAT,
            keyClass="org.apache.hadoop.io.BytesWritable",
            valueClass="org.apache.hadoop.io.NullWritable",
        )
        Path(folder).mkdir(parents=True, exist_ok=True)
        for number, part in enumerate(sorted(Path(scratch, "out").glob("part-*"))):
            (Path(folder) / f"part-{number}.tfrecord").write_bytes(part.read_bytes())


if __name__ == "__main__":
    main(*sys.argv[1:])
