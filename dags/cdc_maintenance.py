"""Keep the Delta tables of a lake small and quick, every night.

It needs two connections: ``cdc_lake_default`` (type CDC lake) and ``spark_default`` (type Spark, for example host ``local[2]``).
"""

from __future__ import annotations

# [START howto_cdc_maintenance]
from datetime import datetime, timedelta, timezone

from airflow.sdk import DAG, Param

from airflow_cdc.doc_links import with_links
from airflow_cdc.operators.maintain import CdcMaintainOperator

with DAG(
    dag_id="cdc_maintenance",
    description="Compact, purge and vacuum Delta tables",
    doc_md=with_links(__doc__, "how-to/maintenance.md"),
    schedule="30 2 * * *",
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
        "vacuum_after_days": Param(
            7, type="number", minimum=7, title="Keep files for days", description="How long files stay that no table needs any more."
        ),
        "expire_after_days": Param(
            30,
            type="number",
            minimum=1,
            title="Keep delete markers for days",
            description="How late an event may come without bringing a deleted row back.",
        ),
        "purge_from": Param(
            0.1,
            type="number",
            exclusiveMinimum=0,
            maximum=1,
            title="Purge from this share on",
            description="Share of a table's rows that deletion vectors may hide.",
        ),
        "only_plan": Param(default=False, type="boolean", title="Only plan", description="Report what would be done; change nothing."),
    },
    tags=["cdc"],
):
    CdcMaintainOperator(
        task_id="maintain",
        tables="{{ params.tables | join(',') }}",
        vacuum_after_days="{{ params.vacuum_after_days }}",
        expire_after_days="{{ params.expire_after_days }}",
        purge_from="{{ params.purge_from }}",
        only_plan="{{ params.only_plan }}",
        # max_active_runs does not hold for backfills: this does.
        max_active_tis_per_dag=1,
    )
# [END howto_cdc_maintenance]
