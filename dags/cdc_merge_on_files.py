"""Apply an archive's pending change events to Delta tables as soon as files land.

It needs the connections of ``cdc_merge``, a running triggerer, and Airflow 3.3 for a triggerer that remembers over its restarts what
it has announced. Let run either this Dag or ``cdc_merge``: of two runs of one flow at a time one waits, or fails and is retried.
"""

from __future__ import annotations

# [START howto_cdc_merge_on_files]
from datetime import datetime, timedelta, timezone

from airflow.sdk import DAG, Asset, AssetWatcher, Param

from airflow_cdc.assets import tables_alias
from airflow_cdc.doc_links import with_links
from airflow_cdc.operators.merge import CdcMergeOperator
from airflow_cdc.triggers.archive_event import CdcArchiveEventTrigger

archived_events = Asset(
    name="cdc_archived_events",
    uri="x-cdc://archive/cdc_archive_default",
    # Watchers with equal arguments are one to Airflow, without a memory: the name keeps each asset's its own.
    watchers=[AssetWatcher(name="cdc_new_files", trigger=CdcArchiveEventTrigger(name="cdc_archived_events", poke_interval=30))],
)

with DAG(
    dag_id="cdc_merge_on_files",
    description="Apply archived change events to Delta tables when files land",
    doc_md=with_links(__doc__, "reference/sensors.md"),
    # Files that land while a run goes on make one more run, not one each.
    schedule=[archived_events],
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
    CdcMergeOperator(task_id="merge", tables="{{ params.tables | join(',') }}", max_active_tis_per_dag=1, outlets=[tables_alias()])
# [END howto_cdc_merge_on_files]
