"""spark-submit entry point: maintain the tables of a lake and write the report.

    maintain.py --lake URI [--flows FILE] [--table GLOB]... [--settings JSON] --report URI

Exit code 0 when all flows succeeded, 1 when any failed, 2 on usage. The report (JSON of
:class:`airflow_cdc.model.report.maintenance.MaintenanceReport`) is written in every case.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import replace

from pyspark.sql import SparkSession

from airflow_cdc.flows_file import read_flows
from airflow_cdc.jobs.job_parser import FLOWS, job_parser
from airflow_cdc.jobs.run_job import log_line, run_job
from airflow_cdc.model.report.maintenance import MaintenanceReport, MaintenanceSettings
from airflow_cdc.pipeline.upkeep.maintain import MaintenanceRun, maintain


def _arguments(argv: list[str]) -> argparse.Namespace:
    parser = job_parser("maintain", FLOWS)
    parser.add_argument("--settings", default="{}")
    return parser.parse_args(argv)


def main(argv: list[str]) -> int:
    """Run the job and return its exit code."""
    given = _arguments(argv)

    def work(spark: SparkSession) -> MaintenanceReport:
        settings = MaintenanceSettings.from_json(json.loads(given.settings))
        run = MaintenanceRun(spark, given.lake, read_flows(given.flows), tuple(given.table), settings, log_line)
        return maintain(replace(run, wait_seconds=given.wait))

    return run_job("maintain", given, work, lambda error: MaintenanceReport(given.lake, error=error))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
