"""spark-submit entry point: rebuild flows in a lake of their own and write the report.

    rebuild.py --archive URI --lake URI --into URI [--flows FILE] [--table GLOB]... [--as-of P] [--layout L] [--format F]
               [--storage SETTINGS] --report URI

``P`` is a position or a time (:mod:`airflow_cdc.model.position.as_of`). Exit code 0 when all flows succeeded, 1 when any failed, 2 on
usage. The report (JSON of :class:`airflow_cdc.model.report.apply_report.ApplyReport`, of the new lake) is written in every case.
"""

from __future__ import annotations

import argparse
import sys

from pyspark.sql import SparkSession

from airflow_cdc.flows_file import read_flows
from airflow_cdc.jobs.job_parser import ARCHIVE, FLOWS, SHAPE, job_parser, shape_of
from airflow_cdc.jobs.run_job import log_line, run_job
from airflow_cdc.model.position.as_of import parse_as_of
from airflow_cdc.model.report.apply_report import ApplyReport
from airflow_cdc.pipeline.repair.rebuild import Rebuild, rebuild_matching


def _arguments(argv: list[str]) -> argparse.Namespace:
    parser = job_parser("rebuild", ARCHIVE, FLOWS, SHAPE)
    parser.add_argument("--into", required=True)
    parser.add_argument("--as-of")
    return parser.parse_args(argv)


def main(argv: list[str]) -> int:
    """Run the job and return its exit code."""
    given = _arguments(argv)

    def work(spark: SparkSession) -> ApplyReport:
        as_of = parse_as_of(given.as_of) if given.as_of else None
        expected = shape_of(given)
        order = Rebuild(
            spark, given.archive, given.lake, tuple(given.table), as_of, given.into, read_flows(given.flows), log_line, expected=expected
        )
        return rebuild_matching(order)

    return run_job("rebuild", given, work, lambda error: ApplyReport(given.archive, given.into, error=error))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
