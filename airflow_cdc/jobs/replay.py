"""spark-submit entry point: replay the quarantines of a lake's flows and write the report.

    replay.py --archive URI --lake URI [--flows FILE] [--table GLOB]... [--reason REASON]... [--dry-run] [--storage SETTINGS] --report URI

Exit code 0 when all flows succeeded, 1 when any failed, 2 on usage. The report (JSON of
:class:`airflow_cdc.model.report.reprocessing.ReprocessReport`) is written in every case.
"""

from __future__ import annotations

import argparse
import sys

from pyspark.sql import SparkSession

from airflow_cdc.flows_file import read_flows
from airflow_cdc.jobs.job_parser import ARCHIVE, DRY_RUN, FLOWS, job_parser
from airflow_cdc.jobs.run_job import log_line, run_job
from airflow_cdc.model.report.reprocessing import ReprocessReport
from airflow_cdc.pipeline.repair.reprocess_flows import FlowsAgain, replay_flows


def _arguments(argv: list[str]) -> argparse.Namespace:
    parser = job_parser("replay", ARCHIVE, FLOWS, DRY_RUN)
    parser.add_argument("--reason", action="append", default=[])
    return parser.parse_args(argv)


def main(argv: list[str]) -> int:
    """Run the job and return its exit code."""
    given = _arguments(argv)

    def work(spark: SparkSession) -> ReprocessReport:
        flows = read_flows(given.flows)
        order = FlowsAgain(
            spark,
            given.archive,
            given.lake,
            tuple(given.table),
            dry_run=given.dry_run,
            flows=flows,
            progress=log_line,
            wait_seconds=given.wait,
        )
        return replay_flows(order, given.reason)

    return run_job("replay", given, work, lambda error: ReprocessReport(given.archive, given.lake, given.dry_run, error=error))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
