"""Compare the Delta tables with their source every night, and fail when one differs.

It needs the connections ``cdc_archive_default``, with ``source_conn_id`` in its extra, and ``cdc_lake_default``, and the provider of the
source's database (PostgreSQL, MySQL or MariaDB), and no Spark. Its user reads each table once; rows that differ it reads again until the
archive has brought what was under way. The page shows since when each table is known to equal its source.
"""

from __future__ import annotations

# [START howto_cdc_verify]
from datetime import datetime, timedelta, timezone

from airflow.sdk import DAG, Param

from airflow_cdc.doc_links import with_links
from airflow_cdc.sensors.source import CdcSourceSensor

with DAG(
    dag_id="cdc_verify",
    description="Compare Delta tables with their source database",
    doc_md=with_links(__doc__, "how-to/verify-against-the-source.md"),
    schedule="30 3 * * *",
    start_date=datetime(2026, 1, 1, tzinfo=timezone.utc),
    catchup=False,
    max_active_runs=1,
    default_args={"retries": 2, "retry_delay": timedelta(minutes=10)},
    params={
        "tables": Param(
            [],
            type="array",
            items={"type": "string"},
            title="Tables",
            description="One flow a line, * and ? allowed. Empty: every flow of the lake.",
        ),
    },
    tags=["cdc"],
):
    CdcSourceSensor(task_id="compare", tables="{{ params.tables | join(',') }}", settle_seconds=900)
# [END howto_cdc_verify]
