"""spark-submit entry point: apply the pending microbatches of an archive and write the report.

    apply.py --archive URI --lake URI [--flows FILE] [--table GLOB]... [--check-transactions] [--consistent] --report URI

Exit code 0 when all flows succeeded, 1 when any failed, 2 on usage. The report (JSON of
:class:`airflow_cdc.model.outcome.ApplyReport`) is written in every case.
"""

from __future__ import annotations

import argparse
import json
import sys
import traceback

import fsspec

from airflow_cdc.flows_file import read_flows
from airflow_cdc.jobs.die_with_parent import die_with_parent
from airflow_cdc.model.errors import CdcError
from airflow_cdc.model.outcome import ApplyReport
from airflow_cdc.pipeline.apply_archive import ArchiveRun, apply_archive
from airflow_cdc.pipeline.session import start_session


def _arguments(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="apply.py")
    parser.add_argument("--archive", required=True)
    parser.add_argument("--lake", required=True)
    parser.add_argument("--flows")
    parser.add_argument("--table", action="append", default=[])
    parser.add_argument("--check-transactions", action="store_true")
    parser.add_argument("--consistent", action="store_true")
    parser.add_argument("--report", required=True)
    return parser.parse_args(argv)


def _say(line: str) -> None:
    sys.stdout.write(f"[airflow-cdc] {line}\n")
    sys.stdout.flush()


def main(argv: list[str]) -> int:
    """Run the job and return its exit code."""
    die_with_parent()
    arguments = _arguments(argv)
    try:
        spark = start_session("airflow-cdc apply")
        options = {"check_transactions": arguments.check_transactions, "consistent": arguments.consistent}
        run = ArchiveRun(spark, arguments.archive, arguments.lake, read_flows(arguments.flows), tuple(arguments.table), _say, **options)
        report = apply_archive(run)
    except CdcError as error:
        report = ApplyReport(arguments.archive, arguments.lake, error=error.to_json())
    except Exception as error:  # noqa: BLE001 - whatever it is, the operator must be told
        # The submitting task sees only the end of the log: the cause must travel in the report.
        traceback.print_exc()
        cause = {"type": type(error).__name__, "message": str(error)[:2000], "next_step": "See the job's log.", "transient": True}
        report = ApplyReport(arguments.archive, arguments.lake, error=cause)
    with fsspec.open(arguments.report, "w") as file:
        json.dump(report.to_json(), file)
    return 0 if report.ok else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
