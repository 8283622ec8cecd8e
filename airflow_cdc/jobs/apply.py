"""spark-submit entry point: apply the pending microbatches of an archive and write the report.

    apply.py --archive URI --lake URI [--flows FILE] [--table GLOB]... [--check-transactions] [--consistent]
             [--layout L] [--format F] [--storage SETTINGS] --report URI

``--storage`` is how archive and lake are reached, as JSON (:class:`airflow_cdc.model.storage.JobStorage`) or the path of a
file that holds it; the file is removed when it is read.

Exit code 0 when all flows succeeded, 1 when any failed, 2 on usage. The report (JSON of
:class:`airflow_cdc.model.outcome.ApplyReport`) is written in every case.
"""

from __future__ import annotations

import argparse
import json
import sys
import traceback
from pathlib import Path
from typing import Any

from airflow_cdc.flows_file import read_flows
from airflow_cdc.jobs.die_with_parent import die_with_parent
from airflow_cdc.model.archive_shape import ArchiveFormat, ArchiveLayout, ArchiveShape
from airflow_cdc.model.errors import CdcError, ConfigurationError
from airflow_cdc.model.outcome import ApplyReport
from airflow_cdc.model.storage import JobStorage
from airflow_cdc.pipeline.apply_archive import ArchiveRun, apply_archive
from airflow_cdc.pipeline.explain_failure import missing_connector
from airflow_cdc.pipeline.session import start_session
from airflow_cdc.pipeline.storage import file_system, use_options


def _arguments(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="apply.py")
    parser.add_argument("--archive", required=True)
    parser.add_argument("--lake", required=True)
    parser.add_argument("--flows")
    parser.add_argument("--table", action="append", default=[])
    parser.add_argument("--check-transactions", action="store_true")
    parser.add_argument("--consistent", action="store_true")
    parser.add_argument("--layout", choices=[layout.value for layout in ArchiveLayout], default=ArchiveLayout.AUTO.value)
    parser.add_argument("--format", choices=[form.value for form in ArchiveFormat], default=ArchiveFormat.AUTO.value)
    parser.add_argument("--storage")
    parser.add_argument("--report", required=True)
    return parser.parse_args(argv)


def _storage(given: str | None) -> JobStorage:
    if not given:
        return JobStorage()
    if given.startswith("{"):
        return JobStorage.from_json(json.loads(given))
    path = Path(given)
    text = path.read_text(encoding="utf-8")
    # What it holds are credentials: nobody needs the file again, and a killed task would leave it behind.
    path.unlink()
    return JobStorage.from_json(json.loads(text))


def _say(line: str) -> None:
    sys.stdout.write(f"[airflow-cdc] {line}\n")
    sys.stdout.flush()


def _cause(problem: Exception) -> dict[str, Any]:
    # Keys of a role expire, and a retry gets new ones.
    if isinstance(problem, PermissionError) and "expired" not in str(problem).lower():
        refused = ConfigurationError(
            f"The storage refuses the job: {problem}.",
            next_step="Check the storage connections' credentials, and what these may read, list and write.",
        )
        return refused.to_json()
    if missing := missing_connector(problem):
        return missing.to_json()
    return {"type": type(problem).__name__, "message": str(problem)[:2000], "next_step": "See the job's log.", "transient": True}


def main(argv: list[str]) -> int:
    """Run the job and return its exit code."""
    die_with_parent()
    arguments = _arguments(argv)
    try:
        storage = _storage(arguments.storage)
        use_options(storage.file_systems)
        spark = start_session("airflow-cdc apply", options=storage.spark)
        run = ArchiveRun(
            spark,
            arguments.archive,
            arguments.lake,
            read_flows(arguments.flows),
            tuple(arguments.table),
            _say,
            check_transactions=arguments.check_transactions,
            consistent=arguments.consistent,
            expected=ArchiveShape(ArchiveLayout(arguments.layout), ArchiveFormat(arguments.format)),
        )
        report = apply_archive(run)
    except CdcError as error:
        report = ApplyReport(arguments.archive, arguments.lake, error=error.to_json())
    except Exception as problem:  # noqa: BLE001 - whatever it is, the operator must be told
        # The submitting task sees only the end of the log: the cause must travel in the report.
        traceback.print_exc()
        report = ApplyReport(arguments.archive, arguments.lake, error=_cause(problem))
    fs, path = file_system(arguments.report)
    with fs.open(path, "w") as file:
        json.dump(report.to_json(), file)
    return 0 if report.ok else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
