"""spark-submit entry point: ``textbook_job.py FILE TABLE`` merges one file of events the textbook's way."""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark.sql import SparkSession

from benchmarks import small_textbook

if __name__ == "__main__":
    small_textbook.merge(SparkSession.builder.appName("textbook").getOrCreate(), Path(sys.argv[1]), Path(sys.argv[2]))
