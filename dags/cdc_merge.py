"""Apply an archive's pending change events to Delta tables, every ten minutes.

It needs three connections and nothing else: ``cdc_archive_default`` (type CDC archive), ``cdc_lake_default`` (type CDC lake)
and ``spark_default`` (type Spark, for example host ``local[2]``).

A scheduled run takes the files that were archived before its interval's end; one by hand takes all that wait.
"""

from __future__ import annotations

# [START howto_cdc_merge]
from datetime import datetime, timedelta, timezone

from airflow.sdk import DAG, Param
from airflow.timetables.interval import CronDataIntervalTimetable

from airflow_cdc.assets import tables_alias
from airflow_cdc.doc_links import with_links
from airflow_cdc.operators.merge import CdcMergeOperator
from airflow_cdc.sensors.archive import CdcArchiveSensor

with DAG(
    dag_id="cdc_merge",
    description="Apply archived change events to Delta tables",
    doc_md=with_links(__doc__, "how-to/replay-quarantine.md"),
    # A plain cron text would give runs that begin and end at one moment: no backfill could divide their files.
    schedule=CronDataIntervalTimetable("*/10 * * * *", timezone="UTC"),
    start_date=datetime(2026, 1, 1, tzinfo=timezone.utc),
    catchup=False,
    max_active_runs=1,
    default_args={"retries": 2, "retry_delay": timedelta(minutes=1)},
    params={
        "tables": Param(
            [],
            type="array",
            items={"type": "string"},
            title="Tables",
            description="One topic a line, * and ? allowed: server.db.orders, *.customers. Empty: every table of the archive.",
        )
    },
    tags=["cdc"],
):
    tables = "{{ params.tables | join(',') }}"

    # One look, for the files that the merge would take; with nothing to do the run ends at once, skipped.
    wait_for_files = CdcArchiveSensor(task_id="wait_for_files", tables=tables, by_data_interval=True, timeout=0, soft_fail=True)

    # Of two merges of a table one waits or is retried: a limit spares the attempt, and max_active_runs does not hold for backfills.
    merge = CdcMergeOperator(task_id="merge", tables=tables, by_data_interval=True, max_active_tis_per_dag=1, outlets=[tables_alias()])

    wait_for_files >> merge
# [END howto_cdc_merge]
