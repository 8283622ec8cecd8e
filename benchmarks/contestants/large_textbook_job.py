"""spark-submit entry point: ``large_textbook_job.py SHAPE TABLE FILE…`` merges files of events into a large table the textbook's way."""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark.sql import SparkSession

from benchmarks.contestants.textbook import table_of
from benchmarks.shapes import SHAPES

if __name__ == "__main__":
    shape, table, *files = sys.argv[1:]
    spark = SparkSession.builder.appName("textbook").getOrCreate()
    table_of(SHAPES[shape].types).merge(spark, files, Path(table))
