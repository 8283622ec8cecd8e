"""spark-submit entry point: compare a lake's tables and write the report.

    verify.py --lake URI [--table GLOB]... --report URI
    verify.py --lake URI --other URI [--table GLOB]... --report URI
    verify.py --lake URI --table FLOW --jdbc FILE --report URI
    verify.py --lake URI --history [--table GLOB]... --report URI

FILE is a JSON object with the options of Spark's JDBC reader, including the password; only its owner may read it, and the job removes it.

Exit code 0 when the comparison finished, whatever its result, 1 when it did not, 2 on usage. The report (JSON of
:class:`airflow_cdc.model.report.verification.VerifyReport`) is written in every case.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from pyspark.sql import SparkSession

from airflow_cdc.jobs.job_parser import job_parser
from airflow_cdc.jobs.run_job import read_once, run_job
from airflow_cdc.model.report.verification import VerifyReport
from airflow_cdc.pipeline.upkeep.verify import verify_history, verify_keys, verify_lakes, verify_source


def _arguments(argv: list[str]) -> argparse.Namespace:
    parser = job_parser("verify")
    against = parser.add_mutually_exclusive_group()
    against.add_argument("--other")
    against.add_argument("--jdbc", type=Path)
    against.add_argument("--history", action="store_true")
    given = parser.parse_args(argv)
    if given.jdbc and len(given.table) != 1:
        parser.error("--jdbc needs one --table")
    return given


def main(argv: list[str]) -> int:
    """Run the job and return its exit code."""
    given = _arguments(argv)

    def work(spark: SparkSession) -> VerifyReport:
        if given.other:
            return verify_lakes(spark, given.lake, given.other, given.table)
        if given.history:
            return verify_history(spark, given.lake, given.table)
        if given.jdbc:
            return verify_source(spark, given.lake, given.table[0], read_once(given.jdbc))
        return verify_keys(spark, given.lake, given.table)

    return run_job("verify", given, work, lambda error: VerifyReport(given.lake, given.other, error=error))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
