"""Apply an archive's past, month by month, by ``airflow backfill create --dag-id cdc_backfill …`` (docs/how-to/backfill.md).

It needs the connections of ``cdc_merge``, which shall be paused meanwhile: it would take all that waits. Every run takes the files that
were archived in its data interval, the run that Airflow makes when this Dag is unpaused too.
"""

from __future__ import annotations

# [START howto_cdc_backfill]
from datetime import datetime, timedelta, timezone

from airflow.sdk import DAG
from airflow.timetables.interval import CronDataIntervalTimetable

from airflow_cdc.assets import tables_alias
from airflow_cdc.doc_links import with_links
from airflow_cdc.operators.merge import CdcMergeOperator
from airflow_cdc.sensors.archive import CdcArchiveSensor

with DAG(
    dag_id="cdc_backfill",
    description="Apply archived change events to Delta tables, by the month that they were archived in",
    doc_md=with_links(__doc__, "how-to/backfill.md"),
    # Twelve runs a year; "@daily" makes 365, each of which starts Spark.
    schedule=CronDataIntervalTimetable("@monthly", timezone="UTC"),
    start_date=datetime(2026, 1, 1, tzinfo=timezone.utc),
    catchup=False,
    max_active_runs=1,
    default_args={"retries": 2, "retry_delay": timedelta(minutes=1)},
    tags=["cdc"],
):
    # Not by_data_interval: by that a scheduled run takes all from before its interval's end, and leaves nothing to the backfill.
    interval = {"archived_since": "{{ dag_run.data_interval_start }}", "archived_until": "{{ dag_run.data_interval_end }}"}

    wait_for_files = CdcArchiveSensor(task_id="wait_for_files", timeout=0, soft_fail=True, **interval)

    # A run after the other: they would only wait for each other.
    merge = CdcMergeOperator(task_id="merge", max_active_tis_per_dag=1, outlets=[tables_alias()], **interval)

    wait_for_files >> merge
# [END howto_cdc_backfill]
