"""Apply the pending change events of hundreds of tables by a few Spark applications, every ten minutes.

It needs the connections of ``cdc_merge``. Let run either this Dag or ``cdc_merge``: of two runs of one flow at a time one waits, or fails
and is retried.
"""

from __future__ import annotations

# [START howto_cdc_merge_groups]
from datetime import datetime, timedelta, timezone

from airflow.sdk import DAG

from airflow_cdc.assets import tables_alias
from airflow_cdc.doc_links import with_links
from airflow_cdc.operators.groups import TABLES_LABEL, CdcPlanGroupsOperator
from airflow_cdc.operators.merge import CdcMergeOperator
from airflow_cdc.operators.survey import CdcSurveyOperator

GROUP_BYTES = 1024**3

with DAG(
    dag_id="cdc_merge_groups",
    description="Apply archived change events to Delta tables, in groups of tables",
    doc_md=with_links(__doc__, "how-to/many-tables.md"),
    schedule="*/10 * * * *",
    start_date=datetime(2026, 1, 1, tzinfo=timezone.utc),
    catchup=False,
    # The next run plans when all groups of this one are done. Backfills, which this does not hold for, the plan refuses.
    max_active_runs=1,
    default_args={"retries": 2, "retry_delay": timedelta(minutes=1)},
    tags=["cdc"],
):
    # Looked into once, and not by each group; with little to do by none, and without Spark.
    survey = CdcSurveyOperator(task_id="survey", min_bytes=GROUP_BYTES)

    plan = CdcPlanGroupsOperator(task_id="plan", group_bytes=GROUP_BYTES, max_groups=8)

    # One Spark application a group, two at a time. With no group the merge is skipped.
    merge = CdcMergeOperator.partial(
        task_id="merge_group", map_index_template=TABLES_LABEL, max_active_tis_per_dagrun=2, outlets=[tables_alias()]
    ).expand(tables=plan.output)

    survey >> plan >> merge
# [END howto_cdc_merge_groups]
