"""Dags from a file: ``cdc_dags`` makes those that ``airflow_cdc.yaml`` asks for."""

from __future__ import annotations

import sys
from datetime import datetime, time, timedelta, timezone
from pathlib import Path
from typing import Any

from airflow.exceptions import AirflowTimetableInvalid
from airflow.providers.common.compat.sdk import DAG

from airflow_cdc.dags_file import DagsFile, PlannedDag, read_dags_file
from airflow_cdc.model.errors import ConfigurationError
from airflow_cdc.operators.merge import CdcMergeOperator
from airflow_cdc.sensors.archive import CdcArchiveSensor


def cdc_dags(path: Path | str) -> dict[str, DAG]:
    """Return the Dags that a file asks for, by ``dag_id``: each a look for files and, where some wait, one merge.

    For a Dag file: ``globals().update(cdc_dags(Path(__file__).with_name("airflow_cdc.yaml")))``. The file is read, and nothing else. A
    Dag's merge runs once at a time, backfills included, and no two Dags write one table but where they share a pool of one slot.

    :raises ConfigurationError: when the file is wrong; Airflow shows it as the Dag file's import error.
    """
    asked = read_dags_file(path)
    # Airflow takes the file in which a Dag is made for the Dag's own.
    here = sys._getframe(1).f_code.co_filename
    return {dag.dag_id: _dag(asked, dag, Path(path), here) for dag in asked.dags}


def _dag(asked: DagsFile, planned: PlannedDag, path: Path, dag_file: str) -> DAG:
    settings = planned.settings
    with DAG(
        dag_id=planned.dag_id,
        description=f"Apply archived change events to Delta tables ({path.name}, {planned.place})",
        schedule=settings.schedule,
        start_date=datetime.combine(settings.start_date, time(), timezone.utc),
        catchup=settings.catchup,
        max_active_runs=1,
        default_args={
            "owner": settings.owner,
            "retries": settings.retries,
            "retry_delay": timedelta(seconds=settings.retry_delay),
        },
        tags=settings.tags,
    ) as dag:
        places: dict[str, Any] = {
            "archive_conn_id": asked.archive_conn_id,
            "lake_conn_id": asked.lake_conn_id,
            "tables": list(planned.tables),
        }
        wait_for_files = CdcArchiveSensor(task_id="wait_for_files", timeout=0, soft_fail=True, **places)
        merge = CdcMergeOperator(
            task_id="merge",
            conn_id=asked.spark_conn_id,
            flows_file=asked.flows,
            check_transactions=settings.check_transactions,
            consistent=settings.consistent,
            conf=settings.conf or None,
            # max_active_runs does not hold for backfills: this does, for one writer at a time.
            max_active_tis_per_dag=1,
            **_pool(planned),
            **places,
        )
        wait_for_files >> merge
    dag.fileloc = dag_file
    try:
        dag.timetable.validate()
    except AirflowTimetableInvalid as error:
        raise ConfigurationError(
            f"{path}: {planned.place}: schedule is {settings.schedule!r}, expected cron's five fields or a preset of Airflow's: {error}.",
            next_step="Correct the file.",
        ) from error
    return dag


def _pool(planned: PlannedDag) -> dict[str, Any]:
    pool = planned.settings.one_slot_pool or planned.settings.pool
    return {"pool": pool} if pool else {}
